#include "device/npu/formats/q4nx.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/round_up.h"
#include "tensor/float16.h"
#include "tensor/quant_blocks.h"

namespace tyto {
namespace {

// XRT's argument indices.
constexpr size_t kFirstData = 3, kFirstWeights = 4, kMoreWeights = 8;

constexpr uint64_t kLargestChunkRows = 18432;  // the largest of the builds there are
constexpr uint32_t kMostBuffers = 500;         // a run takes 512 in all

// clang-format off
constexpr Q4nxBuild kBuilds[] = {
    // model           layers  emb heads kv  dim hidden   vocab             chunk, layers a buffer
    {"llama-3.2-1b", {    16, 2048,  32,  8,  64,  8192, 128256},           18432, 0},
    {"llama-3.2-3b", {    28, 3072,  24,  8, 128,  8192, 128256},            9216, 0},
    {"llama-3.1-8b", {    32, 4096,  32,  8, 128, 14336, 128256},           16384, 8},
    {"qwen3-4b",     {    36, 2560,  32,  8, 128,  9728, 151936, 0, 0, 1},  15360, 0},
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
  // Overwritten by the device, so written again for every token; nothing reads it back.
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

AirProgram fused_decode_elf_program(const AirDims& dims, uint32_t positions,
                                    uint64_t buffer_bytes) {
  AirProgram program = fused_decode_program(dims, positions, buffer_bytes);
  program.name = kFusedDecodeElf;
  program.entry = "main:q4nx_decode";
  program.arguments.erase(program.arguments.begin(), program.arguments.begin() + kFirstData);
  program.arguments.push_back(air_argument("L", AirRole::length, DType::i32, 1, 1));
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
                  fmt::format("\"{}\" is not a flag of a build whose layout Tyto knows", word),
                  "build again as MLIR-AIR's Makefile does for the model, with W_DUAL_CHAN=1");
  }
  if (!missing.empty())
    throw Error(ErrorCode::unsupported, where,
                fmt::format("\"{}\" lacks {}", flags, *missing.begin()),
                "import it with the --shape it was built for, or build again with that flag");
}

namespace {

constexpr size_t kRows = kQ4nxBlockRows;
constexpr size_t kCols = kQ4nxBlockCols;
constexpr size_t kGroupCols = kQ4nxGroupCols;
constexpr size_t kGroups = kCols / kGroupCols;
constexpr size_t kHalfRows = kRows / 2;
constexpr size_t kPairs = kHalfRows / 2;  // bytes per column of a half

struct Block {
  uint16_t scale[kGroups][kRows];
  uint16_t minimum[kGroups][kRows];
  uint8_t codes[2][kCols][kPairs];
};
static_assert(sizeof(Block) == kQ4nxBlockBytes && kCols == kPieceValues);

// The codes of a half with its rows as the outer dimension: what loops along a row want.
using Planes = uint8_t[kPairs][kCols];

// ---- Encoding. Plain loops of fixed length without branches: compilers vectorise them.

// The largest bf16 that is not above a finite value.
uint16_t bf16_at_most(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const bool away_from_zero = (bits >> 31) != 0 && (bits & 0xffffu) != 0;
  return static_cast<uint16_t>((bits >> 16) + (away_from_zero ? 1 : 0));
}

struct Range {
  float low, high;
};

// As vectors, since compilers may not reorder comparisons of floats by themselves.
Range range_of(const float* values) {
  typedef float Lanes __attribute__((vector_size(16)));
  constexpr size_t kLanes = sizeof(Lanes) / sizeof(float);
  Lanes low, high;
  std::memcpy(&low, values, sizeof low);
  high = low;
  for (size_t i = kLanes; i < kGroupCols; i += kLanes) {
    Lanes next;
    std::memcpy(&next, values + i, sizeof next);
    low = next < low ? next : low;
    high = next > high ? next : high;
  }
  Range range = {low[0], high[0]};
  for (size_t lane = 1; lane < kLanes; ++lane) {
    range.low = std::min(range.low, low[lane]);
    range.high = std::max(range.high, high[lane]);
  }
  return range;
}

// What the codes of a row's group are computed with.
struct Levels {
  float minimum, inverse;
};

Levels levels_between(uint16_t scale_bits, uint16_t minimum_bits) {
  const float scale = bf16_to_f32(scale_bits);
  return {bf16_to_f32(minimum_bits), scale == 0.0f ? 0.0f : 1.0f / scale};
}

Levels choose_levels(const float* values, uint16_t& scale_out, uint16_t& minimum_out) {
  const Range range = range_of(values);
  minimum_out = bf16_at_most(range.low);
  scale_out = f32_to_bf16((range.high - bf16_to_f32(minimum_out)) / 15.0f);
  // A scale below the normal range has no finite inverse; its levels are all but one value.
  if (bf16_to_f32(scale_out) < 0x1p-126f) scale_out = 0;
  return levels_between(scale_out, minimum_out);
}

// Whether a group has levels that a block can hold as they are.
bool take_levels(const BlockQ4_1& group, uint16_t& scale_out, uint16_t& minimum_out) {
  const float scale = to_f32(group.d), minimum = to_f32(group.m);
  scale_out = f32_to_bf16(scale);
  minimum_out = f32_to_bf16(minimum);
  return bf16_to_f32(scale_out) == scale && bf16_to_f32(minimum_out) == minimum;
}

// 256 columns of 32 rows, and for rows of a q4_1 tensor the groups they were decoded from.
struct Tile {
  float values[kRows][kCols];
  std::span<const BlockQ4_1> groups[kRows];
};

Levels levels_of(const Tile& tile, size_t row, size_t group, Block& block) {
  uint16_t &scale = block.scale[group][row], &minimum = block.minimum[group][row];
  const std::span<const BlockQ4_1> given = tile.groups[row];
  if (group < given.size() && take_levels(given[group], scale, minimum))
    return levels_between(scale, minimum);
  return choose_levels(tile.values[row] + group * kGroupCols, scale, minimum);
}

// The nearest level, by truncation. A scale that was rounded down by the most bf16 can puts the
// maximum at 15.03 steps, which is still code 15.
inline int32_t code_of(float value, Levels levels) {
  return static_cast<int32_t>((value - levels.minimum) * levels.inverse + 0.5f);
}

// Two adjacent rows into the low and the high bits of one plane.
void encode_pair(const Tile& tile, size_t row, Block& block, uint8_t* __restrict plane) {
  const float* __restrict even = tile.values[row];
  const float* __restrict odd = tile.values[row + 1];
  for (size_t group = 0; group < kGroups; ++group) {
    const size_t at = group * kGroupCols;
    const Levels low = levels_of(tile, row, group, block);
    const Levels high = levels_of(tile, row + 1, group, block);
    for (size_t i = at; i < at + kGroupCols; ++i)
      plane[i] = static_cast<uint8_t>(code_of(even[i], low) | code_of(odd[i], high) << 4);
  }
}

void interleave(const Planes& planes, uint8_t (&codes)[kCols][kPairs]) {
  uint8_t* __restrict out = &codes[0][0];
  for (size_t col = 0; col < kCols; ++col)
    for (size_t pair = 0; pair < kPairs; ++pair) out[col * kPairs + pair] = planes[pair][col];
}

void encode(const Tile& tile, Block& block) {
  Planes planes;
  for (size_t half = 0; half < 2; ++half) {
    for (size_t pair = 0; pair < kPairs; ++pair)
      encode_pair(tile, half * kHalfRows + 2 * pair, block, planes[pair]);
    interleave(planes, block.codes[half]);
  }
}

// ---- Packing a phase

struct SourceRow {
  const WeightSource* source = nullptr;  // none: a row of padding
  uint64_t row = 0;
};

SourceRow find_row(std::span<const Q4nxPiece> pieces, uint64_t row) {
  const auto after =
      std::upper_bound(pieces.begin(), pieces.end(), row,
                       [](uint64_t at, const auto& piece) { return at < piece.row; });
  if (after == pieces.begin()) return {};
  const Q4nxPiece& piece = *(after - 1);
  if (row - piece.row >= piece.rows) return {};
  return {piece.source, piece.source_row + row - piece.row};
}

std::span<const BlockQ4_1> groups_of(const TensorView& tensor, uint64_t row, uint64_t first,
                                     size_t count) {
  if (tensor.dtype != DType::q4_1) return {};
  const auto* groups = reinterpret_cast<const BlockQ4_1*>(tensor.row(row).data());
  return {groups + first / kGroupCols, count / kGroupCols};
}

// The columns from `first` on; the first row with a value that cannot be stored, or kRows.
size_t read_tile(const SourceRow (&rows)[kRows], uint64_t first, Tile& tile) {
  size_t unusable = kRows;
  for (size_t r = kRows; r-- > 0;) {
    float* const values = tile.values[r];
    size_t count = 0;
    tile.groups[r] = {};
    if (rows[r].source != nullptr) {
      const TensorView& tensor = rows[r].source->tensor;
      count = std::min<uint64_t>(kCols, tensor.cols - first);
      read_piece(tensor, rows[r].row, first, {values, count});
      tile.groups[r] = groups_of(tensor, rows[r].row, first, count);
    }
    std::fill(values + count, values + kCols, 0.0f);
    if (!(largest_magnitude(tile.values[r]) <= kLargestWeight)) unusable = r;
  }
  return unusable;
}

// One row block of a phase; the first row that cannot be stored, or kRows.
size_t pack_strip(const Q4nxPhase& phase, std::span<const Q4nxPiece> pieces, uint64_t row_block,
                  std::span<std::byte> out) {
  SourceRow rows[kRows];
  for (size_t r = 0; r < kRows; ++r) rows[r] = find_row(pieces, row_block * kRows + r);
  Tile tile;
  Block block;
  size_t unusable = kRows;
  for (uint64_t j = 0; j < phase.cols / kCols; ++j) {
    unusable = std::min(unusable, read_tile(rows, j * kCols, tile));
    if (unusable < kRows) continue;  // no levels for such values; the rest is only looked at
    encode(tile, block);
    std::memcpy(&out[q4nx_block_index(phase, row_block, j) * sizeof block], &block, sizeof block);
  }
  return unusable;
}

void check_pieces(const Q4nxPhase& phase, std::span<const Q4nxPiece> pieces) {
  uint64_t row = 0;
  for (const Q4nxPiece& piece : pieces) {
    const WeightSource& source = *piece.source;
    TYTO_ASSERT(piece.row >= row && piece.row + piece.rows <= phase.rows);
    TYTO_ASSERT(piece.source_row + piece.rows <= source.tensor.rows);
    row = piece.row + piece.rows;
    check_source(source, source.tensor.rows, source.tensor.cols);
    const uint64_t cols = source.tensor.cols;
    if (cols % kGroupCols != 0 || cols > phase.cols || cols + kCols <= phase.cols)
      fail_input(source.name, "{} columns do not make a phase of {}", cols, phase.cols);
  }
}

std::span<std::byte> part(std::span<std::byte> bytes, uint64_t element, const Q4nxPhase& phase) {
  return bytes.subspan(element * 2, phase.elements() * 2);
}

}  // namespace

uint64_t q4nx_block_index(const Q4nxPhase& phase, uint64_t row_block, uint64_t col_block) {
  const uint64_t passes = phase.rows / kQ4nxPassRows;
  const uint64_t col_blocks = phase.cols / kQ4nxBlockCols;
  const uint64_t pass = row_block / 16, column = row_block % 16 / 4, tile = row_block % 4;
  const uint64_t channel = column * 2 + tile / 2;
  return ((channel * passes + pass) * col_blocks + col_block) * 2 + tile % 2;
}

uint64_t q4nx_up_row(const Q4nxLayout& layout, uint64_t unit) {
  return unit / layout.glu_rows * 2 * layout.glu_rows + unit % layout.glu_rows;
}

uint64_t q4nx_gate_row(const Q4nxLayout& layout, uint64_t unit) {
  return q4nx_up_row(layout, unit) + layout.glu_rows;
}

Q4nxPhase q4nx_head_phase(const Q4nxLayout& layout) {
  return {0, layout.head_chunk_rows, layout.qkv.cols};
}

void pack_q4nx(const Q4nxPhase& phase, std::span<const Q4nxPiece> pieces, std::span<std::byte> out,
               ThreadPool& pool) {
  TYTO_ASSERT(out.size() == phase.elements() * 2);
  check_pieces(phase, pieces);
  std::atomic<uint64_t> unusable = UINT64_MAX;  // a row of the phase
  pool.parallel_for(phase.rows / kRows, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const size_t row = pack_strip(phase, pieces, i, out);
      if (row < kRows) keep_lowest(unusable, i * kRows + row);
    }
  });
  if (unusable == UINT64_MAX) return;
  const SourceRow row = find_row(pieces, unusable);
  fail_unusable(*row.source, row.row);
}

void pack_q4nx_layer(const Q4nxLayout& layout, const Q4nxLayerSources& sources,
                     std::span<std::byte> out, ThreadPool& pool) {
  TYTO_ASSERT(out.size() == layout.layer_elements * 2);
  const AirDims& dims = layout.dims;
  const uint64_t q = dims.q_dim(), kv = dims.kv_dim(), emb = dims.emb, hidden = dims.hidden;
  check_source(sources.q, q, emb);
  check_source(sources.k, kv, emb);
  check_source(sources.v, kv, emb);
  check_source(sources.o, emb, q);
  check_source(sources.gate, hidden, emb);
  check_source(sources.up, hidden, emb);
  check_source(sources.down, emb, hidden);

  std::vector<Q4nxPiece> gate_up;
  for (uint64_t unit = 0; unit < hidden; unit += layout.glu_rows) {
    const uint64_t rows = std::min(layout.glu_rows, hidden - unit);
    gate_up.push_back({&sources.up, unit, q4nx_up_row(layout, unit), rows});
    gate_up.push_back({&sources.gate, unit, q4nx_gate_row(layout, unit), rows});
  }
  const Q4nxPiece qkv[] = {
      {&sources.q, 0, 0, q}, {&sources.k, 0, q, kv}, {&sources.v, 0, q + kv, kv}};
  const Q4nxPiece o[] = {{&sources.o, 0, 0, emb}};
  const Q4nxPiece down[] = {{&sources.down, 0, 0, emb}};
  pack_q4nx(layout.qkv, qkv, part(out, layout.qkv.offset, layout.qkv), pool);
  pack_q4nx(layout.o, o, part(out, layout.o.offset, layout.o), pool);
  pack_q4nx(layout.gate_up, gate_up, part(out, layout.gate_up.offset, layout.gate_up), pool);
  pack_q4nx(layout.down, down, part(out, layout.down.offset, layout.down), pool);
}

void pack_q4nx_head(const Q4nxLayout& layout, const WeightSource& head, std::span<std::byte> out,
                    ThreadPool& pool) {
  TYTO_ASSERT(out.size() == layout.head_chunks * layout.head_chunk_elements * 2);
  check_source(head, layout.dims.vocab, layout.dims.emb);
  const Q4nxPhase phase = q4nx_head_phase(layout);
  for (uint64_t chunk = 0; chunk < layout.head_chunks; ++chunk) {
    const uint64_t first = chunk * phase.rows;
    const Q4nxPiece piece = {&head, first, 0, std::min(phase.rows, layout.dims.vocab - first)};
    pack_q4nx(phase, {&piece, 1}, part(out, chunk * layout.head_chunk_elements, phase), pool);
  }
}

uint64_t kv_position_bytes(const Q4nxLayout& layout) {
  return uint64_t{layout.kv_group_heads} * layout.dims.head_dim * 2;
}

void repack_kv(const Q4nxLayout& from, std::span<const std::byte> from_cache, const Q4nxLayout& to,
               std::span<std::byte> to_cache, uint32_t live) {
  TYTO_ASSERT(from.dims.layers == to.dims.layers && from.dims.kv_heads == to.dims.kv_heads &&
              from.dims.head_dim == to.dims.head_dim);
  TYTO_ASSERT(from_cache.size() >= from.kv_elements * 2 && to_cache.size() >= to.kv_elements * 2);
  if (live > std::min(from.window, to.window))
    fail_unsupported(std::string(kFusedDecode),
                     "{} positions cannot go from a window of {} to one of {}", live, from.window,
                     to.window);
  const uint64_t regions = uint64_t{from.dims.layers} * from.kv_groups * 2;
  const uint64_t bytes = live * kv_position_bytes(from);
  for (uint64_t i = 0; i < regions && bytes > 0; ++i) {
    // Inside one buffer, no region may land on one that has yet to move.
    const uint64_t region = to.window > from.window ? regions - 1 - i : i;
    std::memmove(&to_cache[region * to.kv_region_elements * 2],
                 &from_cache[region * from.kv_region_elements * 2], bytes);
  }
}

namespace {

// No product of a length and a slope leaves 64 bits.
constexpr uint32_t kMaxLength = 1u << 24;

void check_builds(const DecodeBuild& base, const DecodeBuild& reference) {
  for (const DecodeBuild* build : {&base, &reference}) {
    if (build->words.empty()) fail_input(build->file, "has no instruction words");
    if (build->length == 0 || build->length > kMaxLength)
      fail_input(build->file, "L = {} is not between 1 and {}", build->length, kMaxLength);
  }
  if (base.length == reference.length)
    fail_input(reference.file,
               "is for L = {}, as {} is: two lengths are needed to tell what changes", base.length,
               base.file);
  if (base.words.size() != reference.words.size())
    fail_input(reference.file, "{} instruction words, but {} has {}: not two builds of one program",
               reference.words.size(), base.file, base.words.size());
}

// Whole steps per position between the two builds.
int64_t slope_of(const DecodeBuild& base, const DecodeBuild& reference, size_t word) {
  const int64_t positions = int64_t{base.length} - reference.length;
  const int64_t change = int64_t{base.words[word]} - reference.words[word];
  if (change % positions != 0)
    fail_input(reference.file,
               "word {} is {:#x}, and {:#x} in {}: not a whole step per position over {} positions",
               word, reference.words[word], base.words[word], base.file,
               positions < 0 ? -positions : positions);
  return change / positions;
}

}  // namespace

DecodeWords DecodeWords::from_builds(const DecodeBuild& base, const DecodeBuild& reference) {
  check_builds(base, reference);
  DecodeWords result;
  result.file_ = base.file;
  result.base_length_ = base.length;
  result.window_ = std::max(base.length, reference.length);
  for (size_t i = 0; i < base.words.size(); ++i) {
    if (base.words[i] == reference.words[i]) continue;
    const int64_t slope = slope_of(base, reference, i);
    // An address that carries into the next word between here and there is no straight line.
    for (const uint32_t length : {uint32_t{1}, result.window_}) {
      const int64_t value = base.words[i] + (int64_t{length} - base.length) * slope;
      if (value < 0 || value > int64_t{UINT32_MAX})
        fail_input(base.file, "word {} would be {} at L = {}: not 32 bits", i, value, length);
    }
    result.slopes_.push_back({i, slope});
  }
  if (result.slopes_.empty())
    fail_input(reference.file, "has the words of {}: nothing in them depends on L", base.file);
  result.base_.assign(base.words.begin(), base.words.end());
  constexpr size_t kLineWords = 64 / sizeof(uint32_t);
  for (const Slope& slope : result.slopes_) {
    const size_t first = slope.word / kLineWords * kLineWords;
    const size_t end = std::min(first + kLineWords, result.base_.size());
    std::vector<WordRange>& lines = result.lines_;
    if (lines.empty() || lines.back().first + lines.back().count < first)
      lines.push_back({first, end - first});
    else
      lines.back().count = end - lines.back().first;
  }
  result.whole_ = {{0, result.base_.size()}};
  return result;
}

uint32_t DecodeWords::word_at(const Slope& slope, uint32_t length) const {
  const int64_t positions = int64_t{length} - base_length_;
  return static_cast<uint32_t>(base_[slope.word] + positions * slope.per_position);
}

std::span<const WordRange> DecodeWords::patch(uint32_t length, std::span<uint32_t> words) {
  if (length == 0 || length > window_)
    fail_unsupported(file_, "L = {} is not between 1 and the window, {}", length, window_);
  if (words.size() != base_.size())
    fail_unsupported(file_, "{} words do not fit a buffer of {}", base_.size(), words.size());
  const bool whole = words.data() != buffer_;
  if (!whole && length == length_) return {};
  if (whole) std::copy(base_.begin(), base_.end(), words.begin());
  for (const Slope& slope : slopes_) words[slope.word] = word_at(slope, length);
  buffer_ = words.data();
  length_ = length;
  return whole ? whole_ : lines_;
}

}  // namespace tyto
