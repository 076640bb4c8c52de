// Blocks with int8 weights as one program on the virtual NPU: what the llama.cpp plug-in
// dispatches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "device/device.h"
#include "device/vnpu/machine/control.h"
#include "tensor/float16.h"

namespace tyto {
namespace {

constexpr uint64_t kWidth = 64, kHidden = 96, kRows = 5;

// y = x + down(swiglu(gate(norm(x)), up(norm(x)))), in f32, with the weights as they are.
struct FeedForward {
  std::vector<float> norm, gate, up, down;
};

std::vector<float> random_values(size_t count, uint32_t seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> product(const std::vector<float>& x, const std::vector<float>& w, size_t k) {
  std::vector<float> y(w.size() / k);
  for (size_t n = 0; n < y.size(); ++n)
    for (size_t i = 0; i < k; ++i) y[n] += x[i] * w[n * k + i];
  return y;
}

std::vector<float> plain(const FeedForward& block, std::vector<float> x) {
  float squares = 0;
  for (float value : x) squares += value * value;
  const float scale = 1 / std::sqrt(squares / kWidth + 1e-5f);
  std::vector<float> normed(kWidth);
  for (size_t i = 0; i < kWidth; ++i) normed[i] = x[i] * scale * block.norm[i];
  std::vector<float> hidden = product(normed, block.gate, kWidth);
  const std::vector<float> up = product(normed, block.up, kWidth);
  for (size_t i = 0; i < kHidden; ++i) hidden[i] = hidden[i] / (1 + std::exp(-hidden[i])) * up[i];
  const std::vector<float> down = product(hidden, block.down, kHidden);
  for (size_t i = 0; i < kWidth; ++i) x[i] += down[i];
  return x;
}

Program block_program() {
  const auto value = [](const char* name, SlotKind kind, uint64_t cols) {
    return Slot{name, kind, DType::bf16, kRows, cols};
  };
  Program program;
  program.name = "ffn";
  program.slots = {value("x", SlotKind::input, kWidth),
                   {"norm", SlotKind::weight, DType::f32, 1, kWidth},
                   value("normed", SlotKind::scratch, kWidth),
                   {"w_gate", SlotKind::weight, DType::f32, kHidden, kWidth},
                   value("gate", SlotKind::scratch, kHidden),
                   {"w_up", SlotKind::weight, DType::f32, kHidden, kWidth},
                   value("up", SlotKind::scratch, kHidden),
                   value("hidden", SlotKind::scratch, kHidden),
                   {"w_down", SlotKind::weight, DType::f32, kWidth, kHidden},
                   value("down", SlotKind::scratch, kWidth),
                   value("y", SlotKind::output, kWidth)};
  const auto launch = [&](Kernel kernel, const char* step, std::vector<uint16_t> slots) {
    Launch made{kernel, step, {}, {}};
    made.shape.eps = 1e-5f;
    for (size_t i = 0; i < slots.size(); ++i)
      made.args.push_back({slots[i], i + 1 < slots.size(), i + 1 == slots.size()});
    program.launches.push_back(made);
  };
  launch(Kernel::rmsnorm, "norm", {0, 1, 2});
  launch(Kernel::matmul, "gate", {2, 3, 4});
  launch(Kernel::matmul, "up", {2, 5, 6});
  launch(Kernel::swiglu, "swiglu", {4, 6, 7});
  launch(Kernel::matmul, "down", {7, 8, 9});
  launch(Kernel::add, "add", {0, 9, 10});
  return program;
}

class Int8Programs : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }

  std::unique_ptr<Device> open(Fusion fusion = Fusion::block, const std::string& gemms = "64,128") {
    DeviceEnv env{pool_, trace_};
    env.fusion = fusion;
    env.settings = {
        {"weights", "int8"}, {"int8-blocks", ""}, {"gemm-lengths", gemms}, {"vnpu-hostile", "on"}};
    return open_device("vnpu", env);
  }

  // x by the block's last weights, alone.
  std::vector<float> multiply(Device& device, uint32_t rows, const std::vector<float>& x) const {
    Program program;
    program.name = "product";
    program.slots = {{"x", SlotKind::input, DType::f32, rows, kHidden},
                     {"w", SlotKind::weight, DType::f32, kWidth, kHidden},
                     {"y", SlotKind::output, DType::f32, rows, kWidth}};
    program.launches = {
        {Kernel::matmul, "product", {{0, true, false}, {1, true, false}, {2, false, true}}, {}}};
    EXPECT_FALSE(device.why_not(program, program.launches[0]));
    const std::vector<Buffer> buffers = {
        device.alloc(program.slots[0]), {}, device.alloc(program.slots[2])};
    const std::vector<TensorView> weights = {{}, view(program.slots[1], block_.down), {}};
    const auto executable = device.load(program, weights);
    for (uint16_t i : {0, 2}) executable->bind(i, buffers[i]);
    std::memcpy(buffers[0].data, x.data(), rows * kHidden * sizeof(float));
    executable->submit(call_of(rows));
    executable->wait(std::chrono::seconds(60));
    const auto* y = reinterpret_cast<const float*>(buffers[2].data);
    return {y, y + rows * kWidth};
  }

  static TensorView view(const Slot& slot, const std::vector<float>& values) {
    return {DType::f32, slot.rows, slot.cols, std::as_bytes(std::span(values))};
  }

  ThreadPool pool_{2};
  Trace trace_;
  const FeedForward block_ = {random_values(kWidth, 1), random_values(kHidden* kWidth, 2, 0.2f),
                              random_values(kHidden* kWidth, 3, 0.2f),
                              random_values(kWidth* kHidden, 4, 0.2f)};
};

TEST_F(Int8Programs, ABlockIsOneDispatchAndNearTheFloats) {
  const auto device = open();
  const Program program = block_program();
  for (const Launch& launch : program.launches) EXPECT_FALSE(device->why_not(program, launch));
  std::vector<TensorView> weights;
  for (const Slot& slot : program.slots)
    weights.push_back(slot.kind != SlotKind::weight
                          ? TensorView{}
                          : view(slot, slot.name == "norm"     ? block_.norm
                                       : slot.name == "w_gate" ? block_.gate
                                       : slot.name == "w_up"   ? block_.up
                                                               : block_.down));
  const auto executable = device->load(program, weights);
  std::vector<Buffer> buffers(program.slots.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (program.slots[i].kind == SlotKind::weight) continue;
    buffers[i] = device->alloc(program.slots[i]);
    executable->bind(static_cast<uint16_t>(i), buffers[i]);
  }
  const std::vector<float> x = random_values(kRows * kWidth, 9);
  for (size_t i = 0; i < x.size(); ++i)
    reinterpret_cast<uint16_t*>(buffers[0].data)[i] = f32_to_bf16(x[i]);
  executable->submit(call_of(kRows));
  const Completion done = executable->wait(std::chrono::seconds(60));
  EXPECT_EQ(done.submissions, 1u);
  EXPECT_EQ(done.launches, 6u);
  EXPECT_GE(done.waited_ns, 1u);
  EXPECT_GE(done.device_ns, 1u);
  EXPECT_EQ(done.uploaded_bytes, x.size() * 2);
  EXPECT_EQ(done.downloaded_bytes, x.size() * 2);
  EXPECT_LE(done.start_ns, done.uploaded_ns);
  EXPECT_LE(done.uploaded_ns, done.submitted_ns);
  EXPECT_LE(done.submitted_ns, done.completed_ns);
  EXPECT_LE(done.completed_ns, done.end_ns);
  for (size_t t = 0; t < kRows; ++t) {
    const std::vector<float> expected =
        plain(block_, {x.begin() + t * kWidth, x.begin() + (t + 1) * kWidth});
    double error = 0, size = 0;
    for (size_t i = 0; i < kWidth; ++i) {
      const float y =
          bf16_to_f32(reinterpret_cast<const uint16_t*>(buffers[10].data)[t * kWidth + i]);
      error += std::pow(y - expected[i], 2);
      size += std::pow(expected[i], 2);
    }
    EXPECT_LT(error, 5e-4 * size) << t;
    EXPECT_GT(error, 0) << "eight bits are not that good";
  }
}

TEST_F(Int8Programs, WeightsGiveTheirMemoryBack) {
  const auto device = open();
  const Slot slot{"w", SlotKind::weight, DType::f32, kHidden, kWidth};
  const auto pinned = [&] {
    const auto other = device->prepare("w", view(slot, block_.gate));  // counts when it is made
    EXPECT_NE(other, nullptr);
    return trace_.device("vnpu").pinned_bytes;
  };
  const uint64_t first = pinned();
  EXPECT_GE(first, kHidden * kWidth);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(pinned(), first);
}

TEST_F(Int8Programs, WhatTheArrayCannotTakeIsSaidBefore) {
  Program program = block_program();
  const auto device = open();
  for (Slot& slot : program.slots)
    if (slot.cols == kWidth) slot.cols = kWidth + 2;
  EXPECT_TRUE(device->why_not(program, program.launches[1]));  // K = 66
  program.launches[0].kernel = Kernel::attention;
  EXPECT_TRUE(device->why_not(program, program.launches[0]));
}

// The larger tile of one K for rows that the smaller one does not hold; both on the same weights.
TEST_F(Int8Programs, TheImageOfAGemmIsChosenByKAndRows) {
  const auto device = open(Fusion::op, "128x4,128x64");
  const auto result = [&](uint32_t rows) {
    return multiply(*device, rows, random_values(kRows * kHidden, 5));
  };
  const std::vector<float> first = result(1);
  EXPECT_EQ(trace_.loaded_code().size(), 1u);
  EXPECT_EQ(trace_.loaded_code().back().program, "gemm_i8@0");
  const std::vector<float> all = result(kRows);
  EXPECT_EQ(trace_.loaded_code().size(), 2u);
  EXPECT_EQ(trace_.loaded_code().back().program, "gemm_i8@1");
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
}

TEST_F(Int8Programs, GemmsAloneArePaddedToTheNextLength) {
  const auto device = open(Fusion::op);
  const std::vector<float> x = random_values(kRows * kHidden, 5);
  const std::vector<float> products = multiply(*device, kRows, x);
  double error = 0, size = 0;
  for (size_t t = 0; t < kRows; ++t) {
    const std::vector<float> expected =
        product({x.begin() + t * kHidden, x.begin() + (t + 1) * kHidden}, block_.down, kHidden);
    for (size_t n = 0; n < kWidth; ++n) {
      const float y = products[t * kWidth + n];
      error += std::pow(y - expected[n], 2);
      size += std::pow(expected[n], 2);
    }
  }
  EXPECT_LT(error, 5e-4 * size);
}

}  // namespace
}  // namespace tyto
