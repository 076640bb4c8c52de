#include "device/cpu/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/cpu/scratch_buffer.h"

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

namespace {

float softplus(float x) {
  constexpr float kLinear = 20;  // from there on it is x
  return x > kLinear ? x : std::log1p(std::exp(x));
}

// How a row of keys, queries and values of all heads is laid out.
struct Heads {
  explicit Heads(const Operation& op)
      : heads(op.shape.heads),
        keys(op.shape.kv_heads),
        key_width(op.shape.state_rows / heads),
        width(op.args[5].cols),
        row(op.args[0].cols),
        is_tiled(op.shape.tiled_heads) {}

  size_t key_of(size_t head) const { return is_tiled ? head % keys : head / (heads / keys); }

  size_t heads, keys, key_width, width, row;
  bool is_tiled;
};

// The tokens of all rows and heads, [rows][heads].
using Tokens = const RecurrenceToken*;

// Some neighbouring columns of one head, through all tokens of all segments. The columns lie side
// by side meanwhile.
class Columns {
 public:
  Columns(const Operation& op, const Heads& shape, size_t head, size_t first)
      : op_(op),
        shape_(shape),
        head_(head),
        first_(first),
        count_(std::min(kRecurrenceColumns, shape.width - first)) {
    static thread_local ScratchBuffer<float> memory;
    panel_ = memory.at_least(shape.key_width * kRecurrenceColumns);
  }

  void run(const StateRun& run, Tokens tokens, const float* values) {
    load(run.from);
    for (size_t t = run.first_row; t < size_t{run.first_row} + run.rows; ++t) {
      const size_t at = head_ * shape_.width + first_;
      pass(tokens[t * shape_.heads + head_], values + t * shape_.row + at,
           op_.data(6) + t * shape_.heads * shape_.width + at);
    }
    store(run.to);
  }

 private:
  float* row_of(uint32_t state, size_t row) const {
    return state_at(op_, 5, state) + (head_ * shape_.key_width + row) * shape_.width + first_;
  }

  void load(uint32_t state) {
    const bool is_whole = state != kNoState && count_ == kRecurrenceColumns;
    if (!is_whole) std::fill_n(panel_, shape_.key_width * kRecurrenceColumns, 0.0f);
    for (size_t i = 0; i < shape_.key_width && state != kNoState; ++i)
      std::memcpy(panel_ + i * kRecurrenceColumns, row_of(state, i), count_ * sizeof(float));
  }

  void store(uint32_t state) const {
    for (size_t i = 0; i < shape_.key_width; ++i)
      std::memcpy(row_of(state, i), panel_ + i * kRecurrenceColumns, count_ * sizeof(float));
  }

  void pass(const RecurrenceToken& token, const float* values, float* y) {
    const auto recur = op_.loops.recurrent->recur;
    if (count_ == kRecurrenceColumns) return recur(panel_, shape_.key_width, token, values, y);
    float in[kRecurrenceColumns] = {}, out[kRecurrenceColumns];
    std::memcpy(in, values, count_ * sizeof(float));
    recur(panel_, shape_.key_width, token, in, out);
    std::memcpy(y, out, count_ * sizeof(float));
  }

  const Operation& op_;
  const Heads& shape_;
  size_t head_, first_, count_;
  float* panel_;
};

// `values` are the first row's. Makes the tokens of a row with `write_row`.
template <typename WriteRow>
void recur_heads(const Operation& op, const Heads& shape, const float* values,
                 const WriteRow& write_row) {
  static thread_local ScratchBuffer<RecurrenceToken> memory;
  RecurrenceToken* const tokens = memory.at_least(op.call.rows * shape.heads);
  constexpr size_t kRowsAtOnce = 4;
  op.pool.parallel_for(op.call.rows, kRowsAtOnce, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) write_row(t, tokens + t * shape.heads);
  });
  const size_t blocks = (shape.width + kRecurrenceColumns - 1) / kRecurrenceColumns;
  op.pool.parallel_for(shape.heads * blocks, 1, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      Columns columns(op, shape, i / blocks, i % blocks * kRecurrenceColumns);
      for (const Segment& segment : op.call.segments())
        for_each_run(segment, [&](const StateRun& run) { columns.run(run, tokens, values); });
    }
  });
}

// One over the length of a key or query, as the published models have it.
float one_over_length(const Operation& op, const float* x, size_t count) {
  return 1 / std::sqrt(op.loops.recurrent->sum_of_squares(x, count) + op.shape.eps);
}

}  // namespace

// A row has the queries of all key heads, their keys, and all values. Lengths of one are a matter
// of the factors: the keys themselves stay as they are.
void delta_rule(const Operation& op) {
  const Heads shape(op);
  const size_t keys = shape.keys * shape.key_width;
  const float scale = 1 / std::sqrt(static_cast<float>(shape.key_width));
  recur_heads(op, shape, op.data(0) + 2 * keys, [&](size_t t, RecurrenceToken* tokens) {
    const float* const row = op.data(0) + t * shape.row;
    for (size_t h = 0; h < shape.heads; ++h) {
      const float* const query = row + shape.key_of(h) * shape.key_width;
      const float* const key = query + keys;
      const float length = one_over_length(op, key, shape.key_width);
      const float time = softplus(op.data(1)[t * shape.heads + h] + op.data(3)[h]);
      const float decay = std::exp(op.data(4)[h] * time);
      const float strength = 1 / (1 + std::exp(-op.data(2)[t * shape.heads + h]));
      tokens[h] = {.key = key,
                   .query = query,
                   .decay = decay,
                   .read = decay * length,
                   .write = strength * length,
                   .answer = scale * one_over_length(op, query, shape.key_width),
                   .skip = 0};
    }
  });
}

// A row has all values, and then the B and the C of all groups.
void mamba2(const Operation& op) {
  const Heads shape(op);
  const size_t values = shape.heads * shape.width, keys = shape.keys * shape.key_width;
  recur_heads(op, shape, op.data(0), [&](size_t t, RecurrenceToken* tokens) {
    const float* const row = op.data(0) + t * shape.row + values;
    for (size_t h = 0; h < shape.heads; ++h) {
      const float* const key = row + shape.key_of(h) * shape.key_width;
      const float given = softplus(op.data(1)[t * shape.heads + h] + op.data(2)[h]);
      const float time = std::min(std::max(given, op.shape.least_time), op.shape.most_time);
      tokens[h] = {.key = key,
                   .query = key + keys,
                   .decay = std::exp(op.data(3)[h] * time),
                   .read = 0,
                   .write = time,
                   .answer = 1,
                   .skip = op.data(4)[h]};
    }
  });
}

}  // namespace tyto::cpu
