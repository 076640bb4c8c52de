// Shapes that every GPU can run: limits kept, all rows, heads and positions covered.
#include "device/vulkan/kernel_shapes.h"

#include <gtest/gtest.h>

#include <bit>
#include <utility>
#include <vector>

namespace tyto::vulkan {
namespace {

constexpr uint32_t kTableTile = 64;

std::vector<AttentionSite> sites() {
  std::vector<AttentionSite> result;
  for (const uint32_t head_dim : {2u, 6u, 64u, 80u, 96u, 128u, 256u})
    for (const uint32_t kv_heads : {1u, 2u, 6u, 12u})
      for (const uint32_t subgroup : {4u, 8u, 16u, 32u, 64u})
        for (const uint32_t shared : {16u << 10, 32u << 10, 48u << 10})
          result.push_back({12, kv_heads, head_dim, subgroup, shared});
  return result;
}

TEST(AttentionShape, FewRowsKeepALimitedWorkgroup) {
  for (const AttentionSite& site : sites()) {
    const FewRowsShape shape = few_rows_shape(site);
    ASSERT_GT(shape.threads, 0u) << site.head_dim << ", subgroups of " << site.subgroup_size;
    EXPECT_EQ(shape.threads % site.subgroup_size, 0u);
    EXPECT_LE(shape.threads, 256u);
    EXPECT_LE(shape.shared_bytes, site.shared_bytes);
    EXPECT_TRUE(std::has_single_bit(shape.lanes));
    EXPECT_LE(shape.lanes, site.subgroup_size);
    EXPECT_EQ(site.heads / site.kv_heads % shape.group, 0u);
  }
}

TEST(AttentionShape, SplitsCoverTheGpuAndNoMoreThanThePositions) {
  const AttentionSite site{32, 8, 64, 32, 48 << 10};
  const uint32_t at_once = few_rows_shape(site).positions_at_once();
  EXPECT_EQ(attention_splits(site, 1, at_once, 128), 1u);
  EXPECT_EQ(attention_splits(site, 1, 100 * at_once, 128), 16u);
  EXPECT_EQ(attention_splits(site, 4, 100 * at_once, 128), 4u);
  EXPECT_EQ(attention_splits(site, 64, 100 * at_once, 128), 1u);
  EXPECT_EQ(attention_splits(site, 1, 100 * at_once, 100000), 64u);
}

TEST(AttentionShape, ManyRowsCoverTheTilesOfTheTable) {
  for (const AttentionSite& site : sites())
    for (const auto& [has_matrices, layout] : {std::pair{false, 0u}, {true, 0u}, {true, 1u}}) {
      const ManyRowsShape shape = many_rows_shape(site, kTableTile, has_matrices, layout);
      ASSERT_GT(shape.threads, 0u) << site.head_dim;
      EXPECT_EQ(shape.tile * shape.parts, kTableTile);
      EXPECT_LE(shape.shared_bytes, site.shared_bytes);
      EXPECT_LE(shape.threads, 256u);
      if (shape.is_cooperative) {
        EXPECT_TRUE(has_matrices && site.head_dim % 16 == 0);
        EXPECT_EQ(shape.threads / site.subgroup_size * 16 * shape.rows, shape.group * shape.tile);
        EXPECT_EQ(site.heads / site.kv_heads % shape.group, 0u);
        EXPECT_TRUE(layout != 0 || shape.group * shape.tile <= 2 * shape.keys);
      } else {
        EXPECT_EQ(shape.threads, shape.tile / shape.rows * (shape.keys / shape.columns));
      }
    }
}

TEST(AttentionShape, MatricesAreTakenWhereHeadsAreMadeOfThem) {
  EXPECT_TRUE(many_rows_shape({32, 8, 64, 32, 48 << 10}, kTableTile, true, 1).is_cooperative);
  EXPECT_TRUE(many_rows_shape({32, 8, 80, 32, 48 << 10}, kTableTile, true, 0).is_cooperative);
  EXPECT_FALSE(many_rows_shape({32, 8, 72, 32, 48 << 10}, kTableTile, true, 1).is_cooperative);
  EXPECT_FALSE(many_rows_shape({32, 8, 64, 32, 48 << 10}, kTableTile, false, 1).is_cooperative);
}

}  // namespace
}  // namespace tyto::vulkan
