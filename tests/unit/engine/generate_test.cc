#include "engine/generate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/random_model.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::letters;
using testing_support::random_model;
using testing_support::RandomModel;

struct TextWorld {
  TextWorld() : random(random_model(testing_support::small_config(), DType::f32)), pool(2) {
    device = open_device("cpu", {pool, trace});
    Device* devices[] = {device.get()};
    pipeline = std::make_unique<Pipeline>(random.model, devices, PipelineOptions{}, trace);
  }

  Answer ask(const Request& request, SamplerOptions options = {.temperature = 0}) {
    Sampler sampler(options);
    text.clear();
    return generate({tokenizer, *pipeline, trace}, sampler, request, [&](std::string_view piece) {
      text += piece;
      return true;
    });
  }

  RandomModel random;
  Tokenizer tokenizer{letters(), "letters"};
  ThreadPool pool;
  Trace trace;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pipeline> pipeline;
  std::string text;
};

TEST(Generate, StopsAtTheTokenLimitAndShowsEveryToken) {
  TextWorld world;
  const Answer answer = world.ask({.prompt = {1, 2, 3}, .max_tokens = 10, .stop = {}});
  EXPECT_EQ(answer.reason, StopReason::max_tokens);
  EXPECT_EQ(answer.tokens.size(), 10u);
  EXPECT_EQ(world.text, world.tokenizer.decode(answer.tokens));
}

TEST(Generate, ReceiptCountsWhatTheDeviceCompleted) {
  TextWorld world;
  world.ask(
      {.prompt = {1, 2, 3}, .max_tokens = 5, .stop = {}});  // an earlier request is not counted
  const Answer answer = world.ask({.prompt = {4, 5}, .max_tokens = 5, .stop = {}});
  EXPECT_EQ(answer.receipt.prompt_tokens, 2u);
  EXPECT_EQ(answer.receipt.generated_tokens, 5u);
  ASSERT_EQ(answer.receipt.devices.size(), 1u);
  EXPECT_EQ(answer.receipt.devices[0].device, "cpu");
  // The body's seven blocks, norm and head for the prompt, then a whole token four times.
  EXPECT_EQ(answer.receipt.devices[0].completions,
            9 + 4 * world.pipeline->forward().dispatches_per_token());
  EXPECT_TRUE(answer.receipt.fallbacks.empty());
}

TEST(Generate, EnergyIsMeasuredOverPrefillAndDecode) {
  TextWorld world;
  double joules = 0;
  RailReader reader;
  reader.rail = {.name = "package-0", .source = "rapl", .path = ""};
  reader.read = [&] { return RailReading{joules += 6, ""}; };  // at the start, between, at the end
  EnergyMeter meter({reader});
  const Answer answer =
      world.ask({.prompt = {4, 5}, .max_tokens = 5, .stop = {}, .energy = &meter});
  ASSERT_EQ(answer.receipt.prefill_energy.rails.size(), 1u);
  EXPECT_DOUBLE_EQ(*answer.receipt.prefill_energy.rails[0].joules, 6);
  EXPECT_DOUBLE_EQ(*answer.receipt.decode_energy.rails[0].joules, 6);
  EXPECT_GE(answer.receipt.decode_energy.seconds, answer.receipt.decode_seconds);

  const Answer unasked = world.ask({.prompt = {4, 5}, .max_tokens = 5, .stop = {}});
  EXPECT_TRUE(unasked.receipt.prefill_energy.rails.empty());
}

TEST(Generate, StopsAtAStopStringWithoutShowingIt) {
  TextWorld world;
  const Answer free = world.ask({.prompt = {1, 2, 3}, .max_tokens = 12, .stop = {}});
  const std::string whole = world.text;
  const std::string stop = whole.substr(4, 3);
  const size_t first = whole.find(stop);
  const Answer answer = world.ask({.prompt = {1, 2, 3}, .max_tokens = 12, .stop = {stop}});
  EXPECT_EQ(answer.reason, StopReason::stop_string);
  EXPECT_EQ(world.text, whole.substr(0, first));
  EXPECT_LT(answer.tokens.size(), free.tokens.size());
}

TEST(Generate, StopsAtTheEndOfTheContext) {
  TextWorld world;
  std::vector<Token> prompt(90, 5);
  const Answer answer = world.ask({.prompt = prompt, .max_tokens = 100, .stop = {}});
  EXPECT_EQ(answer.reason, StopReason::context_full);
  EXPECT_EQ(answer.tokens.size(), 7u);  // six fit, and the seventh needs no room
}

TEST(Generate, RefusesAPromptThatLeavesNoRoomWithTheNumbers) {
  TextWorld world;
  try {
    world.ask({.prompt = std::vector<Token>(96, 5), .max_tokens = 1, .stop = {}});
    FAIL() << "did not refuse";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "prompt: 96 tokens leave no room for an answer in a context of 96");
  }
  EXPECT_ERROR(world.ask({.prompt = {}, .max_tokens = 1, .stop = {}}), "prompt: has no tokens");
  EXPECT_ERROR(world.ask({.prompt = {61}, .max_tokens = 1, .stop = {}}),
               "token 61 is outside the vocabulary of 61");
  EXPECT_ERROR(world.ask({.prompt = {-1}, .max_tokens = 1, .stop = {}}),
               "token -1 is outside the vocabulary of 61");
}

TEST(Generate, SameSeedSameText) {
  TextWorld world;
  const SamplerOptions options{.temperature = 1.5f, .seed = 42};
  const Request request{.prompt = {7}, .max_tokens = 30, .stop = {}};
  const auto first = world.ask(request, options).tokens;
  EXPECT_EQ(world.ask(request, options).tokens, first);
  EXPECT_NE(world.ask(request, {.temperature = 1.5f, .seed = 43}).tokens, first);
}

TEST(Generate, CallerCanCancel) {
  TextWorld world;
  Sampler sampler({.temperature = 0});
  int pieces = 0;
  const Answer answer = generate({world.tokenizer, *world.pipeline, world.trace}, sampler,
                                 {.prompt = {1}, .max_tokens = 50, .stop = {}},
                                 [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(answer.reason, StopReason::cancelled);
  EXPECT_EQ(answer.tokens.size(), 3u);
}

// One after the other, with what earlier ones have left in the caches.
struct Conversation {
  TextWorld world;
  PrefixCache prefixes{world.pipeline->kv_pool()};
  Sampler sampler{{.temperature = 0}};

  Answer ask(const Request& request) {
    return generate({world.tokenizer, *world.pipeline, world.trace, &prefixes}, sampler, request,
                    [](std::string_view) { return true; });
  }
};

TEST(GenerateWithPrefixes, ASecondTurnRunsOnlyWhatIsNewAndAnswersTheSame) {
  Conversation session;
  Request request{.prompt = {1, 2, 3, 4}, .max_tokens = 4, .stop = {}};
  const Answer first = session.ask(request);
  EXPECT_EQ(first.receipt.prompt_tokens, 4u);
  EXPECT_EQ(first.receipt.cached_tokens, 0u);
  for (Token token : first.tokens) request.prompt.push_back(token);
  request.prompt.push_back(9);
  const Answer second = session.ask(request);
  EXPECT_EQ(second.receipt.prompt_tokens, 2u);  // the last sampled token, and the new one
  EXPECT_EQ(second.receipt.cached_tokens, 7u);

  const Answer fresh = session.world.ask(request);
  EXPECT_EQ(second.tokens, fresh.tokens);
}

TEST(GenerateWithPrefixes, AskingTheSameAgainRunsOneToken) {
  Conversation session;
  const Request request{.prompt = {1, 2, 3, 4}, .max_tokens = 4, .stop = {}};
  const Answer first = session.ask(request);
  const Answer again = session.ask(request);
  EXPECT_EQ(again.receipt.prompt_tokens, 1u);
  EXPECT_EQ(again.tokens, first.tokens);
  session.prefixes.clear();
  EXPECT_EQ(session.ask(request).receipt.prompt_tokens, 4u);
}

}  // namespace
}  // namespace tyto
