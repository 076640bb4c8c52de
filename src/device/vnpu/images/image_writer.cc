#include "device/vnpu/images/image_writer.h"

#include <optional>
#include <string>

namespace tyto::vxrt {
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
