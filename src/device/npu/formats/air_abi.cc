#include "device/npu/formats/air_abi.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"

namespace tyto {
namespace {

enum class Extent : uint8_t { one, two, seq, emb, q_dim, kv_dim, hidden, hidden_twice };

struct Row {
  std::string_view name;
  AirRole role;
  Extent rows, cols;
  AirLayout layout = AirLayout::none;
  std::string_view source = "";
  DType dtype = DType::bf16;
};

struct Table {
  std::string_view name;
  std::string_view entry;
  uint32_t launches;
  std::span<const Row> rows;
};

using enum AirRole;
using enum AirLayout;
using E = Extent;

// clang-format off
constexpr Row kRmsGemmsRope[] = {
    {"x_in",     input,   E::seq, E::emb},
    {"norm_w",   weight,  E::one, E::emb,    as_stored,     "input_layernorm.weight"},
    {"normed",   scratch, E::seq, E::emb},
    {"wq",       weight,  E::emb, E::q_dim,  transposed,    "self_attn.q_proj.weight"},
    {"q",        scratch, E::seq, E::q_dim},
    {"wk",       weight,  E::emb, E::kv_dim, transposed,    "self_attn.k_proj.weight"},
    {"k",        scratch, E::seq, E::kv_dim},
    {"wv",       weight,  E::emb, E::kv_dim, transposed,    "self_attn.v_proj.weight"},
    {"v",        output,  E::seq, E::kv_dim},
    {"lut_q",    weight,  E::seq, E::q_dim,  rope_per_head},
    {"lut_k",    weight,  E::seq, E::kv_dim, rope_per_head},
    {"q_roped",  output,  E::seq, E::q_dim},
    {"k_roped",  output,  E::seq, E::kv_dim},
    {"q_f32",    scratch, E::seq, E::q_dim,  none, "", DType::f32},
};

// With as many KV heads as heads, K and V have the shape of Q and take the same kind of GEMM: into
// f32, then a cast launch each.
constexpr Row kRmsGemmsRopeMha[] = {
    {"k_f32",    scratch, E::seq, E::kv_dim, none, "", DType::f32},
    {"v_f32",    scratch, E::seq, E::kv_dim, none, "", DType::f32},
};

constexpr Row kFlashAttn[] = {
    {"q",        input,   E::seq, E::q_dim},
    {"k",        input,   E::seq, E::kv_dim},
    {"v",        input,   E::seq, E::kv_dim},
    {"out",      output,  E::seq, E::q_dim},
};

constexpr Row kOFfn[] = {
    {"attn_out",   input,   E::seq,    E::q_dim},
    {"wo",         weight,  E::q_dim,  E::emb,    transposed, "self_attn.o_proj.weight"},
    {"proj",       scratch, E::seq,    E::emb},
    {"x_residual", input,   E::seq,    E::emb},
    {"res1",       scratch, E::seq,    E::emb},
    {"ffn_norm_w", weight,  E::one,    E::emb,    as_stored,  "post_attention_layernorm.weight"},
    {"normed2",    scratch, E::seq,    E::emb},
    {"w_gate",     weight,  E::emb,    E::hidden, transposed, "mlp.gate_proj.weight"},
    {"gate",       scratch, E::seq,    E::hidden},
    {"w_up",       weight,  E::emb,    E::hidden, transposed, "mlp.up_proj.weight"},
    {"up",         scratch, E::seq,    E::hidden},
    {"swiglu",     scratch, E::seq,    E::hidden},
    {"w_down",     weight,  E::hidden, E::emb,    transposed, "mlp.down_proj.weight"},
    {"down",       scratch, E::seq,    E::emb},
    {"output",     output,  E::seq,    E::emb},
    {"proj_f32",   scratch, E::seq,    E::emb,    none, "", DType::f32},
    {"gate_f32",   scratch, E::seq,    E::hidden, none, "", DType::f32},
    {"up_f32",     scratch, E::seq,    E::hidden, none, "", DType::f32},
    {"down_f32",   scratch, E::seq,    E::emb,    none, "", DType::f32},
};

constexpr Row kRmsGemvRope[] = {
    {"x_in",     input,   E::one,    E::emb},
    {"norm_w",   weight,  E::one,    E::emb,    as_stored,     "input_layernorm.weight"},
    {"normed",   scratch, E::one,    E::emb},
    {"wq",       weight,  E::q_dim,  E::emb,    as_stored,     "self_attn.q_proj.weight"},
    {"q",        scratch, E::one,    E::q_dim},
    {"wk",       weight,  E::kv_dim, E::emb,    as_stored,     "self_attn.k_proj.weight"},
    {"k",        scratch, E::one,    E::kv_dim},
    {"wv",       weight,  E::kv_dim, E::emb,    as_stored,     "self_attn.v_proj.weight"},
    {"v",        output,  E::one,    E::kv_dim},
    {"lut_q",    input,   E::one,    E::q_dim,  rope_per_head},
    {"lut_k",    input,   E::one,    E::kv_dim, rope_per_head},
    {"q_roped",  output,  E::one,    E::q_dim},
    {"k_roped",  output,  E::one,    E::kv_dim},
};

// The dead arguments keep one signature with an int4 variant; one small buffer can stand for all.
constexpr Row kOGemvFfn[] = {
    {"wo",         weight,  E::emb,          E::q_dim,  as_stored, "self_attn.o_proj.weight"},
    {"attn_out",   input,   E::one,          E::q_dim},
    {"dead_2",     dead,    E::one,          E::emb},
    {"x_residual", input,   E::one,          E::emb},
    {"dead_4",     dead,    E::one,          E::emb},
    {"dead_5",     dead,    E::one,          E::emb},
    {"packed_rms", weight,  E::two,          E::emb,    norm_in_row_1,
     "post_attention_layernorm.weight"},
    {"w_gateup",   weight,  E::hidden_twice, E::emb,    gate_up_rows,
     "mlp.gate_proj.weight+mlp.up_proj.weight"},
    {"dead_8",     dead,    E::one,          E::hidden},
    {"dead_9",     dead,    E::hidden,       E::emb},
    {"dead_10",    dead,    E::one,          E::hidden},
    {"swiglu",     scratch, E::one,          E::hidden},
    {"wdown",      weight,  E::emb,          E::hidden, as_stored, "mlp.down_proj.weight"},
    {"dead_13",    dead,    E::one,          E::emb},
    {"output",     output,  E::one,          E::emb},
};

constexpr Row kLmHeadGemv[] = {
    {"x",          input,   E::one,          E::emb},  // final norm already applied, on the host
};

constexpr Table kPrograms[] = {
    {"rms_gemms_rope", "main:rms_gemms_rope",  7, kRmsGemmsRope},
    {"flash_attn",     "main:attention_bf16",  1, kFlashAttn},
    {"o_ffn",          "main:o_ffn",          12, kOFfn},
    {"rms_gemv_rope",  "main:rms_gemv_rope",   6, kRmsGemvRope},
    {"o_gemv_ffn",     "main:o_gemv_ffn",      3, kOGemvFfn},
    {"lm_head_gemv",   "main:lm_head_gemv",    0, kLmHeadGemv},  // one launch per partition
};

constexpr std::string_view kRoleNames[] = {
    "input", "output", "inout", "weight", "scratch",
    "kv", "dead", "opcode", "instructions", "word_count"};
constexpr std::string_view kLayoutNames[] = {
    "none",           "as_stored",     "transposed", "gate_up_rows", "norm_in_row_1",
    "head_partition", "rope_per_head", "q4nx",       "q4nx_norms"};
// clang-format on

uint64_t extent(Extent which, const AirDims& dims) {
  switch (which) {
    case E::one:
      return 1;
    case E::two:
      return 2;
    case E::seq:
      return dims.seq;
    case E::emb:
      return dims.emb;
    case E::q_dim:
      return dims.q_dim();
    case E::kv_dim:
      return dims.kv_dim();
    case E::hidden:
      return dims.hidden;
    case E::hidden_twice:
      return uint64_t{dims.hidden} * 2;
  }
  return 0;
}

bool moves_per_call(AirRole role) {
  return role == input || role == output || role == inout;
}

AirArgument argument(std::string name, AirRole role, DType dtype, uint64_t rows, uint64_t cols,
                     AirLayout layout = none, std::string_view source = "") {
  AirArgument result;
  result.name = std::move(name);
  result.role = role;
  result.dtype = dtype;
  result.rows = rows;
  result.cols = cols;
  result.layout = layout;
  result.source = source;
  result.real_rows = rows;
  if (moves_per_call(role)) result.per_call = {0, result.bytes()};
  return result;
}

void append(AirProgram& program, std::span<const Row> rows, const AirDims& dims) {
  for (const Row& row : rows)
    program.arguments.push_back(argument(std::string(row.name), row.role, row.dtype,
                                         extent(row.rows, dims), extent(row.cols, dims), row.layout,
                                         row.source));
}

// Weight and logits of each partition in turn. The last one's padding rows are zeros, and their
// logits are never read.
void append_head(AirProgram& program, const AirDims& dims) {
  program.launches = air_head_partitions(dims);
  for (uint32_t p = 0; p < program.launches; ++p) {
    const uint64_t first = uint64_t{p} * kAirHeadRows;
    const uint64_t real = std::min<uint64_t>(kAirHeadRows, dims.vocab - first);
    AirArgument rows = argument(fmt::format("weight_{}", p), weight, DType::bf16, kAirHeadRows,
                                dims.emb, head_partition, "lm_head.weight");
    rows.partition = p;
    rows.real_rows = real;
    AirArgument logits =
        argument(fmt::format("logits_{}", p), output, DType::bf16, 1, kAirHeadRows);
    logits.partition = p;
    logits.per_call = {0, row_bytes(DType::bf16, real)};
    program.arguments.push_back(std::move(rows));
    program.arguments.push_back(std::move(logits));
  }
}

}  // namespace

std::string_view to_string(AirRole role) {
  return kRoleNames[static_cast<size_t>(role)];
}

std::string_view to_string(AirLayout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

std::vector<size_t> positions(const AirProgram& program, AirRole role) {
  std::vector<size_t> found;
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].role == role) found.push_back(i);
  return found;
}

bool is_air_program(std::string_view name) {
  return std::any_of(std::begin(kPrograms), std::end(kPrograms),
                     [&](const Table& table) { return table.name == name; });
}

uint32_t air_head_partitions(const AirDims& dims) {
  return (dims.vocab + kAirHeadRows - 1) / kAirHeadRows;
}

// Small enough that no product of two extents and an element size leaves 64 bits.
void check_air_dims(std::string_view program, const AirDims& dims) {
  constexpr uint32_t kLimit = 1u << 24;
  const std::pair<const char*, uint32_t> fields[] = {
      {"layers", dims.layers},     {"emb", dims.emb},
      {"heads", dims.heads},       {"kv_heads", dims.kv_heads},
      {"head_dim", dims.head_dim}, {"hidden", dims.hidden},
      {"vocab", dims.vocab},       {"seq", dims.seq}};
  for (const auto& [name, value] : fields)
    if (value == 0 || value > kLimit)
      fail_unsupported(std::string(program), "{} = {} is not between 1 and {}", name, value,
                       kLimit);
  if (dims.q_dim() > kLimit)
    fail_unsupported(std::string(program), "{} heads of {} are too many", dims.heads,
                     dims.head_dim);
  if (dims.heads % dims.kv_heads != 0)
    fail_unsupported(std::string(program), "{} heads cannot share {} KV heads evenly", dims.heads,
                     dims.kv_heads);
}

AirProgram air_program(std::string_view name, const AirDims& dims) {
  for (const Table& table : kPrograms) {
    if (table.name != name) continue;
    check_air_dims(name, dims);
    AirProgram program;
    program.name = table.name;
    program.entry = table.entry;
    program.launches = table.launches;
    append(program, table.rows, dims);
    if (name == "rms_gemms_rope" && dims.kv_dim() == dims.q_dim()) {
      append(program, kRmsGemmsRopeMha, dims);
      program.launches += 2;  // the casts of K and V
    }
    if (name == "lm_head_gemv") append_head(program, dims);
    return program;
  }
  fail_unsupported(std::string(name), "no argument list is known for this program");
}

AirProgram int8_gemm_program(uint32_t k, uint32_t m_tile, uint32_t n_tile) {
  AirProgram program;
  program.name = kInt8Gemm;
  program.entry = "MLIR_AIE";
  program.launches = 1;
  program.arguments = {argument("opcode", opcode, DType::i32, 1, 1),
                       argument("insts", instructions, DType::i32, 0, 1),
                       argument("words", word_count, DType::i32, 1, 1),
                       argument("x", input, DType::i8, m_tile, k),
                       argument("w", weight, DType::i8, n_tile, k),
                       argument("y", output, DType::i32, m_tile, n_tile)};
  return program;
}

}  // namespace tyto
