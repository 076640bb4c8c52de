// Layers with a window give pages back that nothing attends to any more, and nothing else changes:
// logits are those of whole caches to the last bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "llama/pipeline.h"
#include "llama/reference.h"
#include "support/apart_device.h"
#include "support/expect_error.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;

constexpr uint32_t kPage = 256;

Config windowed_config(uint32_t window, bool is_mixed) {
  Config config = small_config();
  config.context = 2048;
  config.window = window;
  if (is_mixed) config.windowed = {true, false};
  return config;
}

std::vector<Token> some_tokens(size_t count, size_t seed = 11) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * i + seed * i) % 61));
  return tokens;
}

struct World {
  explicit World(const RandomModel& random, uint32_t chunk = 64, bool frees = true,
                 uint64_t kv_memory = 0)
      : device(open_device("cpu", {pool, trace})) {
    Device* devices[] = {device.get()};
    PipelineOptions options;
    options.forward.kv_type = DType::f32;
    options.forward.prefill_chunk = chunk;
    options.forward.kv_memory = kv_memory;
    options.forward.sequences = 3;
    options.forward.kv_shares = frees ? 1 : 2;  // each of two sides keeps whole caches
    pipeline = std::make_unique<Pipeline>(random.model, devices, options, trace);
    EXPECT_EQ(pipeline->kv_window().pool != nullptr, frees);
  }
  ~World() {
    EXPECT_EQ(pipeline->kv_pool().in_use(), 0u);
    if (pipeline->kv_window().pool != nullptr) {
      EXPECT_EQ(pipeline->kv_window().pool->in_use(), 0u);
    }
  }

  std::vector<std::vector<float>> all_logits(Sequence& sequence, std::span<const Token> tokens) {
    std::vector<std::vector<float>> result;
    testing_support::run_each(*pipeline, sequence, tokens, static_cast<uint32_t>(tokens.size()),
                              nullptr, [&](uint32_t, std::span<const float> logits) {
                                result.emplace_back(logits.begin(), logits.end());
                              });
    return result;
  }
  std::vector<std::vector<float>> all_logits(std::span<const Token> tokens) {
    Sequence sequence(*pipeline);
    return all_logits(sequence, tokens);
  }

  ThreadPool pool{2};
  Trace trace;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pipeline> pipeline;
};

TEST(WindowPages, LogitsAreThoseOfWholeCachesAndOfTheReference) {
  const auto tokens = some_tokens(1300);
  for (const bool is_mixed : {true, false})
    for (const uint32_t window : {1u, 40u, 256u, 300u}) {
      SCOPED_TRACE(testing::Message() << window << (is_mixed ? " mixed" : ""));
      const RandomModel random = random_model(windowed_config(window, is_mixed), DType::f32);
      World whole(random, 64, false);
      const auto expected = whole.all_logits(tokens);
      for (const uint32_t chunk : {1u, 64u, 500u}) {
        World world(random, chunk);
        EXPECT_EQ(world.all_logits(tokens), expected) << chunk;
        EXPECT_LE(world.pipeline->kv_window().pool->peak(),
                  KvWindow::most_pages(window, std::max(chunk, kPage), kPage));
      }
      Reference reference(random.model);
      for (size_t i = 0; i < 700; ++i) {
        const Comparison difference = compare(expected[i], reference.forward(tokens[i]));
        ASSERT_LE(difference.max_abs_error, 5e-5 * difference.max_abs_reference) << i;
      }
    }
}

TEST(WindowPages, WithoutAWindowShorterThanTheContextThereIsOneKindOfPage) {
  for (const uint32_t window : {0u, 2048u, 5000u}) {
    const RandomModel random = random_model(windowed_config(window, true), DType::f32);
    World world(random, 64, false);
    EXPECT_EQ(world.pipeline->forward().kv().windowed.pages, 0u);
  }
}

TEST(WindowPages, SequencesTogetherGetWhatTheyGetAlone) {
  const RandomModel random = random_model(windowed_config(100, true), DType::bf16);
  World alone(random, 64, false), world(random);
  std::vector<std::unique_ptr<Sequence>> together;
  std::vector<std::vector<Token>> tokens;
  for (size_t i = 0; i < 3; ++i) {
    together.push_back(std::make_unique<Sequence>(*world.pipeline));
    tokens.push_back(some_tokens(900, i + 3));
  }
  std::vector<std::vector<std::vector<float>>> actual(3);
  for (size_t done = 0; done < 900; done += 20) {
    std::vector<SequenceRows> work;
    for (size_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(world.pipeline->reserve(*together[i], 20));
      work.push_back({together[i].get(), std::span(tokens[i]).subspan(done, 20), 20});
    }
    ASSERT_TRUE(world.pipeline
                    ->run(work,
                          [&](size_t item, uint32_t, const Logits& logits) {
                            const std::span<const float> all = logits;
                            actual[item].emplace_back(all.begin(), all.end());
                          })
                    .empty());
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(actual[i], alone.all_logits(tokens[i])) << i;
  together.clear();
}

TEST(WindowPages, ASequenceGoesOnFromWhereItWasRewoundTo) {
  const RandomModel random = random_model(windowed_config(60, true), DType::f32);
  const auto tokens = some_tokens(1200);
  World whole(random, 64, false), world(random);
  const auto expected = whole.all_logits(tokens);
  Sequence sequence(*world.pipeline);
  world.all_logits(sequence, std::span(tokens).first(900));
  for (const uint32_t to : {899u, 840u, 768u, 650u}) {  // a page back at most
    ASSERT_TRUE(sequence.can_rewind(to));
    sequence.rewind(to);
    const auto again = world.all_logits(sequence, std::span(tokens).subspan(to, 30));
    for (size_t i = 0; i < 30; ++i) ASSERT_EQ(again[i], expected[to + i]) << to << " " << i;
  }
  EXPECT_FALSE(sequence.can_rewind(100));
  sequence.rewind(0);
  EXPECT_EQ(world.all_logits(sequence, tokens), expected);
}

TEST(WindowPages, ASharedBeginningIsCopiedByWhoGoesOn) {
  const RandomModel random = random_model(windowed_config(60, true), DType::f32);
  auto tokens = some_tokens(700), other = tokens;
  std::fill(other.begin() + 600, other.end(), 5);
  World whole(random, 64, false), world(random);
  Sequence first(*world.pipeline), second(*world.pipeline);
  world.all_logits(first, std::span(tokens).first(600));
  second.begin_with(std::span(tokens).first(600), first.share(600));
  const auto left = world.all_logits(first, std::span(tokens).subspan(600));
  const auto right = world.all_logits(second, std::span(other).subspan(600));
  const auto whole_left = whole.all_logits(tokens), whole_right = whole.all_logits(other);
  for (size_t i = 0; i < 100; ++i) {
    ASSERT_EQ(left[i], whole_left[600 + i]);
    ASSERT_EQ(right[i], whole_right[600 + i]);
  }
}

// Mixed: half of the layers have a window, so a full page is as large as a windowed one.
TEST(WindowPages, MemoryIsDividedBetweenTheKinds) {
  const RandomModel random = random_model(windowed_config(100, true), DType::f32);
  World roomy(random);
  const KvShape kv = roomy.pipeline->forward().kv();
  EXPECT_EQ(kv.pages, 3 * 8 + 1u);
  EXPECT_EQ(kv.page_bytes, kv.windowed.page_bytes);
  const uint32_t least = KvWindow::most_pages(100, kPage, kPage);
  EXPECT_EQ(kv.windowed.pages, 3 * (least + 2) + 1);
  for (const uint64_t pages : {2u, 5u, 9u, 20u, 60u}) {
    World small(random, 64, true, pages * kv.page_bytes);
    const KvShape& own = small.pipeline->forward().kv();
    EXPECT_LE(own.pages + own.windowed.pages, pages);
    EXPECT_GE(own.pages + own.windowed.pages + 2, pages);
    EXPECT_GE(own.windowed.pages, std::min(own.pages, least)) << "one sequence can run";
  }
  EXPECT_ERROR(World(random, 64, true, kv.page_bytes), "a page of 256 positions takes");
}

TEST(WindowPages, ALongSequenceFitsIntoLittleMemory) {
  const RandomModel random = random_model(windowed_config(100, false), DType::f32);
  const auto tokens = some_tokens(2000);
  World whole(random, 64, false);
  const KvShape kv = whole.pipeline->forward().kv();
  const uint32_t least = KvWindow::most_pages(100, kPage, kPage);
  World world(random, 64, true, least * kv.page_bytes);
  EXPECT_EQ(world.pipeline->forward().kv().page_bytes, 0u) << "all layers have windows";
  EXPECT_EQ(world.all_logits(tokens), whole.all_logits(tokens));
  EXPECT_LE(world.pipeline->kv_peak_bytes(), least * kv.page_bytes);
  EXPECT_GE(whole.pipeline->kv_peak_bytes(), 8 * kv.page_bytes);
}

// What was computed of a beginning that two sequences share, and of what each says next.
std::vector<std::vector<float>> of_two(Pipeline& pipeline, std::span<const Token> tokens) {
  Sequence first(pipeline), second(pipeline);
  std::vector<std::vector<float>> result;
  const auto run = [&](Sequence& sequence, std::span<const Token> more) {
    const std::span<const float> logits = pipeline.run(sequence, more);
    result.emplace_back(logits.begin(), logits.end());
  };
  run(first, tokens.first(600));
  second.begin_with(tokens.first(600), first.share(600));
  for (size_t at = 600; at < tokens.size(); at += 50) {
    run(first, tokens.subspan(at, 50));
    run(second, tokens.subspan(at - 100, 50));
    run(first, tokens.subspan(at, 1));
  }
  return result;
}

// A device with memory of its own may take all attention, or leave windows to the host: then the
// pages of both kinds are at home in different places.
TEST(WindowPages, OnADeviceWithMemoryOfItsOwn) {
  const RandomModel random = random_model(windowed_config(60, true), DType::f32);
  const auto tokens = some_tokens(1100);
  World whole(random, 64, false);
  const auto expected = of_two(*whole.pipeline, tokens);
  const auto all = [](const Launch&) { return true; };
  const auto no_windows = [](const Launch& launch) { return launch.shape.window == 0; };
  for (const testing_support::Takes& takes :
       {testing_support::Takes(all), testing_support::Takes(no_windows)})
    for (const uint32_t shares : {1u, 2u}) {
      testing_support::ApartDevice apart("apart", {whole.pool, whole.trace}, takes);
      PipelineOptions options;
      options.forward.kv_type = DType::f32;
      options.forward.prefill_chunk = 64;
      options.forward.sequences = 3;
      options.forward.kv_shares = shares;
      std::vector<Device*> order = {&apart, whole.device.get()};
      Pipeline pipeline(random.model, order, options, whole.trace);
      EXPECT_EQ(of_two(pipeline, tokens), expected) << shares;
      EXPECT_GT(apart.synced_bytes, 0u) << "a page was copied";
    }
}

TEST(WindowPages, TwoSidesKeepWholeCaches) {
  const RandomModel random = random_model(windowed_config(60, true), DType::f32);
  const auto tokens = some_tokens(1100);
  World whole(random, 64, false);
  const auto other = open_device("cpu", {whole.pool, whole.trace});
  PipelineOptions options;
  options.forward.kv_type = DType::f32;
  options.forward.prefill_chunk = 64;
  options.forward.sequences = 3;
  Pipeline pipeline(random.model, SideDevices{{whole.device.get()}, {other.get()}}, options,
                    whole.trace);
  EXPECT_EQ(pipeline.kv_window().pool, nullptr);
  EXPECT_EQ(of_two(pipeline, tokens), of_two(*whole.pipeline, tokens));
}

}  // namespace
}  // namespace tyto
