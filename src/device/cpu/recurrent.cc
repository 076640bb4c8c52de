#include "device/cpu/recurrent.h"

#include <algorithm>

namespace tyto::cpu {
namespace {

// Where a state begins in its slot; null: there is none.
float* state_at(const Operation& op, size_t arg, uint32_t state) {
  if (state == kNoState) return nullptr;
  return op.data(arg) + uint64_t{state} * op.shape.state_rows * op.args[arg].cols;
}

// Neighbouring values that a thread takes together: their weights fill a few vectors.
constexpr size_t kConvValues = 64;

// As convolve() takes them, [taps][values], from [values][taps].
void turn_weights(const float* weights, size_t taps, size_t values, float* turned) {
  for (size_t i = 0; i < values; ++i)
    for (size_t tap = 0; tap < taps; ++tap) turned[tap * values + i] = weights[i * taps + tap];
}

}  // namespace

void causal_conv(const Operation& op) {
  const size_t width = op.args[0].cols, taps = op.shape.state_rows + 1;
  const size_t blocks = (width + kConvValues - 1) / kConvValues;
  constexpr size_t kGrain = 8192;  // values
  op.pool.parallel_for(blocks, std::max<size_t>(1, kGrain / (kConvValues * op.call.rows)),
                       [&](size_t begin, size_t end) {
                         float weights[kMostTaps * kConvValues];
                         for (size_t block = begin; block < end; ++block) {
                           const size_t first = block * kConvValues,
                                        values = std::min(kConvValues, width - first);
                           turn_weights(op.data(1) + first * taps, taps, values, weights);
                           ConvRows job{.x_stride = width,
                                        .y_stride = width,
                                        .values = values,
                                        .taps = taps,
                                        .weights = weights,
                                        .bias = op.arg_count > 4 ? op.data(4) + first : nullptr,
                                        .silu = op.shape.activation == Activation::silu,
                                        .state_stride = width};
                           for (const Segment& segment : op.call.segments())
                             for_each_run(segment, [&](const StateRun& run) {
                               const float* before = state_at(op, 2, run.from);
                               job.x = op.data(0) + run.first_row * width + first;
                               job.y = op.data(3) + run.first_row * width + first;
                               job.rows = run.rows;
                               job.before = before == nullptr ? nullptr : before + first;
                               job.after = state_at(op, 2, run.to) + first;
                               op.loops.recurrent->convolve(job);
                             });
                         }
                       });
}

}  // namespace tyto::cpu
