#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include "support/print_dtype.h"

namespace tyto {
namespace {

constexpr std::array kAll = {
    DType::f32,     DType::f16,    DType::bf16,   DType::i32,    DType::q8_0,    DType::q4_0,
    DType::q4_1,    DType::q5_0,   DType::q5_1,   DType::q2_k,   DType::q3_k,    DType::q4_k,
    DType::q5_k,    DType::q6_k,   DType::iq4_nl, DType::iq4_xs, DType::iq3_xxs, DType::iq3_s,
    DType::iq2_xxs, DType::iq2_xs, DType::iq2_s,  DType::iq1_s,  DType::iq1_m,   DType::mxfp4};

TEST(DType, EveryTypeIsFoundByItsNumberAndName) {
  std::set<uint32_t> numbers;
  for (const DType type : kAll) {
    const DTypeInfo& entry = info(type);
    EXPECT_EQ(entry.type, type);
    EXPECT_EQ(dtype_from_ggml(entry.ggml_id), type);
    EXPECT_EQ(dtype_from_name(entry.name), type);
    EXPECT_TRUE(numbers.insert(entry.ggml_id).second);
  }
}

// The numbers GGUF's specification gives its tensor types.
TEST(DType, NumbersAreThoseOfGguf) {
  const std::vector<std::pair<uint32_t, DType>> expected = {
      {0, DType::f32},      {1, DType::f16},     {2, DType::q4_0},     {3, DType::q4_1},
      {6, DType::q5_0},     {7, DType::q5_1},    {8, DType::q8_0},     {10, DType::q2_k},
      {11, DType::q3_k},    {12, DType::q4_k},   {13, DType::q5_k},    {14, DType::q6_k},
      {16, DType::iq2_xxs}, {17, DType::iq2_xs}, {18, DType::iq3_xxs}, {19, DType::iq1_s},
      {20, DType::iq4_nl},  {21, DType::iq3_s},  {22, DType::iq2_s},   {23, DType::iq4_xs},
      {26, DType::i32},     {29, DType::iq1_m},  {30, DType::bf16},    {39, DType::mxfp4}};
  size_t known = 0;
  for (uint32_t number = 0; number < 100; ++number) known += dtype_from_ggml(number).has_value();
  EXPECT_EQ(known, expected.size());
  for (const auto& [number, type] : expected) EXPECT_EQ(dtype_from_ggml(number), type) << number;
  EXPECT_FALSE(dtype_from_ggml(UINT32_MAX));
}

TEST(DType, NamesIgnoreCase) {
  EXPECT_EQ(dtype_from_name("Q4_K"), DType::q4_k);
  EXPECT_EQ(dtype_from_name("BF16"), DType::bf16);
  for (const char* name : {"", "q4", "q4_k_m", "q4-k", " f32", "f32 "})
    EXPECT_FALSE(dtype_from_name(name)) << name;
}

TEST(DType, RowBytes) {
  EXPECT_EQ(row_bytes(DType::f32, 3), 12u);
  EXPECT_EQ(row_bytes(DType::bf16, 3), 6u);
  EXPECT_EQ(row_bytes(DType::q8_0, 64), 68u);
  EXPECT_EQ(row_bytes(DType::q4_0, 32), 18u);
  EXPECT_EQ(row_bytes(DType::q4_k, 2048), 1152u);
  EXPECT_EQ(row_bytes(DType::q5_k, 256), 176u);
  EXPECT_EQ(row_bytes(DType::q6_k, 512), 420u);
  EXPECT_EQ(row_bytes(DType::q6_k, 0), 0u);
  EXPECT_EQ(row_bytes(DType::iq2_xxs, 512), 132u);
  EXPECT_EQ(row_bytes(DType::mxfp4, 64), 34u);
}

TEST(DTypeDeathTest, RowsHoldWholeBlocks) {
  EXPECT_DEATH((void)row_bytes(DType::q4_k, 128), "internal error");
}

TEST(TensorView, RowsLieOneStrideApart) {
  std::vector<std::byte> bytes(3 * 36);
  const TensorView view = {DType::q4_0, 3, 64, bytes};
  EXPECT_FALSE(view.empty());
  EXPECT_EQ(view.values(), 192u);
  EXPECT_EQ(view.row_stride(), 36u);
  EXPECT_EQ(view.row(2).data(), bytes.data() + 72);
  EXPECT_EQ(view.row(2).size(), 36u);
  EXPECT_TRUE(TensorView().empty());
}

}  // namespace
}  // namespace tyto
