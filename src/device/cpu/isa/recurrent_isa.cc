// Loops over the rows of a sequence that keep a state from row to row. Compiled once per
// instruction set, with TYTO_ISA naming the namespace (see src/CMakeLists.txt).
#include <cstring>

#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {
namespace {

// The first `count` values of a vector. The others are zero, and are computed as well: a value's
// arithmetic is the same wherever it stands.
TYTO_INLINE Vec load_first(const float* p, size_t count) {
  if (count == kLanes) return load(p);
  float values[kLanes] = {};
  std::memcpy(values, p, count * sizeof(float));
  return load(values);
}

TYTO_INLINE void store_first(float* p, Vec value, size_t count) {
  if (count == kLanes) return store(p, value);
  float values[kLanes];
  store(values, value);
  std::memcpy(p, values, count * sizeof(float));
}

TYTO_INLINE Vec silu(Vec x) {
  return div(x, add(broadcast(1.0f), exp(sub(zero(), x))));
}

// One vector of neighbouring values, whose rows in front stay in registers.
template <size_t kTaps>
TYTO_INLINE void convolve_vector(const ConvRows& job, size_t first, size_t count) {
  Vec weights[kTaps], rows[kTaps];
  for (size_t i = 0; i < kTaps; ++i)
    weights[i] = load_first(job.weights + i * job.values + first, count);
  for (size_t i = 0; i + 1 < kTaps; ++i)
    rows[i] = job.before == nullptr ? zero()
                                    : load_first(job.before + i * job.state_stride + first, count);
  const Vec bias = job.bias == nullptr ? zero() : load_first(job.bias + first, count);
  for (size_t t = 0; t < job.rows; ++t) {
    rows[kTaps - 1] = load_first(job.x + t * job.x_stride + first, count);
    Vec sum = bias;
    for (size_t i = 0; i < kTaps; ++i) sum = fma(weights[i], rows[i], sum);
    store_first(job.y + t * job.y_stride + first, job.silu ? silu(sum) : sum, count);
    for (size_t i = 0; i + 1 < kTaps; ++i) rows[i] = rows[i + 1];
  }
  for (size_t i = 0; i + 1 < kTaps; ++i)
    store_first(job.after + i * job.state_stride + first, rows[i], count);
}

template <size_t kTaps>
TYTO_INLINE void convolve_of(const ConvRows& job) {
  size_t i = 0;
  for (; i + kLanes <= job.values; i += kLanes) convolve_vector<kTaps>(job, i, kLanes);
  if (i < job.values) convolve_vector<kTaps>(job, i, job.values - i);
}

void convolve(const ConvRows& job) {
  if (job.taps == 2) return convolve_of<2>(job);
  if (job.taps == 3) return convolve_of<3>(job);
  convolve_of<4>(job);
}

}  // namespace

const RecurrentLoops& recurrent_loops() {
  static const RecurrentLoops loops = {convolve};
  return loops;
}

}  // namespace tyto::cpu::TYTO_ISA
