#include "llama/host_norm.h"

#include <cmath>

#include "base/error.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

std::vector<float> values(const TensorView& view) {
  std::vector<float> out(view.cols);
  dequantize(view.dtype, view.row(0), out);
  return out;
}

}  // namespace

// LayerNorm is RMSNorm of what is left when each value is less the mean.
std::vector<float> host_norm(const Config& config, std::span<const float> x,
                             const TensorView& weight, const TensorView& bias) {
  std::vector<float> y(x.begin(), x.end());
  if (weight.empty()) return y;
  const std::vector<float> w = values(weight);
  const std::vector<float> b = bias.empty() ? std::vector<float>(w.size()) : values(bias);
  const auto count = static_cast<double>(w.size());
  TYTO_ASSERT(b.size() == w.size() && x.size() % w.size() == 0);
  for (size_t group = 0; group < x.size(); group += w.size()) {
    double total = 0, squares = 0;
    for (size_t i = 0; config.layer_norm && i < w.size(); ++i) total += x[group + i];
    const double mean = total / count;
    for (size_t i = 0; i < w.size(); ++i) squares += (x[group + i] - mean) * (x[group + i] - mean);
    const double scale = 1.0 / std::sqrt(squares / count + config.norm_eps);
    for (size_t i = 0; i < w.size(); ++i)
      y[group + i] = static_cast<float>((x[group + i] - mean) * scale) * w[i] + b[i];
  }
  return y;
}

std::vector<float> host_final_norm(const Model& model, std::span<const float> x) {
  return host_norm(model.config, x, model.weights.final_norm, model.weights.final_norm_bias);
}

}  // namespace tyto
