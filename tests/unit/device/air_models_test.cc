// The description of the models that MLIR-AIR builds, against numbers read from its builders.
#include "device/npu/formats/air_models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "device/npu/formats/memory_plan.h"

namespace tyto {
namespace {

const AirDims& dims_of(std::string_view name) {
  return known_air_models()[*images_like(name) - 1].dims;
}

struct Expected {
  std::string_view program;
  size_t arguments;
  uint32_t launches;
};

void expect_programs(std::string_view model, const std::vector<Expected>& expected) {
  const AirModel described = air_model(dims_of(model));
  ASSERT_EQ(described.programs.size(), expected.size()) << model;
  for (size_t i = 0; i < expected.size(); ++i) {
    const AirProgram& program = described.programs[i];
    EXPECT_EQ(program.name, expected[i].program) << model;
    EXPECT_EQ(program.arguments.size(), expected[i].arguments) << model << " " << program.name;
    EXPECT_EQ(program.launches, expected[i].launches) << model << " " << program.name;
  }
}

// Counts are those of MLIR-AIR's functions; launches that round f32 follow its registry of GEMMs.
TEST(AirModels, LlamaAndSmolLm) {
  expect_programs("llama-3.2-1b", {{"rms_gemms_rope", 14, 7},
                                   {"flash_attn", 4, 1},
                                   {"o_ffn", 19, 12},
                                   {"rms_gemv_rope", 13, 6},
                                   {"o_gemv_ffn", 15, 3},
                                   {"lm_head_gemv", 17, 8}});
  expect_programs("smollm2-1.7b", {{"rms_gemms_rope", 16, 9},
                                   {"flash_attn", 4, 1},
                                   {"o_ffn", 19, 12},
                                   {"rms_gemv_rope", 13, 6},
                                   {"o_gemv_ffn", 15, 3},
                                   {"lm_head_gemv", 17, 8}});
  expect_programs("llama-3.2-3b", {{"rms_gemms_rope", 16, 9},
                                   {"flash_attn", 4, 1},
                                   {"o_ffn", 19, 12},
                                   {"rms_gemv_rope", 13, 6},
                                   {"o_gemv", 3, 1},
                                   {"gate_gemv", 3, 1},
                                   {"up_gemv", 3, 1},
                                   {"down_gemv", 3, 1},
                                   {"lm_head_gemv", 17, 8}});
}

TEST(AirModels, Qwen3HasNormsPerHead) {
  for (const auto& [name, arguments, launches] :
       {std::tuple("qwen3-0.6b", 18u, 9u), std::tuple("qwen3-1.7b", 20u, 11u)})
    expect_programs(name, {{"rms_qkv_qknorm_rope", arguments, launches},
                           {"flash_attn", 4, 1},
                           {"o_ffn_qwen", 19, 12},
                           {"rms_qkv_qknorm_rope_gemv", 17, 8},
                           {"o_gemv_ffn", 15, 3},
                           {"lm_head_gemv", 39, 19}});
  expect_programs("qwen3-4b", {{"rms_qkv_qknorm_rope", 20, 11},
                               {"flash_attn", 4, 1},
                               {"o_res_norm", 8, 4},
                               {"gate", 4, 2},
                               {"up", 4, 2},
                               {"swiglu", 3, 1},
                               {"down_add", 6, 3},
                               {"rms_qkv_qknorm_rope_gemv", 17, 8},
                               {"o_gemv", 3, 1},
                               {"gate_gemv", 3, 1},
                               {"up_gemv", 3, 1},
                               {"down_gemv", 3, 1},
                               {"lm_head_gemv", 39, 19}});
}

TEST(AirModels, Qwen25HasBiases) {
  const std::vector<Expected> token = {{"rms_qkv_bias_rope_gemv", 19, 9},
                                       {"o_gemv", 3, 1},
                                       {"gate_gemv", 3, 1},
                                       {"up_gemv", 3, 1},
                                       {"down_gemv", 3, 1},
                                       {"lm_head_gemv", 39, 19}};
  const auto expect = [&](std::string_view name, std::vector<Expected> prompt) {
    prompt.insert(prompt.end(), token.begin(), token.end());
    expect_programs(name, prompt);
  };
  expect("qwen2.5-0.5b", {{"rms_qkv_bias_rope", 19, 9},
                          {"flash_attn", 4, 1},
                          {"o_ffn_head", 12, 6},
                          {"down_add", 6, 3}});
  expect("qwen2.5-1.5b", {{"rms_qkv_bias_rope", 20, 10},
                          {"flash_attn", 4, 1},
                          {"o_res_norm", 8, 4},
                          {"gate_up", 5, 2},
                          {"swiglu", 3, 1},
                          {"down_add", 6, 3}});
  expect("qwen2.5-3b", {{"rms_qkv_bias_rope", 20, 10},
                        {"flash_attn", 4, 1},
                        {"o_res_norm", 8, 4},
                        {"gate", 3, 1},
                        {"up", 3, 1},
                        {"swiglu", 3, 1},
                        {"down_add", 6, 3}});
}

// 896 and 128 columns are computed as 1024; the launches that add the biases drop the rest.
TEST(AirModels, TheSmallestQwenPadsItsProducts) {
  const AirProgram qkv = air_program("rms_qkv_bias_rope", dims_of("qwen2.5-0.5b"));
  EXPECT_EQ(qkv.arguments[3].cols, 1024u);
  EXPECT_EQ(qkv.arguments[7].cols, 1024u);
  EXPECT_EQ(qkv.arguments[8].cols, 1024u);
  EXPECT_EQ(qkv.arguments[11].elements(), 128u);
  EXPECT_EQ(qkv.arguments[14].cols, 128u);
  EXPECT_EQ(positions(qkv, AirRole::output), (std::vector<size_t>{14, 17, 18}));
  const AirProgram head = air_program("o_ffn_head", dims_of("qwen2.5-0.5b"));
  EXPECT_EQ(head.arguments[1].cols, 1024u);
  EXPECT_EQ(head.arguments[4].cols, 896u);
  EXPECT_EQ(positions(head, AirRole::output), (std::vector<size_t>{4, 11}));
  const AirProgram down = air_program("down_add", dims_of("qwen2.5-0.5b"));
  EXPECT_EQ(down.arguments[2].cols, 1024u);
  EXPECT_EQ(down.arguments[5].bytes(), 2048u * 1024 * 4);
  EXPECT_EQ(air_program("o_gemv", dims_of("qwen2.5-0.5b")).arguments[0].rows, 896u);
}

TEST(AirModels, HeadsOf128AreTakenHeadByHead) {
  for (const char* name : {"qwen3-0.6b", "qwen3-4b", "qwen2.5-1.5b", "qwen2.5-3b"}) {
    const AirProgram attention = air_program("flash_attn", dims_of(name));
    EXPECT_EQ(attention.entry, "main:attention_bf16");
    const uint64_t runs[] = {128, 128, 64, 64};
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(attention.arguments[i].layout, AirLayout::heads_first) << name;
      EXPECT_EQ(attention.arguments[i].run, runs[i]) << name;
    }
  }
  for (const char* name : {"llama-3.2-1b", "smollm2-1.7b", "qwen2.5-0.5b"})
    EXPECT_EQ(air_program("flash_attn", dims_of(name)).arguments[2].layout, AirLayout::none);
}

// Three queries per key and rounds of 256 rows are what the temporal kernel is mapped for.
TEST(AirModels, Llama3bAttendsInOrderWhereTheTemporalKernelFits) {
  AirDims dims = dims_of("llama-3.2-3b");
  EXPECT_EQ(air_program("flash_attn", dims).arguments[0].layout, AirLayout::none);
  dims.seq = 128;
  EXPECT_EQ(air_program("flash_attn", dims).arguments[0].layout, AirLayout::heads_first);
}

// SmolLM2's head has 49152 rows, but is built with the eight partitions of Llama's.
TEST(AirModels, SmolLmHasPartitionsOfZeros) {
  const AirProgram head = air_program("lm_head_gemv", dims_of("smollm2-1.7b"));
  const uint64_t real[] = {16384, 16384, 16384, 0, 0, 0, 0, 0};
  for (size_t p = 0; p < 8; ++p) EXPECT_EQ(head.arguments[1 + 2 * p].real_rows, real[p]) << p;
  const AirProgram qwen = air_program("lm_head_gemv", dims_of("qwen3-4b"));
  EXPECT_EQ(qwen.arguments[1].rows, 8192u);
  EXPECT_EQ(qwen.arguments[37].real_rows, 151936u - 18 * 8192);
}

// The layer of a prompt, step by step: each once, in the order of the pass. Of a token the host
// does what no image has.
TEST(AirModels, StepsCoverALayerOnce) {
  const std::set<Role> between_gemvs = {Role::attn_residual, Role::ffn_norm, Role::swiglu,
                                        Role::ffn_residual};
  for (const KnownAirModel& model : known_air_models()) {
    std::map<AirPhase, std::vector<Role>> steps;
    for (const AirProgram& program : air_model(model.dims).programs)
      steps[program.phase].insert(steps[program.phase].end(), program.steps.begin(),
                                  program.steps.end());
    std::vector<Role> prompt = steps[AirPhase::prompt];
    EXPECT_EQ(prompt.size(), model.dims.qk_norm != 0 ? 17u : 15u) << model.name;
    EXPECT_TRUE(std::is_sorted(prompt.begin() + (model.dims.qk_norm != 0 ? 8 : 6), prompt.end()));
    std::erase(prompt, Role::attention);  // for one query it is the host's
    std::vector<Role> token = steps[AirPhase::token];
    if (token.size() != prompt.size())
      std::erase_if(prompt, [&](Role role) { return between_gemvs.contains(role); });
    if (model.name == "qwen2.5-7b") std::erase(prompt, Role::down);  // no GEMV is that long
    EXPECT_EQ(token, prompt) << model.name;
    EXPECT_EQ(steps[AirPhase::head], std::vector<Role>{Role::lm_head});
  }
}

TEST(AirModels, ProductsLieBetweenTheirArguments) {
  for (const KnownAirModel& model : known_air_models())
    for (const AirProgram& program : air_model(model.dims).programs)
      for (const AirProductPlace& product : program.products) {
        const auto weight = std::find_if(
            program.arguments.begin(), program.arguments.end(), [&](const AirArgument& argument) {
              return argument.role == AirRole::weight && argument.slot == product.role;
            });
        ASSERT_NE(weight, program.arguments.end()) << program.name;
        const bool is_turned = weight->layout == AirLayout::transposed;
        EXPECT_EQ(program.arguments[product.operand].cols, is_turned ? weight->rows : weight->cols)
            << model.name << " " << program.name;
        EXPECT_EQ(program.arguments[product.result].cols, is_turned ? weight->cols : weight->rows)
            << model.name << " " << program.name;
      }
}

TEST(AirModels, AProgramOfAnotherModelIsRefusedByName) {
  try {
    air_program("o_ffn", dims_of("qwen3-4b"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("o_res_norm"), std::string::npos) << error.what();
  }
}

// Small dimensions in another model's form, as tests of that form want them.
TEST(AirModels, ImagesAreComposedLikeThoseOfAnotherModel) {
  AirDims dims = {2, 64, 4, 2, 16, 96, 500, 64, 1, 0};
  EXPECT_EQ(known_air_model(dims), nullptr);
  EXPECT_EQ(air_model(dims).programs[2].name, "o_ffn");
  dims.like = *images_like("qwen2.5-1.5b");
  const AirModel model = air_model(dims);
  EXPECT_EQ(model.programs[3].name, "gate_up");
  EXPECT_EQ(model.programs[1].arguments[2].run, 8u);
  EXPECT_EQ(air_head(dims).partitions, 19u);
  EXPECT_FALSE(images_like("tinyllama-1.1b"));
}

TEST(AirModels, WidthsBeyondAnyFusedBuildAreSplit) {
  const AirDims large = {32, 4096, 32, 8, 128, 14336, 32000, 2048};
  EXPECT_EQ(known_air_model(large), nullptr);
  EXPECT_EQ(air_model(large).programs[2].name, "o_res_norm");
  EXPECT_EQ(air_model(large).programs[8].name, "o_gemv");
}

// Qwen2.5-3B: biases beside the weights, and what a split feed-forward passes on between images.
TEST(AirModels, MemoryFollowsTheProgramsOfAModel) {
  const auto items = npu_memory(dims_of("qwen2.5-3b"), NpuWeights::bf16, Fusion::block, 0);
  const auto bytes = [&](std::string_view what) {
    for (const MemoryItem& item : items)
      if (item.what == what) return item.bytes;
    return uint64_t{0};
  };
  constexpr uint64_t kEmb = 2048, kKv = 256, kHidden = 11008, kLayers = 36, kSeq = 2048;
  constexpr uint64_t kMatrices = 2 * kEmb * kEmb + 2 * kEmb * kKv + 3 * kEmb * kHidden;
  constexpr uint64_t kBiases = kEmb + 2 * kKv;
  EXPECT_EQ(bytes("prefill weights"), kLayers * 2 * (kMatrices + kBiases + 2 * kEmb));
  EXPECT_EQ(bytes("decode weights"), kLayers * 2 * (kMatrices + kBiases + kEmb));  // no second norm
  EXPECT_EQ(bytes("LM head"), 19 * 8192 * kEmb * 2);
  // x, q, attention, what is normed; k and v; gate and up.
  EXPECT_EQ(bytes("activations"), kSeq * 2 * (4 * kEmb + 2 * kKv + 2 * kHidden));
}

}  // namespace
}  // namespace tyto
