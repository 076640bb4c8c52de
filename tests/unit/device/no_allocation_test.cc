// What runs once per token allocates nothing: counted by replacing the global operator new of this
// test program.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "device/npu/formats/int8_gemm.h"
#include "device/npu/formats/q4nx.h"

namespace {
thread_local size_t allocations = 0;

void* allocate(size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
}  // namespace

// Inlined, gcc takes malloc and delete for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* memory = allocate(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

namespace tyto {
namespace {

template <typename Function>
size_t allocations_of(Function&& function) {
  const size_t before = allocations;
  function();
  return allocations - before;
}

TEST(NoAllocation, TheCounterCounts) {
  EXPECT_EQ(allocations_of([] { std::vector<int>(3).clear(); }), 1u);
}

TEST(NoAllocation, PatchingInstructionWords) {
  const std::vector<uint32_t> base = {1, 64, 3}, reference = {1, 63, 3};
  DecodeWords words = DecodeWords::from_builds({"a", base, 64}, {"b", reference, 63});
  std::vector<uint32_t> buffer(3);
  EXPECT_EQ(allocations_of([&] {
              for (uint32_t length = 1; length <= 64; ++length) words.patch(length, buffer);
            }),
            0u);
  EXPECT_EQ(buffer, base);
}

TEST(NoAllocation, ActivationsAndSumsOfAGemm) {
  const GemmSlot slot = {"a", 64, 4, 8, 2};
  const GemmExtent extent = gemm_extent(slot, 3, 5, 60);
  const std::vector<float> x(180, 0.5f), output_scales(5, 1.0f);
  const std::vector<int32_t> acc(32, 2);
  std::vector<int8_t> codes(extent.tokens * extent.padded_k);
  std::vector<float> scales(3), y(15);
  EXPECT_EQ(allocations_of([&] {
              quantize_gemm_activations(x, extent, codes, scales);
              dequantize_gemm(acc, 8, scales, output_scales, y, 5);
            }),
            0u);
  EXPECT_FLOAT_EQ(y[14], 2 * 0.5f / 127);
}

}  // namespace
}  // namespace tyto
