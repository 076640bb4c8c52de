// Which bf16 programs MLIR-AIR builds for a model, as data: their names, argument lists and the
// steps of the forward pass each of them computes. Written from its builders' text (August 2026);
// no compiled image has been compared with it. q4nx.h has the single-dispatch decode.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "program/program.h"
#include "tensor/dtype.h"

namespace tyto {

// What a set of images was compiled for. `seq` is the padded prompt length of the prefill programs.
struct AirDims {
  uint32_t layers = 0;
  uint32_t emb = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t hidden = 0;
  uint32_t vocab = 0;
  uint32_t seq = 0;
  uint32_t qkv_bias = 0;  // 1: q, k and v have biases (Qwen2.5)
  uint32_t qk_norm = 0;   // 1: heads of q and k are normed (Qwen3)
  // Composed as those of a known model of other dimensions: its place in known_air_models() + 1
  // (--images-like). 0: as these dimensions are.
  uint32_t like = 0;

  uint64_t q_dim() const { return uint64_t{heads} * head_dim; }
  uint64_t kv_dim() const { return uint64_t{kv_heads} * head_dim; }
  bool operator==(const AirDims&) const = default;
};

constexpr AirDims kLlama32_1b = {16, 2048, 32, 8, 64, 8192, 128256, 2048};

enum class AirRole : uint8_t {
  input,         // host to device before each call
  output,        // device to host after each call
  inout,         // both
  weight,        // written once, at load; static tables too
  scratch,       // written and read by the device alone
  kv,            // resident between calls
  dead,          // in the signature, but no launch touches it
  opcode,        // the scalar 3
  instructions,  // the instruction buffer; its size is that of the image's words
  word_count,    // scalar: 32-bit words in the instruction buffer
  length,        // scalar: positions, the token being decoded included
};
std::string_view to_string(AirRole role);

// How a weight argument is made from the tensors of a Hugging Face checkpoint, stored (out, in).
enum class AirLayout : uint8_t {
  none,
  as_stored,
  transposed,      // (in, out)
  gate_up_rows,    // row 2i = gate row i, row 2i+1 = up row i
  norm_in_row_1,   // two rows: the device writes row 0, the norm weight is row 1
  head_partition,  // rows [partition * rows, + real_rows) of the head, zeros below them
  rope_per_head,   // each position's cos|sin row, repeated for every head
  heads_first,     // activations: `run` columns of every row, then the next `run` of every row
  q4nx,            // packed blocks, see q4nx.h
  q4nx_norms,      // all norms and one cos|sin row, see q4nx.h
};
std::string_view to_string(AirLayout layout);

struct ByteRange {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const ByteRange&) const = default;
};

struct AirArgument {
  std::string name;
  AirRole role = AirRole::scratch;
  DType dtype = DType::bf16;
  uint64_t rows = 0;
  uint64_t cols = 0;
  AirLayout layout = AirLayout::none;
  std::string source;      // "mlp.gate_proj.weight+mlp.up_proj.weight": below the layer's prefix
  uint32_t partition = 0;  // which part of the LM head
  uint64_t real_rows = 0;  // the LM head's partition: the rows that exist in the model
  ByteRange per_call;      // what the host writes or reads for each call
  // The slot of the forward pass it holds, a weight's where its role is weight; none: the program
  // keeps it to itself.
  Role slot = Role::none;
  uint64_t run = 0;  // heads_first: columns that stay side by side

  uint64_t elements() const { return rows * cols; }
  uint64_t bytes() const { return rows * row_bytes(dtype, cols); }
};

// Whose rows a program is called with.
enum class AirPhase : uint8_t {
  prompt,  // dims.seq of them, once per layer
  token,   // one, once per layer
  head,    // one, after the last layer
};

// A product whose operand and result both lie in arguments, by their positions.
struct AirProductPlace {
  Role role = Role::none;
  size_t operand = 0, result = 0;
};

struct AirProgram {
  std::string name;   // "o_ffn": MLIR-AIR's kernel name and the file's stem
  std::string entry;  // what XRT is asked for: "main:o_ffn"; "MLIR_AIE" for an xclbin
  uint32_t launches = 0;
  std::vector<AirArgument> arguments;  // in the order of XRT's argument indices
  AirPhase phase = AirPhase::prompt;
  std::vector<Role> steps;                // launches of the forward pass that it computes, in order
  std::vector<AirProductPlace> products;  // not those that pass from core to core
};

// Positions of the arguments with this role, ascending.
std::vector<size_t> positions(const AirProgram& program, AirRole role);

// All of it moves in each call where the role says that any does.
AirArgument air_argument(std::string name, AirRole role, DType dtype, uint64_t rows, uint64_t cols,
                         AirLayout layout = AirLayout::none, std::string_view source = "");

// Throws an unsupported Error that begins with the program's name unless the dimensions are such
// that products of them can be formed without overflow.
void check_air_dims(std::string_view program, const AirDims& dims);

constexpr std::string_view kFusedDecode = "fused_decode";         // an xclbin for each window
constexpr std::string_view kFusedDecodeElf = "fused_decode_elf";  // one ELF for every length
constexpr std::string_view kInt8Gemm = "gemm_i8";

// int8 x int8 into int32: a tile of tokens by a tile of outputs over K (see int8_gemm.h).
AirProgram int8_gemm_program(uint32_t k, uint32_t m_tile, uint32_t n_tile);

// The argument lists of MLIR-AIR's bf16 programs, a table each.

enum class AirAttention : uint8_t {
  seq_first,    // q, k and v as the projections leave them
  heads_first,  // one head after the other: the host turns them
  temporal,     // seq_first where MLIR-AIR's "temporal" kernel takes the shape, else heads_first
};

// What differs from model to model beside the dimensions.
struct AirForm {
  std::span<const std::string_view> prompt_ffn, token_ffn;  // programs behind the attention
  // Products of a prompt that go through f32 in an argument of their own and are rounded by a
  // launch of their own. MLIR-AIR's registry of GEMMs decides it shape by shape.
  std::span<const Role> through_f32;
  AirAttention attention = AirAttention::seq_first;
  uint32_t head_rows = 16384;    // the LM head's rows in one launch
  uint32_t head_partitions = 0;  // launches; 0: as many as the vocabulary needs
  uint32_t width_step = 1;       // a prompt's products into q, k, v and the residual stream
};

// Rows of the LM head in a launch, and launches.
struct AirHead {
  uint32_t rows = 0, partitions = 0;
  uint64_t all_rows() const { return uint64_t{rows} * partitions; }
};
AirHead air_head(const AirDims& dims, const AirForm& form);

bool is_air_program(std::string_view name);
AirPhase air_phase(std::string_view name);  // when such a program runs

// Whether or not a model of these dimensions has it; air_models.h knows that.
AirProgram described_program(std::string_view name, const AirDims& dims, const AirForm& form);

// What computes q, k and v, by the model's biases and norms.
std::string_view prompt_input_program(const AirDims& dims);
std::string_view token_input_program(const AirDims& dims);

struct KnownAirModel {
  std::string_view name;  // as in model/synth.h
  AirDims dims;           // with the prompt rows it is built for
  AirForm form;
};
std::span<const KnownAirModel> known_air_models();
// The model whose images these dimensions have; nothing where none is published. Neither layers nor
// prompt rows matter.
const KnownAirModel* known_air_model(const AirDims& dims);
// A value for AirDims::like; nothing for a name that is not in the table.
std::optional<uint32_t> images_like(std::string_view name);

// The form of the model which `dims.like` names, or which has these dimensions. For any other
// dimensions rules choose: such images have not been built.
AirForm air_form(const AirDims& dims);

AirHead air_head(const AirDims& dims);

// All programs of a model in the order of the pass: those of a prompt, of a token, and the head.
struct AirModel {
  std::vector<AirProgram> programs;
};
AirModel air_model(const AirDims& dims);

// Throws an unsupported Error for a program that this model has not, or for dimensions that no
// program can have.
AirProgram air_program(std::string_view name, const AirDims& dims);

}  // namespace tyto
