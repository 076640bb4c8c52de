// The best logits of a row instead of all, from a device that picks them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "llama/logits.h"
#include "llama/pipeline.h"
#include "support/picking_device.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::PickingDevice;
using testing_support::random_model;
using testing_support::RandomModel;
using Best = std::vector<Candidate>;

Best best_of(std::span<const float> logits, size_t count) {
  Best all;
  for (size_t i = 0; i < logits.size(); ++i) all.push_back({static_cast<Token>(i), logits[i]});
  std::stable_sort(all.begin(), all.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  all.resize(count);
  return all;
}

Best best_of(const Logits& logits, size_t count) {
  if (!logits.are_candidates()) return best_of(static_cast<std::span<const float>>(logits), count);
  const auto few = logits.candidates().first(count);
  return {few.begin(), few.end()};
}

constexpr uint32_t kPicked = 8;

// A pipeline on a device that picks, and on one that does not.
class Candidates : public testing::Test {
 protected:
  std::unique_ptr<Pipeline> pipeline(std::vector<Device*> devices, PipelineOptions options = {}) {
    options.forward.prefill_chunk = 4;
    options.forward.sequences = 3;
    return std::make_unique<Pipeline>(random_.model, devices, options, trace_);
  }

  // A prompt of more than one chunk, then tokens by themselves.
  std::vector<Best> run(Pipeline& on, uint32_t candidates) {
    Sequence sequence(on);
    sequence.candidates = candidates;
    std::vector<Best> result;
    result.push_back(best_of(on.run(sequence, std::span(tokens_).first(6)), kPicked));
    for (size_t i = 6; i < tokens_.size(); ++i)
      result.push_back(best_of(on.run(sequence, {&tokens_[i], 1}), kPicked));
    return result;
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  const std::vector<Token> tokens_ = {5, 9, 33, 2, 60, 17, 8, 41, 3};
  ThreadPool pool_{2};
  Trace trace_;
  const DeviceEnv env_{pool_, trace_};
  PickingDevice picking_{env_, kPicked};
  std::unique_ptr<Device> plain_ = open_device("cpu", env_);
};

TEST_F(Candidates, AreTheBestOfTheLogits) {
  const auto expected = run(*pipeline({plain_.get()}), 0);
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    picking_.rows_of_candidates = 0;
    PipelineOptions options;
    options.forward.fusion = fusion;
    const auto on = pipeline({&picking_}, options);
    EXPECT_EQ(run(*on, kPicked), expected);
    EXPECT_EQ(picking_.rows_of_candidates, 4u);
    EXPECT_EQ(picking_.rows_of_logits, 0u);
  }
}

TEST_F(Candidates, AreNotUsedWhereTheyDoNotSuffice) {
  const auto expected = run(*pipeline({plain_.get()}), 0);
  const auto on = pipeline({&picking_});
  for (const uint32_t needed : {0u, kPicked + 1, UINT32_MAX}) {
    picking_.rows_of_logits = 0;
    EXPECT_EQ(run(*on, needed), expected);
    EXPECT_EQ(picking_.rows_of_logits, 4u);
    EXPECT_EQ(picking_.rows_of_candidates, 0u);
  }
}

TEST_F(Candidates, AreNoMoreThanTheVocabularyHas) {
  PickingDevice all(env_, 1000);
  const auto on = pipeline({&all});
  Sequence sequence(*on);
  sequence.candidates = 61;
  EXPECT_EQ(on->run(sequence, tokens_).candidates().size(), 61u);
}

// What is handed out to each of several sequences, in one call of prompts or tokens: the few only
// where no sequence wants all.
TEST_F(Candidates, OfABatchAreThereWhenEverybodyCanDoWithThem) {
  const auto on = pipeline({&picking_});
  Sequence first(*on), second(*on), third(*on);
  const auto run_all = [&](std::span<const Token> tokens, uint32_t logits_of_third) {
    std::vector<SequenceRows> batch;
    for (Sequence* sequence : {&first, &second, &third}) {
      EXPECT_TRUE(on->reserve(*sequence, static_cast<uint32_t>(tokens.size())));
      batch.push_back({sequence, tokens, sequence == &third ? logits_of_third : 1});
    }
    std::vector<bool> few;
    const auto failures = on->run(batch, [&](size_t, uint32_t, const Logits& logits) {
      few.push_back(logits.are_candidates());
    });
    EXPECT_TRUE(failures.empty());
    return few;
  };
  first.candidates = second.candidates = third.candidates = 1;
  using Few = std::vector<bool>;
  const std::span<const Token> one = std::span(tokens_).first(1);
  EXPECT_EQ(run_all(one, 1), (Few{true, true, true}));
  second.candidates = 0;
  EXPECT_EQ(run_all(one, 1), (Few{false, false, false}));
  second.candidates = kPicked;
  third.candidates = 0;
  EXPECT_EQ(run_all(one, 0), (Few{true, true}));  // a prompt's chunk, whose logits are not read
}

TEST_F(Candidates, AreNamedInTheRecordingAndFitIntoIt) {
  const auto on = pipeline({&picking_});
  trace_.start(on->forward().event_count(6, 3) + 16);
  run(*on, kPicked);
  trace_.stop();
  EXPECT_EQ(trace_.lost(), 0u);
  size_t candidates = 0, logits = 0;
  for (const Event& event : trace_.events()) {
    candidates += trace_.names()[event.name].label == "candidates checked" ? 1 : 0;
    logits += trace_.names()[event.name].label == "logits checked" ? 1 : 0;
  }
  EXPECT_EQ(candidates, 4u);
  EXPECT_EQ(logits, 0u);
}

TEST_F(Candidates, OfADamagedWeightAreAnErrorAboutIt) {
  RandomModel spoiled = random_model(testing_support::small_config(), DType::f32);
  const TensorView& head = spoiled.model.weights.head;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(const_cast<std::byte*>(head.row(60).data()), &nan, sizeof nan);
  spoiled.model.path = "m.gguf";
  spoiled.model.tensors.push_back({"output.weight", head});
  Device* devices[] = {&picking_};
  Pipeline on(spoiled.model, devices, {}, trace_);
  Sequence sequence(on);
  sequence.candidates = 1;
  try {
    on.run(sequence, tokens_);
    FAIL() << "nothing was noticed";
  } catch (const Error& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with("m.gguf: tensor output.weight: "))
        << error.what();
  }
}

// A device that goes wrong is given up, and what the host computes then is all logits.
TEST_F(Candidates, ThatAreNonsenseEndTheTrustInTheirDevice) {
  const auto expected = run(*pipeline({plain_.get()}), 0);
  PickingDevice apart(env_, kPicked, true);
  uint32_t rows = 0;
  apart.spoil = [&](std::span<int32_t> row) {
    if (++rows == 3) row[1] = 61;  // no token
  };
  const auto on = pipeline({&apart, plain_.get()}, {.forward = {}, .on_error = OnDeviceError::cpu});
  EXPECT_EQ(run(*on, kPicked), expected);
  EXPECT_TRUE(on->host_took_over());
  EXPECT_EQ(rows, 3u);
}

TEST_F(Candidates, ThatAreNonsenseAreAnErrorWithTheDevicesName) {
  PickingDevice apart(env_, kPicked, true);
  apart.spoil = [](std::span<int32_t> row) { std::ranges::fill(row, 0); };
  const auto on =
      pipeline({&apart, plain_.get()}, {.forward = {}, .on_error = OnDeviceError::fail});
  try {
    run(*on, 1);
    FAIL() << "nothing was noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::device);
    EXPECT_STREQ(error.what(), "picking: picked candidates 0 and 1 in the wrong order");
  }
}

std::vector<int32_t> row_of(std::vector<std::pair<float, int32_t>> pairs, float log_sum) {
  std::vector<int32_t> words;
  for (const auto& [value, index] : pairs) {
    words.push_back(std::bit_cast<int32_t>(value));
    words.push_back(index);
  }
  words.push_back(0);
  words.push_back(std::bit_cast<int32_t>(log_sum));
  return words;
}

TEST(CandidateCheck, KnowsWhatTopKMayLeave) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto is_believed = [](std::vector<std::pair<float, int32_t>> pairs, float log_sum) {
    return !problem_of({row_of(std::move(pairs), log_sum)}, 100);
  };
  EXPECT_TRUE(is_believed({{3, 99}, {2, 0}}, 3.3f));
  EXPECT_TRUE(is_believed({{2, 4}, {2, 5}, {2, 70}}, 2 + std::log(100.0f)));
  EXPECT_TRUE(is_believed({{0.0f, 1}, {-0.0f, 2}}, 1));
  EXPECT_TRUE(is_believed({{-1e4f, 1}}, -1e4f));
  EXPECT_FALSE(is_believed({{3, 100}, {2, 0}}, 3.3f));
  EXPECT_FALSE(is_believed({{3, 1}, {2, -1}}, 3.3f));
  EXPECT_FALSE(is_believed({{2, 1}, {3, 0}}, 3.3f));
  EXPECT_FALSE(is_believed({{2, 5}, {2, 4}}, 2.7f));
  EXPECT_FALSE(is_believed({{2, 5}, {2, 5}}, 2.7f));
  EXPECT_FALSE(is_believed({{kNan, 5}}, 2.7f));
  EXPECT_FALSE(is_believed({{kInfinity, 5}}, kInfinity));
  EXPECT_FALSE(is_believed({{2, 5}, {-kInfinity, 4}}, 2));
  EXPECT_FALSE(is_believed({{2, 5}}, 1.9f));
  EXPECT_FALSE(is_believed({{2, 5}}, 7));
  EXPECT_FALSE(is_believed({{2, 5}}, kNan));
}

}  // namespace
}  // namespace tyto
