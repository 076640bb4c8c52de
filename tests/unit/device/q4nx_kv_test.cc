// The KV cache of the single-dispatch decode: where every value is, and changes of window.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "device/npu/formats/q4nx.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

enum class KvSide : uint8_t { key, value };

// The element of the kv argument at which a head's row begins: head_dim values, K after RoPE.
uint64_t kv_offset(const Q4nxLayout& layout, uint32_t layer, KvSide side, uint32_t kv_head,
                   uint32_t position) {
  const uint64_t group = kv_head / layout.kv_group_heads;
  const uint64_t region = (side == KvSide::key ? 0 : layout.kv_groups) + group;
  const uint64_t row = uint64_t{position} * layout.kv_group_heads + kv_head % layout.kv_group_heads;
  return layer * layout.kv_layer_elements + region * layout.kv_region_elements +
         row * layout.dims.head_dim;
}

AirDims with_kv_heads(uint32_t kv_heads) {
  return {3, 64, kv_heads * 8, kv_heads, 4, 64, 100, 64};
}

TEST(Q4nxKv, Llama1bAsPublished) {
  const Q4nxLayout layout = q4nx_layout(kLlama32_1b, 2048);
  const uint64_t region = 2048 * 256;
  EXPECT_EQ(kv_offset(layout, 0, KvSide::key, 0, 0), 0u);
  EXPECT_EQ(kv_offset(layout, 0, KvSide::key, 3, 5), 5u * 256 + 3 * 64);
  EXPECT_EQ(kv_offset(layout, 0, KvSide::key, 4, 5), region + 5 * 256);
  EXPECT_EQ(kv_offset(layout, 0, KvSide::value, 0, 2047), 2 * region + 2047 * 256);
  EXPECT_EQ(kv_offset(layout, 2, KvSide::value, 7, 1), 2 * 2'097'152 + 3 * region + 256 + 192);
  EXPECT_EQ(kv_position_bytes(layout), 512u);
}

// Every element of the buffer belongs to exactly one value, and positions are evenly apart.
TEST(Q4nxKv, OffsetsCoverTheBufferOnce) {
  for (const uint32_t kv_heads : {1u, 2u, 3u, 4u, 6u, 8u, 12u}) {
    const Q4nxLayout layout = q4nx_layout(with_kv_heads(kv_heads), 7);
    EXPECT_EQ(layout.kv_groups, kv_heads % 4 == 0 ? 2u : 1u);
    std::vector<int> owners(layout.kv_elements);
    for (uint32_t layer = 0; layer < 3; ++layer)
      for (const KvSide side : {KvSide::key, KvSide::value})
        for (uint32_t head = 0; head < kv_heads; ++head)
          for (uint32_t position = 0; position < 7; ++position) {
            const uint64_t offset = kv_offset(layout, layer, side, head, position);
            EXPECT_EQ(offset * 2, kv_offset(layout, layer, side, head, 0) * 2 +
                                      position * kv_position_bytes(layout));
            for (uint64_t i = 0; i < 4; ++i) ++owners.at(offset + i);
          }
    EXPECT_EQ(owners, std::vector<int>(layout.kv_elements, 1)) << kv_heads;
  }
}

using Cache = std::vector<uint16_t>;

// Calls body(layer, side, head, position, i) for every value of the first `positions`.
template <typename Body>
void for_each_value(const AirDims& dims, uint32_t positions, Body&& body) {
  for (uint32_t layer = 0; layer < dims.layers; ++layer)
    for (const KvSide side : {KvSide::key, KvSide::value})
      for (uint32_t head = 0; head < dims.kv_heads; ++head)
        for (uint32_t position = 0; position < positions; ++position)
          for (uint32_t i = 0; i < dims.head_dim; ++i) body(layer, side, head, position, i);
}

Cache expected_after(const Q4nxLayout& from, const Cache& before, const Q4nxLayout& to, Cache after,
                     uint32_t live) {
  for_each_value(from.dims, live, [&](auto layer, auto side, auto head, auto position, auto i) {
    after.at(kv_offset(to, layer, side, head, position) + i) =
        before.at(kv_offset(from, layer, side, head, position) + i);
  });
  return after;
}

Cache numbered(uint64_t elements, uint16_t first) {
  Cache cache(elements);
  for (uint64_t i = 0; i < elements; ++i) cache[i] = static_cast<uint16_t>(first + i);
  return cache;
}

TEST(Q4nxKv, RepackingMovesTheLivePrefixesAndNothingElse) {
  for (const uint32_t kv_heads : {2u, 4u, 8u}) {
    const AirDims dims = with_kv_heads(kv_heads);
    for (uint32_t from_window = 1; from_window <= 9; ++from_window)
      for (uint32_t to_window = 1; to_window <= 9; ++to_window)
        for (uint32_t live = 0; live <= std::min(from_window, to_window); ++live) {
          const Q4nxLayout from = q4nx_layout(dims, from_window);
          const Q4nxLayout to = q4nx_layout(dims, to_window);
          const Cache before = numbered(from.kv_elements, 1);
          Cache after = numbered(to.kv_elements, 30000);
          const Cache expected = expected_after(from, before, to, after, live);
          repack_kv(from, std::as_bytes(std::span(before)), to,
                    std::as_writable_bytes(std::span(after)), live);
          ASSERT_EQ(after, expected) << from_window << " to " << to_window << ", " << live;
        }
  }
}

// In one buffer that holds the larger of the two, only the live positions can be relied on.
TEST(Q4nxKv, RepackingWorksInsideOneBuffer) {
  const AirDims dims = with_kv_heads(8);
  for (uint32_t from_window = 1; from_window <= 9; ++from_window)
    for (uint32_t to_window = 1; to_window <= 9; ++to_window)
      for (uint32_t live = 0; live <= std::min(from_window, to_window); ++live) {
        const Q4nxLayout from = q4nx_layout(dims, from_window);
        const Q4nxLayout to = q4nx_layout(dims, to_window);
        const Cache before = numbered(std::max(from.kv_elements, to.kv_elements), 1);
        Cache cache = before;
        repack_kv(from, std::as_bytes(std::span(cache)), to,
                  std::as_writable_bytes(std::span(cache)), live);
        for_each_value(dims, live, [&](auto layer, auto side, auto head, auto position, auto i) {
          ASSERT_EQ(cache.at(kv_offset(to, layer, side, head, position) + i),
                    before.at(kv_offset(from, layer, side, head, position) + i))
              << from_window << " to " << to_window << ", " << live;
        });
      }
}

TEST(Q4nxKv, PositionsThatAWindowCannotHoldAreRefused) {
  const Q4nxLayout large = q4nx_layout(with_kv_heads(2), 8);
  const Q4nxLayout small = q4nx_layout(with_kv_heads(2), 4);
  Cache a(large.kv_elements), b(small.kv_elements);
  const auto bytes = [](Cache& cache) { return std::as_writable_bytes(std::span(cache)); };
  EXPECT_ERROR(repack_kv(large, bytes(a), small, bytes(b), 5), "a window of 8 to one of 4");
  EXPECT_ERROR(repack_kv(small, bytes(b), large, bytes(a), 5), "a window of 4 to one of 8");
  EXPECT_NO_THROW(repack_kv(small, bytes(b), large, bytes(a), 4));
}

}  // namespace
}  // namespace tyto
