// What the NPU's runtime does before any XRT is involved: layouts, memory sums, the lock.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "base/error.h"
#include "device/npu/device_lock.h"
#include "device/npu/formats/air_binding.h"
#include "device/npu/formats/memory_plan.h"
#include "tensor/float16.h"

namespace tyto {
namespace {

std::vector<uint16_t> random_bf16(size_t count) {
  std::mt19937 random(7);
  std::vector<uint16_t> values(count);
  for (uint16_t& value : values) value = static_cast<uint16_t>(random() % 0x7f00);
  return values;
}

TensorView view(const std::vector<uint16_t>& values, uint64_t rows, uint64_t cols) {
  return {DType::bf16, rows, cols, std::as_bytes(std::span(values))};
}

class WeightPlacing : public testing::Test {
 protected:
  static constexpr uint64_t kRows = 130, kCols = 36;  // no multiple of any tile
  const std::vector<uint16_t> values_ = random_bf16(kRows * kCols);
  const TensorView tensor_ = view(values_, kRows, kCols);
  ThreadPool pool_{2};
};

TEST_F(WeightPlacing, TransposedRowsBecomeColumns) {
  std::vector<uint16_t> out(kRows * kCols);
  place_rows(tensor_, 0, kRows, transposed(kRows, kCols), out, pool_);
  for (uint64_t r = 0; r < kRows; ++r)
    for (uint64_t c = 0; c < kCols; ++c)
      ASSERT_EQ(out[c * kRows + r], values_[r * kCols + c]) << r << " " << c;
}

TEST_F(WeightPlacing, RowsApartAndAPartOfTheRows) {
  std::vector<uint16_t> out(2 * 50 * kCols, 0);
  place_rows(tensor_, 70, 50, rows_apart(kCols, 50, kCols, 2 * kCols), out, pool_);
  for (uint64_t r = 0; r < 50; ++r)
    for (uint64_t c = 0; c < kCols; ++c) {
      ASSERT_EQ(out[(2 * r + 1) * kCols + c], values_[(70 + r) * kCols + c]);
      ASSERT_EQ(out[2 * r * kCols + c], 0);
    }
}

TEST_F(WeightPlacing, PairsBecomeHalvesBothWays) {
  constexpr uint64_t kHeadDim = 10, kHalf = kHeadDim / 2;
  for (bool is_transposed : {false, true}) {
    std::vector<uint16_t> out(kRows * kCols);
    place_rows(tensor_, 0, kRows, halves_from_pairs(kRows, kCols, kHeadDim, is_transposed), out,
               pool_);
    for (uint64_t head = 0; head < kRows / kHeadDim; ++head)
      for (uint64_t i = 0; i < kHeadDim; ++i) {
        // Half-split row j rotates with j + half; pairs put those two side by side.
        const uint64_t pair_row = i < kHalf ? 2 * i : 2 * (i - kHalf) + 1;
        for (uint64_t c = 0; c < kCols; ++c) {
          const uint64_t row = head * kHeadDim + i;
          ASSERT_EQ(out[is_transposed ? c * kRows + row : row * kCols + c],
                    values_[(head * kHeadDim + pair_row) * kCols + c]);
        }
      }
  }
}

TEST_F(WeightPlacing, OtherTypesAreRoundedToBf16) {
  std::vector<float> wide(kRows * kCols);
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = 1.0f + static_cast<float>(i) * 1e-4f;
  const TensorView tensor{DType::f32, kRows, kCols, std::as_bytes(std::span(wide))};
  std::vector<uint16_t> out(kRows * kCols);
  place_rows(tensor, 0, kRows, {}, out, pool_);
  for (size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(out[i], f32_to_bf16(wide[i]));
}

TEST(Memory, Llama1bIsTheSumOfItsParts) {
  const auto items = npu_memory(kLlama32_1b, NpuWeights::bf16, Fusion::block, 0);
  const auto bytes = [&](std::string_view what) {
    for (const MemoryItem& item : items)
      if (item.what == what) return item.bytes;
    return uint64_t{0};
  };
  constexpr uint64_t kMiB = 1 << 20;
  // 116 MiB of matrices a layer, 16 layers; norms on top: 4 KiB each, in decode one has two rows.
  EXPECT_EQ(bytes("prefill weights"), 16 * (116 * kMiB + 2 * 4096));
  EXPECT_EQ(bytes("decode weights"), 16 * (116 * kMiB + 3 * 4096));
  EXPECT_EQ(bytes("LM head"), 512 * kMiB);
  EXPECT_EQ(bytes("rotation tables"), 10 * kMiB + 5120);
  EXPECT_EQ(total_bytes(items), [&] {
    uint64_t sum = 0;
    for (const MemoryItem& item : items) sum += item.bytes;
    return sum;
  }());
}

TEST(Memory, TooMuchIsRefusedWithTheSum) {
  const auto items = npu_memory(kLlama32_1b, NpuWeights::bf16, Fusion::block, 0);
  EXPECT_NO_THROW(check_memory(items, total_bytes(items), "npu"));
  try {
    check_memory(items, total_bytes(items) - 1, "npu");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("prefill weights 1.95 GB"), std::string::npos) << text;
    EXPECT_NE(text.find("LM head 0.54 GB"), std::string::npos) << text;
  }
}

TEST(Memory, TheHeapHoldsARunOfEachImage) {
  const std::vector<ImageBytes> images = {{"o_ffn", (uint64_t{40} << 20) + 1, false},
                                          {"flash_attn", uint64_t{23} << 20, true}};
  const HeapPlan plan = npu_heap(images);
  EXPECT_EQ(plan.bytes, (uint64_t{63} << 20) + (32 << 10));
  EXPECT_TRUE(plan.is_estimate);
  EXPECT_FALSE(npu_heap({images.data(), 1}).is_estimate);
  EXPECT_NO_THROW(check_heap(plan, kHeapBytes, "npu"));
  try {
    check_heap(plan, plan.bytes - 1, "npu");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "npu: runs of its images would take 66.09 MB of the device's heap (o_ffn 41.98 MB "
              "+ flash_attn 24.12 MB, estimated by the sizes of files), which holds 66.09 MB");
  }
}

class Lock : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("tyto-lock-test-{}", ::getpid());
};

TEST_F(Lock, ASecondOwnerIsToldWhoTheFirstIs) {
  const DeviceLock first(path_, "npu");
  const pid_t owner = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    try {
      const DeviceLock second(path_, "npu");
    } catch (const Error& error) {
      const std::string text = error.what();
      code = text.find(fmt::format("in use by process {}", owner)) == std::string::npos ? 2 : 0;
    }
    ::_exit(code);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Lock, IsFreeAgainWhenTheOwnerIsGone) {
  {
    const DeviceLock first(path_, "npu");
  }
  EXPECT_NO_THROW(DeviceLock(path_, "npu"));
  EXPECT_NO_THROW(DeviceLock("", "npu"));
}

}  // namespace
}  // namespace tyto
