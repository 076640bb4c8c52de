// Work reports itself before its first heavy step, so that no line stays empty, and once it is
// done.
#include "base/progress.h"

#include <gtest/gtest.h>

#include <string>

#include "llama/pipeline.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;

struct Call {
  std::string what;
  uint64_t done, total;
  uint64_t heavy;  // steps that had been taken by then
};

// Counts the programs that are loaded and the dispatches that run.
struct World {
  explicit World(const Model& model) : device(open_device("cpu", {pool, trace})) {
    Device* devices[] = {device.get()};
    PipelineOptions options;
    options.forward.prefill_chunk = 16;
    pipeline = std::make_unique<Pipeline>(model, devices, options, trace, recorder());
  }

  Progress recorder() {
    return [this](std::string_view what, uint64_t done, uint64_t total) {
      calls.push_back({std::string(what), done, total,
                       trace.loaded_code().size() + trace.device("cpu").submissions});
    };
  }

  ThreadPool pool{1};
  Trace trace;
  std::vector<Call> calls;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pipeline> pipeline;
};

void expect_whole(const std::vector<Call>& calls, const std::string& what, uint64_t heavy_before) {
  ASSERT_GE(calls.size(), 2u);
  EXPECT_EQ(calls.front().done, 0u);
  EXPECT_EQ(calls.front().heavy, heavy_before);
  EXPECT_EQ(calls.back().done, calls.back().total);
  for (size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(calls[i].what, what);
    EXPECT_EQ(calls[i].total, calls.front().total);
    if (i > 0) {
      EXPECT_GE(calls[i].done, calls[i - 1].done);
    }
  }
}

TEST(Progress, LoadingBeginsBeforeTheFirstProgramIsLoaded) {
  const RandomModel model = random_model(small_config(), DType::f32);
  const World world(model.model);
  expect_whole(world.calls, "loading weights", 0);
  EXPECT_GT(world.calls.back().heavy, 0u);
  EXPECT_GT(world.calls.size(), 4u);  // it moves
}

TEST(Progress, APromptBeginsBeforeItsFirstDispatch) {
  const RandomModel model = random_model(small_config(), DType::f32);
  World world(model.model);
  const std::vector<Token> tokens(40, 3);  // three chunks
  Sequence sequence(*world.pipeline);
  const uint64_t before = world.calls.back().heavy;
  world.calls.clear();
  world.pipeline->run(sequence, tokens, world.recorder());
  expect_whole(world.calls, "reading the prompt", before);
  EXPECT_EQ(world.calls.size(), 4u);
  world.calls.clear();
  world.pipeline->run(sequence, std::span(tokens).first(1), world.recorder());
  EXPECT_TRUE(world.calls.empty());  // a token is no work to wait for
}

}  // namespace
}  // namespace tyto
