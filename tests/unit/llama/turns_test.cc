// Several sequences on an NPU, which takes one at a time: each has its own caches, and what happens
// to one is no business of the others.
#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "device/npu/formats/memory_plan.h"
#include "device/vnpu/machine/control.h"
#include "llama/pipeline.h"
#include "support/npu_settings.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::random_model;
using testing_support::RandomModel;
using Values = std::vector<float>;

struct TurnsSetting {
  const char* name;
  Fusion fusion;
  NpuWeights weights;
};
constexpr std::array<TurnsSetting, 5> kTurnsSettings = {
    {{"op", Fusion::op, NpuWeights::bf16},
     {"block", Fusion::block, NpuWeights::bf16},
     {"token", Fusion::token, NpuWeights::bf16},
     {"token_q4nx", Fusion::token, NpuWeights::q4nx},
     {"op_int8", Fusion::op, NpuWeights::int8}}};
// Those with caches in one piece, and one dispatch for a token.
constexpr std::array<TurnsSetting, 2> kWholeTokens = {kTurnsSettings[2], kTurnsSettings[3]};

class Turns : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override {
    sequences_.clear();
    pipeline_.reset();
    devices_.clear();
    vxrt::reset();
  }

  void open(const TurnsSetting& setting, uint32_t sequences, PipelineOptions options = {}) {
    TearDown();
    NpuSettings npu;
    npu.weights = setting.weights;
    const DeviceEnv env{pool_,
                        trace_,
                        setting.fusion,
                        model_dims(random_.model.config, 0),
                        testing_support::settings_of(npu),
                        sequences};
    std::vector<Device*> order;
    for (const char* name : {"vnpu", "cpu"}) {
      devices_.push_back(open_device(name, env));
      order.push_back(devices_.back().get());
    }
    options.forward.fusion = setting.fusion;
    options.forward.sequences = sequences;
    pipeline_ = std::make_unique<Pipeline>(random_.model, order, options, trace_);
    for (uint32_t i = 0; i < sequences; ++i)
      sequences_.push_back(std::make_unique<Sequence>(*pipeline_));
  }

  static Token next(size_t sequence, uint32_t position) {
    return static_cast<Token>((sequence * 17 + position * 5) % 61);
  }
  static std::vector<Token> prompt(size_t sequence) {
    constexpr uint32_t kLengths[] = {5, 60, 9};  // the second grows into the larger window
    std::vector<Token> tokens(kLengths[sequence]);
    for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = next(sequence, i);
    return tokens;
  }

  // One token of each sequence, as a scheduler's step has them.
  std::vector<Pipeline::Failure> step() {
    std::vector<Token> tokens;
    std::vector<SequenceRows> batch;
    for (size_t s = 0; s < sequences_.size(); ++s)
      tokens.push_back(next(s, sequences_[s]->position()));
    for (size_t s = 0; s < sequences_.size(); ++s) {
      EXPECT_TRUE(pipeline_->reserve(*sequences_[s], 1));
      batch.push_back({sequences_[s].get(), {&tokens[s], 1}});
    }
    return pipeline_->run(batch, [&](size_t item, uint32_t, std::span<const float> logits) {
      logits_[item].emplace_back(logits.begin(), logits.end());
    });
  }

  void run_prompts() {
    logits_.assign(sequences_.size(), {});
    for (size_t s = 0; s < sequences_.size(); ++s) {
      const std::span<const float> logits = pipeline_->run(*sequences_[s], prompt(s));
      logits_[s].emplace_back(logits.begin(), logits.end());
    }
  }

  // Logits of its prompt's last token and of `steps` more.
  std::vector<Values> alone(const TurnsSetting& setting, size_t sequence, size_t steps) {
    open(setting, 1);
    std::vector<Values> result;
    const auto keep = [&](std::span<const float> logits) {
      result.emplace_back(logits.begin(), logits.end());
    };
    keep(pipeline_->run(*sequences_[0], prompt(sequence)));
    for (size_t i = 0; i < steps; ++i) {
      const Token token = next(sequence, sequences_[0]->position());
      keep(pipeline_->run(*sequences_[0], {&token, 1}));
    }
    return result;
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  ThreadPool pool_{2};
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<Pipeline> pipeline_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<std::vector<Values>> logits_;  // [sequences], of every pass
};

TEST_F(Turns, EachSequenceGetsWhatItGetsAloneToTheLastBit) {
  constexpr size_t kSteps = 6;
  for (const TurnsSetting& setting : kTurnsSettings) {
    std::vector<std::vector<Values>> expected;
    for (size_t s = 0; s < 3; ++s) expected.push_back(alone(setting, s, kSteps));
    open(setting, 3);
    run_prompts();
    for (size_t i = 0; i < kSteps; ++i) EXPECT_TRUE(step().empty());
    EXPECT_EQ(logits_ == expected, true) << setting.name;
  }
}

TEST_F(Turns, WhereCachesAreOnePieceEverySequenceHasOne) {
  for (const TurnsSetting& setting : kWholeTokens) {
    open(setting, 3);
    EXPECT_TRUE(pipeline_->forward().kv().is_one_piece);
    EXPECT_EQ(pipeline_->kv_pool().capacity(), 3u);
    const uint64_t pinned_by_three = vxrt::counters().pinned_bytes;
    const uint64_t counted_for_three = trace_.device("vnpu").pinned_bytes;
    const uint64_t cache = pipeline_->forward().kv().page_bytes;
    open(setting, 1);
    EXPECT_GE(pinned_by_three - vxrt::counters().pinned_bytes, 2 * cache) << setting.name;
    EXPECT_EQ(counted_for_three - trace_.device("vnpu").pinned_bytes, 2 * cache) << setting.name;
  }
}

TEST_F(Turns, CachesThatDoNotFitAreRefusedWithTheNumbers) {
  const auto message = [&](uint32_t sequences, PipelineOptions options) -> std::string {
    try {
      open(kWholeTokens[1], sequences, options);
      return "was not refused";
    } catch (const Error& error) {
      return error.what();
    }
  };
  PipelineOptions options;
  options.forward.kv_memory = 50'000;
  EXPECT_EQ(message(3, options),
            "--kv-memory 50000: the caches of 3 sequences take 32768 bytes each, 128 positions in "
            "one piece");
  EXPECT_EQ(message(1, options), "was not refused");
}

TEST_F(Turns, TheMemoryPlanCountsACacheForEachSequence) {
  const auto plan = [](uint32_t sequences) {
    return npu_memory(kLlama32_1b, NpuWeights::q4nx, Fusion::token, 2048, sequences);
  };
  const uint64_t cache = uint64_t{16} * 2 * 8 * 64 * 2048 * 2;  // 64 MiB
  EXPECT_EQ(total_bytes(plan(8)) - total_bytes(plan(1)), 7 * cache);
  try {
    check_memory(plan(8), total_bytes(plan(1)), "npu");
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("8 KV caches 0.54 GB"), std::string::npos);
  }
}

// A sequence that begins with another's positions copies them, wherever the newest copy is.
TEST_F(Turns, ASharedBeginningIsCopied) {
  for (const TurnsSetting& setting : kWholeTokens)
    for (const size_t decoded : {0, 3}) {
      const std::vector<Values> expected = alone(setting, 1, 6);
      open(setting, 3);
      Sequence &first = *sequences_[0], &second = *sequences_[1];
      const std::vector<Token> tokens = prompt(1);
      pipeline_->run(first, tokens);
      const auto run = [&](Sequence& sequence) {
        const Token token = next(1, sequence.position());
        const std::span<const float> logits = pipeline_->run(sequence, {&token, 1});
        return Values(logits.begin(), logits.end());
      };
      for (size_t i = 0; i < decoded; ++i) run(first);
      const std::vector<Token> known = first.tokens();
      second.begin_with(known, first.share(first.position()));
      for (size_t i = decoded; i < 6; ++i) {
        EXPECT_EQ(run(second), expected[i + 1]) << setting.name << " the copy at " << i;
        EXPECT_EQ(run(first), expected[i + 1]) << setting.name << " the original at " << i;
      }
      EXPECT_EQ(pipeline_->kv_pool().in_use(), 2u);
    }
}

// The second of three dispatches fails.
TEST_F(Turns, AnErrorThatIsNotRecoveredEndsOneSequenceAndTheOthersGoOn) {
  for (const TurnsSetting& setting : kWholeTokens) {
    std::vector<std::vector<Values>> expected;
    for (size_t s = 0; s < 3; ++s) expected.push_back(alone(setting, s, 4));
    open(setting, 3, {.forward = {}, .on_error = OnDeviceError::fail});
    Sequence idle(*pipeline_);
    run_prompts();
    EXPECT_TRUE(step().empty());
    vxrt::inject(vxrt::parse_fault("error@2"));
    const std::vector<Pipeline::Failure> failures = step();
    ASSERT_EQ(failures.size(), 1u) << setting.name;
    EXPECT_EQ(failures[0].item, 1u);
    EXPECT_EQ(failures[0].error.code, ErrorCode::device);
    EXPECT_EQ(sequences_[1]->position(), 0u);
    EXPECT_TRUE(sequences_[1]->recoveries.empty());
    EXPECT_TRUE(idle.recoveries.empty());
    EXPECT_EQ(pipeline_->recoveries(), 0u);
    sequences_.erase(sequences_.begin() + 1);
    logits_.erase(logits_.begin() + 1);
    for (const size_t s : {0, 1}) {
      ASSERT_EQ(sequences_[s]->recoveries.size(), 1u);
      EXPECT_NE(sequences_[s]->recoveries[0].find("in another request; run again on new contexts"),
                std::string::npos);
    }
    std::vector<Token> tokens(2);
    for (int i = 0; i < 2; ++i)
      for (size_t s = 0; s < 2; ++s) {
        tokens[s] = next(2 * s, sequences_[s]->position());
        const std::span<const float> logits = pipeline_->run(*sequences_[s], {&tokens[s], 1});
        logits_[s].emplace_back(logits.begin(), logits.end());
      }
    EXPECT_EQ(logits_[0] == expected[0], true) << setting.name;
    EXPECT_EQ(logits_[1] == expected[2], true) << setting.name;
  }
}

TEST_F(Turns, ARetryTellsWhoseDispatchItWasAndChangesNoLogit) {
  for (const TurnsSetting& setting : kWholeTokens) {
    std::vector<std::vector<Values>> expected;
    for (size_t s = 0; s < 3; ++s) expected.push_back(alone(setting, s, 4));
    open(setting, 3);
    Sequence idle(*pipeline_);
    run_prompts();
    EXPECT_TRUE(step().empty());
    const uint64_t pinned = trace_.device("vnpu").pinned_bytes;
    vxrt::inject(vxrt::parse_fault("timeout@2"));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(step().empty());
    EXPECT_EQ(logits_ == expected, true) << setting.name;
    EXPECT_EQ(trace_.device("vnpu").pinned_bytes, pinned) << "what was made anew counts once";
    for (size_t s = 0; s < 3; ++s) {
      ASSERT_EQ(sequences_[s]->recoveries.size(), 1u);
      const bool is_its_own = sequences_[s]->recoveries[0].ends_with("; retried on new contexts");
      EXPECT_EQ(is_its_own, s == 1) << sequences_[s]->recoveries[0];
    }
    EXPECT_TRUE(idle.recoveries.empty());
    EXPECT_EQ(pipeline_->recoveries(), 1u);
  }
}

TEST_F(Turns, TheCpuFinishesThemAllWhenAskedTo) {
  open(kWholeTokens[1], 3, {.forward = {}, .on_error = OnDeviceError::cpu});
  run_prompts();
  EXPECT_TRUE(step().empty());
  vxrt::inject(vxrt::parse_fault("error@3"));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(step().empty());
  EXPECT_TRUE(pipeline_->host_took_over());
  for (size_t s = 0; s < 3; ++s) {
    EXPECT_EQ(logits_[s].size(), 5u);
    ASSERT_EQ(sequences_[s]->recoveries.size(), 1u);
    EXPECT_NE(sequences_[s]->recoveries[0].find(s == 2 ? "; finished on the cpu"
                                                       : "; run again on the cpu"),
              std::string::npos);
  }
}

// Not even new contexts work: who comes after the one that failed is not kept waiting for it.
TEST_F(Turns, ADeviceThatStaysBrokenEndsTheRestOfTheBatch) {
  for (const OnDeviceError policy : {OnDeviceError::retry, OnDeviceError::fail}) {
    open(kWholeTokens[1], 3, {.forward = {}, .on_error = policy});
    run_prompts();
    EXPECT_TRUE(step().empty());
    vxrt::inject(vxrt::parse_fault("slowx1e9"));
    EXPECT_EQ(step().size(), 3u);
    for (const auto& sequence : sequences_) EXPECT_EQ(sequence->position(), 0u);
    vxrt::inject({});
    const Token token = 3;
    EXPECT_NO_THROW(pipeline_->run(*sequences_[0], {&token, 1}));
  }
}

}  // namespace
}  // namespace tyto
