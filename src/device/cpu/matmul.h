// Matrices times activations, also those of experts: the routes from a weight's type to its kernel,
// and how the rows are shared among the threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"
#include "device/cpu/scratch_buffer.h"
#include "program/program.h"

namespace tyto::cpu {

// y = x * weights^T (+ bias), all tokens of a call.
struct MatmulTarget {
  DType type = DType::f32;
  size_t rows = 0;
  const std::byte* weights = nullptr;    // [rows, k] as the file has them
  uint64_t row_stride = 0;               // bytes from row to row of them
  const PackedMatrix* packed = nullptr;  // the same packed, where it has been
  const float* bias = nullptr;           // [rows]
  float* y = nullptr;                    // [tokens, rows]
};

// What is done with a row of results as soon as it is there, by the thread that made it.
enum class Epilogue : uint8_t {
  none,
  add,     // other += y
  swiglu,  // two targets: other = activation(first y) * second y
};

// Several matrices times the same activations, in one parallel loop.
struct MatmulGroup {
  const float* x;  // [tokens, k]
  size_t tokens;
  size_t k;
  std::span<const MatmulTarget> targets;
  bool in_blocks = false;  // operands are rounded to bfp16 first; none of them is packed
  Epilogue epilogue = Epilogue::none;
  float* other = nullptr;  // [tokens, rows]
  Activation activation = Activation::silu;
};

void multiply(const MatmulGroup& group, ThreadPool& pool, const InnerLoops& loops);

// What products are made of: activations in the forms that kernels take, and
// some rows of a matrix times them.

// Rows that one thread takes at a time: two panels of blocks, one of floats.
constexpr size_t kUnitRows = 32;
static_assert(kUnitRows % kPanelRows == 0 && kUnitRows % kFloatPanelRows == 0);

// The form of activations that a target takes. Each of the two for floats differs for bf16 from the
// one for f16 and f32.
enum class Form : uint8_t { blocks, floats, bf16, packed_floats, packed_bf16 };
constexpr size_t kForms = 5;

// `in_blocks`: as in MatmulGroup.
Form form_for(const MatmulTarget& target, bool in_blocks);
size_t tile_tokens(Form form, const InnerLoops& loops);  // the most tokens of one tile

// Memory for the activations of one call in every form.
struct ActivationMemory {
  ScratchBuffer<int8_t> codes;
  ScratchBuffer<int16_t> wide_codes;
  ScratchBuffer<float> scales;
  ScratchBuffer<int32_t> negated_sum;
  ScratchBuffer<int32_t> negated_half_sums;
  ScratchBuffer<float> scaled_sum;
  ScratchBuffer<std::byte> floats[kForms];
};

// Activations of some tokens in one form.
struct Activations {
  Form form = Form::floats;
  size_t k = 0;
  size_t token_bytes = 0;  // for forms that are not blocks
  BlockActivations blocks = {};
  std::byte* floats = nullptr;

  bool empty() const { return blocks.codes == nullptr && floats == nullptr; }
  // From a token on that begins a tile.
  Activations from(size_t token) const;
};

// Room for them in `memory`, where they stay until it is asked for this form again.
Activations reserve(Form form, size_t tokens, size_t k, ActivationMemory& memory,
                    const InnerLoops& loops);
// Fills a tile: rows of x are k values.
void prepare_tile(const Activations& out, const float* x, const TokenTile& tile,
                  const InnerLoops& loops);

struct Rows {
  size_t begin;
  size_t end;
};

// target.y of these tokens = x * these rows of the target, with its bias. Rows begin at a multiple
// of kUnitRows, x with the first of the tokens.
void multiply_rows(const MatmulTarget& target, const Rows& rows, const Activations& x,
                   const TokenTile& tokens, bool in_blocks, const InnerLoops& loops);

// Products with the matrices of the experts that each row of a call takes: which rows meet which
// expert, and how that is shared among the threads. Experts that no row takes are not read.

struct ExpertGroup {
  const float* x = nullptr;  // [tokens, k], or with a row for each choice [tokens, used, k]
  bool x_of_choice = false;
  size_t tokens = 0;
  size_t k = 0;
  const int32_t* ids = nullptr;  // [tokens, used]: the choices
  size_t used = 0;
  size_t experts = 0;
  // Weights and packed form of all experts, one's after the other's; `rows` of one of them; bias
  // [experts, rows], y [tokens, used, rows].
  std::span<const MatmulTarget> targets;
  float* gated = nullptr;  // two targets': [tokens, used, rows], first y gating second y
  Activation activation = Activation::silu;
  const float* weights = nullptr;  // [tokens, used], of one target; with
  float* mixed = nullptr;          // [tokens, rows], the sum of weights * y
};

// Returns how many different experts were read. The row of an id that is no expert's is NaN.
size_t multiply_experts(const ExpertGroup& group, ThreadPool& pool, const InnerLoops& loops);

// out = the sum of weights[i] * x[i], in order; rows of x are `stride` apart.
void mix_rows(const float* x, size_t stride, const float* weights, size_t used, size_t width,
              float* out);

// What routing does with a row of scores, as LaunchShape has it.
struct Routes {
  size_t used;
  const LaunchShape& shape;
  const float* bias =
      nullptr;  // where scores are sigmoids: added for the choice, not in the weights
};

// The best `used` of a row of scores, in ascending order, and their softmax, which is over them
// alone or over all; or their sigmoids, which add up to one or not.
void choose_experts(std::span<float> scores, const Routes& routes, int32_t* ids, float* weights);

}  // namespace tyto::cpu
