#include "device/npu/formats/air_models.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/error.h"
#include "base/round_up.h"
#include "base/spelling.h"

namespace tyto {
namespace {

// clang-format off
constexpr std::string_view kRoleNames[] = {
    "input", "output", "inout", "weight", "scratch",
    "kv", "dead", "opcode", "instructions", "word_count", "length"};
constexpr std::string_view kLayoutNames[] = {
    "none",           "as_stored",     "transposed", "gate_up_rows", "norm_in_row_1",
    "head_partition", "rope_per_head", "heads_first", "q4nx",        "q4nx_norms"};
// clang-format on

bool moves_per_call(AirRole role) {
  return role == AirRole::input || role == AirRole::output || role == AirRole::inout;
}

}  // namespace

std::string_view to_string(AirRole role) {
  return kRoleNames[static_cast<size_t>(role)];
}

std::string_view to_string(AirLayout layout) {
  return kLayoutNames[static_cast<size_t>(layout)];
}

AirArgument air_argument(std::string name, AirRole role, DType dtype, uint64_t rows, uint64_t cols,
                         AirLayout layout, std::string_view source) {
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

std::vector<size_t> positions(const AirProgram& program, AirRole role) {
  std::vector<size_t> found;
  for (size_t i = 0; i < program.arguments.size(); ++i)
    if (program.arguments[i].role == role) found.push_back(i);
  return found;
}

AirProgram int8_gemm_program(uint32_t k, uint32_t m_tile, uint32_t n_tile) {
  AirProgram program;
  program.name = kInt8Gemm;
  program.entry = "MLIR_AIE";
  program.launches = 1;
  program.arguments = {air_argument("opcode", AirRole::opcode, DType::i32, 1, 1),
                       air_argument("insts", AirRole::instructions, DType::i32, 0, 1),
                       air_argument("words", AirRole::word_count, DType::i32, 1, 1),
                       air_argument("x", AirRole::input, DType::i8, m_tile, k),
                       air_argument("w", AirRole::weight, DType::i8, n_tile, k),
                       air_argument("y", AirRole::output, DType::i32, m_tile, n_tile)};
  return program;
}

namespace {

// `rows` are those of the call. The padded widths are the plain ones but for a prompt of a form
// that has a width_step.
enum class Extent : uint8_t {
  one,
  two,
  rows,
  emb,
  head_dim,
  q_dim,
  kv_dim,
  hidden,
  hidden_twice,
  q_padded,
  kv_padded,
  emb_padded
};

// What an argument is; role, layout and source follow from it, the phase and the slot.
enum class Is : uint8_t {
  input,
  output,
  own,          // passes between launches
  wide,         // the f32 of a product that goes through it, and not there where none does
  matrix,       // extents (in, out) of its product: laid out so for a prompt, (out, in) for a token
  vector,       // a weight of one row
  table,        // the rotations, a row per head
  packed_norm,  // see norm_in_row_1
  gate_up,      // see gate_up_rows
  dead,
};

struct Row {
  std::string_view name;
  Is is;
  Role slot;
  Extent rows, cols;
};

struct Table {
  std::string_view name, instance;
  AirPhase phase;
  uint32_t launches;  // without those that round
  std::span<const Role> steps;
  std::span<const AirProductPlace> products;
  std::array<std::span<const Row>, 4> rows;  // one after the other
};

using E = Extent;
using R = Role;

// clang-format off
constexpr Row kQkv[] = {
    {"x_in",    Is::input,  R::x,         E::rows, E::emb},
    {"norm_w",  Is::vector, R::attn_norm, E::one,  E::emb},
    {"normed",  Is::own,    R::none,      E::rows, E::emb},
    {"wq",      Is::matrix, R::q,         E::emb,  E::q_padded},
    {"q",       Is::own,    R::none,      E::rows, E::q_padded},
    {"wk",      Is::matrix, R::k,         E::emb,  E::kv_padded},
    {"k",       Is::own,    R::none,      E::rows, E::kv_padded},
    {"wv",      Is::matrix, R::v,         E::emb,  E::kv_padded},
};
constexpr Row kV[] = {
    {"v",       Is::output, R::v,         E::rows, E::kv_dim},
};
constexpr Row kBiases[] = {
    {"v",       Is::own,    R::none,      E::rows, E::kv_padded},
    {"bq",      Is::vector, R::q | Facet::bias, E::one, E::q_dim},
    {"bk",      Is::vector, R::k | Facet::bias, E::one, E::kv_dim},
    {"bv",      Is::vector, R::v | Facet::bias, E::one, E::kv_dim},
    {"q_b",     Is::own,    R::none,      E::rows, E::q_dim},
    {"k_b",     Is::own,    R::none,      E::rows, E::kv_dim},
    {"v_b",     Is::output, R::v,         E::rows, E::kv_dim},
};
constexpr Row kHeadNorms[] = {
    {"v",       Is::output, R::v,         E::rows, E::kv_dim},
    {"q_norm",  Is::vector, R::q | Facet::norm, E::one, E::head_dim},
    {"k_norm",  Is::vector, R::k | Facet::norm, E::one, E::head_dim},
    {"q_n",     Is::own,    R::none,      E::rows, E::q_dim},
    {"k_n",     Is::own,    R::none,      E::rows, E::kv_dim},
};
constexpr Row kRope[] = {
    {"lut_q",   Is::table,  R::rope_table, E::rows, E::q_dim},
    {"lut_k",   Is::table,  R::rope_table, E::rows, E::kv_dim},
    {"q_roped", Is::output, R::q,          E::rows, E::q_dim},
    {"k_roped", Is::output, R::k,          E::rows, E::kv_dim},
};
constexpr Row kQkvWide[] = {
    {"q_f32",   Is::wide,   R::q,          E::rows, E::q_padded},
    {"k_f32",   Is::wide,   R::k,          E::rows, E::kv_padded},
    {"v_f32",   Is::wide,   R::v,          E::rows, E::kv_padded},
};

constexpr Row kFlashAttn[] = {
    {"q",       Is::input,  R::q,          E::rows, E::q_dim},
    {"k",       Is::input,  R::k,          E::rows, E::kv_dim},
    {"v",       Is::input,  R::v,          E::rows, E::kv_dim},
    {"out",     Is::output, R::attention,  E::rows, E::q_dim},
};

constexpr Row kO[] = {
    {"attn_out",   Is::input,  R::attention, E::rows,  E::q_dim},
    {"wo",         Is::matrix, R::o,         E::q_dim, E::emb_padded},
    {"proj",       Is::own,    R::none,      E::rows,  E::emb_padded},
    {"x_residual", Is::input,  R::x,         E::rows,  E::emb},
};
constexpr Row kNormAndFfn[] = {
    {"res1",       Is::own,    R::none,      E::rows,   E::emb},
    {"ffn_norm_w", Is::vector, R::ffn_norm,  E::one,    E::emb},
    {"normed2",    Is::own,    R::none,      E::rows,   E::emb},
    {"w_gate",     Is::matrix, R::gate,      E::emb,    E::hidden},
    {"gate",       Is::own,    R::none,      E::rows,   E::hidden},
    {"w_up",       Is::matrix, R::up,        E::emb,    E::hidden},
    {"up",         Is::own,    R::none,      E::rows,   E::hidden},
    {"swiglu",     Is::own,    R::none,      E::rows,   E::hidden},
    {"w_down",     Is::matrix, R::down,      E::hidden, E::emb_padded},
    {"down",       Is::own,    R::none,      E::rows,   E::emb_padded},
    {"output",     Is::output, R::x,         E::rows,   E::emb},
};
constexpr Row kFfnWide[] = {
    {"proj_f32",   Is::wide,   R::o,         E::rows,   E::emb_padded},
    {"gate_f32",   Is::wide,   R::gate,      E::rows,   E::hidden},
    {"up_f32",     Is::wide,   R::up,        E::rows,   E::hidden},
    {"down_f32",   Is::wide,   R::down,      E::rows,   E::emb_padded},
};

// The residual stream leaves in the buffer it came in: rows are read before they are written.
constexpr Row kNormAndGate[] = {
    {"res1",       Is::output, R::x,         E::rows,   E::emb},
    {"ffn_norm_w", Is::vector, R::ffn_norm,  E::one,    E::emb},
    {"normed2",    Is::own,    R::none,      E::rows,   E::emb},
    {"w_gate",     Is::matrix, R::gate,      E::emb,    E::hidden},
    {"gate",       Is::own,    R::none,      E::rows,   E::hidden},
    {"w_up",       Is::matrix, R::up,        E::emb,    E::hidden},
    {"up",         Is::own,    R::none,      E::rows,   E::hidden},
    {"swiglu",     Is::output, R::gate,      E::rows,   E::hidden},
};
constexpr std::span<const Row> kGateWide = std::span(kFfnWide).first(3);
constexpr Row kResNorm[] = {
    {"res1",       Is::output, R::x,         E::rows,   E::emb},
    {"ffn_norm_w", Is::vector, R::ffn_norm,  E::one,    E::emb},
    {"normed2",    Is::output, R::normed,    E::rows,   E::emb},
};
constexpr std::span<const Row> kOWide = std::span(kFfnWide).first(1);
constexpr Row kGate[] = {
    {"normed2",    Is::input,  R::normed,    E::rows,   E::emb},
    {"w_gate",     Is::matrix, R::gate,      E::emb,    E::hidden},
    {"gate",       Is::output, R::gate,      E::rows,   E::hidden},
};
constexpr Row kUp[] = {
    {"normed2",    Is::input,  R::normed,    E::rows,   E::emb},
    {"w_up",       Is::matrix, R::up,        E::emb,    E::hidden},
    {"up",         Is::output, R::up,        E::rows,   E::hidden},
};
constexpr std::span<const Row> kWideOfGate = std::span(kFfnWide).subspan(1, 1);
constexpr std::span<const Row> kWideOfUp = std::span(kFfnWide).subspan(2, 1);
constexpr std::span<const Row> kUpBehindGate = std::span(kUp).last(2);
constexpr Row kSwiglu[] = {
    {"gate",       Is::input,  R::gate,      E::rows,   E::hidden},
    {"up",         Is::input,  R::up,        E::rows,   E::hidden},
    {"swiglu",     Is::output, R::gate,      E::rows,   E::hidden},
};
constexpr Row kDownAdd[] = {
    {"swiglu",     Is::input,  R::gate,      E::rows,   E::hidden},
    {"w_down",     Is::matrix, R::down,      E::hidden, E::emb_padded},
    {"down",       Is::own,    R::none,      E::rows,   E::emb_padded},
    {"res1",       Is::input,  R::x,         E::rows,   E::emb},
    {"output",     Is::output, R::x,         E::rows,   E::emb},
};
constexpr std::span<const Row> kDownWide = std::span(kFfnWide).last(1);

// The dead arguments keep one signature with an int4 variant; one small buffer can stand for all.
constexpr Row kOGemvFfn[] = {
    {"wo",         Is::matrix,      R::o,         E::q_dim,        E::emb},
    {"attn_out",   Is::input,       R::attention, E::one,          E::q_dim},
    {"dead_2",     Is::dead,        R::none,      E::one,          E::emb},
    {"x_residual", Is::input,       R::x,         E::one,          E::emb},
    {"dead_4",     Is::dead,        R::none,      E::one,          E::emb},
    {"dead_5",     Is::dead,        R::none,      E::one,          E::emb},
    {"packed_rms", Is::packed_norm, R::ffn_norm,  E::two,          E::emb},
    {"w_gateup",   Is::gate_up,     R::gate,      E::hidden_twice, E::emb},
    {"dead_8",     Is::dead,        R::none,      E::one,          E::hidden},
    {"dead_9",     Is::dead,        R::none,      E::hidden,       E::emb},
    {"dead_10",    Is::dead,        R::none,      E::one,          E::hidden},
    {"swiglu",     Is::own,         R::none,      E::one,          E::hidden},
    {"wdown",      Is::matrix,      R::down,      E::hidden,       E::emb},
    {"dead_13",    Is::dead,        R::none,      E::one,          E::emb},
    {"output",     Is::output,      R::x,         E::one,          E::emb},
};

constexpr Row kOGemv[] = {
    {"wo",         Is::matrix, R::o,         E::q_dim,  E::emb},
    {"attn_out",   Is::input,  R::attention, E::one,    E::q_dim},
    {"proj",       Is::output, R::delta,     E::one,    E::emb},
};
constexpr Row kGateGemv[] = {
    {"w_gate",     Is::matrix, R::gate,      E::emb,    E::hidden},
    {"normed2",    Is::input,  R::normed,    E::one,    E::emb},
    {"gate",       Is::output, R::gate,      E::one,    E::hidden},
};
constexpr Row kUpGemv[] = {
    {"w_up",       Is::matrix, R::up,        E::emb,    E::hidden},
    {"normed2",    Is::input,  R::normed,    E::one,    E::emb},
    {"up",         Is::output, R::up,        E::one,    E::hidden},
};
constexpr Row kDownGemv[] = {
    {"w_down",     Is::matrix, R::down,      E::hidden, E::emb},
    {"swiglu",     Is::input,  R::gate,      E::one,    E::hidden},
    {"down",       Is::output, R::delta,     E::one,    E::emb},
};
constexpr Row kLmHead[] = {
    {"x",          Is::input,  R::head_normed, E::one,  E::emb},  // after the final norm
};

constexpr R kQkvSteps[] = {R::attn_norm, R::q, R::k, R::v, R::q_rope, R::k_rope};
constexpr R kQkvNormSteps[] = {R::attn_norm, R::q, R::k, R::v,
                               R::q | Facet::norm, R::q_rope, R::k | Facet::norm, R::k_rope};
constexpr R kAttentionSteps[] = {R::attention};
constexpr R kFfnSteps[] = {R::o, R::attn_residual, R::ffn_norm, R::gate,
                           R::up, R::swiglu, R::down, R::ffn_residual};
constexpr R kHeadSteps[] = {R::lm_head};
constexpr auto kFfn = std::span<const R>(kFfnSteps);

using P = AirProductPlace;
constexpr P kQkvProducts[] = {{R::q, 2, 4}, {R::k, 2, 6}, {R::v, 2, 8}};
constexpr P kFfnProducts[] = {{R::o, 0, 2}, {R::gate, 6, 8}, {R::up, 6, 10}, {R::down, 11, 13}};
constexpr auto kHeadProducts = std::span(kFfnProducts).first(3);
constexpr P kGateUpProducts[] = {{R::gate, 0, 2}, {R::up, 0, 4}};
constexpr P kOProduct[] = {{R::o, 0, 2}}, kGateProduct[] = {{R::gate, 0, 2}},
            kUpProduct[] = {{R::up, 0, 2}}, kDownProduct[] = {{R::down, 0, 2}};
constexpr P kOGemvProduct[] = {{R::o, 1, 2}}, kGateGemvProduct[] = {{R::gate, 1, 2}},
            kUpGemvProduct[] = {{R::up, 1, 2}}, kDownGemvProduct[] = {{R::down, 1, 2}};

constexpr auto kPrompt = AirPhase::prompt, kToken = AirPhase::token, kHead = AirPhase::head;
constexpr Table kTables[] = {
    {"rms_gemms_rope", "", kPrompt, 6, kQkvSteps, kQkvProducts, {kQkv, kV, kRope, kQkvWide}},
    {"rms_qkv_bias_rope", "", kPrompt, 9, kQkvSteps, kQkvProducts, {kQkv, kBiases, kRope, kQkvWide}},
    {"rms_qkv_qknorm_rope", "", kPrompt, 8, kQkvNormSteps, kQkvProducts,
     {kQkv, kHeadNorms, kRope, kQkvWide}},
    {"flash_attn", "attention_bf16", kPrompt, 1, kAttentionSteps, {}, {kFlashAttn}},
    {"o_ffn", "", kPrompt, 8, kFfn, kFfnProducts, {kO, kNormAndFfn, kFfnWide}},
    {"o_ffn_qwen", "", kPrompt, 8, kFfn, kFfnProducts, {kO, kNormAndFfn, kFfnWide}},
    {"o_ffn_head", "", kPrompt, 6, kFfn.first(6), kHeadProducts, {kO, kNormAndGate, kGateWide}},
    {"o_res_norm", "", kPrompt, 3, kFfn.first(3), kOProduct, {kO, kResNorm, kOWide}},
    {"gate_up", "", kPrompt, 2, kFfn.subspan(3, 2), kGateUpProducts, {kGate, kUpBehindGate}},
    {"gate", "", kPrompt, 1, kFfn.subspan(3, 1), kGateProduct, {kGate, kWideOfGate}},
    {"up", "", kPrompt, 1, kFfn.subspan(4, 1), kUpProduct, {kUp, kWideOfUp}},
    {"swiglu", "silu_and_mul_2d", kPrompt, 1, kFfn.subspan(5, 1), {}, {kSwiglu}},
    {"down_add", "", kPrompt, 2, kFfn.last(2), kDownProduct, {kDownAdd, kDownWide}},
    {"rms_gemv_rope", "", kToken, 6, kQkvSteps, kQkvProducts, {kQkv, kV, kRope}},
    {"rms_qkv_bias_rope_gemv", "", kToken, 9, kQkvSteps, kQkvProducts, {kQkv, kBiases, kRope}},
    {"rms_qkv_qknorm_rope_gemv", "", kToken, 8, kQkvNormSteps, kQkvProducts,
     {kQkv, kHeadNorms, kRope}},
    {"o_gemv_ffn", "", kToken, 3, kFfn, {}, {kOGemvFfn}},
    {"o_gemv", "", kToken, 1, kFfn.first(1), kOGemvProduct, {kOGemv}},
    {"gate_gemv", "", kToken, 1, kFfn.subspan(3, 1), kGateGemvProduct, {kGateGemv}},
    {"up_gemv", "", kToken, 1, kFfn.subspan(4, 1), kUpGemvProduct, {kUpGemv}},
    {"down_gemv", "", kToken, 1, kFfn.subspan(6, 1), kDownGemvProduct, {kDownGemv}},
    {"lm_head_gemv", "", kHead, 0, kHeadSteps, {}, {kLmHead}},  // a launch per partition
};

// A weight's name in a checkpoint, below its layer's prefix.
struct Source {
  Role slot;
  std::string_view tensor;
};
constexpr Source kSources[] = {
    {R::attn_norm, "input_layernorm.weight"},   {R::ffn_norm, "post_attention_layernorm.weight"},
    {R::q, "self_attn.q_proj.weight"},          {R::q | Facet::bias, "self_attn.q_proj.bias"},
    {R::k, "self_attn.k_proj.weight"},          {R::k | Facet::bias, "self_attn.k_proj.bias"},
    {R::v, "self_attn.v_proj.weight"},          {R::v | Facet::bias, "self_attn.v_proj.bias"},
    {R::q | Facet::norm, "self_attn.q_norm.weight"},
    {R::k | Facet::norm, "self_attn.k_norm.weight"},
    {R::o, "self_attn.o_proj.weight"},          {R::gate, "mlp.gate_proj.weight"},
    {R::up, "mlp.up_proj.weight"},              {R::down, "mlp.down_proj.weight"},
};
// clang-format on

std::string_view source_of(Role slot) {
  for (const Source& source : kSources)
    if (source.slot == slot) return source.tensor;
  TYTO_ASSERT(false);
}

const Table* find_table(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTables), std::end(kTables),
                                         [&](const Table& table) { return table.name == name; });
  return found == std::end(kTables) ? nullptr : found;
}

struct Description {
  const AirDims& dims;
  const AirForm& form;
  const Table& table;

  bool is_prompt() const { return table.phase == AirPhase::prompt; }

  uint64_t padded(uint64_t width) const {
    return is_prompt() ? round_up(width, form.width_step) : width;
  }

  // q, k and v are brought back to their own width by the launches that add the biases.
  uint64_t padded_before_bias(uint64_t width) const {
    return dims.qkv_bias != 0 ? padded(width) : width;
  }

  uint64_t extent(Extent which) const {
    switch (which) {
      case E::one:
        return 1;
      case E::two:
        return 2;
      case E::rows:
        return is_prompt() ? dims.seq : 1;
      case E::emb:
        return dims.emb;
      case E::head_dim:
        return dims.head_dim;
      case E::q_dim:
        return dims.q_dim();
      case E::kv_dim:
        return dims.kv_dim();
      case E::hidden:
        return dims.hidden;
      case E::hidden_twice:
        return uint64_t{dims.hidden} * 2;
      case E::q_padded:
        return padded_before_bias(dims.q_dim());
      case E::kv_padded:
        return padded_before_bias(dims.kv_dim());
      case E::emb_padded:
        return padded(dims.emb);
    }
    return 0;
  }

  bool goes_through_f32(Role product) const {
    return std::find(form.through_f32.begin(), form.through_f32.end(), product) !=
           form.through_f32.end();
  }

  AirArgument argument(const Row& row) const {
    const uint64_t rows = extent(row.rows), cols = extent(row.cols);
    const auto made = [&](AirRole role, AirLayout layout = AirLayout::none,
                          const std::string& source = "", DType dtype = DType::bf16) {
      return air_argument(std::string(row.name), role, dtype, rows, cols, layout, source);
    };
    switch (row.is) {
      case Is::input:
        return made(AirRole::input);
      case Is::output:
        return made(AirRole::output);
      case Is::own:
        return made(AirRole::scratch);
      case Is::wide:
        return made(AirRole::scratch, AirLayout::none, "", DType::f32);
      case Is::matrix: {
        AirArgument result =
            made(AirRole::weight, is_prompt() ? AirLayout::transposed : AirLayout::as_stored,
                 std::string(source_of(row.slot)));
        if (!is_prompt()) std::swap(result.rows, result.cols);
        result.real_rows = result.rows;
        return result;
      }
      case Is::vector:
        return made(AirRole::weight, AirLayout::as_stored, std::string(source_of(row.slot)));
      case Is::table:  // written once for a prompt, which begins at position 0
        return made(is_prompt() ? AirRole::weight : AirRole::input, AirLayout::rope_per_head);
      case Is::packed_norm:
        return made(AirRole::weight, AirLayout::norm_in_row_1, std::string(source_of(row.slot)));
      case Is::gate_up:
        return made(AirRole::weight, AirLayout::gate_up_rows,
                    fmt::format("{}+{}", source_of(R::gate), source_of(R::up)));
      case Is::dead:
        return made(AirRole::dead);
    }
    TYTO_ASSERT(false);
  }
};

void append_rows(const Description& description, AirProgram& program) {
  for (std::span<const Row> rows : description.table.rows)
    for (const Row& row : rows) {
      if (row.is == Is::wide) {
        if (!description.goes_through_f32(row.slot)) continue;
        ++program.launches;  // that rounds it
      }
      program.arguments.push_back(description.argument(row));
      if (row.is != Is::wide) program.arguments.back().slot = row.slot;
    }
}

// Weight and logits of each partition in turn. Rows beyond the vocabulary are zeros, and their
// logits are never read.
void append_head(const AirDims& dims, const AirForm& form, AirProgram& program) {
  const AirHead head = air_head(dims, form);
  program.launches = head.partitions;
  for (uint32_t p = 0; p < head.partitions; ++p) {
    const uint64_t first = std::min<uint64_t>(uint64_t{p} * head.rows, dims.vocab);
    const uint64_t real = std::min<uint64_t>(head.rows, dims.vocab - first);
    AirArgument rows =
        air_argument(fmt::format("weight_{}", p), AirRole::weight, DType::bf16, head.rows, dims.emb,
                     AirLayout::head_partition, "lm_head.weight");
    rows.slot = Role::lm_head;
    rows.partition = p;
    rows.real_rows = real;
    AirArgument logits =
        air_argument(fmt::format("logits_{}", p), AirRole::output, DType::bf16, 1, head.rows);
    logits.slot = Role::logits;
    logits.partition = p;
    logits.per_call = {0, row_bytes(DType::bf16, real)};
    program.products.push_back({Role::lm_head, 0, program.arguments.size() + 1});
    program.arguments.push_back(std::move(rows));
    program.arguments.push_back(std::move(logits));
  }
}

// Queries and keys keep their heads whole; of values and results half a head is taken at a time.
void turn_heads_first(const AirDims& dims, AirProgram& program) {
  for (size_t i = 0; i < program.arguments.size(); ++i) {
    program.arguments[i].layout = AirLayout::heads_first;
    program.arguments[i].run = i < 2 ? dims.head_dim : dims.head_dim / 2;
  }
}

// MLIR-AIR's temporal kernel has two columns per head of a group, rounds of 256 rows, and past
// four rounds a mapping for groups of three alone.
bool takes_temporal(const AirDims& dims) {
  constexpr uint32_t kRound = 256, kRounds = 4, kColumns = 8;
  const uint32_t group = dims.heads / dims.kv_heads;
  return dims.head_dim == 128 && dims.seq % kRound == 0 && 2 * group <= kColumns &&
         (group == 3 || dims.seq / kRound <= kRounds);
}

}  // namespace

AirHead air_head(const AirDims& dims, const AirForm& form) {
  const uint32_t needed = (dims.vocab + form.head_rows - 1) / form.head_rows;
  return {form.head_rows, std::max(form.head_partitions, needed)};
}

bool is_air_program(std::string_view name) {
  return find_table(name) != nullptr;
}

AirPhase air_phase(std::string_view name) {
  const Table* table = find_table(name);
  TYTO_ASSERT(table != nullptr);
  return table->phase;
}

std::string_view prompt_input_program(const AirDims& dims) {
  if (dims.qkv_bias != 0) return "rms_qkv_bias_rope";
  return dims.qk_norm != 0 ? "rms_qkv_qknorm_rope" : "rms_gemms_rope";
}

std::string_view token_input_program(const AirDims& dims) {
  if (dims.qkv_bias != 0) return "rms_qkv_bias_rope_gemv";
  return dims.qk_norm != 0 ? "rms_qkv_qknorm_rope_gemv" : "rms_gemv_rope";
}

AirProgram described_program(std::string_view name, const AirDims& dims, const AirForm& form) {
  const Table* table = find_table(name);
  TYTO_ASSERT(table != nullptr);
  check_air_dims(name, dims);
  AirProgram program;
  program.name = name;
  program.entry = fmt::format("main:{}", table->instance.empty() ? name : table->instance);
  program.launches = table->launches;
  program.phase = table->phase;
  program.steps.assign(table->steps.begin(), table->steps.end());
  program.products.assign(table->products.begin(), table->products.end());
  append_rows({dims, form, *table}, program);
  if (program.phase == AirPhase::head) append_head(dims, form, program);
  const bool attends = table->steps.front() == Role::attention;
  const bool is_heads_first = form.attention == AirAttention::heads_first ||
                              (form.attention == AirAttention::temporal && !takes_temporal(dims));
  if (attends && is_heads_first) turn_heads_first(dims, program);
  return program;
}

namespace {

using Names = std::string_view;
using R = Role;

// clang-format off
constexpr Names kOFfn[] = {"o_ffn"};
constexpr Names kOFfnQwen[] = {"o_ffn_qwen"};
// A down projection whose K is no multiple of 1024 must be the first launch of its ELF.
constexpr Names kHeadAndDown[] = {"o_ffn_head", "down_add"};
// Wider ones leave no room in one ELF.
constexpr Names kGateUpTogether[] = {"o_res_norm", "gate_up", "swiglu", "down_add"};
constexpr Names kAllApart[] = {"o_res_norm", "gate", "up", "swiglu", "down_add"};
constexpr Names kNamesOfOGemvFfn[] = {"o_gemv_ffn"};
constexpr Names kGemvs[] = {"o_gemv", "gate_gemv", "up_gemv", "down_gemv"};
// A row of the weight and the vector, both in L1, are too long.
constexpr Names kGemvsButDown[] = {"o_gemv", "gate_gemv", "up_gemv"};

constexpr R kAll[] = {R::q, R::k, R::v, R::o, R::gate, R::up, R::down};
constexpr R kAllButKv[] = {R::q, R::o, R::gate, R::up, R::down};
constexpr R kQODown[] = {R::q, R::o, R::down};
constexpr R kDown[] = {R::down};

constexpr auto kSeqFirst = AirAttention::seq_first, kHeadsFirst = AirAttention::heads_first,
               kTemporal = AirAttention::temporal;
constexpr uint32_t kQwenRows = 8192, kQwenPartitions = 19;

// New ones at the end: images of the virtual NPU hold the place (AirDims::like).
constexpr KnownAirModel kModels[] = {
    {"llama-3.2-1b", kLlama32_1b, {kOFfn, kNamesOfOGemvFfn, kAllButKv, kSeqFirst, 16384, 8}},
    {"llama-3.2-3b", {28, 3072, 24, 8, 128, 8192, 128256, 2048},
     {kOFfn, kGemvs, kAll, kTemporal, 16384, 8}},
    // As Llama-3.2-1B's, down to the partitions of a head that has fewer rows.
    {"smollm2-1.7b", {24, 2048, 32, 32, 64, 8192, 49152, 2048},
     {kOFfn, kNamesOfOGemvFfn, kAll, kSeqFirst, 16384, 8}},
    {"qwen3-0.6b", {28, 1024, 16, 8, 128, 3072, 151936, 2048, 0, 1},
     {kOFfnQwen, kNamesOfOGemvFfn, kAllButKv, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen3-1.7b", {28, 2048, 16, 8, 128, 6144, 151936, 2048, 0, 1},
     {kOFfnQwen, kNamesOfOGemvFfn, kAll, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen3-4b", {36, 2560, 32, 8, 128, 9728, 151936, 2048, 0, 1},
     {kAllApart, kGemvs, kAll, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen2.5-0.5b", {24, 896, 14, 2, 64, 4864, 151936, 2048, 1, 0},
     {kHeadAndDown, kGemvs, kDown, kSeqFirst, kQwenRows, kQwenPartitions, 1024}},
    {"qwen2.5-1.5b", {28, 1536, 12, 2, 128, 8960, 151936, 2048, 1, 0},
     {kGateUpTogether, kGemvs, kQODown, kHeadsFirst, kQwenRows, kQwenPartitions}},
    {"qwen2.5-3b", {36, 2048, 16, 2, 128, 11008, 151936, 2048, 1, 0},
     {kAllApart, kGemvs, kQODown, kHeadsFirst, kQwenRows, kQwenPartitions}},
    // Built for the prompts of the 4-bit decode alone: their GEMVs have not been built.
    {"llama-3.1-8b", {32, 4096, 32, 8, 128, 14336, 128256, 2048},
     {kOFfn, kGemvs, kAll, kTemporal, 16384, 8}},
    {"qwen3-8b", {36, 4096, 32, 8, 128, 12288, 151936, 2048, 0, 1},
     {kAllApart, kGemvs, kAll, kHeadsFirst, 16384, 10}},
    {"qwen2.5-7b", {28, 3584, 28, 4, 128, 18944, 152064, 2048, 1, 0},
     {kAllApart, kGemvsButDown, kQODown, kHeadsFirst, 16384, 10}},
};
// clang-format on

// Widths beyond which MLIR-AIR has split every model it builds.
constexpr uint32_t kMostFusedEmb = 2048, kMostFusedHidden = 8192;
// The largest K of a GEMV: 64 KiB of L1 hold a row, the vector and the stack.
constexpr uint32_t kMostGemvK = 16000;

AirForm form_by_rules(const AirDims& dims) {
  const bool has_wide_ffn = dims.hidden > kMostFusedHidden;
  const bool has_long_heads = dims.head_dim == 128 || dims.head_dim == 256;
  AirForm form;
  form.prompt_ffn = has_wide_ffn ? std::span<const Names>(kAllApart) : kOFfn;
  form.token_ffn = kNamesOfOGemvFfn;
  if (has_wide_ffn || dims.emb > kMostFusedEmb) form.token_ffn = kGemvs;
  if (dims.hidden > kMostGemvK) form.token_ffn = kGemvsButDown;
  form.through_f32 = dims.kv_heads == dims.heads ? std::span<const R>(kAll) : kAllButKv;
  form.attention = has_long_heads ? kHeadsFirst : kSeqFirst;
  return form;
}

std::vector<std::string_view> program_names(const AirDims& dims) {
  const AirForm form = air_form(dims);
  std::vector<std::string_view> names = {prompt_input_program(dims), "flash_attn"};
  names.insert(names.end(), form.prompt_ffn.begin(), form.prompt_ffn.end());
  names.push_back(token_input_program(dims));
  names.insert(names.end(), form.token_ffn.begin(), form.token_ffn.end());
  names.push_back("lm_head_gemv");
  return names;
}

}  // namespace

std::span<const KnownAirModel> known_air_models() {
  return kModels;
}

const KnownAirModel* known_air_model(const AirDims& dims) {
  for (const KnownAirModel& model : kModels) {
    AirDims same = dims;
    same.layers = model.dims.layers;
    same.seq = model.dims.seq;
    if (same == model.dims) return &model;
  }
  return nullptr;
}

std::optional<uint32_t> images_like(std::string_view name) {
  for (uint32_t i = 0; i < std::size(kModels); ++i)
    if (kModels[i].name == name) return i + 1;
  return std::nullopt;
}

AirForm air_form(const AirDims& dims) {
  if (dims.like > std::size(kModels))
    fail_unsupported("--images-like", "there is no model {}", dims.like);
  if (dims.like > 0) return kModels[dims.like - 1].form;
  const KnownAirModel* known = known_air_model(dims);
  return known != nullptr ? known->form : form_by_rules(dims);
}

AirHead air_head(const AirDims& dims) {
  return air_head(dims, air_form(dims));
}

AirModel air_model(const AirDims& dims) {
  AirModel model;
  const AirForm form = air_form(dims);
  for (std::string_view name : program_names(dims))
    model.programs.push_back(described_program(name, dims, form));
  return model;
}

AirProgram air_program(std::string_view name, const AirDims& dims) {
  if (!is_air_program(name))
    fail_unsupported(std::string(name), "no argument list is known for this program");
  const std::vector<std::string_view> names = program_names(dims);
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail_unsupported(std::string(name),
                     "a model of these dimensions has no such program; it has {}",
                     joined(names, ", "));
  return described_program(name, dims, air_form(dims));
}

}  // namespace tyto
