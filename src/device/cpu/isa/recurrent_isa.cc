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

// The recurrence of the delta rule and of Mamba-2 over some columns of one head's state.

constexpr size_t kVecs = kRecurrenceColumns / kLanes;
// Sums over the rows, so that one addition need not wait for the last: eight in all.
constexpr size_t kSums = kVecs >= 8 ? 1 : 8 / kVecs;

struct Columns {
  Vec of[kVecs];
};

TYTO_INLINE Columns load_columns(const float* p) {
  Columns result;
  for (size_t v = 0; v < kVecs; ++v) result.of[v] = load(p + v * kLanes);
  return result;
}

// The sum over the rows of factors[i] * state[i], in an order that the rows alone decide.
TYTO_INLINE Columns weighted_sum(const float* state, size_t rows, const float* factors) {
  Vec sums[kSums][kVecs];
  for (size_t s = 0; s < kSums; ++s)
    for (size_t v = 0; v < kVecs; ++v) sums[s][v] = zero();
  size_t row = 0;
  for (; row + kSums <= rows; row += kSums)
    for (size_t s = 0; s < kSums; ++s) {
      const Vec factor = broadcast(factors[row + s]);
      for (size_t v = 0; v < kVecs; ++v)
        sums[s][v] =
            fma(load(state + (row + s) * kRecurrenceColumns + v * kLanes), factor, sums[s][v]);
    }
  for (size_t s = 0; row < rows; ++row, ++s) {
    const Vec factor = broadcast(factors[row]);
    for (size_t v = 0; v < kVecs; ++v)
      sums[s][v] = fma(load(state + row * kRecurrenceColumns + v * kLanes), factor, sums[s][v]);
  }
  Columns result;
  for (size_t v = 0; v < kVecs; ++v) {
    result.of[v] = sums[0][v];
    for (size_t s = 1; s < kSums; ++s) result.of[v] = add(result.of[v], sums[s][v]);
  }
  return result;
}

// state = decay * state + keys * added, and the sum over the rows of queries * state.
TYTO_INLINE Columns update(float* state, size_t rows, const RecurrenceToken& token,
                           const Columns& added) {
  const Vec decay = broadcast(token.decay);
  Vec sums[kSums][kVecs];
  for (size_t s = 0; s < kSums; ++s)
    for (size_t v = 0; v < kVecs; ++v) sums[s][v] = zero();
  const auto one = [&](size_t row, size_t s) __attribute__((always_inline)) {
    const Vec key = broadcast(token.key[row]), query = broadcast(token.query[row]);
    for (size_t v = 0; v < kVecs; ++v) {
      float* const at = state + row * kRecurrenceColumns + v * kLanes;
      const Vec value = fma(load(at), decay, mul(key, added.of[v]));
      store(at, value);
      sums[s][v] = fma(value, query, sums[s][v]);
    }
  };
  size_t row = 0;
  for (; row + kSums <= rows; row += kSums)
    for (size_t s = 0; s < kSums; ++s) one(row + s, s);
  for (size_t s = 0; row < rows; ++row, ++s) one(row, s);
  Columns result;
  for (size_t v = 0; v < kVecs; ++v) {
    result.of[v] = sums[0][v];
    for (size_t s = 1; s < kSums; ++s) result.of[v] = add(result.of[v], sums[s][v]);
  }
  return result;
}

void recur(float* state, size_t rows, const RecurrenceToken& token, const float* values,
           float* out) {
  Columns added = load_columns(values);
  if (token.read != 0) {
    const Columns found = weighted_sum(state, rows, token.key);
    const Vec read = broadcast(token.read);
    for (size_t v = 0; v < kVecs; ++v) added.of[v] = sub(added.of[v], mul(read, found.of[v]));
  }
  const Vec write = broadcast(token.write), answer = broadcast(token.answer);
  for (size_t v = 0; v < kVecs; ++v) added.of[v] = mul(write, added.of[v]);
  const Columns found = update(state, rows, token, added);
  const Vec skip = broadcast(token.skip);
  for (size_t v = 0; v < kVecs; ++v)
    store(out + v * kLanes, fma(load(values + v * kLanes), skip, mul(answer, found.of[v])));
}

float sum_of_squares(const float* x, size_t count) {
  Vec sums[4] = {zero(), zero(), zero(), zero()};
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes)
    for (size_t s = 0; s < 4; ++s) {
      const Vec value = load(x + i + s * kLanes);
      sums[s] = fma(value, value, sums[s]);
    }
  float total = sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
  for (; i < count; ++i) total += x[i] * x[i];
  return total;
}

}  // namespace

const RecurrentLoops& recurrent_loops() {
  static const RecurrentLoops loops = {convolve, recur, sum_of_squares};
  return loops;
}

}  // namespace tyto::cpu::TYTO_ISA
