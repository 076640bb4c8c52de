#include "device/npu/formats/air_abi.h"

#include <algorithm>

#include "base/error.h"

namespace tyto {
namespace {

// clang-format off
constexpr std::string_view kRoleNames[] = {
    "input", "output", "inout", "weight", "scratch",
    "kv", "dead", "opcode", "instructions", "word_count"};
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

}  // namespace tyto
