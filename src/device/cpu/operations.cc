#include "device/cpu/operations.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "device/cpu/attention.h"
#include "device/cpu/recurrent.h"
#include "device/cpu/scratch_buffer.h"
#include "tensor/float16.h"
#include "tensor/quant.h"

namespace tyto::cpu {
namespace {

// Selects, no branches: one block is one vector.
void round_block(float* values, size_t count) {
  uint32_t largest = 0;  // magnitudes as integers order like the floats
  for (size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  const uint32_t exponent = largest >> 23;
  if (exponent == 0xff) return;  // infinities and NaN stay what they are
  // The largest value has its leading bit at 2^6 of a mantissa. Below 2^-120 all are zero.
  if (exponent < 7) return std::fill(values, values + count, 0.0f);
  const float step = std::bit_cast<float>((exponent - 6) << 23);
  const float inverse = 1.0f / step;
  for (size_t i = 0; i < count; ++i) {
    const float mantissa = std::nearbyint(values[i] * inverse);
    values[i] = std::clamp(mantissa, -128.0f, 127.0f) * step;
  }
}

}  // namespace

void round_to_bfp16(float* values, size_t count) {
  for (size_t i = 0; i < count; i += kBfp16Block)
    round_block(values + i, std::min(kBfp16Block, count - i));
}

std::vector<float> in_blocks(const float* values, size_t rows, size_t width, ThreadPool& pool) {
  std::vector<float> result(values, values + rows * width);
  pool.parallel_for(rows, 16, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) round_to_bfp16(result.data() + row * width, width);
  });
  return result;
}

namespace {

// Rows of activations that are worth another thread: some microseconds of any kernel here.
constexpr size_t kRowGrain = 4;

bool has_direct_loop(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::bf16;
}

void widen_row(const Operation& op, DType type, const std::byte* in, float* out, size_t count) {
  if (has_direct_loop(type))
    op.loops.widen(type, in, out, count);
  else
    dequantize(type, {in, row_bytes(type, count)}, {out, count});
}

void embed(const Operation& op) {
  const Operand& table = op.args[1];
  const int32_t* tokens = op.data<const int32_t>(0);
  op.pool.parallel_for(op.call.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      widen_row(op, table.dtype,
                op.data<const std::byte>(1) + static_cast<uint64_t>(tokens[t]) * op.matrix_stride,
                op.data(2) + t * table.cols, table.cols);
  });
}

// Row layout: all cosines, then all sines. The angle is an f32 product, as in the published models.
void rope_table(const Operation& op) {
  const size_t half = op.args[0].cols;
  const float* frequencies = op.data(0);
  float* rows = op.data(1);
  for (const Segment& segment : op.call.segments()) {
    op.pool.parallel_for(segment.rows, kRowGrain, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t) {
        float* row = rows + t * 2 * half;
        const float position = static_cast<float>(segment.position + t);
        for (size_t i = 0; i < half; ++i) {
          const double angle = position * frequencies[i];
          row[i] = op.shape.factor * static_cast<float>(std::cos(angle));
          row[half + i] = op.shape.factor * static_cast<float>(std::sin(angle));
        }
      }
    });
    rows += size_t{segment.rows} * 2 * half;
  }
}

// Squares added up in bf16, as the NPU's decode kernel does it: 16 lanes, each rounded after every
// addition, then the lanes.
float bf16_sum_of_squares(const float* x, size_t count) {
  constexpr size_t kLanes = 16;
  float lanes[kLanes] = {};
  const auto rounded = [](float value) { return bf16_to_f32(f32_to_bf16(value)); };
  for (size_t i = 0; i < count; ++i)
    lanes[i % kLanes] = rounded(lanes[i % kLanes] + rounded(x[i] * x[i]));
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] = rounded(lanes[i] + lanes[i + width]);
  return lanes[0];
}

void rmsnorm_with_bf16_sums(const float* x, const float* weight, float* y, size_t count,
                            float eps) {
  const float mean = bf16_sum_of_squares(x, count) / static_cast<float>(count);
  const float scale = 1 / std::sqrt(mean + eps);
  for (size_t i = 0; i < count; ++i) y[i] = x[i] * scale * weight[i];
}

void rmsnorm(const Operation& op) {
  const auto norm = op.shape.bf16_sums ? rmsnorm_with_bf16_sums : op.loops.rmsnorm;
  const size_t parts = std::max(1u, op.shape.groups);  // norms in a row
  const size_t width = op.args[1].cols / parts;
  const size_t groups_per_row = op.args[0].cols / width;
  const size_t groups = op.call.rows * groups_per_row;
  op.pool.parallel_for(groups, kRowGrain * groups_per_row, [&](size_t begin, size_t end) {
    for (size_t g = begin; g < end; ++g)
      norm(op.data(0) + g * width, op.data(1) + g % parts * width, op.data(2) + g * width, width,
           op.shape.eps);
  });
}

void layernorm(const Operation& op) {
  const size_t width = op.args[0].cols;
  op.pool.parallel_for(op.call.rows, kRowGrain, [&](size_t begin, size_t end) {
    thread_local std::vector<float> centred;
    centred.resize(width);
    for (size_t t = begin; t < end; ++t) {
      const float* x = op.data(0) + t * width;
      float* y = op.data(2) + t * width;
      double total = 0;
      for (size_t i = 0; i < width; ++i) total += x[i];
      const auto mean = static_cast<float>(total / static_cast<double>(width));
      for (size_t i = 0; i < width; ++i) centred[i] = x[i] - mean;
      // The norm of what has no mean is RMSNorm's.
      op.loops.rmsnorm(centred.data(), op.data(1), y, width, op.shape.eps);
    }
  });
}

void matmul(const Operation& op) {
  const MatmulTarget target = matmul_target(op);
  multiply({op.data(0), op.call.rows, op.args[1].cols, {&target, 1}, takes_blocks(op)}, op.pool,
           op.loops);
}

// Where a kernel that may work in place writes; what it reads is there already.
float* target(const Operation& op) {
  if (op.arg_count == 2) return op.data(0);
  std::memcpy(op.data(2), op.data(0), op.call.rows * op.args[0].cols * sizeof(float));
  return op.data(2);
}

void rope(const Operation& op) {
  const LaunchShape& shape = op.shape;
  const size_t rotated = shape.rotated == 0 ? shape.head_dim : shape.rotated;
  const size_t half = rotated / 2, width = op.args[1].cols;
  const size_t per_head = width == rotated ? 0 : rotated;  // a row each, or one
  float* const values = target(op);
  op.pool.parallel_for(op.call.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      for (size_t h = 0; h < shape.heads; ++h)
        op.loops.rotate(values + (t * shape.heads + h) * shape.head_dim,
                        op.data(1) + t * width + h * per_head,
                        op.data(1) + t * width + h * per_head + half, half, shape.rope_pairs);
  });
}

// Where a sequence's rows of one KV head are in a cache. A head's positions follow each other
// inside a page, or in all of a cache that is one piece.
size_t cache_row(const LaunchShape& shape, const Segment& segment, size_t head, size_t position) {
  if (shape.page == 0) return head * shape.context + position;
  const size_t page = segment.pages_of(shape.window)[position / shape.page];
  return (page * shape.kv_heads + head) * shape.page + position % shape.page;
}

void kv_append(const Operation& op) {
  const LaunchShape& shape = op.shape;
  for (const Segment& segment : op.call.segments())
    op.pool.parallel_for(segment.rows, kRowGrain, [&](size_t begin, size_t end) {
      for (size_t which : {0, 1}) {  // k, then v
        const DType type = op.args[2 + which].dtype;
        const uint64_t stride = row_bytes(type, shape.head_dim);
        for (size_t t = begin; t < end; ++t)
          for (size_t h = 0; h < shape.kv_heads; ++h)
            op.loops.narrow(
                type,
                op.data(which) + ((segment.first_row + t) * shape.kv_heads + h) * shape.head_dim,
                op.data<std::byte>(2 + which) +
                    cache_row(shape, segment, h, segment.position + t) * stride,
                shape.head_dim);
      }
    });
}

// Keys and values one head after the other, [kv_heads, keys, head_dim] in f32.
struct HeadMajor {
  const float* k;
  const float* v;
  size_t keys;
};

// Positions are what the second product adds over, so values are turned to have them as columns.
std::vector<float> transposed_in_blocks(const Operation& op, const float* v, size_t keys) {
  const size_t dim = op.shape.head_dim;
  std::vector<float> result(op.shape.kv_heads * keys * dim);
  for (size_t h = 0; h < op.shape.kv_heads; ++h)
    for (size_t p = 0; p < keys; ++p)
      for (size_t i = 0; i < dim; ++i)
        result[(h * dim + i) * keys + p] = v[(h * keys + p) * dim + i];
  return in_blocks(result.data(), op.shape.kv_heads * dim, keys, op.pool);
}

void softmax(float* scores, size_t count, float scale) {
  const float largest = *std::max_element(scores, scores + count);
  float total = 0;
  for (size_t i = 0; i < count; ++i) total += scores[i] = std::exp((scores[i] - largest) * scale);
  for (size_t i = 0; i < count; ++i) scores[i] /= total;
}

// Two products of blocks with the softmax between them in f32: what an NPU does, which refuses
// windows, bounds and sinks.
void attention_in_blocks(const Operation& op, float* y, const HeadMajor& kv) {
  const LaunchShape& shape = op.shape;
  const size_t dim = shape.head_dim, group = shape.heads / shape.kv_heads;
  const auto q = in_blocks(op.data(0), size_t{op.call.rows} * shape.heads, dim, op.pool);
  const auto k = in_blocks(kv.k, shape.kv_heads * kv.keys, dim, op.pool);
  const auto v = transposed_in_blocks(op, kv.v, kv.keys);
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  op.pool.parallel_for(size_t{op.call.rows} * shape.kv_heads, 1, [&](size_t begin, size_t end) {
    thread_local std::vector<float> scores;
    for (size_t i = begin; i < end; ++i) {
      const size_t t = i / shape.kv_heads, h = i % shape.kv_heads;
      const size_t positions = kv.keys - op.call.rows + t + 1;
      const size_t offset = (t * shape.heads + h * group) * dim;
      scores.resize(group * positions);
      op.loops.matmul({q.data() + offset, dim, group, k.data() + h * kv.keys * dim, DType::f32,
                       positions, dim, scores.data(), positions});
      for (size_t g = 0; g < group; ++g) {
        softmax(scores.data() + g * positions, positions, scale);
        round_to_bfp16(scores.data() + g * positions, positions);
      }
      op.loops.matmul({scores.data(), positions, group, v.data() + h * dim * kv.keys, DType::f32,
                       dim, positions, y + offset, dim, kv.keys});
    }
  });
}

const float* sinks(const Operation& op) {
  return op.arg_count > 4 ? op.data(4) : nullptr;
}

void attention(const Operation& op) {
  if (takes_blocks(op) && op.args[1].dtype == DType::f32 && op.call.batch.empty() &&
      op.shape.page == 0 && op.shape.context == op.call.only.end())
    return attention_in_blocks(op, op.data(3), {op.data(1), op.data(2), op.shape.context});
  attend({.q = op.data(0),
          .k = op.data<const std::byte>(1),
          .v = op.data<const std::byte>(2),
          .kv_type = op.args[1].dtype,
          .segments = op.call.segments(),
          .shape = op.shape,
          .sinks = sinks(op),
          .y = op.data(3)},
         op.pool, *op.loops.attention);
}

// Keys and values as they come out of their projections, [tokens, kv_heads, head_dim], turned to
// one head after the other first.
void prompt_attention(const Operation& op) {
  const LaunchShape& shape = op.shape;
  const size_t tokens = op.call.rows, head_dim = shape.head_dim;
  std::vector<float> by_head[2];
  for (size_t which : {0, 1}) {
    by_head[which].resize(tokens * shape.kv_heads * head_dim);
    for (size_t t = 0; t < tokens; ++t)
      for (size_t h = 0; h < shape.kv_heads; ++h)
        std::memcpy(by_head[which].data() + (h * tokens + t) * head_dim,
                    op.data(1 + which) + (t * shape.kv_heads + h) * head_dim,
                    head_dim * sizeof(float));
  }
  if (takes_blocks(op))
    return attention_in_blocks(op, op.data(3), {by_head[0].data(), by_head[1].data(), tokens});
  LaunchShape own = shape;  // the rows themselves are the cache
  own.context = static_cast<uint32_t>(tokens);
  own.page = 0;
  attend({.q = op.data(0),
          .k = reinterpret_cast<const std::byte*>(by_head[0].data()),
          .v = reinterpret_cast<const std::byte*>(by_head[1].data()),
          .kv_type = DType::f32,
          .segments = op.call.segments(),
          .shape = own,
          .sinks = sinks(op),
          .y = op.data(3)},
         op.pool, *op.loops.attention);
}

void matmul_i8(const Operation& op) {
  const size_t k = op.args[1].cols, n = op.args[1].rows;
  const int8_t* weights = op.data<const int8_t>(1);
  const size_t stride = op.matrix_stride;
  constexpr size_t kRowsAtOnce = 16;
  op.pool.parallel_for(n, kRowsAtOnce, [&](size_t begin, size_t end) {
    for (size_t t = 0; t < op.call.rows; ++t) {
      const int8_t* x = op.data<const int8_t>(0) + t * k;
      int32_t* y = op.data<int32_t>(2) + t * n;
      // A tile is mostly padding when a single token is multiplied.
      if (std::all_of(x, x + k, [](int8_t value) { return value == 0; })) {
        std::fill(y + begin, y + end, 0);
        continue;
      }
      for (size_t row = begin; row < end; ++row)
        y[row] = op.loops.dot_i8(x, weights + row * stride, k);
    }
  });
}

// A row with a value that is not finite has a scale of NaN, and so has all that comes of it.
void matmul_q8(const Operation& op) {
  const size_t k = op.args[1].cols, n = op.args[1].rows, tokens = op.call.rows;
  std::vector<int8_t> codes(tokens * k);
  std::vector<float> scales(tokens);
  op.pool.parallel_for(tokens, 1, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const std::span x(op.data<const float>(0) + t * k, k);
      float largest = 0, poison = 0;
      for (const float value : x) {
        largest = std::max(largest, std::fabs(value));
        poison += 0.0f * value;
      }
      const Int8RowScale chosen = int8_row_scale(largest);
      scales[t] = chosen.scale + poison;
      if (poison == 0) encode_int8(x, chosen.inverse, codes.data() + t * k);
    }
  });
  const int8_t* weights = op.data<const int8_t>(1);
  const float* weight_scales = op.data<const float>(2);
  constexpr size_t kRowsAtOnce = 16;
  op.pool.parallel_for(n, kRowsAtOnce, [&](size_t begin, size_t end) {
    for (size_t t = 0; t < tokens; ++t) {
      float* y = op.data<float>(3) + t * n;
      for (size_t row = begin; row < end; ++row) {
        const int32_t sum =
            op.loops.dot_i8(codes.data() + t * k, weights + row * op.matrix_stride, k);
        y[row] = static_cast<float>(sum) * scales[t] * weight_scales[row];
      }
    }
  });
}

constexpr size_t kElementGrain = 8192;

void add(const Operation& op) {
  float* const values = target(op);
  op.pool.parallel_for(op.call.rows * op.args[0].cols, kElementGrain,
                       [&](size_t begin, size_t end) {
                         op.loops.add(values + begin, op.data(1) + begin, end - begin);
                       });
}

void cast(const Operation& op) {  // the interpreter widens and narrows
  std::memcpy(op.data(1), op.data(0), op.call.rows * op.args[0].cols * sizeof(float));
}

void swiglu(const Operation& op) {
  op.pool.parallel_for(op.call.rows * op.args[0].cols, kElementGrain,
                       [&](size_t begin, size_t end) {
                         op.loops.swiglu(op.shape.activation, op.data(0) + begin,
                                         op.data(1) + begin, op.data(2) + begin, end - begin);
                       });
}

void soft_cap(const Operation& op) {
  const float* x = op.data(0);
  float* const y = op.data(op.arg_count - 1);
  op.pool.parallel_for(op.call.rows * op.args[0].cols, kElementGrain,
                       [&](size_t begin, size_t end) {
                         op.loops.soft_cap(x + begin, op.shape.factor, y + begin, end - begin);
                       });
}

void scale(const Operation& op) {
  const float* x = op.data(0);
  float* const y = op.data(op.arg_count - 1);
  op.pool.parallel_for(op.call.rows * op.args[0].cols, kElementGrain,
                       [&](size_t begin, size_t end) {
                         for (size_t i = begin; i < end; ++i) y[i] = op.shape.factor * x[i];
                       });
}

void gather_rows(const Operation& op) {
  const size_t width = op.args[0].cols;
  float* row = op.data(1);
  for (const Segment& segment : op.call.segments()) {
    std::memcpy(row, op.data(0) + segment.first_row * width, segment.rows * width * sizeof(float));
    row += segment.rows * width;
  }
}

void top_k(const Operation& op) {
  const size_t vocab = op.args[0].cols, words = op.args[1].cols;
  op.pool.parallel_for(op.call.rows, 1, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      pick_best({op.data(0) + t * vocab, vocab}, {op.data<int32_t>(1) + t * words, words});
  });
}

void route(const Operation& op) {
  static thread_local ScratchBuffer<float> memory;
  const size_t experts = op.args[1].rows, used = op.args[2].cols;
  float* const scores = memory.at_least(op.call.rows * experts);
  MatmulTarget target = matmul_target(op);
  const float* const bias = op.arg_count > 4 ? op.data(4) : nullptr;
  const bool is_of_choice = op.shape.sigmoid_scores;
  target.bias = is_of_choice ? nullptr : bias;
  target.y = scores;
  multiply({op.data(0), op.call.rows, op.args[1].cols, {&target, 1}}, op.pool, op.loops);
  op.pool.parallel_for(op.call.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      choose_experts({scores + t * experts, experts},
                     {used, op.shape, is_of_choice ? bias : nullptr},
                     op.data<int32_t>(2) + t * used, op.data(3) + t * used);
  });
}

void expert_matmul(const Operation& op) {
  const MatmulTarget target = expert_target(op);
  ExpertGroup group = expert_group(op);
  group.targets = {&target, 1};
  *op.experts_read = multiply_experts(group, op.pool, op.loops);
}

void mix_experts(const Operation& op) {
  const size_t used = op.args[1].cols, width = op.args[2].cols;
  op.pool.parallel_for(op.call.rows, 1, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      mix_rows(op.data(0) + t * used * width, width, op.data(1) + t * used, used, width,
               op.data(2) + t * width);
  });
}

void split(const Operation& op) {
  const size_t groups = op.shape.heads, width = op.args[0].cols / groups;
  const size_t first = op.args[1].cols / groups, second = op.args[2].cols / groups;
  op.pool.parallel_for(op.call.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t g = begin * groups; g < end * groups; ++g) {
      const float* x = op.data(0) + g * width;
      std::memcpy(op.data(1) + g * first, x, first * sizeof(float));
      std::memcpy(op.data(2) + g * second, x + first, second * sizeof(float));
    }
  });
}

void add_gated(const Operation& op) {
  const size_t width = op.args[0].cols;
  op.pool.parallel_for(op.call.rows, kRowGrain, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t) {
      const float gate = 1 / (1 + std::exp(-op.data(2)[t]));
      float* x = op.data(0) + t * width;
      const float* y = op.data(1) + t * width;
      for (size_t i = 0; i < width; ++i) x[i] += gate * y[i];
    }
  });
}

struct KernelFunction {
  Kernel kernel;
  void (*run)(const Operation&);
};

// In the order of Kernel.
constexpr std::array<KernelFunction, 26> kFunctions = {{
    {Kernel::embed, embed},
    {Kernel::rope_table, rope_table},
    {Kernel::rmsnorm, rmsnorm},
    {Kernel::matmul, matmul},
    {Kernel::rope, rope},
    {Kernel::kv_append, kv_append},
    {Kernel::attention, attention},
    {Kernel::add, add},
    {Kernel::swiglu, swiglu},
    {Kernel::gather_rows, gather_rows},
    {Kernel::cast, cast},
    {Kernel::prompt_attention, prompt_attention},
    {Kernel::matmul_i8, matmul_i8},
    {Kernel::matmul_q8, matmul_q8},
    {Kernel::top_k, top_k},
    {Kernel::scale, scale},
    {Kernel::soft_cap, soft_cap},
    {Kernel::layernorm, layernorm},
    {Kernel::route, route},
    {Kernel::expert_matmul, expert_matmul},
    {Kernel::mix_experts, mix_experts},
    {Kernel::causal_conv, causal_conv},
    {Kernel::split, split},
    {Kernel::add_gated, add_gated},
    {Kernel::delta_rule, delta_rule},
    {Kernel::mamba2, mamba2},
}};

// run() looks up by position.
static_assert(kFunctions.size() == static_cast<size_t>(kLastKernel) + 1);
static_assert([] {
  for (size_t i = 0; i < kFunctions.size(); ++i)
    if (kFunctions[i].kernel != static_cast<Kernel>(i)) return false;
  return true;
}());

}  // namespace

bool takes_blocks(const Operation& op) {
  return op.numerics != Numerics::bf16 && op.call.rows > 1;
}

MatmulTarget matmul_target(const Operation& matmul) {
  const Operand& weight = matmul.args[1];
  return {.type = weight.dtype,
          .rows = weight.rows,
          .weights = matmul.data<const std::byte>(1),
          .row_stride = matmul.matrix_stride,
          .packed = matmul.packed,
          .bias = matmul.arg_count > 3 ? matmul.data(3) : nullptr,
          .y = matmul.data(2)};
}

ExpertGroup expert_group(const Operation& expert_matmul) {
  const Operation& op = expert_matmul;
  return {.x = op.data(0),
          .x_of_choice = op.args[0].cols != op.args[1].cols,
          .tokens = op.call.rows,
          .k = op.args[1].cols,
          .ids = op.data<const int32_t>(2),
          .used = op.args[2].cols,
          .experts = op.shape.experts,
          .targets = {}};
}

MatmulTarget expert_target(const Operation& expert_matmul) {
  MatmulTarget target = matmul_target(expert_matmul);
  target.rows /= expert_matmul.shape.experts;
  target.bias = expert_matmul.arg_count > 4 ? expert_matmul.data(4) : nullptr;
  target.y = expert_matmul.data(3);
  return target;
}

void run(const Operation& operation) {
  kFunctions[static_cast<size_t>(operation.kernel)].run(operation);
}

void pick_best(std::span<const float> logits, std::span<int32_t> row) {
  // What is no number has no order: it counts as the lowest there is.
  const auto value = [&](int32_t index) {
    const float logit = logits[static_cast<size_t>(index)];
    return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
  };
  thread_local std::vector<int32_t> order;
  order.resize(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const size_t count = row.size() / 2 - 1;
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
      [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
  for (size_t i = 0; i < count; ++i) {
    row[2 * i] = std::bit_cast<int32_t>(value(order[i]));
    row[2 * i + 1] = order[i];
  }
  const float largest = value(order.front());
  double sum = 0;
  int32_t not_finite = 0;
  for (const float logit : logits) {
    sum += std::exp(logit - largest);
    not_finite += std::isfinite(logit) ? 0 : 1;
  }
  row[2 * count] = not_finite;
  row[2 * count + 1] = std::bit_cast<int32_t>(largest + static_cast<float>(std::log(sum)));
}

}  // namespace tyto::cpu
