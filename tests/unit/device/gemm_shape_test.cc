// Shapes of products as the kernels demand them, and sensible ones for the products of a model.
#include "device/vulkan/kernel_shapes.h"

#include <gtest/gtest.h>

#include <vector>

namespace tyto::vulkan {
namespace {

constexpr GemmMachine kLarge = {.subgroup_size = 32, .compute_units = 132, .shared_bytes = 49152};
constexpr GemmMachine kLaptop = {.subgroup_size = 64, .compute_units = 16, .shared_bytes = 65536};
constexpr GemmMachine kSmallest = {.subgroup_size = 8, .compute_units = 1, .shared_bytes = 32768};

std::vector<GemmProduct> products() {
  std::vector<GemmProduct> list;
  for (const uint64_t rows : {1, 17, 33, 64, 128, 500, 512, 2048, 100000})
    for (const uint64_t columns : {1, 48, 576, 2048, 3072, 16384, 128256})
      for (const uint64_t k : {1, 32, 77, 96, 576, 2048, 8192})
        for (const bool is_pair : {false, true}) list.push_back({rows, columns, k, is_pair});
  return list;
}

uint64_t tiles(const GemmProduct& product, const GemmShape& shape) {
  return (product.rows + shape.bm - 1) / shape.bm * ((product.columns + shape.bn - 1) / shape.bn);
}

TEST(GemmShape, CooperativeShapesAreWhatTheKernelDemands) {
  for (const GemmMachine& machine : {kLarge, kLaptop, kSmallest}) {
    for (const GemmProduct& product : products()) {
      const GemmShape shape = cooperative_gemm_shape(product, machine);
      SCOPED_TRACE(fmt::format("{} x {} x {}: {} x {} x {}", product.rows, product.columns,
                               product.k, shape.bm, shape.bn, shape.bk));
      EXPECT_EQ(shape.bm % shape.part_rows, 0u);
      EXPECT_EQ(shape.bn % shape.part_columns, 0u);
      EXPECT_EQ(shape.part_rows % 16, 0u);
      EXPECT_EQ(shape.part_columns % (product.is_pair ? 32 : 16), 0u);
      EXPECT_EQ((product.k + 31) / 32 * 32 % shape.bk, 0u);
      EXPECT_LE(cooperative_shared_bytes(shape, product.is_pair), machine.shared_bytes);
      const uint32_t subgroups = shape.bm / shape.part_rows * (shape.bn / shape.part_columns);
      EXPECT_EQ(shape.threads, subgroups * machine.subgroup_size);
      EXPECT_LE(shape.threads, 1024u);
    }
  }
}

TEST(GemmShape, TiledShapesAreWhatTheKernelDemands) {
  for (const GemmMachine& machine : {kLarge, kLaptop, kSmallest}) {
    for (const GemmProduct& product : products()) {
      const GemmShape shape = tiled_gemm_shape(product, machine);
      EXPECT_EQ(shape.bm % shape.part_rows, 0u);
      EXPECT_EQ(shape.bn % shape.part_columns, 0u);
      EXPECT_EQ(shape.part_rows % 4, 0u);
      EXPECT_EQ(shape.part_columns % 8, 0u);
      EXPECT_EQ(shape.bk, 32u);  // K is padded to it
      EXPECT_EQ(shape.threads, shape.bm / shape.part_rows * (shape.bn / shape.part_columns));
      EXPECT_LE(tiled_shared_bytes(shape), machine.shared_bytes);
    }
  }
}

TEST(GemmShape, ALargeGpuHasATileForNearlyEveryUnit) {
  for (const uint64_t rows : {512, 1024, 2048}) {
    for (const auto& [columns, k] :
         {std::pair<uint64_t, uint64_t>{3072, 2048}, {2048, 2048}, {2048, 8192}}) {
      const GemmProduct product = {rows, columns, k, false};
      EXPECT_GE(tiles(product, cooperative_gemm_shape(product, kLarge)), 96u)
          << rows << " x " << columns;
    }
  }
}

TEST(GemmShape, AUnitWithOneTileTakesLongSteps) {
  for (const uint64_t rows : {16, 32, 64, 128})
    EXPECT_GE(cooperative_gemm_shape({rows, 2048, 8192, false}, kLarge).bk, 128u) << rows;
  EXPECT_EQ(cooperative_gemm_shape({2048, 2048, 8192, false}, kLarge).bk, 32u);
}

TEST(GemmShape, AFewRowsAreNotPaddedToMany) {
  EXPECT_EQ(cooperative_gemm_shape({16, 2048, 8192, false}, kLarge).bm, 16u);
  EXPECT_EQ(cooperative_gemm_shape({16, 16384, 2048, true}, kLarge).bm, 16u);
}

TEST(GemmShape, ManyRowsHaveLargerTilesThanFew) {
  const GemmShape few = cooperative_gemm_shape({32, 2048, 2048, false}, kLarge);
  const GemmShape many = cooperative_gemm_shape({2048, 16384, 2048, true}, kLarge);
  EXPECT_LT(few.bm * few.bn, many.bm * many.bn);
  EXPECT_LE(few.bm, 64u);
}

}  // namespace
}  // namespace tyto::vulkan
