// The GPU's kernels, a launch each, against the CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "trace/trace.h"
#include "unit/device/software_gpu_fixture.h"

namespace tyto {
namespace {

using namespace testing_support;

constexpr uint32_t kPage = 256;

Slot rows_slot(const char* name, SlotKind kind, uint64_t rows, uint64_t cols) {
  return {name, kind, DType::f32, rows, cols};
}

class VulkanKernels : public SoftwareGpu {
 protected:
  // Every slot of numbers filled with others; ids and weights are the test's affair.
  Contents filled(const Program& program) {
    Contents contents(program);
    for (size_t i = 0; i < program.slots.size(); ++i)
      if (program.slots[i].dtype != DType::i32 && program.slots[i].kind != SlotKind::output)
        contents.set(program, i,
                     random_values(program.slots[i].rows * program.slots[i].cols,
                                   static_cast<uint32_t>(i + 1)));
    return contents;
  }

  // All that a slot holds afterwards, as far as f32 and the GPU's own functions go.
  void expect_as_on_cpu(const Program& program, const Contents& before, std::span<const Call> calls,
                        double tolerance = 1e-5) {
    ASSERT_EQ(device_->why_not(program, program.launches[0]), std::nullopt);
    const auto expected = run(*cpu_, program, before, calls);
    const auto actual = run(*device_, program, before, calls);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Slot& slot = program.slots[i];
      if (slot.kind == SlotKind::weight || slot.dtype == DType::i32) continue;
      const Values a = to_values(slot.dtype, actual[i]), e = to_values(slot.dtype, expected[i]);
      double largest = 0;
      for (const float value : e) largest = std::max(largest, std::abs(double{value}));
      ASSERT_GT(largest, 0.1) << slot.name;
      for (size_t j = 0; j < e.size(); ++j)
        ASSERT_NEAR(a[j], e[j], tolerance * largest)
            << slot.name << " row " << j / slot.cols << " column " << j % slot.cols;
    }
  }
  void expect_as_on_cpu(const Program& program, const Contents& before, const Call& call,
                        double tolerance = 1e-5) {
    expect_as_on_cpu(program, before, {&call, 1}, tolerance);
  }
};
INSTANTIATE_TEST_SUITE_P(Memory, VulkanKernels, testing::Bool(), memory_name);

// Lowering, compiling and recording are no upload: they end before a call's own time begins.
TEST_P(VulkanKernels, TheFirstCallOfAFormIsPreparedInAnEventOfItsOwn) {
  Program program;
  program.slots = {rows_slot("x", SlotKind::input, 64, 96),
                   rows_slot("y", SlotKind::output, 64, 96)};
  program.launches = {{Kernel::cast, "cast", {{0}, {1, false, true}}}};
  const auto executable = device_->load(program, Contents(program).weights);
  std::vector<Buffer> buffers;
  for (uint16_t i = 0; i < 2; ++i)
    executable->bind(i, buffers.emplace_back(device_->alloc(program.slots[i])));
  const DispatchLabel label{.name = trace_.name({.label = "call"}),
                            .device = trace_.device_index("vulkan")};
  trace_.start(100);
  std::vector<Completion> done;
  for (const uint32_t rows : {1u, 1u, 64u, 64u, 1u}) {
    DispatchSpan span(trace_, label, 0, rows);
    executable->submit(call_of(rows));
    span.completed(done.emplace_back(executable->wait(std::chrono::seconds(60))));
  }
  std::vector<Event> prepared;
  for (const Event& event : trace_.events()) {
    EXPECT_TRUE(event.kind != EventKind::upload || event.bytes > 0);
    if (event.kind != EventKind::host) continue;
    EXPECT_EQ(trace_.names()[event.name].label, "prepare kernels");
    prepared.push_back(event);
  }
  ASSERT_EQ(prepared.size(), 2u);  // once for each form
  for (size_t i = 0; i < done.size(); ++i) EXPECT_EQ(done[i].preparing_ns > 0, i == 0 || i == 2);
  EXPECT_LE(prepared[0].end_ns, done[0].start_ns);
  EXPECT_GE(prepared[1].start_ns, done[1].end_ns);
  EXPECT_LE(prepared[1].end_ns, done[2].start_ns);
  EXPECT_EQ(prepared[1].rows, 64u);
}

TEST_P(VulkanKernels, EmbedTakesRowsOfTheTable) {
  for (const DType type : {DType::f16, DType::q8_0, DType::q4_1, DType::q5_0, DType::q5_1}) {
    Program program;
    program.slots = {{"ids", SlotKind::input, DType::i32, 5, 1},
                     {"table", SlotKind::weight, type, 9, 96},
                     rows_slot("x", SlotKind::output, 5, 96)};
    program.launches = {{Kernel::embed, "embed", {{0}, {1}, {2, false, true}}}};
    Contents before = filled(program);
    const int32_t ids[] = {8, 0, 3, 3, 1};
    std::memcpy(before.slots[0].data(), ids, sizeof ids);
    expect_as_on_cpu(program, before, call_of(5), 1e-7);
    expect_as_on_cpu(program, before, call_of(3), 1e-7);
  }
}

TEST_P(VulkanKernels, RopeTableOfSeveralSequences) {
  Program program;
  program.slots = {{"frequencies", SlotKind::weight, DType::f32, 1, 20},
                   rows_slot("table", SlotKind::output, 7, 40)};
  program.launches = {{Kernel::rope_table, "rope_table", {{0}, {1, false, true}}}};
  Contents before(program);
  Values frequencies(20);
  for (size_t i = 0; i < 20; ++i) frequencies[i] = std::pow(1e4f, -static_cast<float>(i) / 20.0f);
  before.set(program, 0, frequencies);
  const Segment segments[] = {{0, 3, 0}, {3, 1, 3000}, {4, 3, 17}};
  // An angle of 3000 has 2^-13 for its last bit.
  expect_as_on_cpu(program, before, call_of(segments), 5e-4);
}

TEST_P(VulkanKernels, RopeTableTimesAFactor) {
  Program program;
  program.slots = {{"frequencies", SlotKind::weight, DType::f32, 1, 8},
                   rows_slot("table", SlotKind::output, 3, 16)};
  program.launches = {
      {Kernel::rope_table, "rope_table", {{0}, {1, false, true}}, {.factor = 1.19f}}};
  Contents before(program);
  before.set(program, 0, {1, 0.5f, 0.25f, 0.1f, 0.05f, 0.02f, 0.01f, 0.001f});
  expect_as_on_cpu(program, before, call_of(3, 5));
}

TEST_P(VulkanKernels, RmsnormOfRowsAndOfHeads) {
  for (const uint64_t group : {100u, 20u}) {
    Program program;
    program.slots = {rows_slot("x", SlotKind::input, 5, 100),
                     {"weight", SlotKind::weight, DType::bf16, 1, group},
                     rows_slot("y", SlotKind::output, 5, 100)};
    program.launches = {{Kernel::rmsnorm, "norm", {{0}, {1}, {2, false, true}}, {.eps = 1e-5f}}};
    expect_as_on_cpu(program, filled(program), call_of(5));
  }
}

TEST_P(VulkanKernels, RopeInHalvesAndInPairs) {
  for (const bool in_pairs : {false, true}) {
    Program program;
    program.slots = {rows_slot("x", SlotKind::inout, 3, 3 * 40),
                     rows_slot("table", SlotKind::input, 3, 40)};
    program.launches = {{Kernel::rope,
                         "rope",
                         {{0, true, true}, {1}},
                         {.heads = 3, .head_dim = 40, .rope_pairs = in_pairs}}};
    expect_as_on_cpu(program, filled(program), call_of(3));
  }
}

TEST_P(VulkanKernels, RopeOfTheFirstPartOfEachHead) {
  for (const bool in_pairs : {false, true}) {
    Program program;
    program.slots = {rows_slot("x", SlotKind::inout, 3, 3 * 40),
                     rows_slot("table", SlotKind::input, 3, 12)};
    program.launches = {{Kernel::rope,
                         "rope",
                         {{0, true, true}, {1}},
                         {.heads = 3, .head_dim = 40, .rope_pairs = in_pairs, .rotated = 12}}};
    expect_as_on_cpu(program, filled(program), call_of(3));
  }
}

TEST_P(VulkanKernels, AddAndSwiglu) {
  Program program;
  program.slots = {rows_slot("x", SlotKind::inout, 5, 33), rows_slot("y", SlotKind::input, 5, 33),
                   rows_slot("z", SlotKind::output, 5, 33)};
  program.launches = {{Kernel::add, "add", {{0, true, true}, {1}}},
                      {Kernel::swiglu, "swiglu", {{0}, {1}, {2, false, true}}}};
  expect_as_on_cpu(program, filled(program), call_of(5));
  expect_as_on_cpu(program, filled(program), call_of(2));
}

TEST_P(VulkanKernels, GatesOfEveryActivation) {
  Program program;
  program.slots = {rows_slot("gate", SlotKind::input, 5, 33),
                   rows_slot("x", SlotKind::input, 5, 33), rows_slot("y", SlotKind::output, 5, 33)};
  for (const Activation activation :
       {Activation::silu, Activation::gelu_tanh, Activation::swiglu_oai, Activation::sigmoid,
        Activation::none, Activation::relu}) {
    program.launches = {
        {Kernel::swiglu, "gated", {{0}, {1}, {2, false, true}}, {.activation = activation}}};
    Contents before(program);
    before.set(program, 0, random_values(5 * 33, 7, 12));  // beyond the bounds of swiglu_oai
    before.set(program, 1, random_values(5 * 33, 8, 12));
    expect_as_on_cpu(program, before, call_of(5));
    expect_as_on_cpu(program, before, call_of(2));
  }
}

TEST_P(VulkanKernels, FactorsAndBounds) {
  for (const Kernel kernel : {Kernel::scale, Kernel::soft_cap}) {
    Program program;
    program.slots = {rows_slot("x", SlotKind::inout, 5, 33),
                     rows_slot("y", SlotKind::output, 5, 33)};
    program.launches = {{kernel, "elsewhere", {{0}, {1, false, true}}, {.factor = 3.5f}},
                        {kernel, "in place", {{0, true, true}}, {.factor = 2.25f}}};
    Contents before(program);
    before.set(program, 0, random_values(5 * 33, 7, 40));
    expect_as_on_cpu(program, before, call_of(5));
    expect_as_on_cpu(program, before, call_of(2));
  }
}

TEST_P(VulkanKernels, LayerNormsOfRowsWithAMean) {
  for (const uint64_t cols : {33u, 100u, 1500u}) {
    Program program;
    program.slots = {rows_slot("x", SlotKind::input, 5, cols),
                     {"weight", SlotKind::weight, DType::f32, 1, cols},
                     rows_slot("y", SlotKind::output, 5, cols)};
    program.launches = {{Kernel::layernorm, "norm", {{0}, {1}, {2, false, true}}, {.eps = 1e-5f}}};
    Contents before = filled(program);
    Values x = random_values(5 * cols, 3);
    for (float& value : x) value += 3;
    before.set(program, 0, x);
    expect_as_on_cpu(program, before, call_of(5));
  }
}

TEST_P(VulkanKernels, ANormIsAddedToTheResidualStream) {
  for (const Kernel kernel : {Kernel::rmsnorm, Kernel::layernorm}) {
    Program program;
    program.slots = {rows_slot("delta", SlotKind::input, 5, 100),
                     {"weight", SlotKind::weight, DType::f32, 1, 100},
                     rows_slot("normed", SlotKind::scratch, 5, 100),
                     rows_slot("x", SlotKind::inout, 5, 100)};
    program.launches = {{kernel, "norm", {{0}, {1}, {2, false, true}}, {.eps = 1e-5f}},
                        {Kernel::add, "add", {{3, true, true}, {2}}}};
    const Call call = call_of(5);
    const Contents before = filled(program);
    const auto actual = run(*device_, program, before, {&call, 1});
    const auto expected = run(*cpu_, program, before, {&call, 1});
    const Values a = to_values(DType::f32, actual[3]), e = to_values(DType::f32, expected[3]);
    for (size_t i = 0; i < e.size(); ++i) ASSERT_NEAR(a[i], e[i], 1e-5) << i;
  }
}

// The products of gate and up that end in SiLU end in no sigmoid: that is a dispatch of its own.
TEST_P(VulkanKernels, ProductsInFrontOfASigmoidGateAreNotGatedThroughSilu) {
  Program program;
  program.slots = {
      rows_slot("x", SlotKind::input, 3, 32),       {"gate", SlotKind::weight, DType::f32, 48, 32},
      {"up", SlotKind::weight, DType::f32, 48, 32}, rows_slot("a", SlotKind::scratch, 3, 48),
      rows_slot("b", SlotKind::scratch, 3, 48),     rows_slot("y", SlotKind::output, 3, 48)};
  program.launches = {
      {Kernel::matmul, "gate", {{0}, {1}, {3, false, true}}},
      {Kernel::matmul, "up", {{0}, {2}, {4, false, true}}},
      {Kernel::swiglu, "gated", {{3}, {4}, {5, false, true}}, {.activation = Activation::sigmoid}}};
  const Contents before = filled(program);
  const Call call = call_of(3);
  const Values actual = to_values(DType::f32, run(*device_, program, before, {&call, 1})[5]);
  const Values expected = to_values(DType::f32, run(*cpu_, program, before, {&call, 1})[5]);
  for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-3) << i;
}

TEST_P(VulkanKernels, GatherRowsOfSeveralSequences) {
  Program program;
  program.slots = {rows_slot("x", SlotKind::input, 9, 33), rows_slot("y", SlotKind::output, 4, 33)};
  program.launches = {{Kernel::gather_rows, "gather", {{0}, {1, false, true}}}};
  const Segment segments[] = {{7, 1, 0}, {2, 2, 0}, {0, 1, 0}};
  expect_as_on_cpu(program, filled(program), call_of(segments), 1e-7);
}

TEST_P(VulkanKernels, CastBothWays) {
  for (const DType type : {DType::f16, DType::bf16}) {
    Program program;
    program.slots = {rows_slot("x", SlotKind::input, 3, 33), {"y", SlotKind::output, type, 3, 33}};
    program.launches = {{Kernel::cast, "cast", {{0}, {1, false, true}}}};
    expect_as_on_cpu(program, filled(program), call_of(3), 1e-7);
    std::swap(program.slots[0].dtype, program.slots[1].dtype);
    expect_as_on_cpu(program, filled(program), call_of(3), 1e-7);
  }
}

// A layer's experts: what chooses them, their products, and the sum onto the residual stream.
struct Experts {
  DType type = DType::f16;
  uint32_t experts = 6, used = 2;
  uint64_t emb = 64, hidden = 96, rows = 70;
  bool has_biases = false, has_norm = false, adds = true, alone = true;
  Activation activation = Activation::silu;
};

Program experts_program(const Experts& of) {
  const uint64_t n = of.experts, choices = of.used;
  Program program;
  program.name = "experts";
  program.slots = {rows_slot("x", SlotKind::inout, of.rows, of.emb),
                   {"norm", SlotKind::weight, DType::f32, 1, of.emb},
                   rows_slot("normed", SlotKind::scratch, of.rows, of.emb),
                   {"router", SlotKind::weight, DType::f32, n, of.emb},
                   {"ids", SlotKind::scratch, DType::i32, of.rows, choices},
                   rows_slot("weights", SlotKind::scratch, of.rows, choices),
                   {"gate", SlotKind::weight, of.type, n * of.hidden, of.emb},
                   {"up", SlotKind::weight, of.type, n * of.hidden, of.emb},
                   rows_slot("gate y", SlotKind::scratch, of.rows, choices * of.hidden),
                   rows_slot("up y", SlotKind::scratch, of.rows, choices * of.hidden),
                   {"down", SlotKind::weight, of.type, n * of.emb, of.hidden},
                   rows_slot("down y", SlotKind::scratch, of.rows, choices * of.emb),
                   rows_slot("sum", SlotKind::output, of.rows, of.emb),
                   {"router bias", SlotKind::weight, DType::f32, 1, n},
                   {"gate bias", SlotKind::weight, DType::f32, 1, n * of.hidden},
                   {"up bias", SlotKind::weight, DType::f32, 1, n * of.hidden},
                   {"down bias", SlotKind::weight, DType::f32, 1, n * of.emb}};
  if (of.adds) program.slots[12].kind = SlotKind::scratch;
  const LaunchShape shape{.eps = 1e-5f,
                          .activation = of.activation,
                          .experts = of.experts,
                          .weighs_chosen_alone = of.alone};
  const uint16_t in = of.has_norm ? 2 : 0;
  if (of.has_norm)
    program.launches.push_back({Kernel::rmsnorm, "norm", {{0}, {1}, {2, false, true}}, shape});
  const auto add = [&](Kernel kernel, const char* name, std::vector<Arg> args, uint16_t bias) {
    if (of.has_biases && bias != 0) args.push_back({bias});
    program.launches.push_back({kernel, name, std::move(args), shape});
  };
  add(Kernel::route, "route", {{in}, {3}, {4, false, true}, {5, false, true}}, 13);
  add(Kernel::expert_matmul, "gate", {{in}, {6}, {4}, {8, false, true}}, 14);
  add(Kernel::expert_matmul, "up", {{in}, {7}, {4}, {9, false, true}}, 15);
  add(Kernel::swiglu, "swiglu", {{8}, {9}, {8, false, true}}, 0);
  add(Kernel::expert_matmul, "down", {{8}, {10}, {4}, {11, false, true}}, 16);
  add(Kernel::mix_experts, "mix", {{11}, {5}, {12, false, true}}, 0);
  if (of.adds) add(Kernel::add, "add", {{0, true, true}, {12}}, 0);
  return program;
}

class VulkanExperts : public VulkanKernels {
 protected:
  // The CPU rounds what it multiplies with blocks, so it gets their values in f32.
  void expect_as_on_cpu(const Experts& of) {
    Experts wide_of = of;
    wide_of.type = DType::f32;
    const Program program = experts_program(of), wide = experts_program(wide_of);
    Contents& before = *kept_.emplace_back(std::make_unique<Contents>(program));
    Contents& before_wide = *kept_.emplace_back(std::make_unique<Contents>(wide));
    for (size_t i = 0; i < program.slots.size(); ++i) {
      const Slot& slot = program.slots[i];
      if (slot.kind != SlotKind::weight && i != 0) continue;
      before.set(program, i, random_values(slot.rows * slot.cols, static_cast<uint32_t>(i + 1)));
      before_wide.set(wide, i, to_values(slot.dtype, before.slots[i]));
    }
    for (const Launch& launch : program.launches)
      ASSERT_EQ(device_->why_not(program, launch), std::nullopt) << launch.name;
    const size_t result = of.adds ? 0 : 12;
    for (const uint32_t rows : {1u, 3u, 16u, 17u, 70u}) {
      const Call call = call_of(rows);
      const auto values = [&](Device& device, const Program& of_device, const Contents& contents) {
        return to_values(DType::f32,
                         testing_support::run(device, of_device, contents, {&call, 1})[result]);
      };
      const Values a = values(*device_, program, before), e = values(*cpu_, wide, before_wide);
      double largest = 0;
      for (const float value : e) largest = std::max(largest, std::abs(double{value}));
      ASSERT_GT(largest, 1);
      for (size_t i = 0; i < e.size(); ++i)
        ASSERT_NEAR(a[i], e[i], 1e-4 * largest) << rows << " rows: " << i / of.emb;
    }
  }

  std::vector<std::unique_ptr<Contents>> kept_;  // a GPU knows weights by where they are
};
INSTANTIATE_TEST_SUITE_P(Memory, VulkanExperts, testing::Values(true), memory_name);

TEST_P(VulkanExperts, OfALayerTogether) {
  expect_as_on_cpu({});
  expect_as_on_cpu({.has_norm = true, .adds = false});
  expect_as_on_cpu({.has_biases = true, .alone = false, .activation = Activation::swiglu_oai});
}

TEST_P(VulkanExperts, ManyOfThemInBlocks) {
  expect_as_on_cpu({.type = DType::q4_k, .experts = 40, .used = 5, .emb = 256, .hidden = 256});
  expect_as_on_cpu({.type = DType::q8_0, .experts = 3, .used = 3, .hidden = 32});
}

// Each on its own: routing as the CPU has it to the bit of the ids.
TEST_P(VulkanExperts, LaunchByLaunch) {
  Program whole = experts_program({.has_biases = true});
  for (Slot& slot : whole.slots)
    if (slot.kind == SlotKind::scratch) slot.kind = SlotKind::inout;
  for (const size_t index : {0u, 1u, 4u, 5u}) {
    Program program = whole;
    program.launches = {whole.launches[index]};
    Contents& before = *kept_.emplace_back(std::make_unique<Contents>(program));
    for (size_t i = 0; i < program.slots.size(); ++i)
      if (program.slots[i].dtype != DType::i32)
        before.set(program, i,
                   random_values(program.slots[i].rows * program.slots[i].cols,
                                 static_cast<uint32_t>(i + 1)));
    for (size_t i = 0; i < 70 * 2; ++i) {
      const auto id = static_cast<int32_t>((i * 5 + i / 7) % 6);
      std::memcpy(before.slots[4].data() + i * sizeof id, &id, sizeof id);
    }
    for (const uint32_t rows : {2u, 33u}) {
      const Call call = call_of(rows);
      const auto a = testing_support::run(*device_, program, before, {&call, 1});
      const auto e = testing_support::run(*cpu_, program, before, {&call, 1});
      EXPECT_EQ(a[4], e[4]) << program.launches[0].name;
      for (const size_t slot : {5u, 8u, 11u, 12u}) {
        const Values of_gpu = to_values(DType::f32, a[slot]),
                     of_cpu = to_values(DType::f32, e[slot]);
        for (size_t i = 0; i < of_cpu.size(); ++i)
          ASSERT_NEAR(of_gpu[i], of_cpu[i], 1e-3)
              << program.launches[0].name << " " << slot << " " << i;
      }
    }
  }
}

// A cache of pages, appended to and attended to.
Program attention_program(DType kv, uint32_t heads, uint32_t kv_heads, uint32_t head_dim,
                          uint64_t rows, uint64_t pages) {
  const LaunchShape shape{.heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .context = static_cast<uint32_t>(pages * kPage),
                          .page = kPage};
  Program program;
  program.name = "attention";
  program.slots = {rows_slot("q", SlotKind::input, rows, uint64_t{heads} * head_dim),
                   rows_slot("k", SlotKind::input, rows, uint64_t{kv_heads} * head_dim),
                   rows_slot("v", SlotKind::input, rows, uint64_t{kv_heads} * head_dim),
                   {"k_cache", SlotKind::kv, kv, pages * kv_heads * kPage, head_dim},
                   {"v_cache", SlotKind::kv, kv, pages * kv_heads * kPage, head_dim},
                   rows_slot("y", SlotKind::output, rows, uint64_t{heads} * head_dim)};
  program.launches = {
      {Kernel::kv_append, "append", {{1}, {2}, {3, false, true}, {4, false, true}}, shape},
      {Kernel::attention, "attention", {{0}, {3}, {4}, {5, false, true}}, shape}};
  return program;
}

// Pages out of order, positions on both sides of a page's end, rows of prompts beside single ones.
constexpr uint32_t kFirst[] = {2, 0}, kSecond[] = {3}, kThird[] = {4, 1};
constexpr uint32_t kLong[] = {0, 2, 4}, kFirst3[] = {1, 3, 5};

TEST_P(VulkanKernels, AttentionOfTokensOfSeveralSequences) {
  const Segment segments[] = {{0, 1, 300, kFirst}, {1, 1, 0, kSecond}, {2, 1, 255, kThird}};
  for (const uint32_t head_dim : {8u, 80u, 128u}) {
    const Program program = attention_program(DType::f16, 6, 2, head_dim, 3, 5);
    expect_as_on_cpu(program, filled(program), call_of(segments));
  }
}

TEST_P(VulkanKernels, AttentionOfPromptsOfSeveralSequences) {
  const Segment few[] = {{0, 3, 255, kFirst}, {3, 1, 0, kSecond}, {4, 5, 7, kThird}};
  const Segment many[] = {{0, 70, 250, kFirst}, {70, 1, 9, kSecond}, {71, 3, 254, kThird}};
  for (const uint32_t head_dim : {8u, 64u}) {
    const Program program = attention_program(DType::f16, 4, 2, head_dim, 80, 5);
    expect_as_on_cpu(program, filled(program), call_of(few));
    expect_as_on_cpu(program, filled(program), call_of(many));
  }
}

TEST_P(VulkanKernels, AttentionInCachesOfF32) {
  const Segment one[] = {{0, 1, 300, kFirst}}, many[] = {{0, 20, 250, kFirst}};
  const Program program = attention_program(DType::f32, 4, 4, 16, 20, 3);
  expect_as_on_cpu(program, filled(program), call_of(one));
  expect_as_on_cpu(program, filled(program), call_of(many));
}

// The CPU has no such pages: numbers that bf16 holds, in f32.
TEST_P(VulkanKernels, AttentionInCachesOfBf16) {
  const Segment segments[] = {{0, 1, 300, kFirst}};
  const Program program = attention_program(DType::bf16, 4, 4, 16, 1, 3),
                wide = attention_program(DType::f32, 4, 4, 16, 1, 3);
  Contents before = filled(program), before_wide(wide);
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const Values numbers = to_values(program.slots[i].dtype, before.slots[i]);
    const Values rounded = to_values(DType::bf16, to_bytes(DType::bf16, numbers));
    before.set(program, i, rounded);
    before_wide.set(wide, i, rounded);
  }
  const Call call = call_of(segments);
  const Values actual = to_values(DType::f32, run(*device_, program, before, {&call, 1})[5]);
  const Values expected = to_values(DType::f32, run(*cpu_, wide, before_wide, {&call, 1})[5]);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-6) << i;
}

// Windows that end inside a page, at its edge, before the first position and beyond the last; rows
// of prompts and single ones; pages of their own, of which those in front are none.
TEST_P(VulkanKernels, AttentionToWindowsInPagesOfTheirOwn) {
  constexpr uint32_t kNone = UINT32_MAX;
  constexpr uint32_t kOwnFirst[] = {kNone, 1}, kOwnSecond[] = {2}, kOwnThird[] = {0, 3};
  const Segment tokens[] = {{0, 1, 300, kFirst, kOwnFirst},
                            {1, 1, 3, kSecond, kOwnSecond},
                            {2, 1, 258, kThird, kOwnThird}};
  const Segment few[] = {{0, 3, 296, kFirst, kOwnFirst}, {3, 5, 250, kThird, kOwnThird}};
  const Segment many[] = {{0, 70, 290, kFirst, kOwnFirst},
                          {70, 1, 9, kSecond, kOwnSecond},
                          {71, 9, 250, kThird, kOwnThird}};
  for (const auto& [window, head_dim] : {std::pair{1u, 80u}, {5u, 8u}, {33u, 64u}}) {
    Program program = attention_program(DType::f16, 4, 2, head_dim, 80, 5);
    for (Launch& launch : program.launches) launch.shape.window = window;
    for (const auto segments : {std::span<const Segment>(tokens), std::span<const Segment>(few),
                                std::span<const Segment>(many)})
      expect_as_on_cpu(program, filled(program), call_of(segments));
  }
}

TEST_P(VulkanKernels, AttentionToWindowsOfWholePages) {
  const Segment segments[] = {{0, 1, 600, kLong}, {1, 30, 512, kFirst3}};
  Program program = attention_program(DType::f16, 4, 2, 16, 40, 6);
  for (Launch& launch : program.launches) launch.shape.window = 257;
  Contents before = filled(program);
  before.set(program, 4, random_values(6 * 2 * kPage * 16, 5, 9));
  expect_as_on_cpu(program, before, call_of(std::span(segments).first(1)));
  expect_as_on_cpu(program, before, call_of(segments));
}

TEST_P(VulkanKernels, AttentionWithSinksAndBoundedScores) {
  const Segment tokens[] = {{0, 1, 300, kFirst}, {1, 1, 0, kSecond}, {2, 1, 255, kThird}};
  const Segment few[] = {{0, 3, 255, kFirst}, {3, 1, 0, kSecond}, {4, 5, 7, kThird}};
  const Segment many[] = {{0, 70, 250, kFirst}, {70, 1, 9, kSecond}, {71, 3, 254, kThird}};
  for (const auto& [has_sinks, cap] : {std::pair{true, 0.0f}, {false, 0.7f}}) {
    Program program = attention_program(DType::f16, 6, 2, 16, 80, 5);
    program.launches[1].shape.score_cap = cap;
    if (has_sinks) {
      program.slots.push_back({"sinks", SlotKind::weight, DType::f32, 1, 6});
      program.launches[1].args.push_back({6});
    }
    for (const auto segments : {std::span<const Segment>(tokens), std::span<const Segment>(few),
                                std::span<const Segment>(many)})
      expect_as_on_cpu(program, filled(program), call_of(segments));
  }
}

// A recording serves every call of its form, and two of them give the same bits.
TEST_P(VulkanKernels, CallsOneAfterAnother) {
  const Program program = attention_program(DType::f16, 4, 2, 64, 3, 5);
  const Segment first[] = {{0, 3, 0, kFirst}}, second[] = {{0, 1, 3, kFirst}},
                third[] = {{0, 2, 4, kFirst}, {2, 1, 200, kThird}};
  const Call calls[] = {call_of(first), call_of(second), call_of(third), call_of(second)};
  const Contents before = filled(program);
  expect_as_on_cpu(program, before, calls);
  EXPECT_EQ(run(*device_, program, before, calls), run(*device_, program, before, calls));
}

TEST_P(VulkanKernels, SaysWhyNot) {
  Program program = attention_program(DType::f16, 4, 2, 20, 3, 5);
  EXPECT_EQ(device_->why_not(program, program.launches[1]),
            "head_dim 20 is not a multiple of 8 up to 256");
  program.launches[1].shape.head_dim = 264;
  EXPECT_EQ(device_->why_not(program, program.launches[1]),
            "head_dim 264 is not a multiple of 8 up to 256");
  program.slots[3].dtype = DType::q8_0;
  EXPECT_EQ(device_->why_not(program, program.launches[1]), "it keeps no cache of q8_0");
  program.launches[1].shape.page = 0;
  EXPECT_EQ(device_->why_not(program, program.launches[1]), "its cache lies in pages");
  program.slots[0].dtype = DType::bf16;
  program.launches = {{Kernel::add, "add", {{0, true, true}, {0}}}};
  EXPECT_EQ(device_->why_not(program, program.launches[0]), "its activations are f32, not bf16");
}

}  // namespace
}  // namespace tyto
