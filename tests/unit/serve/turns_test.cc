// Who is next among models whose steps differ in length.
#include "serve/engine_thread.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

constexpr uint64_t kMs = 1'000'000;

struct Model {
  uint64_t step_ns;
  uint64_t steps = 0, time_ns = 0;
};

// The next model steps, until the time is over.
void run(Turns& turns, std::vector<Model>& models, const std::vector<bool>& has_work,
         uint64_t time_ns) {
  for (uint64_t spent = 0; spent < time_ns;) {
    const auto who = turns.next(has_work);
    ASSERT_TRUE(who && has_work[*who]);
    Model& model = models[*who];
    turns.used(*who, model.step_ns);
    ++model.steps;
    model.time_ns += model.step_ns;
    spent += model.step_ns;
  }
}

TEST(Turns, ModelsGetTheSameTimeAndNotTheSameSteps) {
  Turns turns(3);
  std::vector<Model> models = {{1 * kMs}, {45 * kMs}, {7 * kMs}};
  run(turns, models, {true, true, true}, 9000 * kMs);
  for (const Model& model : models) {
    EXPECT_NEAR(static_cast<double>(model.time_ns), 3000.0 * kMs, 50.0 * kMs);
  }
}

TEST(Turns, OneAloneHasAllOfThem) {
  Turns turns(2);
  std::vector<Model> models = {{1 * kMs}, {45 * kMs}};
  run(turns, models, {true, false}, 100 * kMs);
  EXPECT_EQ(models[0].steps, 100u);
  EXPECT_FALSE(turns.next({false, false}));
}

TEST(Turns, AnIdleModelSavesNothingUp) {
  Turns turns(2);
  std::vector<Model> models = {{1 * kMs}, {45 * kMs}};
  run(turns, models, {false, true}, 60'000 * kMs);
  run(turns, models, {true, true}, 1 * kMs);  // begins at once
  EXPECT_EQ(models[0].steps, 1u);
  models[1].steps = 0;
  run(turns, models, {true, true}, 900 * kMs);
  EXPECT_NEAR(static_cast<double>(models[1].steps), 10, 1);
  // Nor does one that works in short pieces.
  models[0] = {1 * kMs};
  models[1].steps = 0;
  for (int i = 0; i < 100; ++i) {
    run(turns, models, {false, true}, 45 * kMs);
    run(turns, models, {true, true}, 2 * kMs);
  }
  EXPECT_GE(models[1].steps, 100u);
}

TEST(Turns, ALargeModelIsNeverStarved) {
  Turns turns(2);
  std::vector<Model> models = {{1 * kMs}, {30'000 * kMs}};  // a long prompt on a slow machine
  run(turns, models, {true, true}, 1 * kMs);
  run(turns, models, {true, true}, 1 * kMs);
  ASSERT_EQ(models[1].steps, 1u);
  const uint64_t before = models[0].steps;
  while (models[1].steps == 1) run(turns, models, {true, true}, 1 * kMs);
  EXPECT_LE(models[0].steps - before, Turns::kLongestWaitNs / kMs + 2);
}

}  // namespace
}  // namespace tyto
