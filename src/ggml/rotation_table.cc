#include "ggml/rotation_table.h"

#include <cmath>
#include <cstring>

namespace tyto::plugin {
namespace {

struct RopeParameters {
  int32_t dims;
  float base, scale, magnitude;
};

// Where ggml keeps them among an operation's parameters.
RopeParameters parameters_of(const ggml_tensor* rope) {
  RopeParameters result{};
  result.dims = rope->op_params[1];
  std::memcpy(&result.base, rope->op_params + 5, sizeof(float));
  std::memcpy(&result.scale, rope->op_params + 6, sizeof(float));
  std::memcpy(&result.magnitude, rope->op_params + 8, sizeof(float));
  return result;
}

}  // namespace

std::span<const float> RotationTable::rows(const ggml_tensor* rope) {
  const RopeParameters parameters = parameters_of(rope);
  const auto tokens = static_cast<size_t>(rope->src[1]->ne[0]);
  const auto half = static_cast<size_t>(parameters.dims) / 2;
  const auto* positions = static_cast<const int32_t*>(rope->src[1]->data);
  std::vector<int32_t> key(std::begin(rope->op_params), std::end(rope->op_params));
  key.insert(key.end(), positions, positions + tokens);
  std::vector<float> factors(half, 1.0f);
  if (rope->src[2] != nullptr)
    std::memcpy(factors.data(), rope->src[2]->data, half * sizeof(float));
  if (key == key_ && factors == factors_) return rows_;
  rows_.resize(tokens * 2 * half);
  for (size_t i = 0; i < half; ++i) {
    // In double: at positions in the thousands a float's error in the angle would show.
    const double frequency =
        std::pow(static_cast<double>(parameters.base),
                 -2.0 * static_cast<double>(i) / static_cast<double>(parameters.dims)) *
        static_cast<double>(parameters.scale) / static_cast<double>(factors[i]);
    for (size_t t = 0; t < tokens; ++t) {
      const double angle = static_cast<double>(positions[t]) * frequency;
      rows_[t * 2 * half + i] = static_cast<float>(std::cos(angle)) * parameters.magnitude;
      rows_[t * 2 * half + half + i] = static_cast<float>(std::sin(angle)) * parameters.magnitude;
    }
  }
  key_ = std::move(key);
  factors_ = std::move(factors);
  return rows_;
}

}  // namespace tyto::plugin
