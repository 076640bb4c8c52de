// Prompts on one device and tokens on another: what each side lacks is handed over, once, and the
// result is the same.
#include "llama/sides.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "device/vnpu/machine/control.h"
#include "llama/kv_store.h"
#include "llama/pipeline.h"
#include "support/apart_device.h"
#include "support/npu_settings.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::ApartDevice;
using testing_support::random_model;
using testing_support::RandomModel;
using Values = std::vector<float>;

struct SidesSetting {
  const char* name;
  Fusion fusion;
  NpuWeights weights;
};
constexpr std::array<SidesSetting, 4> kSettings = {{{"block", Fusion::block, NpuWeights::bf16},
                                                    {"token", Fusion::token, NpuWeights::bf16},
                                                    {"q4nx", Fusion::token, NpuWeights::q4nx},
                                                    {"int8", Fusion::op, NpuWeights::int8}}};

// A conversation: a prompt, some tokens, a second prompt, some tokens.
struct Talk {
  uint32_t first, decoded, second;
};
constexpr Talk kTalk = {20, 4, 9};

bool takes_all(const Launch&) {
  return true;
}

class SidesTest : public testing::Test {
 protected:
  void SetUp() override { vxrt::reset(); }
  void TearDown() override {
    devices_.clear();
    vxrt::reset();
  }

  // By names; "apart" has the cpu's kernels and memory of its own.
  std::unique_ptr<Pipeline> open(const RandomModel& random, const std::string& prefill,
                                 const std::string& decode,
                                 const SidesSetting& setting = kSettings[0],
                                 PipelineOptions options = {}) {
    NpuSettings npu;
    npu.weights = setting.weights;
    const uint32_t sequences = options.forward.sequences;
    const DeviceEnv env{pool_,
                        trace_,
                        setting.fusion,
                        model_dims(random.model.config, 0),
                        testing_support::settings_of(npu),
                        sequences};
    const auto device = [&](const std::string& name) {
      if (name == "apart")
        devices_.push_back(std::make_unique<ApartDevice>(name, env, takes_all));
      else
        devices_.push_back(open_device(name, env));
      return devices_.back().get();
    };
    Device* const host = device("cpu");
    const auto order = [&](const std::string& name) {
      return name == "cpu" ? std::vector<Device*>{host} : std::vector<Device*>{device(name), host};
    };
    SideDevices sides{.decode = order(decode), .prefill = {}};
    sides.prefill = prefill == decode ? sides.decode : order(prefill);
    options.forward.fusion = setting.fusion;
    return std::make_unique<Pipeline>(random.model, sides, options, trace_);
  }

  static Token token_at(uint32_t position) {
    return static_cast<Token>((position * 7 + position / 5) % 61);
  }
  static Values run(Pipeline& pipeline, Sequence& sequence, uint32_t count) {
    std::vector<Token> tokens;
    for (uint32_t i = 0; i < count; ++i) tokens.push_back(token_at(sequence.position() + i));
    const std::span<const float> logits = pipeline.run(sequence, tokens);
    return {logits.begin(), logits.end()};
  }
  // The logits of every run of a conversation.
  static std::vector<Values> talk(Pipeline& pipeline, Sequence& sequence, const Talk& of = kTalk) {
    std::vector<Values> result;
    for (const uint32_t prompt : {of.first, of.second}) {
      sequence.phase = Phase::prefill;
      result.push_back(run(pipeline, sequence, prompt));
      sequence.phase = Phase::decode;
      for (uint32_t i = 0; i < of.decoded; ++i) result.push_back(run(pipeline, sequence, 1));
    }
    return result;
  }
  static std::vector<Values> talk(Pipeline& pipeline, const Talk& of = kTalk) {
    Sequence sequence(pipeline);
    return talk(pipeline, sequence, of);
  }
  static std::vector<double> cosines(const std::vector<Values>& got,
                                     const std::vector<Values>& want) {
    std::vector<double> result;
    for (size_t i = 0; i < want.size(); ++i) result.push_back(compare(got[i], want[i]).cosine);
    return result;
  }
  static void expect_alike(const std::vector<Values>& got, const std::vector<Values>& want,
                           const std::string& what) {
    ASSERT_EQ(got.size(), want.size());
    for (const double cosine : cosines(got, want)) EXPECT_GT(cosine, 0.999) << what;
  }
  static std::vector<std::string> names(const std::vector<DeviceCounters>& executed) {
    std::vector<std::string> result;
    for (const DeviceCounters& device : executed) result.push_back(device.device);
    return result;
  }

  const RandomModel random_ = random_model(testing_support::small_config(), DType::bf16);
  ThreadPool pool_{2};
  Trace trace_;
  std::vector<std::unique_ptr<Device>> devices_;
};

using Names = std::vector<std::string>;

TEST_F(SidesTest, WithTheSameKernelsEveryBitIsTheSame) {
  const std::vector<Values> expected = talk(*open(random_, "cpu", "cpu"));
  for (const auto& [prefill, decode] : {std::pair{"cpu", "apart"}, {"apart", "cpu"}}) {
    const auto pipeline = open(random_, prefill, decode);
    Sequence sequence(*pipeline);
    EXPECT_EQ(talk(*pipeline, sequence), expected) << prefill << " then " << decode;
    EXPECT_EQ(names(sequence.executed.prefill), Names{prefill});
    EXPECT_EQ(names(sequence.executed.decode), Names{decode});
  }
}

// To the decode side, back with what was decoded, and to the decode side again.
TEST_F(SidesTest, APositionIsHandedOverOnce) {
  const auto pipeline = open(random_, "cpu", "apart");
  Sequence sequence(*pipeline);
  talk(*pipeline, sequence);
  EXPECT_EQ(sequence.handed_over.times, 3u);
  const uint64_t positions = kTalk.first + kTalk.decoded + kTalk.second;
  EXPECT_EQ(sequence.handed_over.positions, positions);
  EXPECT_EQ(sequence.handed_over.bytes, positions * pipeline->position_bytes());
  EXPECT_GT(sequence.handed_over.ns, 0u);
  run(*pipeline, sequence, 1);
  EXPECT_EQ(sequence.handed_over.times, 3u) << "nothing is missing any more";
  const auto alone = open(random_, "apart", "apart");
  Sequence other(*alone);
  talk(*alone, other);
  EXPECT_EQ(other.handed_over.times, 0u);
}

// As far from the cpu as the NPU is by itself, whose weights have fewer bits, and no further.
TEST_F(SidesTest, EveryPairSaysWhatOneDeviceDoes) {
  Config pairs = testing_support::small_config();
  pairs.rope.layout = RopeLayout::pairs;
  const RandomModel of_pairs = random_model(pairs, DType::bf16);
  for (const RandomModel* random : {&random_, &of_pairs}) {
    const std::vector<Values> expected = talk(*open(*random, "cpu", "cpu"));
    for (const SidesSetting& setting : kSettings) {
      TearDown();
      const auto alone = cosines(talk(*open(*random, "vnpu", "vnpu", setting)), expected);
      for (const auto& [prefill, decode] :
           {std::pair{"cpu", "vnpu"}, {"vnpu", "cpu"}, {"apart", "vnpu"}, {"vnpu", "apart"}}) {
        TearDown();
        const auto got = cosines(talk(*open(*random, prefill, decode, setting)), expected);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_GT(got[i], std::min(0.999, alone[i] - 0.02))
              << setting.name << " " << prefill << " then " << decode << ", run " << i;
      }
    }
  }
}

// A cache of 600 positions in one piece beside pages of 256, and beside fewer of them than that.
TEST_F(SidesTest, ACacheInOnePieceIsAsManyPagesAsHoldIt) {
  Config config = testing_support::small_config();
  config.context = 600;
  const RandomModel random = random_model(config, DType::bf16);
  const Talk across_pages = {250, 12, 260};
  const std::vector<Values> expected = talk(*open(random, "cpu", "cpu"), across_pages);
  PipelineOptions options;
  options.forward.sequences = 2;
  for (const auto& [prefill, decode] : {std::pair{"cpu", "vnpu"}, {"vnpu", "cpu"}}) {
    TearDown();
    const auto pipeline = open(random, prefill, decode, kSettings[1], options);
    EXPECT_EQ(pipeline->kv_pool().page_positions(), 600u);
    EXPECT_EQ(pipeline->kv_pool().capacity(), 2u);
    Sequence first(*pipeline), second(*pipeline);
    expect_alike(talk(*pipeline, first, across_pages), expected, prefill);
    expect_alike(talk(*pipeline, second, across_pages), expected, prefill);
  }
}

TEST_F(SidesTest, ASharedBeginningIsCopiedOnBothSides) {
  const std::vector<Values> expected = talk(*open(random_, "cpu", "cpu"));
  PipelineOptions options;
  options.forward.sequences = 3;
  const auto pipeline = open(random_, "cpu", "apart", kSettings[0], options);
  Sequence first(*pipeline), second(*pipeline), third(*pipeline);
  run(*pipeline, first, kTalk.first);
  run(*pipeline, first, 1);
  const std::vector<Token> known = first.tokens();
  second.begin_with(known, first.share(kTalk.first + 1));
  third.begin_with(std::span(known).first(kTalk.first), first.share(kTalk.first));
  EXPECT_EQ(run(*pipeline, second, 1), expected[2]);
  EXPECT_EQ(run(*pipeline, first, 1), expected[2]);
  EXPECT_EQ(run(*pipeline, third, 1), expected[1]);
  EXPECT_EQ(second.handed_over.times, 0u) << "the copy has what the original had";
}

// What a side held of positions that were forgotten is old, however much of it there is.
TEST_F(SidesTest, WhatIsRunAgainOnTheOtherSideIsHandedOverAgain) {
  const auto alone = open(random_, "cpu", "cpu"), pipeline = open(random_, "cpu", "apart");
  Sequence expected(*alone), sequence(*pipeline);
  run(*pipeline, sequence, 30);
  run(*pipeline, sequence, 1);
  sequence.rewind(10);
  run(*alone, expected, 10);
  const std::vector<Token> others = {60, 1, 59, 2};
  const auto say = [&](Pipeline& on, Sequence& to) {
    const std::span<const float> logits = on.run(to, others);
    return Values(logits.begin(), logits.end());
  };
  EXPECT_EQ(say(*pipeline, sequence), say(*alone, expected));
  EXPECT_EQ(run(*pipeline, sequence, 1), run(*alone, expected, 1));
  EXPECT_EQ(sequence.handed_over.positions, 30u + 4u);
  sequence.rewind(12);
  expected.rewind(12);
  EXPECT_EQ(run(*pipeline, sequence, 1), run(*alone, expected, 1));
  EXPECT_EQ(run(*pipeline, sequence, 5), run(*alone, expected, 5));
}

TEST_F(SidesTest, ShortAndLongPromptsStayOnTheDecodeSide) {
  PipelineOptions options;
  options.min_prompt = 4;
  options.max_prompt = 8;
  options.forward.prefill_chunk = 5;
  const auto pipeline = open(random_, "apart", "cpu", kSettings[0], options);
  const auto where = [&](uint32_t prompt) {
    Sequence sequence(*pipeline);
    run(*pipeline, sequence, prompt);
    return names(sequence.executed.prefill);
  };
  EXPECT_EQ(where(1), Names{"cpu"});
  EXPECT_EQ(where(3), Names{"cpu"});
  EXPECT_EQ(where(4), Names{"apart"});
  EXPECT_EQ(where(6), Names{"apart"}) << "all passes of a prompt, also one of a single row";
  EXPECT_EQ(where(8), Names{"apart"}) << "all passes of a prompt, also one of three rows";
  EXPECT_EQ(where(9), Names{"cpu"}) << "all passes of a prompt, also one of five rows";
}

TEST_F(SidesTest, PromptsAndTokensOfSeveralSequencesRunInOneBatch) {
  PipelineOptions options;
  options.forward.sequences = 3;
  const std::vector<Values> expected = talk(*open(random_, "cpu", "cpu"));
  const auto pipeline = open(random_, "cpu", "apart", kSettings[0], options);
  Sequence decoding(*pipeline), prompted(*pipeline), other(*pipeline);
  run(*pipeline, decoding, kTalk.first);
  std::vector<Token> tokens;
  for (uint32_t i = 0; i <= kTalk.first; ++i) tokens.push_back(token_at(i));
  const std::span<const Token> prompt = std::span(tokens).first(kTalk.first);
  std::vector<SequenceRows> batch = {{&decoding, {&tokens.back(), 1}, 1, nullptr, Side::decode},
                                     {&prompted, prompt, 1, nullptr, Side::prefill},
                                     {&other, prompt, 1, nullptr, Side::prefill}};
  for (const SequenceRows& work : batch)
    ASSERT_TRUE(pipeline->reserve(*work.sequence, static_cast<uint32_t>(work.tokens.size())));
  std::vector<Values> got(3);
  EXPECT_TRUE(pipeline
                  ->run(batch,
                        [&](size_t item, uint32_t, std::span<const float> logits) {
                          got[item].assign(logits.begin(), logits.end());
                        })
                  .empty());
  EXPECT_EQ(got[0], expected[1]);
  EXPECT_EQ(got[1], expected[0]);
  EXPECT_EQ(got[2], expected[0]);
}

TEST_F(SidesTest, AfterARecoveryEveryLogitIsTheSameToTheBit) {
  for (const SidesSetting& setting : {kSettings[0], kSettings[1], kSettings[2]})
    for (const auto& [prefill, decode] : {std::pair{"cpu", "vnpu"}, {"vnpu", "cpu"}}) {
      TearDown();
      const std::vector<Values> expected = talk(*open(random_, prefill, decode, setting));
      for (const char* fault : {"error@1", "error@3", "timeout@2"}) {
        TearDown();
        const auto pipeline = open(random_, prefill, decode, setting);
        Sequence sequence(*pipeline);
        vxrt::inject(vxrt::parse_fault(fault));
        EXPECT_EQ(talk(*pipeline, sequence), expected)
            << setting.name << " " << prefill << " " << decode << " " << fault;
        EXPECT_EQ(sequence.recoveries.size(), 1u);
      }
    }
}

TEST_F(SidesTest, TheCpuTakesOverBothSides) {
  const auto pipeline =
      open(random_, "vnpu", "apart", kSettings[1], {.forward = {}, .on_error = OnDeviceError::cpu});
  Sequence sequence(*pipeline);
  run(*pipeline, sequence, 10);
  run(*pipeline, sequence, 1);
  vxrt::inject(vxrt::parse_fault("error@1"));
  sequence.executed = {};
  expect_alike({run(*pipeline, sequence, 10)}, {[&] {
                 const auto alone = open(random_, "cpu", "cpu");
                 Sequence other(*alone);
                 return run(*alone, other, 21);
               }()},
               "finished");
  EXPECT_TRUE(pipeline->host_took_over());
  EXPECT_EQ(std::ranges::count(names(sequence.executed.prefill), "vnpu"), 1) << "it failed there";
  const HandOvers before = sequence.handed_over;
  run(*pipeline, sequence, 1);
  EXPECT_EQ(sequence.handed_over.times, before.times) << "there is one side now";
}

TEST_F(SidesTest, APageIsReadWhicheverSideHasIt) {
  const auto alone = open(random_, "cpu", "cpu"), pipeline = open(random_, "cpu", "apart");
  Sequence expected(*alone), sequence(*pipeline);
  run(*alone, expected, 30);
  run(*pipeline, sequence, 30);
  const auto read = [](Pipeline& from, const Sequence& of) {
    std::vector<std::byte> bytes(30 * from.position_bytes());
    from.read_page(of.share(30).pages()[0], {0, 30}, bytes);
    return bytes;
  };
  const std::vector<std::byte> bytes = read(*alone, expected);
  EXPECT_EQ(read(*pipeline, sequence), bytes);
  KvTable table(pipeline->kv_pool());
  std::optional<KvTable::Copy> copy;
  ASSERT_TRUE(table.grow_to(30, copy));
  pipeline->write_page(table.pages()[0], {0, 30}, bytes);
  Sequence again(*pipeline);
  again.begin_with(sequence.tokens(), KvTable(pipeline->kv_pool(), table.pages(), PassBegins(30)));
  table.set_length(0);
  EXPECT_EQ(run(*pipeline, again, 5), run(*alone, expected, 5));
}

TEST_F(SidesTest, CachesThatDoNotFitTwiceAreRefused) {
  Config config = testing_support::small_config();
  config.context = 600;
  const RandomModel random = random_model(config, DType::bf16);
  PipelineOptions options;
  options.forward.kv_memory = uint64_t{2} * 600 * 256;  // pages of 256 positions: two of three
  try {
    open(random, "cpu", "vnpu", kSettings[1], options);
    FAIL() << "was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "--kv-memory 307200: the caches of a sequence of 600 positions do not fit on both "
              "devices");
  }
}

// Against a plain formula, value by value.
TEST(KvConvert, EveryFormBecomesEveryOther) {
  Config config = testing_support::small_config();
  config.kv_heads = 4;
  config.head_dim = 32;  // a block of q8_0
  constexpr uint32_t kPositions = 3;
  const size_t count = size_t{2} * config.layers * config.kv_heads * kPositions * config.head_dim;
  // A value that every type holds exactly: an integer, with 127 in each block for q8_0's scale.
  const auto value = [&](uint64_t matrix, uint32_t head, uint32_t position, uint32_t i) {
    return i == 0 ? 127.0f : static_cast<float>((matrix * 31 + head * 7 + position * 3 + i) % 100);
  };
  const auto laid_out = [&](const KvShape& shape) {
    std::vector<float> values(count);
    for (uint64_t m = 0; m < 2 * config.layers; ++m)
      for (uint32_t h = 0; h < config.kv_heads; ++h)
        for (uint32_t p = 0; p < kPositions; ++p)
          for (uint32_t i = 0; i < config.head_dim; ++i) {
            const bool turned = shape.in_halves && m < config.layers;
            const uint32_t at = turned ? i / 2 + i % 2 * config.head_dim / 2 : i;
            const uint64_t run = m * (config.kv_heads / shape.group) + h / shape.group;
            const uint64_t row = (run * kPositions + p) * shape.group + h % shape.group;
            values[row * config.head_dim + at] = value(m, h, p, i);
          }
    std::vector<std::byte> bytes(row_bytes(shape.type, count));
    quantize(shape.type, values, bytes);
    return bytes;
  };
  std::vector<KvShape> shapes;
  for (const DType type : {DType::f16, DType::bf16, DType::f32, DType::q8_0})
    for (const uint32_t group : {1, 2, 4})
      for (const bool in_halves : {false, true})
        shapes.push_back({.group = group, .type = type, .in_halves = in_halves});
  for (const KvShape& from : shapes)
    for (const KvShape& to : shapes) {
      std::vector<std::byte> out(row_bytes(to.type, count));
      convert_kv(from, to, config, kPositions, laid_out(from), out);
      EXPECT_EQ(out == laid_out(to), true)
          << info(from.type).name << " " << from.group << from.in_halves << " to "
          << info(to.type).name << " " << to.group << to.in_halves;
    }
}

}  // namespace
}  // namespace tyto
