// Modules written word by word, as the compiler writes them, and what the rewriting makes of them.
#include "device/vulkan/spirv/cooperative_matrix.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tyto::spirv {
namespace {

using Words = std::vector<uint32_t>;

struct Instruction {
  uint32_t opcode;
  Words operands;
  bool operator==(const Instruction&) const = default;
};

Words text(const std::string& name) {
  Words words(name.size() / 4 + 1);
  std::memcpy(words.data(), name.data(), name.size());
  return words;
}

constexpr uint32_t kBound = 100;

Words assemble(const std::vector<Instruction>& list) {
  Words module = {0x07230203, 0x00010500, 0, kBound, 0};
  for (const auto& [opcode, operands] : list) {
    module.push_back(static_cast<uint32_t>(operands.size() + 1) << 16 | opcode);
    module.insert(module.end(), operands.begin(), operands.end());
  }
  return module;
}

std::vector<Instruction> parse(const Words& module) {
  std::vector<Instruction> list;
  for (size_t at = 5; at < module.size();) {
    const size_t words = module.at(at) >> 16;
    EXPECT_GT(words, 0u);
    EXPECT_LE(at + words, module.size());
    list.push_back(
        {module[at] & 0xffff, Words(module.begin() + at + 1, module.begin() + at + words)});
    at += words;
  }
  return list;
}

// Ids of the module below.
enum : uint32_t {
  a_rows = 1,
  b_rows,
  sum_rows,
  columns,
  scope,
  u32,
  f16,
  f32,
  boolean,
  yes,
  no,
  a_type,
  b_type,
  sum_type,
  pointer,
  stride,
  a,
  b,
  c,
  sum,
  length
};

// A matrix of each use, a load in each layout, a product, a store, the length of a type.
std::vector<Instruction> example() {
  return {
      {17, {1}},
      {17, {9}},
      {17, {5357}},
      {10, text("SPV_NV_cooperative_matrix")},
      {71, {a_rows, 1, kRowsOfA}},
      {71, {b_rows, 1, kRowsOfB}},
      {71, {sum_rows, 1, kRowsOfSums}},
      {21, {u32, 32, 0}},
      {22, {f32, 32}},
      {22, {f16, 16}},
      {20, {boolean}},
      {41, {boolean, yes}},
      {42, {boolean, no}},
      {50, {u32, a_rows, 16}},
      {50, {u32, b_rows, 16}},
      {50, {u32, sum_rows, 16}},
      {5358, {a_type, f16, scope, a_rows, columns}},
      {5358, {b_type, f16, scope, b_rows, columns}},
      {5358, {sum_type, f32, scope, sum_rows, columns}},
      {5359, {a_type, a, pointer, stride, no}},
      {5359, {b_type, b, pointer, stride, yes, 0x30, scope}},
      {5361, {sum_type, sum, a, b, c}},
      {5360, {pointer, sum, stride, no, 0x28, scope}},
      {5362, {u32, length, sum_type}},
  };
}

const Instruction* find(const std::vector<Instruction>& list, uint32_t opcode, uint32_t operand,
                        size_t place = 0) {
  for (const Instruction& one : list) {
    if (one.opcode == opcode && one.operands.size() > place && one.operands[place] == operand)
      return &one;
  }
  return nullptr;
}

std::string error_of(const Words& module, Component component = Component::f16) {
  try {
    with_khr_matrices(module, component);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CooperativeMatrix, EveryInstructionBecomesThatOfKhronos) {
  const Words module = with_khr_matrices(assemble(example()), Component::f16);
  EXPECT_EQ(module[3], kBound + 3);
  const uint32_t zero = kBound, one = kBound + 1, two = kBound + 2;
  const std::vector<Instruction> expected = {
      {17, {1}},
      {17, {9}},
      {17, {6022}},
      {10, text("SPV_KHR_cooperative_matrix")},
      {71, {a_rows, 1, kRowsOfA}},
      {71, {b_rows, 1, kRowsOfB}},
      {71, {sum_rows, 1, kRowsOfSums}},
      {21, {u32, 32, 0}},
      {43, {u32, zero, 0}},
      {43, {u32, one, 1}},
      {43, {u32, two, 2}},
      {22, {f32, 32}},
      {22, {f16, 16}},
      {20, {boolean}},
      {41, {boolean, yes}},
      {42, {boolean, no}},
      {50, {u32, a_rows, 16}},
      {50, {u32, b_rows, 16}},
      {50, {u32, sum_rows, 16}},
      {4456, {a_type, f16, scope, a_rows, columns, zero}},
      {4456, {b_type, f16, scope, b_rows, columns, one}},
      {4456, {sum_type, f32, scope, sum_rows, columns, two}},
      {4457, {a_type, a, pointer, zero, stride}},
      {4457, {b_type, b, pointer, one, stride, 0x30, scope}},
      {4459, {sum_type, sum, a, b, c}},
      {4458, {pointer, sum, zero, stride, 0x28, scope}},
      {4460, {u32, length, sum_type}},
  };
  EXPECT_EQ(parse(module), expected);
}

TEST(CooperativeMatrix, Bf16TakesThePlaceOfF16) {
  const auto list = parse(with_khr_matrices(assemble(example()), Component::bf16));
  EXPECT_EQ(find(list, 17, 9), nullptr);
  EXPECT_NE(find(list, 17, 5116), nullptr);
  EXPECT_NE(find(list, 17, 5118), nullptr);
  EXPECT_NE(find(list, 10, text("SPV_KHR_bfloat16")[1], 1), nullptr);
  ASSERT_NE(find(list, 22, f16), nullptr);
  EXPECT_EQ(find(list, 22, f16)->operands, (Words{f16, 16, 0}));
  EXPECT_EQ(find(list, 22, f32)->operands, (Words{f32, 32}));
}

TEST(CooperativeMatrix, Bf16IsRefusedWhereF16IsMoreThanMatrices) {
  for (const Instruction& use : std::vector<Instruction>{{43, {f16, 50, 0x3c00}},
                                                         {115, {f16, 50, 51}},
                                                         {23, {50, f16, 2}},
                                                         {32, {50, 7, f16}},
                                                         {30, {50, u32, f16}}}) {
    auto list = example();
    list.push_back(use);
    EXPECT_NE(error_of(assemble(list), Component::bf16).find("outside of matrices"),
              std::string::npos)
        << use.opcode;
    EXPECT_EQ(error_of(assemble(list)), "no error");
  }
}

TEST(CooperativeMatrix, AModuleWithoutMatricesStaysAsItIs) {
  const Words module = assemble({{17, {1}}, {17, {9}}, {22, {f16, 16}}, {43, {f16, 50, 0x3c00}}});
  EXPECT_EQ(with_khr_matrices(module, Component::f16), module);
  EXPECT_EQ(with_khr_matrices(module, Component::bf16), module);
}

TEST(CooperativeMatrix, WhatCannotBeRewrittenIsAnError) {
  const auto without = [](uint32_t opcode, uint32_t operand, size_t place = 0) {
    auto list = example();
    std::erase_if(list, [&](const Instruction& one) {
      return one.opcode == opcode && one.operands.size() > place && one.operands[place] == operand;
    });
    return error_of(assemble(list));
  };
  EXPECT_NE(without(71, b_rows).find("rows of a matrix type"), std::string::npos);
  EXPECT_NE(without(42, no, 1).find("column-major"), std::string::npos);
  EXPECT_NE(without(21, u32).find("unsigned integer"), std::string::npos);
}

TEST(CooperativeMatrix, HostileWordsAreErrorsAndNothingWorse) {
  EXPECT_NE(error_of({}).find("does not begin"), std::string::npos);
  EXPECT_NE(error_of({1, 2, 3, 4, 5}).find("does not begin"), std::string::npos);
  Words module = assemble(example());
  for (size_t length = 0; length < module.size(); ++length) {
    error_of(Words(module.begin(), module.begin() + length), Component::bf16);
  }
  for (size_t at = 5; at < module.size(); ++at) {
    for (const uint32_t word : {0u, 0xffffffffu, 1u << 16 | 5359u, 2u << 16 | 71u}) {
      const uint32_t before = std::exchange(module[at], word);
      error_of(module, Component::bf16);
      module[at] = before;
    }
  }
}

}  // namespace
}  // namespace tyto::spirv
