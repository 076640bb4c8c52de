#include "llama/kv_convert.h"

#include <algorithm>
#include <vector>

#include "tensor/quant.h"

namespace tyto {
namespace {

// A head's values [half][2] from [2][half], and back.
void put_in_pairs(std::span<const float> halves, std::span<float> pairs) {
  const size_t half = halves.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    pairs[2 * i] = halves[i];
    pairs[2 * i + 1] = halves[half + i];
  }
}

void put_in_halves(std::span<const float> pairs, std::span<float> halves) {
  const size_t half = pairs.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    halves[i] = pairs[2 * i];
    halves[half + i] = pairs[2 * i + 1];
  }
}

// Of values that stay where they are, so many at a time.
void convert_values(DType from, DType to, size_t at_once, std::span<const std::byte> in,
                    std::span<std::byte> out) {
  if (from == to) {
    std::ranges::copy(in, out.begin());
    return;
  }
  std::vector<float> values(at_once);
  const uint64_t in_bytes = row_bytes(from, at_once), out_bytes = row_bytes(to, at_once);
  for (uint64_t i = 0; i * in_bytes < in.size(); ++i) {
    dequantize(from, in.subspan(i * in_bytes, in_bytes), values);
    quantize(to, values, out.subspan(i * out_bytes, out_bytes));
  }
}

}  // namespace

void convert_kv(const KvShape& from, const KvShape& to, const Config& config, uint32_t positions,
                std::span<const std::byte> in, std::span<std::byte> out) {
  if (from.group == to.group && from.in_halves == to.in_halves)
    return convert_values(from.type, to.type, size_t{positions} * config.head_dim, in, out);
  const uint64_t in_bytes = row_bytes(from.type, config.head_dim);
  const uint64_t out_bytes = row_bytes(to.type, config.head_dim);
  const auto row_of = [&](uint32_t group, uint64_t matrix, uint32_t head, uint32_t position) {
    const uint64_t run = matrix * (config.kv_heads / group) + head / group;
    return (run * positions + position) * group + head % group;
  };
  std::vector<float> values(config.head_dim), turned(config.head_dim);
  for (uint64_t matrix = 0; matrix < uint64_t{2} * config.layers; ++matrix) {
    const bool is_key = matrix < config.layers;
    // Keys that no rope turned lie everywhere as the checkpoint has them.
    const bool is_turned =
        is_key && from.in_halves != to.in_halves && config.rotates(static_cast<uint32_t>(matrix));
    for (uint32_t head = 0; head < config.kv_heads; ++head)
      for (uint32_t position = 0; position < positions; ++position) {
        const uint64_t in_row = row_of(from.group, matrix, head, position);
        const uint64_t out_row = row_of(to.group, matrix, head, position);
        dequantize(from.type, in.subspan(in_row * in_bytes, in_bytes), values);
        if (is_turned && from.in_halves) put_in_pairs(values, turned);
        if (is_turned && to.in_halves) put_in_halves(values, turned);
        if (is_turned) values.swap(turned);
        quantize(to.type, values, out.subspan(out_row * out_bytes, out_bytes));
      }
  }
}

}  // namespace tyto
