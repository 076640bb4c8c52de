#include "device/vulkan/spirv/cooperative_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <string_view>

#include "base/error.h"

namespace tyto::spirv {
namespace {

// Numbers of the SPIR-V specification and of SPV_NV_cooperative_matrix, SPV_KHR_cooperative_matrix,
// SPV_KHR_bfloat16.
constexpr uint32_t kMagic = 0x07230203;
constexpr size_t kHeaderWords = 5;
constexpr size_t kBoundWord = 3;  // ids are below it

enum Opcode : uint32_t {
  op_extension = 10,
  op_capability = 17,
  op_type_int = 21,
  op_type_float = 22,
  op_type_vector = 23,
  op_type_array = 28,
  op_type_runtime_array = 29,
  op_type_struct = 30,
  op_type_pointer = 32,
  op_constant_true = 41,
  op_constant_false = 42,
  op_constant = 43,
  op_spec_constant = 50,
  op_decorate = 71,
  op_f_convert = 115,
  op_type_matrix_khr = 4456,
  op_load_khr = 4457,
  op_store_khr = 4458,
  op_mul_add_khr = 4459,
  op_length_khr = 4460,
  op_type_matrix_nv = 5358,
  op_load_nv = 5359,
  op_store_nv = 5360,
  op_mul_add_nv = 5361,
  op_length_nv = 5362,
};

enum Capability : uint32_t {
  capability_float16 = 9,
  capability_bfloat16_type = 5116,
  capability_bfloat16_matrix = 5118,
  capability_matrix_nv = 5357,
  capability_matrix_khr = 6022,
};

constexpr uint32_t kDecorationSpecId = 1;
constexpr uint32_t kEncodingBfloat16 = 0;
constexpr std::string_view kExtensionNv = "SPV_NV_cooperative_matrix";
constexpr std::string_view kExtensionKhr = "SPV_KHR_cooperative_matrix";
constexpr std::string_view kExtensionBfloat16 = "SPV_KHR_bfloat16";

const std::string kWhere = "SPIR-V module";

// An instruction's first word is its length and opcode; operands follow.
struct Instruction {
  uint32_t opcode;
  std::span<const uint32_t> operands;
};

std::vector<Instruction> instructions_of(std::span<const uint32_t> module) {
  if (module.size() < kHeaderWords || module[0] != kMagic)
    fail_input(kWhere, "it does not begin as one");
  std::vector<Instruction> list;
  for (size_t at = kHeaderWords; at < module.size();) {
    const size_t words = module[at] >> 16;
    if (words == 0 || words > module.size() - at) {
      fail_input(kWhere, "the instruction at word {} runs past the end", at);
    }
    list.push_back({module[at] & 0xffff, module.subspan(at + 1, words - 1)});
    at += words;
  }
  return list;
}

struct Shape {
  uint32_t opcode;
  size_t operands;  // at least
};
constexpr std::array kShapes = {
    Shape{op_capability, 1},     Shape{op_extension, 1},  Shape{op_type_int, 3},
    Shape{op_type_float, 2},     Shape{op_decorate, 2},   Shape{op_constant_true, 2},
    Shape{op_constant_false, 2}, Shape{op_constant, 3},   Shape{op_spec_constant, 3},
    Shape{op_type_matrix_nv, 5}, Shape{op_load_nv, 5},    Shape{op_store_nv, 4},
    Shape{op_mul_add_nv, 5},     Shape{op_length_nv, 3},  Shape{op_type_vector, 3},
    Shape{op_type_pointer, 3},   Shape{op_type_array, 3}, Shape{op_type_runtime_array, 2},
    Shape{op_f_convert, 3},
};

void check_lengths(const std::vector<Instruction>& list) {
  for (const Instruction& one : list) {
    for (const Shape& shape : kShapes) {
      if (one.opcode == shape.opcode && one.operands.size() < shape.operands) {
        fail_input(kWhere, "an instruction {} has {} operands and needs {}", one.opcode,
                   one.operands.size(), shape.operands);
      }
    }
  }
}

std::string_view text_of(std::span<const uint32_t> words) {
  const auto* text = reinterpret_cast<const char*>(words.data());
  return {text, strnlen(text, words.size_bytes())};
}

// What has to be known before the first instruction is written.
struct Facts {
  uint32_t uint32_type = 0;
  uint32_t f16_type = 0;
  std::map<uint32_t, uint32_t> spec_ids;  // id -> constant_id
  std::map<uint32_t, bool> bools;         // id -> value
};

Facts facts_of(const std::vector<Instruction>& list) {
  Facts facts;
  for (const auto& [opcode, operands] : list) {
    if (opcode == op_type_int && operands[1] == 32 && operands[2] == 0)
      facts.uint32_type = operands[0];
    if (opcode == op_type_float && operands[1] == 16) facts.f16_type = operands[0];
    if (opcode == op_decorate && operands[1] == kDecorationSpecId && operands.size() == 3) {
      facts.spec_ids[operands[0]] = operands[2];
    }
    if (opcode == op_constant_true) facts.bools[operands[1]] = true;
    if (opcode == op_constant_false) facts.bools[operands[1]] = false;
  }
  if (facts.uint32_type == 0) fail_input(kWhere, "it declares no 32-bit unsigned integer");
  return facts;
}

// f16 becomes bf16 where it is declared, so nothing but matrices may be made of it.
void check_only_matrices_use(uint32_t f16_type, const std::vector<Instruction>& list) {
  if (f16_type == 0) fail_input(kWhere, "--bf16 is asked for, and it declares no f16");
  for (const auto& [opcode, operands] : list) {
    const bool of_result =
        opcode == op_constant || opcode == op_spec_constant || opcode == op_f_convert;
    const bool of_type =
        opcode == op_type_vector || opcode == op_type_array || opcode == op_type_runtime_array;
    bool used = (of_result && operands[0] == f16_type) || (of_type && operands[1] == f16_type) ||
                (opcode == op_type_pointer && operands[2] == f16_type);
    if (opcode == op_type_struct) {
      for (const uint32_t member : operands.subspan(operands.empty() ? 0 : 1))
        used |= member == f16_type;
    }
    if (used) fail_input(kWhere, "--bf16 is asked for, and f16 is used outside of matrices");
  }
}

class Writer {
 public:
  Writer(std::span<const uint32_t> header, Facts facts, Component component)
      : out_(header.begin(), header.end()), facts_(std::move(facts)), component_(component) {
    first_constant_ = out_[kBoundWord];
    out_[kBoundWord] += 3;
  }

  void add(const Instruction& one) {
    const auto& [opcode, in] = one;
    switch (opcode) {
      case op_capability:
        return add_capability(in[0]);
      case op_extension:
        return add_extension(in);
      case op_type_int:
        return add_integer(in);
      case op_type_float:
        return add_float(in);
      case op_type_matrix_nv:
        return put(op_type_matrix_khr,
                   {in[0], in[1], in[2], in[3], in[4], constant(use_of(in[3]))});
      case op_load_nv:
        return put(op_load_khr, {in[0], in[1], in[2], layout_of(in[4]), in[3]}, in.subspan(5));
      case op_store_nv:
        return put(op_store_khr, {in[0], in[1], layout_of(in[3]), in[2]}, in.subspan(4));
      case op_mul_add_nv:
        return put(op_mul_add_khr, {}, in);
      case op_length_nv:
        return put(op_length_khr, {}, in);
      default:
        return put(opcode, {}, in);
    }
  }

  std::vector<uint32_t> take() { return std::move(out_); }

 private:
  void put(uint32_t opcode, std::initializer_list<uint32_t> operands,
           std::span<const uint32_t> rest = {}) {
    out_.push_back(static_cast<uint32_t>(1 + operands.size() + rest.size()) << 16 | opcode);
    out_.insert(out_.end(), operands.begin(), operands.end());
    out_.insert(out_.end(), rest.begin(), rest.end());
  }

  // The values 0, 1 and 2, which uses and layouts are named by.
  uint32_t constant(uint32_t value) const { return first_constant_ + value; }

  void put_extension(std::string_view name) {
    std::vector<uint32_t> words(name.size() / 4 + 1);
    std::memcpy(words.data(), name.data(), name.size());
    put(op_extension, {}, words);
  }

  void add_capability(uint32_t capability) {
    if (capability == capability_matrix_nv) {
      put(op_capability, {capability_matrix_khr});
    } else if (capability == capability_float16 && component_ == Component::bf16) {
      put(op_capability, {capability_bfloat16_type});
      put(op_capability, {capability_bfloat16_matrix});
    } else {
      put(op_capability, {capability});
    }
  }

  void add_extension(std::span<const uint32_t> words) {
    if (text_of(words) != kExtensionNv) return put(op_extension, {}, words);
    put_extension(kExtensionKhr);
    if (component_ == Component::bf16) put_extension(kExtensionBfloat16);
  }

  void add_integer(std::span<const uint32_t> in) {
    put(op_type_int, {}, in);
    if (in[0] != facts_.uint32_type) return;
    for (uint32_t value = 0; value < 3; ++value) put(op_constant, {in[0], constant(value), value});
  }

  void add_float(std::span<const uint32_t> in) {
    if (in[0] == facts_.f16_type && component_ == Component::bf16) {
      return put(op_type_float, {in[0], in[1], kEncodingBfloat16});
    }
    put(op_type_float, {}, in);
  }

  uint32_t use_of(uint32_t rows) const {
    const auto found = facts_.spec_ids.find(rows);
    const uint32_t spec_id = found == facts_.spec_ids.end() ? 0 : found->second;
    if (spec_id < kRowsOfA || spec_id > kRowsOfSums) {
      fail_input(kWhere,
                 "the rows of a matrix type are not a constant with the number {} (a), {} (b) or "
                 "{} (sums)",
                 kRowsOfA, kRowsOfB, kRowsOfSums);
    }
    return spec_id - kRowsOfA;  // as MatrixAKHR, MatrixBKHR and MatrixAccumulatorKHR are numbered
  }

  // RowMajorKHR is 0, ColumnMajorKHR 1.
  uint32_t layout_of(uint32_t column_major) const {
    const auto found = facts_.bools.find(column_major);
    if (found == facts_.bools.end())
      fail_input(kWhere, "whether a matrix is column-major is not a constant");
    return constant(found->second ? 1 : 0);
  }

  std::vector<uint32_t> out_;
  Facts facts_;
  Component component_;
  uint32_t first_constant_ = 0;
};

}  // namespace

std::vector<uint32_t> with_khr_matrices(std::span<const uint32_t> module, Component component) {
  const std::vector<Instruction> list = instructions_of(module);
  const bool has_matrices = std::ranges::any_of(
      list, [](const Instruction& one) { return one.opcode == op_type_matrix_nv; });
  if (!has_matrices) return {module.begin(), module.end()};
  check_lengths(list);
  Facts facts = facts_of(list);
  if (component == Component::bf16) check_only_matrices_use(facts.f16_type, list);
  Writer writer(module.first(kHeaderWords), std::move(facts), component);
  for (const Instruction& one : list) writer.add(one);
  return writer.take();
}

}  // namespace tyto::spirv
