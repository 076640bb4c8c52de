// The shapes that users name are those that the single-dispatch decode has builds of.
#include <gtest/gtest.h>

#include "device/npu/formats/q4nx.h"
#include "device/npu/store/kernel_store.h"
#include "llama/pipeline.h"
#include "model/synth.h"

namespace tyto {
namespace {

TEST(Q4nxShapes, EveryBuildIsOfTheShapeOfItsName) {
  EXPECT_EQ(q4nx_builds().size(), 6u);
  for (const Q4nxBuild& build : q4nx_builds()) {
    const Config config = shape_by_name(build.model);
    EXPECT_EQ(air_dims(model_dims(config, 0), 0), build.dims) << build.model;
  }
}

}  // namespace
}  // namespace tyto
