#include "device/npu/formats/air_models.h"

#include <algorithm>

#include "base/error.h"
#include "base/joined.h"

namespace tyto {
namespace {

using Names = std::string_view;
using R = Role;

// clang-format off
constexpr Names kOFfn[] = {"o_ffn"};
constexpr Names kOFfnQwen[] = {"o_ffn_qwen"};
// A down projection whose K is no multiple of 1024 must be the first launch of its ELF.
constexpr Names kHeadAndDown[] = {"o_ffn_head", "down_add"};
// Wider ones leave no room in one ELF.
constexpr Names kGateUpTogether[] = {"o_res_norm", "gate_up", "swiglu", "down_add"};
constexpr Names kAllApart[] = {"o_res_norm", "gate", "up", "swiglu", "down_add"};
constexpr Names kNamesOfOGemvFfn[] = {"o_gemv_ffn"};
constexpr Names kGemvs[] = {"o_gemv", "gate_gemv", "up_gemv", "down_gemv"};
// A row of the weight and the vector, both in L1, are too long.
constexpr Names kGemvsButDown[] = {"o_gemv", "gate_gemv", "up_gemv"};

constexpr R kAll[] = {R::q, R::k, R::v, R::o, R::gate, R::up, R::down};
constexpr R kAllButKv[] = {R::q, R::o, R::gate, R::up, R::down};
constexpr R kQODown[] = {R::q, R::o, R::down};
constexpr R kDown[] = {R::down};

constexpr auto kSeqFirst = AirAttention::seq_first, kHeadsFirst = AirAttention::heads_first,
               kTemporal = AirAttention::temporal;
constexpr uint32_t kQwenRows = 8192, kQwenPartitions = 19;

// New ones at the end: images of the virtual NPU hold the place (AirDims::like).
constexpr KnownAirModel kModels[] = {
    {"llama-3.2-1b", kLlama32_1b, {kOFfn, kNamesOfOGemvFfn, kAllButKv, kSeqFirst, 16384, 8}},
    {"llama-3.2-3b", {28, 3072, 24, 8, 128, 8192, 128256, 2048},
     {kOFfn, kGemvs, kAll, kTemporal, 16384, 8}},
    // As Llama-3.2-1B's, down to the partitions of a head that has fewer rows.
    {"smollm2-1.7b", {24, 2048, 32, 32, 64, 8192, 49152, 2048},
     {kOFfn, kNamesOfOGemvFfn, kAll, kSeqFirst, 16384, 8}},
    {"qwen3-0.6b", {28, 1024, 16, 8, 128, 3072, 151936, 2048, 0, 1},
     {kOFfnQwen, kNamesOfOGemvFfn, kAllButKv, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen3-1.7b", {28, 2048, 16, 8, 128, 6144, 151936, 2048, 0, 1},
     {kOFfnQwen, kNamesOfOGemvFfn, kAll, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen3-4b", {36, 2560, 32, 8, 128, 9728, 151936, 2048, 0, 1},
     {kAllApart, kGemvs, kAll, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen2.5-0.5b", {24, 896, 14, 2, 64, 4864, 151936, 2048, 1, 0},
     {kHeadAndDown, kGemvs, kDown, kSeqFirst, kQwenRows, kQwenPartitions, 1024}},
    {"qwen2.5-1.5b", {28, 1536, 12, 2, 128, 8960, 151936, 2048, 1, 0},
     {kGateUpTogether, kGemvs, kQODown, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen2.5-3b", {36, 2048, 16, 2, 128, 11008, 151936, 2048, 1, 0},
     {kAllApart, kGemvs, kQODown, kHeadsFirst, kQwenRows, kQwenPartitions}},
    // Built for the prompts of the 4-bit decode alone: nobody has built their GEMVs.
    {"llama-3.1-8b", {32, 4096, 32, 8, 128, 14336, 128256, 2048},
     {kOFfn, kGemvs, kAll, kTemporal, 16384, 8}},
    {"qwen3-8b", {36, 4096, 32, 8, 128, 12288, 151936, 2048, 0, 1},
     {kAllApart, kGemvs, kAll, kHeadsFirst, 16384, 10}},
    {"qwen2.5-7b", {28, 3584, 28, 4, 128, 18944, 152064, 2048, 1, 0},
     {kAllApart, kGemvsButDown, kQODown, kHeadsFirst, 16384, 10}},
};
// clang-format on

// Widths beyond which MLIR-AIR has split every model it builds.
constexpr uint32_t kMostFusedEmb = 2048, kMostFusedHidden = 8192;
// Of K in a GEMV: 64 KiB of L1 hold a row, the vector and the stack.
constexpr uint32_t kMostGemvK = 16000;

AirForm form_by_rules(const AirDims& dims) {
  const bool has_wide_ffn = dims.hidden > kMostFusedHidden;
  const bool has_long_heads = dims.head_dim == 128 || dims.head_dim == 256;
  AirForm form;
  form.prompt_ffn = has_wide_ffn ? std::span<const Names>(kAllApart) : kOFfn;
  form.token_ffn = kNamesOfOGemvFfn;
  if (has_wide_ffn || dims.emb > kMostFusedEmb) form.token_ffn = kGemvs;
  if (dims.hidden > kMostGemvK) form.token_ffn = kGemvsButDown;
  form.through_f32 = dims.kv_heads == dims.heads ? std::span<const R>(kAll) : kAllButKv;
  form.attention = has_long_heads ? kHeadsFirst : kSeqFirst;
  return form;
}

std::vector<std::string_view> program_names(const AirDims& dims) {
  const AirForm form = air_form(dims);
  std::vector<std::string_view> names = {prompt_input_program(dims), "flash_attn"};
  names.insert(names.end(), form.prompt_ffn.begin(), form.prompt_ffn.end());
  names.push_back(token_input_program(dims));
  names.insert(names.end(), form.token_ffn.begin(), form.token_ffn.end());
  names.push_back("lm_head_gemv");
  return names;
}

}  // namespace

std::span<const KnownAirModel> known_air_models() {
  return kModels;
}

const KnownAirModel* known_air_model(const AirDims& dims) {
  for (const KnownAirModel& model : kModels) {
    AirDims same = dims;
    same.layers = model.dims.layers;
    same.seq = model.dims.seq;
    if (same == model.dims) return &model;
  }
  return nullptr;
}

std::optional<uint32_t> images_like(std::string_view name) {
  for (uint32_t i = 0; i < std::size(kModels); ++i)
    if (kModels[i].name == name) return i + 1;
  return std::nullopt;
}

AirForm air_form(const AirDims& dims) {
  if (dims.like > std::size(kModels))
    fail_unsupported("--images-like", "there is no model {}", dims.like);
  if (dims.like > 0) return kModels[dims.like - 1].form;
  const KnownAirModel* known = known_air_model(dims);
  return known != nullptr ? known->form : form_by_rules(dims);
}

AirHead air_head(const AirDims& dims) {
  return air_head(dims, air_form(dims));
}

AirModel air_model(const AirDims& dims) {
  AirModel model;
  const AirForm form = air_form(dims);
  for (std::string_view name : program_names(dims))
    model.programs.push_back(described_program(name, dims, form));
  return model;
}

AirProgram air_program(std::string_view name, const AirDims& dims) {
  if (!is_air_program(name))
    fail_unsupported(std::string(name), "no argument list is known for this program");
  const std::vector<std::string_view> names = program_names(dims);
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail_unsupported(std::string(name),
                     "a model of these dimensions has no such program; it has {}",
                     joined(names, ", "));
  return described_program(name, dims, air_form(dims));
}

}  // namespace tyto
