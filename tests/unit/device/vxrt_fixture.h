// A small block in bf16 and the objects it takes to run it through XRT's names.
#pragma once

#include <gtest/gtest.h>
#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/experimental/xrt_xclbin.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "device/vnpu/images/image.h"
#include "device/vnpu/machine/control.h"
#include "tensor/float16.h"

namespace tyto::vxrt {

constexpr uint64_t kRows = 4, kWidth = 64;

// x += matmul(rmsnorm(x)); delta stays readable. Slots: x, norm, normed, weight, delta.
inline Program block_program(DType activations) {
  Program program;
  program.name = "block";
  program.slots = {{"x", SlotKind::inout, activations, kRows, kWidth},
                   {"norm", SlotKind::weight, DType::bf16, 1, kWidth},
                   {"normed", SlotKind::scratch, activations, kRows, kWidth},
                   {"weight", SlotKind::weight, DType::bf16, kWidth, kWidth},
                   {"delta", SlotKind::output, activations, kRows, kWidth}};
  LaunchShape shape;
  shape.eps = 1e-5f;
  program.launches = {
      {Kernel::rmsnorm, "norm", {{0, true, false}, {1, true, false}, {2, false, true}}, shape},
      {Kernel::matmul, "mm", {{2, true, false}, {3, true, false}, {4, false, true}}, shape},
      {Kernel::add, "add", {{0, true, true}, {4, true, false}}, shape}};
  return program;
}

// Arguments: x, norm, a dead one, weight, delta; then tokens, position, first_row.
inline Image block_image(const std::string& name = "block") {
  Image image = make_image(name, block_program(DType::bf16));
  Instance& instance = image.instances[0];
  instance.arguments.insert(instance.arguments.begin() + 2, ImageArgument{1 << 20, true});
  instance.places[3].argument = 3;
  instance.places[4].argument = 4;
  return image;
}

inline xrt::elf load_elf(const Image& image) {
  const std::vector<std::byte> bytes = serialise(image);
  return xrt::elf(bytes.data(), bytes.size());
}

inline xrt::xclbin load_xclbin(const Image& image) {
  const std::vector<std::byte> bytes = serialise(image);
  const char* begin = reinterpret_cast<const char*>(bytes.data());
  return xrt::xclbin(std::vector<char>(begin, begin + bytes.size()));
}

inline std::vector<uint16_t> random_bf16(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<uint16_t> result(count);
  for (uint16_t& value : result) value = f32_to_bf16(values(random));
  return result;
}

// Writes the host's copy.
template <typename T>
void put(xrt::bo& buffer, const std::vector<T>& values, size_t first_value = 0) {
  ASSERT_LE((first_value + values.size()) * sizeof(T), buffer.size());
  std::copy(values.begin(), values.end(), buffer.map<T*>() + first_value);
}

inline xrt::bo upload(const xrt::device& device, const std::vector<uint16_t>& values) {
  xrt::bo buffer = xrt::ext::bo(device, values.size() * 2);
  put(buffer, values);
  buffer.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  return buffer;
}

inline std::vector<uint16_t> download(xrt::bo& buffer) {
  buffer.sync(XCL_BO_SYNC_BO_FROM_DEVICE);
  const uint16_t* values = buffer.map<const uint16_t*>();
  return {values, values + buffer.size() / 2};
}

inline void run_to_completion(xrt::run& run) {
  run.start();
  ASSERT_EQ(run.wait(std::chrono::milliseconds(60000)), ERT_CMD_STATE_COMPLETED)
      << counters().last_error;
}

// One context with the block in it, and buffers.
struct Rig {
  explicit Rig(const Image& image = block_image())
      : elf(load_elf(image)), kernel_name("main:" + image.instances[0].name) {}

  xrt::run make_run(uint32_t tokens = kRows) {
    xrt::run run(kernel);
    run.set_arg(0, x);
    run.set_arg(1, norm);
    run.set_arg(3, weight);
    run.set_arg(4, delta);
    run.set_arg(5, tokens);
    return run;
  }

  xrt::device device{0};
  xrt::elf elf;
  std::string kernel_name;
  xrt::hw_context context{device, elf};
  xrt::ext::kernel kernel{context, kernel_name};
  std::vector<uint16_t> x_values = random_bf16(kRows * kWidth, 1);
  xrt::bo x = upload(device, x_values);
  xrt::bo norm = upload(device, random_bf16(kWidth, 2));
  xrt::bo weight = upload(device, random_bf16(kWidth* kWidth, 3));
  xrt::bo delta = xrt::ext::bo(device, kRows* kWidth * 2);
};

// The error number of the std::system_error that `action` throws; 0 when it throws none.
template <typename Action>
int error_of(const Action& action) {
  try {
    action();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

// Every test begins with a fresh device and must give everything back.
class VxrtTest : public ::testing::Test {
 protected:
  void SetUp() override {
    reset({.threads = 2});
    set_hostile(true);
  }
  void TearDown() override {
    set_hostile(false);
    const Counters end = counters();
    EXPECT_EQ(end.first_offence, "");
    EXPECT_EQ(end.live_contexts, 0u);
    EXPECT_EQ(end.live_buffers, 0u);
    EXPECT_EQ(end.pinned_bytes, 0u);
    EXPECT_EQ(end.heap_used_bytes, 0u);
    EXPECT_EQ(end.in_flight, 0u);
  }
  static void set_limits(const Limits& limits) { reset({.limits = limits, .threads = 2}); }
};

}  // namespace tyto::vxrt
