#include "device/npu/formats/q4nx_layout.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/round_up.h"

namespace tyto {
namespace {

// XRT's argument indices.
constexpr size_t kFirstWeights = 4, kMoreWeights = 8;

constexpr uint64_t kLargestChunkRows = 18432;  // of the builds there are
constexpr uint32_t kMostBuffers = 500;         // a run takes 512 in all

// clang-format off
constexpr Q4nxBuild kBuilds[] = {
    // model           layers  emb heads kv  dim hidden   vocab             chunk, layers a buffer
    {"llama-3.2-1b", {    16, 2048,  32,  8,  64,  8192, 128256},           18432, 0},
    {"llama-3.2-3b", {    28, 3072,  24,  8, 128,  8192, 128256},            9216, 0},
    {"llama-3.1-8b", {    32, 4096,  32,  8, 128, 14336, 128256},           16384, 8},
    {"qwen3-8b",     {    36, 4096,  32,  8, 128, 12288, 151936, 0, 0, 1},   8192, 9},
    {"qwen2.5-7b",   {    28, 3584,  28,  4, 128, 18944, 152064, 0, 1, 0},   3584, 7},
};
// clang-format on

const Q4nxBuild* find_build(AirDims dims) {
  dims.seq = 0;
  const auto found =
      std::find_if(std::begin(kBuilds), std::end(kBuilds), [&](const Q4nxBuild& build) {
        dims.qkv_bias = build.dims.qkv_bias;  // they move no weights
        dims.qk_norm = build.dims.qk_norm;
        return build.dims == dims;
      });
  return found == std::end(kBuilds) ? nullptr : found;
}

[[noreturn]] void fail(const std::string& reason) {
  fail_unsupported(std::string(kFusedDecode), "{}", reason);
}

// Dimensions come from files: a size beyond any memory must not come round to a small one.
uint64_t for_all_layers(const AirDims& dims, uint64_t elements) {
  constexpr uint64_t kLimit = uint64_t{1} << 60;
  if (elements > kLimit / dims.layers)
    fail(fmt::format("{} layers of {} elements are too many", dims.layers, elements));
  return elements * dims.layers;
}

Q4nxPhase q4nx_phase(const char* what, uint64_t offset, uint64_t rows, uint64_t cols) {
  // A group of weights and padding would have no zero among its 16 levels.
  if (cols % kQ4nxGroupCols != 0)
    fail(fmt::format("{} has {} columns, not a multiple of {}", what, cols, kQ4nxGroupCols));
  return {offset, round_up(rows, kQ4nxPassRows), round_up(cols, kQ4nxBlockCols)};
}

// The core that multiplies gate and up takes two packets of 512 rows at a time, or one where that
// would leave it an odd number of turns in a layer: its ring of two buffers would be out of step.
uint64_t glu_rows(const AirDims& dims) {
  const uint64_t pairs_of_packets = round_up(dims.hidden, kQ4nxPassRows) / kQ4nxPassRows;
  return pairs_of_packets % 2 == 0 ? kQ4nxPassRows : kQ4nxPassRows / 2;
}

void place_phases(Q4nxLayout& layout, const Q4nxBuild* build) {
  const AirDims& dims = layout.dims;
  uint64_t offset = 0;
  const auto phase = [&](const char* what, uint64_t rows, uint64_t cols) {
    const Q4nxPhase result = q4nx_phase(what, offset, rows, cols);
    offset += result.elements();
    return result;
  };
  layout.qkv = phase("q, k and v", dims.q_dim() + 2 * dims.kv_dim(), dims.emb);
  layout.o = phase("o", dims.emb, dims.q_dim());
  layout.gate_up = phase("gate and up", 2 * round_up(dims.hidden, kQ4nxPassRows), dims.emb);
  layout.down = phase("down", dims.emb, dims.hidden);
  layout.glu_rows = glu_rows(dims);
  layout.layer_elements = offset;
  layout.head_chunk_rows = build != nullptr
                               ? build->head_chunk_rows
                               : std::min(kLargestChunkRows, round_up(dims.vocab, kQ4nxPassRows));
  layout.head_chunk_elements = q4nx_phase("head", 0, layout.head_chunk_rows, dims.emb).elements();
  layout.head_chunks = (dims.vocab + layout.head_chunk_rows - 1) / layout.head_chunk_rows;
  layout.weight_elements =
      for_all_layers(dims, layout.layer_elements) + layout.head_chunks * layout.head_chunk_elements;
}

// 0: all of them, and the head.
uint32_t layers_per_buffer(const Q4nxLayout& layout, const Q4nxBuild* build,
                           uint64_t buffer_bytes) {
  if (build != nullptr) return build->layers_per_buffer;
  if (layout.weight_elements * 2 <= buffer_bytes) return 0;
  const uint64_t head = layout.head_chunks * layout.head_chunk_elements;
  const uint64_t largest = std::max(layout.layer_elements, head) * 2;
  if (largest > buffer_bytes)
    fail(fmt::format("{} bytes of a layer or of the head do not fit one buffer of {}", largest,
                     buffer_bytes));
  const uint64_t layers = layout.dims.layers;
  const uint64_t fitting = std::min(layers, buffer_bytes / (layout.layer_elements * 2));
  if (layers / fitting > kMostBuffers)
    fail(fmt::format("{} layers need more than {} buffers of {} bytes", layers, kMostBuffers,
                     buffer_bytes));
  return static_cast<uint32_t>(fitting);
}

void split_weights(Q4nxLayout& layout, uint32_t per_buffer) {
  const uint32_t layers = layout.dims.layers;
  const uint64_t head = layout.head_chunks * layout.head_chunk_elements;
  if (per_buffer == 0) {
    layout.head_offset = layers * layout.layer_elements;
    layout.weight_buffers = {{kFirstWeights, 0, layers, true, layout.weight_elements}};
    return;
  }
  const auto next_argument = [&] {
    const size_t earlier = layout.weight_buffers.size();
    return earlier == 0 ? kFirstWeights : kMoreWeights + earlier - 1;
  };
  for (uint32_t first = 0; first < layers; first += per_buffer) {
    const uint32_t count = std::min(per_buffer, layers - first);
    layout.weight_buffers.push_back(
        {next_argument(), first, count, false, count * layout.layer_elements});
  }
  layout.head_offset = 0;
  layout.weight_buffers.push_back({next_argument(), layers, 0, true, head});
}

void place_norms(Q4nxLayout& layout) {
  const AirDims& dims = layout.dims;
  if (dims.qkv_bias != 0 && dims.qk_norm != 0)
    fail("its rotation rows hold biases or norms per head, not both");
  const uint64_t dim = dims.head_dim;
  layout.rope_offset = uint64_t{dims.layers} * 2 * dims.emb;
  layout.rope_rows = 1;
  layout.rope_row_elements = dim;
  if (dims.qk_norm != 0) {
    layout.head_norms_at = dim;
    layout.rope_row_elements += 2 * dim;
    layout.rope_rows = dims.layers;
  }
  if (dims.qkv_bias != 0) {
    layout.biases_at = dim;
    layout.rope_row_elements += dims.q_dim() + 2 * dims.kv_dim();
    layout.rope_rows = dims.layers;
  }
  layout.final_norm_offset = layout.rope_offset + layout.rope_rows * layout.rope_row_elements;
  layout.norm_elements = layout.final_norm_offset + dims.emb;
}

// Four units of the array attend, two in each of two columns; a column has a region of its own. KV
// heads that four units cannot share evenly are one group, which no build has.
void place_kv(Q4nxLayout& layout) {
  const AirDims& dims = layout.dims;
  layout.kv_groups = dims.kv_heads % 4 == 0 ? 2 : 1;
  layout.kv_group_heads = dims.kv_heads / layout.kv_groups;
  layout.kv_region_elements = uint64_t{layout.window} * layout.kv_group_heads * dims.head_dim;
  layout.kv_layer_elements = layout.kv_region_elements * layout.kv_groups * 2;
  layout.kv_elements = for_all_layers(dims, layout.kv_layer_elements);
}

AirArgument argument(std::string name, AirRole role, uint64_t elements,
                     AirLayout layout = AirLayout::none) {
  return air_argument(std::move(name), role, DType::bf16, 1, elements, layout);
}

}  // namespace

std::span<const Q4nxBuild> q4nx_builds() {
  return kBuilds;
}

Q4nxLayout q4nx_layout(const AirDims& dims, uint32_t window, uint64_t buffer_bytes) {
  check_air_dims(kFusedDecode, dims);
  if (window == 0 || window > (1u << 24)) fail(fmt::format("a window of {} positions", window));
  const Q4nxBuild* const build = find_build(dims);
  Q4nxLayout layout = {};
  layout.dims = dims;
  layout.window = window;
  place_phases(layout, build);
  split_weights(layout, layers_per_buffer(layout, build, buffer_bytes));
  place_norms(layout);
  // What the device stages between its waves, in rounds of 512: q, k and v, and a layer's output.
  layout.logits_offset = layout.qkv.rows + layout.down.rows;
  layout.logits_elements = layout.head_chunks * layout.head_chunk_rows;
  place_kv(layout);
  return layout;
}

const Q4nxWeightBuffer& buffer_of(const Q4nxLayout& layout, uint32_t layer) {
  TYTO_ASSERT(layer < layout.dims.layers);
  return *std::find_if(
      layout.weight_buffers.begin(), layout.weight_buffers.end(),
      [&](const Q4nxWeightBuffer& buffer) { return layer < buffer.first_layer + buffer.layers; });
}

uint64_t rope_row_offset(const Q4nxLayout& layout, uint32_t layer) {
  return layout.rope_offset + (layout.rope_rows == 1 ? 0 : layer * layout.rope_row_elements);
}

AirProgram fused_decode_program(const AirDims& dims, uint32_t window, uint64_t buffer_bytes) {
  using enum AirRole;
  const Q4nxLayout layout = q4nx_layout(dims, window, buffer_bytes);
  AirProgram program;
  program.name = kFusedDecode;
  program.entry = "MLIR_AIE";
  program.phase = AirPhase::token;
  // Waves of the one dispatch: every layer, then every chunk of the head.
  program.launches = dims.layers + static_cast<uint32_t>(layout.head_chunks);
  std::vector<AirArgument>& list = program.arguments;
  list.push_back(air_argument("opcode", opcode, DType::i32, 1, 1));
  list.push_back(air_argument("insts", instructions, DType::i32, 0, 1));
  list.push_back(air_argument("words", word_count, DType::i32, 1, 1));
  // Overwritten by the device, so written anew for every token; nothing reads it back.
  list.push_back(argument("x", inout, dims.emb));
  list.push_back(argument("w", weight, layout.weight_buffers[0].elements, AirLayout::q4nx));
  list.push_back(argument("rms", weight, layout.norm_elements, AirLayout::q4nx_norms));
  list.back().per_call = {layout.rope_offset * 2,
                          ((layout.rope_rows - 1) * layout.rope_row_elements + dims.head_dim) * 2};
  list.push_back(argument("y", output, layout.logits_offset + layout.logits_elements));
  list.back().per_call = {layout.logits_offset * 2, layout.logits_elements * 2};
  list.push_back(argument("kv", kv, layout.kv_elements));
  for (size_t i = 1; i < layout.weight_buffers.size(); ++i) {
    const Q4nxWeightBuffer& buffer = layout.weight_buffers[i];
    TYTO_ASSERT(buffer.argument == list.size());
    list.push_back(argument(buffer.has_head ? "w_head" : fmt::format("w_{}", i), weight,
                            buffer.elements, AirLayout::q4nx));
  }
  return program;
}

void check_q4nx_flags(const std::string& flags, const AirDims& dims, const std::string& where) {
  const Q4nxLayout layout = q4nx_layout(dims, 1);
  const bool is_split = layout.weight_buffers.size() > 1;
  // The order of weights for two channels a column, the only one Tyto packs.
  std::set<std::string> missing = {"W_DUAL_CHAN=1"};
  if (is_split) missing.insert(fmt::format("DECODE_WGROUP={}", layout.weight_buffers[0].layers));
  std::istringstream words(flags);
  for (std::string word; words >> word;) {
    const bool is_layout = missing.erase(word) != 0;
    const bool is_harmless = word.starts_with("DECODE_STACK=") || word == "DECODE_WGROUP=0";
    if (!is_layout && !is_harmless)
      throw Error(ErrorCode::unsupported, where,
                  fmt::format("\"{}\" is no flag of a build that Tyto has the layout of", word),
                  "build again as MLIR-AIR's Makefile does for the model, with W_DUAL_CHAN=1");
  }
  if (!missing.empty())
    throw Error(ErrorCode::unsupported, where,
                fmt::format("\"{}\" lacks {}", flags, *missing.begin()),
                "import it with the --shape it was built for, or build again with that flag");
}

}  // namespace tyto
