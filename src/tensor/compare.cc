#include "tensor/compare.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace tyto {

Comparison compare(std::span<const float> actual, std::span<const float> reference) {
  TYTO_ASSERT(actual.size() == reference.size());
  Comparison result;
  double dot = 0, actual_norm = 0, reference_norm = 0, error_norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], b = reference[i];
    if (!std::isfinite(a) || !std::isfinite(b)) result.finite = false;
    dot += a * b;
    actual_norm += a * a;
    reference_norm += b * b;
    error_norm += (a - b) * (a - b);
    result.max_abs_error = std::max(result.max_abs_error, std::fabs(a - b));
    result.max_abs_reference = std::max(result.max_abs_reference, std::fabs(b));
  }
  const double norms = std::sqrt(actual_norm) * std::sqrt(reference_norm);
  result.cosine = norms > 0 ? dot / norms : (actual_norm == reference_norm ? 1.0 : 0.0);
  result.nmse = reference_norm > 0 ? error_norm / reference_norm : error_norm;
  return result;
}

}  // namespace tyto
