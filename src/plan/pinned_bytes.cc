#include "plan/pinned_bytes.h"

#include <algorithm>
#include <numeric>

#include "base/round_up.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/formats/q4nx_layout.h"

namespace tyto {
namespace {

// q4nx_layout takes matrices of whole groups of columns: others are padded to them.
AirDims q4nx_dims(const Config& c, uint64_t rows) {
  AirDims dims = air_dims(c, rows);
  const auto whole = [](uint32_t value, uint64_t multiple) {
    return static_cast<uint32_t>(round_up(value, multiple));
  };
  dims.emb = whole(dims.emb, kQ4nxGroupCols);
  dims.hidden = whole(dims.hidden, kQ4nxGroupCols);
  dims.head_dim =
      whole(dims.head_dim, kQ4nxGroupCols / std::gcd(uint64_t{dims.heads}, kQ4nxGroupCols));
  return dims;
}

uint64_t head_bytes_bf16(const Config& c, uint64_t rows) {
  return air_head(air_dims(c, rows)).all_rows() * c.emb * 2;
}

// Bytes of the arguments of a prompt's images of which `is_counted`.
template <typename Counted>
uint64_t argument_bytes(const AirDims& dims, const Counted& is_counted) {
  uint64_t bytes = 0;
  for (const AirProgram& program : air_model(dims).programs)
    for (const AirArgument& argument : program.arguments)
      if (program.phase == AirPhase::prompt && is_counted(argument)) bytes += argument.bytes();
  return bytes;
}

uint64_t rope_table_bytes(const Config& c, uint64_t rows) {
  return argument_bytes(air_dims(c, rows), [](const AirArgument& argument) {
    return argument.layout == AirLayout::rope_per_head;
  });
}

// By the published host, which has rotation tables for each layer.
uint64_t bf16_prefill_pinned(const Config& c, uint64_t rows) {
  return 2 * layer_values(c) + head_bytes_bf16(c, rows) + c.layers * rope_table_bytes(c, rows) +
         prefill_scratch_bytes(c, rows);
}

uint64_t kv_bytes(const Config& c, uint64_t positions, uint64_t most_windowed) {
  uint64_t held = 0;  // positions of all layers
  for (uint32_t layer = 0; layer < c.layers; ++layer)
    held += c.is_windowed(layer) ? std::min(positions, most_windowed) : positions;
  return held * 2 * c.kv_width() * 2;
}

}  // namespace

uint64_t layer_values(const Config& c) {
  const uint64_t emb = c.emb;
  return c.layers * emb * (2 * (uint64_t{c.q_width()} + c.kv_width()) + 3 * uint64_t{c.hidden});
}

uint64_t kv_bytes(const Config& c, uint64_t positions) {
  return kv_bytes(c, positions, positions);
}

uint64_t attended_kv_bytes(const Config& c, uint64_t positions) {
  return kv_bytes(c, positions, c.window);
}

// The window, a page that may be taken back, and a pass of a page that begins and ends inside one.
uint64_t kept_kv_bytes(const Config& c, uint64_t positions) {
  constexpr uint64_t kPage = 256;
  return kv_bytes(c, positions, round_up(uint64_t{c.window}, kPage) + 3 * kPage);
}

uint64_t q4nx_weight_bytes(const Config& c) {
  constexpr uint32_t kAnyWindow = 2048;  // weights do not depend on it, nor on rows
  return q4nx_layout(q4nx_dims(c, kAnyWindow), kAnyWindow).weight_elements * 2;
}

// Of the published host: each of the prefill images has its own, and all layers share them.
uint64_t prefill_scratch_bytes(const Config& c, uint64_t rows) {
  return argument_bytes(air_dims(c, rows), [](const AirArgument& argument) {
    return argument.role != AirRole::weight;
  });
}

// Prefill wants weights as (in, out), decode as (out, in): both copies are pinned. MLIR-AIR fills
// one unused argument as large as a feed-forward matrix in every layer.
uint64_t bf16_block_pinned(const Config& c, uint64_t rows, PlanHost host) {
  if (host == PlanHost::native)
    return total_bytes(npu_memory(air_dims(c, rows), NpuWeights::bf16, Fusion::block, 0));
  return bf16_prefill_pinned(c, rows) + 2 * layer_values(c) +
         uint64_t{c.layers} * c.hidden * c.emb * 2;
}

uint64_t q4nx_token_pinned(const Config& c, uint64_t rows, uint64_t window, PlanHost host) {
  const AirDims dims = q4nx_dims(c, rows);
  const auto positions = static_cast<uint32_t>(window);
  if (host == PlanHost::native)
    return total_bytes(npu_memory(dims, NpuWeights::q4nx, Fusion::token, positions));
  const Q4nxLayout layout = q4nx_layout(dims, positions);
  return bf16_prefill_pinned(c, rows) +
         2 * (layout.weight_elements + layout.kv_elements + layout.norm_elements +
              layout.logits_offset + layout.logits_elements);
}

}  // namespace tyto
