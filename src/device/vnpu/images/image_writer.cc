#include "device/vnpu/images/image_writer.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "device/npu/formats/q4nx.h"

namespace tyto::vxrt {
namespace {

SlotKind kind_of(AirRole role) {
  switch (role) {
    case AirRole::input:
      return SlotKind::input;
    case AirRole::output:
      return SlotKind::output;
    case AirRole::inout:
      return SlotKind::inout;
    case AirRole::weight:
      return SlotKind::weight;
    case AirRole::kv:
      return SlotKind::kv;
    case AirRole::scratch:
    case AirRole::dead:
    case AirRole::opcode:
    case AirRole::instructions:
    case AirRole::word_count:
      break;
  }
  return SlotKind::scratch;
}

}  // namespace

InstanceBuilder::InstanceBuilder(const AirProgram& abi, size_t first) : abi_(abi), first_(first) {
  const size_t colon = abi.entry.find(':');
  instance_.name = colon == std::string::npos ? abi.name : abi.entry.substr(colon + 1);
  instance_.program.name = abi.name;
  for (size_t i = first; i < abi.arguments.size(); ++i)
    instance_.arguments.push_back(
        {abi.arguments[i].bytes(), abi.arguments[i].role == AirRole::dead});
}

InstanceBuilder::SlotIndex InstanceBuilder::add(const Slot& slot, const SlotPlace& place) {
  instance_.program.slots.push_back(slot);
  instance_.places.push_back(place);
  return static_cast<SlotIndex>(instance_.program.slots.size() - 1);
}

InstanceBuilder::SlotIndex InstanceBuilder::part(const std::string& name, SlotKind kind,
                                                 size_t argument, uint64_t rows, uint64_t cols,
                                                 const Pattern& pattern) {
  return add({name, kind, abi_.arguments[argument].dtype, rows, cols},
             {static_cast<int32_t>(argument - first_), pattern});
}

// The tables of air_abi.h were written from the same facts: where the two differ, one is wrong.
InstanceBuilder::SlotIndex InstanceBuilder::whole(size_t argument, uint64_t rows, uint64_t cols) {
  const AirArgument& known = abi_.arguments[argument];
  TYTO_ASSERT(known.role != AirRole::dead && known.elements() == rows * cols);
  return part(known.name, kind_of(known.role), argument, rows, cols, {});
}

InstanceBuilder::SlotIndex InstanceBuilder::turned(size_t argument, uint64_t rows, uint64_t cols) {
  const AirArgument& known = abi_.arguments[argument];
  TYTO_ASSERT(known.rows == cols && known.cols == rows);
  return part(known.name, SlotKind::weight, argument, rows, cols, transposed(rows, cols));
}

InstanceBuilder::SlotIndex InstanceBuilder::q4nx(const std::string& name, size_t argument,
                                                 uint64_t rows, uint64_t cols, uint64_t offset,
                                                 const Q4nxPlace& place) {
  return add({name, SlotKind::weight, DType::bf16, rows, cols},
             {static_cast<int32_t>(argument - first_), {offset, {}}, Encoding::q4nx, place});
}

InstanceBuilder::SlotIndex InstanceBuilder::scratch(const std::string& name, DType dtype,
                                                    uint64_t rows, uint64_t cols) {
  return add({name, SlotKind::scratch, dtype, rows, cols}, {});
}

void InstanceBuilder::launch(Kernel kernel, Role role, std::vector<SlotIndex> slots,
                             const LaunchNeeds& needs, const LaunchShape& shape) {
  Launch launch{kernel, layer_name(name(role), layer_), {}, shape, role, layer_};
  for (SlotIndex slot : slots) launch.args.push_back({slot, true, false});
  launch.args.back() = {slots.back(), false, true};
  instance_.program.launches.push_back(std::move(launch));
  instance_.needs.push_back(needs);
}

void InstanceBuilder::append(SlotIndex k, SlotIndex v, SlotIndex k_cache, SlotIndex v_cache,
                             const LaunchNeeds& needs, const LaunchShape& shape) {
  launch(Kernel::kv_append, Role::kv_append, {k, v, k_cache, v_cache}, needs, shape);
  instance_.program.launches.back().args[2] = {k_cache, false, true};
}

Instance InstanceBuilder::take(uint32_t tokens, uint32_t launches) {
  TYTO_ASSERT(launches == abi_.launches);
  instance_.takes_call = false;
  instance_.fixed_call = call_of(tokens);
  instance_.launches = launches;
  return std::move(instance_);
}

namespace {

constexpr uint64_t kRowsUsed = 4;
constexpr uint64_t kBuffers = 2;  // one is filled while the other is worked on
constexpr uint64_t kStack = 1024;
constexpr uint64_t kFusedStack = 10240;
constexpr uint64_t kBf16 = 2, kF32 = 4;
constexpr uint64_t kHeadsAtOnce = 2, kStages = 4;  // the prefill attention's
constexpr uint64_t kDecodePositions = 16;          // positions that a core takes at a time

LaunchNeeds needs(uint64_t l1, uint64_t l2) {
  const auto clamped = [](uint64_t bytes) {
    return static_cast<uint32_t>(std::min<uint64_t>(bytes, UINT32_MAX));
  };
  return {clamped(l1), clamped(l2)};
}

uint64_t tile_limit(uint64_t tile, uint64_t size) {
  return std::max<uint64_t>(1, std::min(tile, size));
}

}  // namespace

GemmTiles GemmTiles::within(uint64_t rows, uint64_t k, uint64_t cols) const {
  GemmTiles result = *this;
  result.m = static_cast<uint32_t>(tile_limit(m, rows / columns));
  result.k_l2 = static_cast<uint32_t>(tile_limit(k_l2, k));
  result.k_l1 = static_cast<uint32_t>(tile_limit(k_l1, k));
  result.n = static_cast<uint32_t>(tile_limit(n, cols / kRowsUsed));
  return result;
}

// C has one buffer: it is added to until K is through.
LaunchNeeds gemm_needs(const GemmTiles& tiles) {
  const uint64_t m = tiles.m, n = tiles.n;
  const uint64_t l1 = kBuffers * (m + n) * tiles.k_l1 * tiles.in_bytes + m * n * tiles.out_bytes;
  const uint64_t all_m = m * tiles.columns, all_n = n * kRowsUsed;
  const uint64_t l2 =
      kBuffers * (all_m + all_n) * tiles.k_l2 * tiles.in_bytes + all_m * all_n * tiles.out_bytes;
  return needs(kStack + l1, l2);
}

LaunchNeeds gemv_needs(const GemvTiles& tiles) {
  const uint64_t fixed = kStack + tiles.k * kBf16 + kBuffers * tiles.tile_m * kBf16;
  uint64_t rows = tiles.m_input;
  uint64_t buffers = kBuffers;
  while (rows > 1 && fixed + buffers * rows * tiles.k * kBf16 > kL1Bytes) rows /= 2;
  if (fixed + buffers * rows * tiles.k * kBf16 > kL1Bytes) buffers = 1;
  return needs(fixed + buffers * rows * tiles.k * kBf16,
               kBuffers * tiles.tile_m * tiles.k * kBf16 * kColumns);
}

// Queries, keys, values and the output of one core, the scores between them, and the running
// maximum and sum of each row.
LaunchNeeds attention_needs(const AttentionTiles& tiles, uint32_t head_dim) {
  const uint64_t rows = tiles.kv_rows, wide = rows * head_dim * kBf16;
  const uint64_t l1 = 4 * wide + rows * rows * kBf16 + 2 * rows * kF32;
  const uint64_t l2 = kHeadsAtOnce * (2 * tiles.q_rows + 2 * kStages * rows) * head_dim * kBf16;
  return needs(kStack + l1, l2);
}

LaunchNeeds element_needs(uint64_t values, uint32_t bytes) {
  return needs(kStack + kBuffers * values * bytes, 0);
}

LaunchNeeds rmsnorm_needs(uint64_t width) {
  return needs(kStack + (2 * kBuffers + 1) * width * kBf16, 0);
}

LaunchNeeds q4nx_needs(uint64_t cols) {
  constexpr uint64_t kBlock = kQ4nxBlockElements * 2;
  const uint64_t l1 = kBuffers * kBlock + cols * kBf16 + kQ4nxBlockRows * kF32;
  return needs(kFusedStack + l1, kBuffers * kBlock * kColumns * kRowsUsed);
}

LaunchNeeds decode_attention_needs(uint64_t position_values, uint32_t head_dim) {
  const uint64_t l1 = kBuffers * 2 * kDecodePositions * head_dim * kBf16 + 4 * head_dim * kF32;
  return needs(kFusedStack + l1,
               kBuffers * 2 * kDecodePositions * position_values * kBf16 * kColumns);
}

namespace {

// GEMM tiles of the registry's best builds: cores' rows, K in L2, K in L1, cores' columns.
constexpr GemmTiles kFusedCastTiles = {64, 512, 32, 128};    // Q and O: f32, then a cast launch
constexpr GemmTiles kFfnTiles = {64, 256, 32, 128};          // gate, up, down: f32 and a cast
constexpr GemmTiles kDrainTiles = {32, 256, 32, 128, 2, 2};  // bf16 at once
constexpr GemmTiles kDirectTiles = {64, 128, 32, 64, 2, 2};  // gate and up that are too wide
constexpr uint64_t kCastChunk = 2048, kAddChunk = 2048, kSwigluChunk = 4096;
constexpr uint32_t kGemvTileRows = 8, kGemvInputRows = 4;

constexpr uint32_t kCastBytes = 4 + 2, kBinaryBytes = 3 * 2;  // per value of all operands

bool is_feed_forward(Role role) {
  return role == Role::gate || role == Role::up || role == Role::down;
}

std::optional<size_t> argument_named(const AirProgram& program, std::string_view name) {
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].name == name) return i;
  return std::nullopt;
}

}  // namespace

SlotIndex ImageWriter::columns(size_t argument, uint64_t used) {
  return to.part(abi.arguments[argument].name + "_used", SlotKind::scratch, argument, rows(), used,
                 rows_apart(0, rows(), used, cols(argument)));
}

SlotIndex ImageWriter::repeated(size_t argument, uint64_t width) {
  return to.part(abi.arguments[argument].name, SlotKind::weight, argument, rows(), width,
                 {0, {{rows(), 0}, {width, 1}}});
}

void ImageWriter::rmsnorm(Role role, SlotIndex x, SlotIndex weight, SlotIndex y, uint64_t width,
                          bool bf16_sums) {
  LaunchShape shape;
  shape.eps = eps;
  shape.bf16_sums = bf16_sums;
  to.launch(Kernel::rmsnorm, role, {x, weight, y}, rmsnorm_needs(width), shape);
  ++launches;
}

void ImageWriter::rope(Role role, uint32_t heads, SlotIndex x, SlotIndex table, SlotIndex y) {
  LaunchShape shape;
  shape.heads = heads;
  shape.head_dim = dims.head_dim;
  to.launch(Kernel::rope, role, {x, table, y}, element_needs(dims.head_dim, kBinaryBytes), shape);
  ++launches;
}

void ImageWriter::add(Role role, SlotIndex x, SlotIndex y, SlotIndex z) {
  to.launch(Kernel::add, role, {x, y, z}, element_needs(kAddChunk, kBinaryBytes));
  ++launches;
}

void ImageWriter::swiglu(SlotIndex gate, SlotIndex up, SlotIndex y) {
  to.launch(Kernel::swiglu, Role::swiglu, {gate, up, y}, element_needs(kSwigluChunk, kBinaryBytes));
  ++launches;
}

SlotIndex ImageWriter::gemm(Role role, SlotIndex x, uint64_t k, size_t weight, size_t result,
                            std::string_view wide) {
  const uint64_t n = cols(result);
  const SlotIndex w = to.turned(weight, n, k), y = to.whole(result, dims.seq, n);
  const auto wide_argument = argument_named(abi, wide);
  const GemmTiles& tiles = wide_argument ? is_feed_forward(role) ? kFfnTiles : kFusedCastTiles
                           : is_feed_forward(role) ? kDirectTiles
                                                   : kDrainTiles;
  const LaunchNeeds needs = gemm_needs(tiles.within(dims.seq, k, n));
  ++launches;
  if (!wide_argument) {
    to.launch(Kernel::matmul, role, {x, w, y}, needs);
    return y;
  }
  const SlotIndex f32 = to.whole(*wide_argument, dims.seq, n);
  to.launch(Kernel::matmul, role, {x, w, f32}, needs);
  to.launch(Kernel::cast, role, {f32, y}, element_needs(kCastChunk, kCastBytes));
  ++launches;
  return y;
}

void ImageWriter::gemv(Role role, uint64_t k, SlotIndex x, SlotIndex weight, SlotIndex y) {
  to.launch(Kernel::matmul, role, {x, weight, y}, gemv_needs({kGemvTileRows, kGemvInputRows, k}));
  ++launches;
}

}  // namespace tyto::vxrt
