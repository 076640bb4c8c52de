// The loops where the time goes, compiled once per instruction set and chosen once at start.
// A token's result depends neither on how many tokens a call carries nor on the threads that share
// the work: every variant adds in an order that is fixed per output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "device/cpu/packed_weights.h"
#include "tensor/activation.h"
#include "tensor/dtype.h"

namespace tyto::cpu {

// A small product on values as they lie: for what is done rarely or must be plain.
struct MatmulTile {
  const float* x;  // [tokens, k], rows x_stride apart
  size_t x_stride;
  size_t tokens;
  const void* weights;  // [rows, k] of weight_type: f32, f16 or bf16
  DType weight_type;
  size_t rows;
  size_t k;
  float* y;  // [tokens, rows], rows y_stride apart
  size_t y_stride;
  size_t weight_stride = 0;  // values from row to row of the weights; 0: k
};

// Some rows of a matrix of f32, f16 or bf16 times all tokens of a call.
struct FloatMatmul {
  const void* weights;  // [.., k], the whole matrix, rows row_stride apart
  DType type;
  size_t k;
  size_t row_stride;  // bytes
  size_t first_row;
  size_t rows;
  const void* x;  // prepared for `type`
  size_t tokens;
  float* y;  // [tokens, ..], rows y_stride apart; first_row is its own column
  size_t y_stride;
};

struct FloatLoops {
  size_t tile_tokens;                           // the most tokens of one tile
  bool rounds_to_bf16;                          // activations, for bf16 weights, packed or not
  size_t (*token_bytes)(DType type, size_t k);  // per prepared token
  void (*prepare_tile)(DType type, const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                       void* out);
  void (*multiply)(const FloatMatmul& job);
};

// Some panels of a packed matrix times all tokens of a call.
struct PackedMatmul {
  const PackedMatrix* matrix;
  BlockActivations x;
  size_t tokens;
  size_t first_panel;
  size_t panels;
  float* y;  // [tokens, matrix rows], rows y_stride apart
  size_t y_stride;
  float* aside;  // [tokens * kPanelRows], scratch
};

struct PackedLoops {
  size_t tile_tokens;  // the most tokens of one tile of BlockActivations
  bool wide_codes;     // uses BlockActivations::wide_codes
  void (*quantize_tile)(const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                        const BlockActivations& out);
  void (*multiply)(const PackedMatmul& job);
};

// Some panels of a packed matrix of f32, f16 or bf16 times all tokens of a call.
struct PackedFloatMatmul {
  const PackedMatrix* matrix;
  const void* x;  // prepared for the matrix's type
  size_t tokens;
  size_t first_panel;
  size_t panels;
  float* y;  // [tokens, matrix rows], rows y_stride apart
  size_t y_stride;
  float* aside;  // [tokens * kFloatPanelRows], scratch
};

struct PackedFloatLoops {
  size_t tile_tokens;                           // the most tokens of one tile
  size_t (*token_bytes)(DType type, size_t k);  // per prepared token
  void (*prepare_tile)(DType type, const float* x, size_t x_stride, size_t k, const TokenTile& tile,
                       void* out);
  void (*multiply)(const PackedFloatMatmul& job);
};

// Positions that are attended to together: a row's result is that of each split, merged in order.
constexpr size_t kSplitPositions = 256;

constexpr size_t attention_padded(size_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}
// Floats: three times a block of 32 keys or values (widened; copied; as the cache has them, with
// their scales), the scores of a split, and the queries rounded to words, with their scales.
constexpr size_t attention_scratch(size_t rows, size_t head_dim) {
  return 3 * 32 * attention_padded(head_dim) +
         rows * (kSplitPositions + attention_padded(head_dim));
}

// What some rows found in some positions.
struct AttentionPart {
  float* largest;  // [rows]: score
  float* total;    // [rows]: of exp(score - largest); 0 when a row saw nothing
  float* mixed;    // [rows, padded head_dim]: values weighted by the same
};

// Query rows against one split of one KV head.
struct AttentionSplit {
  const float* q;  // [rows, head_dim], scaled
  size_t rows;     // [tokens, group]: `group` query heads share the KV head
  size_t group;
  size_t head_dim;
  const void* k;  // the split's [positions, head_dim] of kv_type: f32, f16 or q8_0
  const void* v;
  const void* next_k;  // what will be read after v, or null
  DType kv_type;
  size_t first;     // position of the split
  size_t position;  // the first row's token's; each token sees itself and what is before
  size_t window;    // positions that a token sees, its own included; 0: all
  float cap;        // scores become cap * tanh(score / cap); 0: they stay
  AttentionPart out;
  float* scratch;  // [attention_scratch(rows, head_dim)]
};

struct AttentionLoops {
  void (*attend)(const AttentionSplit& job);
  // into += from, `first` overwriting.
  void (*merge)(const AttentionPart& into, const AttentionPart& from, size_t rows,
                size_t padded_dim, bool first);
};

// Rows of one sequence through a causal convolution of each value by itself, for some neighbouring
// values. Rows are computed one by one, in the same order wherever they are cut.
struct ConvRows {
  const float* x = nullptr;  // [rows], x_stride apart, as those of y
  size_t x_stride;
  float* y = nullptr;
  size_t y_stride;
  size_t rows = 0;
  size_t values;
  size_t taps;           // 2 to 4
  const float* weights;  // [taps][values], the oldest row's first
  const float* bias;     // [values], or null
  bool silu;             // y = silu(sum)
  // The taps - 1 rows in front, the oldest first, state_stride apart; null: zeros. And where those
  // in front of the next row are put, which may be the same place.
  const float* before = nullptr;
  float* after = nullptr;
  size_t state_stride;
};

// Columns of a recurrent state that are taken together. They lie side by side for it, all rows of
// them, and so in the cache while the tokens of a call pass.
constexpr size_t kRecurrenceColumns = 32;

// One token of a recurrence over a state [rows, columns]:
//   added = write * (values - read * (key^T state))
//   state = decay * state + key * added
//   out = answer * (query^T state) + skip * values
struct RecurrenceToken {
  const float* key;    // [rows]
  const float* query;  // [rows]
  float decay;
  float read;  // 0: what the state has under the key is not taken away
  float write;
  float answer;
  float skip;
};

struct RecurrentLoops {
  void (*convolve)(const ConvRows& job);
  // `state` has kRecurrenceColumns columns, and so have values and out.
  void (*recur)(float* state, size_t rows, const RecurrenceToken& token, const float* values,
                float* out);
  float (*sum_of_squares)(const float* x, size_t count);
};

// The fastest a core can go: rounds of independent operations, and how many a round has.
struct PeakLoops {
  void (*read)(const void* memory, size_t bytes);
  void (*fma)(size_t rounds);
  double fma_per_round;
  void (*int8)(size_t rounds);
  double int8_per_round;  // 0: no kernels for it
  void (*bf16)(size_t rounds);
  double bf16_per_round;
};

struct InnerLoops {
  const char* name;  // as in --isa
  void (*matmul)(const MatmulTile& tile);
  void (*widen)(DType type, const void* in, float* out, size_t count);   // f32, f16, bf16
  void (*narrow)(DType type, const float* in, void* out, size_t count);  // those and q8_0
  void (*rmsnorm)(const float* x, const float* weight, float* y, size_t count, float eps);
  // activation(gate) * up
  void (*swiglu)(Activation activation, const float* gate, const float* up, float* y, size_t count);
  void (*soft_cap)(const float* x, float cap, float* y, size_t count);
  void (*add)(float* x, const float* y, size_t count);
  // Turns pairs of a head: values i and half + i, or neighbours.
  void (*rotate)(float* head, const float* cosines, const float* sines, size_t half, bool pairs);
  // |sum| <= 127^2 * count, which fits for count < 2^17.
  int32_t (*dot_i8)(const int8_t* x, const int8_t* y, size_t count);
  const AttentionLoops* attention;
  const RecurrentLoops* recurrent;
  const FloatLoops* floats;
  const PackedLoops* packed;  // null: weights stay as the file has them, activations in f32
  const PackedFloatLoops* packed_floats;  // null where `packed` is
  const PeakLoops* peak;
};

constexpr size_t kMaxHeadDim = 512;

// The variants this processor runs, the plainest first.
std::span<const InnerLoops* const> usable_inner_loops();

// The last of them, or the named one. A name that is not among them is a usage Error that lists
// them.
const InnerLoops& best_inner_loops();
const InnerLoops& inner_loops_named(std::string_view name);
// As --isa says; empty: the best.
const InnerLoops& chosen_inner_loops(std::string_view name);

// One set of loops per instruction set; avxvnni differs from avx2 in its integer products only,
// avx512_bf16 from avx512 in those of bf16.
#define TYTO_DECLARE_LOOPS(isa)                 \
  namespace isa {                               \
  const InnerLoops& inner_loops();              \
  void matmul(const MatmulTile& tile);          \
  const AttentionLoops& attention_loops();      \
  const RecurrentLoops& recurrent_loops();      \
  const FloatLoops& float_loops();              \
  const PackedLoops* packed_loops();            \
  const PackedFloatLoops* packed_float_loops(); \
  const PeakLoops& peak_loops();                \
  }
TYTO_DECLARE_LOOPS(generic)
TYTO_DECLARE_LOOPS(avx2)
TYTO_DECLARE_LOOPS(avxvnni)
TYTO_DECLARE_LOOPS(avx512)
TYTO_DECLARE_LOOPS(avx512_bf16)
#undef TYTO_DECLARE_LOOPS

}  // namespace tyto::cpu
