// Launches that run together give what they give alone, and only those join that may.

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "device/cpu/interpreter.h"

namespace tyto::cpu {
namespace {

// x, then weights and results of a small feed-forward; launches as the test gives them.
struct Net {
  uint16_t slot(const std::string& name, SlotKind kind, uint64_t rows, uint64_t cols,
                DType type = DType::f32) {
    program.slots.push_back({name, kind, type, rows, cols});
    return static_cast<uint16_t>(program.slots.size() - 1);
  }
  void launch(Kernel kernel, std::vector<Arg> args) {
    program.launches.push_back({kernel, "step", std::move(args), {}});
  }
  void matmul(uint16_t x, uint16_t w, uint16_t y) {
    launch(Kernel::matmul, {{x, true, false}, {w, true, false}, {y, false, true}});
  }
  Program program;
};

struct FeedForward : Net {
  FeedForward() {
    matmul(x, gate_weight, gate);
    matmul(x, up_weight, up);
    launch(Kernel::swiglu, {{gate, true, false}, {up, true, false}, {gate, false, true}});
    matmul(gate, down_weight, delta);
    launch(Kernel::add, {{x, true, true}, {delta, true, false}});
  }
  uint16_t x = slot("x", SlotKind::scratch, 7, 64);
  uint16_t gate_weight = slot("gw", SlotKind::weight, 100, 64);
  uint16_t up_weight = slot("uw", SlotKind::weight, 100, 64);
  uint16_t down_weight = slot("dw", SlotKind::weight, 64, 100);
  uint16_t gate = slot("gate", SlotKind::scratch, 7, 100);
  uint16_t up = slot("up", SlotKind::scratch, 7, 100);
  uint16_t delta = slot("delta", SlotKind::scratch, 7, 64);
};

std::vector<std::vector<float>> random_memory(const Program& program) {
  std::mt19937 random(3);
  std::vector<std::vector<float>> memory;
  for (const Slot& slot : program.slots) {
    memory.emplace_back(slot.rows * slot.cols);
    for (float& value : memory.back()) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
  }
  return memory;
}

std::vector<std::vector<float>> results(const std::vector<Program>& parts, const Call& call) {
  ThreadPool pool(3);
  auto memory = random_memory(parts.front());
  std::vector<std::byte*> pointers;
  for (auto& values : memory) pointers.push_back(reinterpret_cast<std::byte*>(values.data()));
  for (const Program& part : parts) Interpreter(part).run(pointers, call, pool);
  return memory;
}

TEST(FusedLaunches, FindsTheGroups) {
  const FeedForward net;
  EXPECT_EQ(fused_launches(net.program, 0), 3u);  // gate, up, swiglu
  EXPECT_EQ(fused_launches(net.program, 3), 2u);  // down, add
  EXPECT_EQ(fused_launches(net.program, 4), 1u);
}

TEST(FusedLaunches, TogetherEqualsOneByOne) {
  const FeedForward net;
  std::vector<Program> parts;
  for (const Launch& launch : net.program.launches)
    parts.push_back({"part", net.program.slots, {launch}});
  for (uint32_t tokens : {1u, 7u}) {
    const Call call = call_of(tokens);
    EXPECT_EQ(results({net.program}, call), results(parts, call)) << tokens;
  }
}

// How often activations were made ready for a product: once for launches that run together.
std::atomic<size_t> preparations = 0;

void count_preparation(DType type, const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                       void* out) {
  ++preparations;
  best_inner_loops().floats->prepare_tile(type, x, x_stride, k, tile, out);
}

TEST(FusedLaunches, TimingThemChangesNeitherTheGroupsNorTheBits) {
  const FeedForward net;
  FloatLoops floats = *best_inner_loops().floats;
  floats.prepare_tile = count_preparation;
  InnerLoops loops = best_inner_loops();
  loops.floats = &floats;
  struct Run {
    std::vector<std::vector<float>> memory;
    size_t preparations;
  };
  const auto run = [&](const Program& program, std::span<uint64_t> ends_ns) {
    ThreadPool pool(3);
    Run result{random_memory(net.program), 0};
    std::vector<std::byte*> pointers;
    for (auto& values : result.memory)
      pointers.push_back(reinterpret_cast<std::byte*>(values.data()));
    Interpreter interpreter(program, {}, loops);
    preparations = 0;
    interpreter.run(pointers, call_of(1), pool, Numerics::bf16, ends_ns);
    result.preparations = preparations;
    return result;
  };
  const Interpreter interpreter(net.program);
  ASSERT_EQ(interpreter.groups().size(), 2u);  // gate+up+swiglu, down+add
  std::vector<uint64_t> ends(2);
  const Run timed = run(net.program, ends), untimed = run(net.program, {});
  EXPECT_EQ(timed.memory, untimed.memory);
  EXPECT_EQ(timed.preparations, untimed.preparations);
  EXPECT_EQ(untimed.preparations, 2u);
  EXPECT_GT(ends[0], 0u);
  EXPECT_LE(ends[0], ends[1]);
  size_t alone = 0;  // so that the count tells them apart
  for (const Launch& launch : net.program.launches)
    alone += run({"part", net.program.slots, {launch}}, {}).preparations;
  EXPECT_EQ(alone, 3u);
}

TEST(FusedLaunches, MatmulsOfTheSameActivationsJoin) {
  Net net;
  const uint16_t x = net.slot("x", SlotKind::scratch, 1, 32);
  const uint16_t w = net.slot("w", SlotKind::weight, 32, 32);
  const uint16_t y = net.slot("y", SlotKind::scratch, 1, 32);
  const uint16_t z = net.slot("z", SlotKind::scratch, 1, 32);
  for (uint16_t out : {y, z, y, z}) net.matmul(x, w, out);
  EXPECT_EQ(fused_launches(net.program, 0), 3u);
  EXPECT_EQ(fused_launches(net.program, 3), 1u);
}

TEST(FusedLaunches, WhatReadsAnotherResultOrChangesTheActivationsStaysAlone) {
  Net net;
  const uint16_t x = net.slot("x", SlotKind::scratch, 1, 32);
  const uint16_t w = net.slot("w", SlotKind::weight, 32, 32);
  const uint16_t y = net.slot("y", SlotKind::scratch, 1, 32);
  const uint16_t narrow = net.slot("narrow", SlotKind::scratch, 1, 32, DType::bf16);
  net.matmul(x, w, y);
  net.matmul(y, w, x);  // reads what the first one gives
  net.matmul(y, w, y);  // in place
  net.matmul(x, w, y);
  net.matmul(x, w, narrow);  // not f32
  net.matmul(x, w, y);
  net.matmul(x, w, y);
  net.program.launches.back().args.push_back({narrow, true, false});  // a bias that is not f32
  net.matmul(x, w, y);
  net.launch(Kernel::add, {{x, true, true}, {y, true, false}});  // changes the activations
  for (size_t i = 0; i < net.program.launches.size(); ++i)
    EXPECT_EQ(fused_launches(net.program, i), 1u) << i;
}

}  // namespace
}  // namespace tyto::cpu
