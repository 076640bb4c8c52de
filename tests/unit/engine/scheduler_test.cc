// Many requests at once: each gets what it would have got alone, nothing is lost, nothing leaks.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::LettersWorld;
using testing_support::one_layer_config;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& shared_model() {
  static const RandomModel model = random_model(one_layer_config(), DType::f32);
  return model;
}

std::vector<Token> some_tokens(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 61);
  return tokens;
}

struct Case {
  Request request;
  SamplerOptions sampling;
};

// Prompts of one token, of less than a page, of just a page and of more; some begin alike.
std::vector<Case> make_cases() {
  std::vector<Case> cases;
  const std::vector<Token> common = some_tokens(300, 1);
  const auto add = [&](size_t shared, size_t own, uint32_t answer, float temperature) {
    Case made;
    made.request.prompt.assign(common.begin(),
                               common.begin() + static_cast<std::ptrdiff_t>(shared));
    const std::vector<Token> tail = some_tokens(own, static_cast<unsigned>(100 + cases.size()));
    made.request.prompt.insert(made.request.prompt.end(), tail.begin(), tail.end());
    made.request.max_tokens = answer;
    made.request.ignore_eos = true;
    made.sampling = {.temperature = temperature, .seed = cases.size()};
    cases.push_back(std::move(made));
  };
  add(0, 1, 20, 0);
  add(0, 7, 33, 0.9f);
  add(40, 3, 12, 0);
  add(40, 9, 25, 1.2f);
  add(256, 1, 10, 0);
  add(256, 30, 20, 0.7f);
  add(300, 5, 15, 0);
  add(300, 0, 8, 0);
  add(0, 250, 20, 0);  // the answer crosses into the second page
  add(10, 60, 1, 0);
  return cases;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> made = make_cases();
  return made;
}

// What each request gets from generate(), in a world of its own, without a cache.
const std::vector<std::vector<Token>>& alone() {
  static const std::vector<std::vector<Token>> answers = [] {
    std::vector<std::vector<Token>> result;
    for (const Case& each : cases()) {
      LettersWorld world(shared_model());
      Generator generator = world.generator();
      generator.prefixes = nullptr;
      Sampler sampler(each.sampling);
      result.push_back(
          generate(generator, sampler, each.request, [](std::string_view) { return true; }).tokens);
    }
    return result;
  }();
  return answers;
}

// Requests as a person follows them.
struct Desk {
  explicit Desk(LettersWorld& world, SchedulerOptions options = {})
      : scheduler(world.generator(), options) {}

  Scheduler::Id add(size_t which) {
    const Case& each = cases()[which];
    const Scheduler::Id id = scheduler.add(
        each.request, each.sampling, [this](const ChosenToken&) { return ++pieces, true; },
        [this](Scheduler::Id done, Outcome outcome) { ended.emplace(done, std::move(outcome)); });
    asked[id] = which;
    return id;
  }

  void run_to_the_end() {
    for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 100'000);
  }

  void expect_as_alone(Scheduler::Id id) {
    ASSERT_TRUE(ended.contains(id));
    const Outcome& outcome = ended.at(id);
    const std::vector<Token>& expected = alone()[asked.at(id)];
    ASSERT_FALSE(outcome.error) << outcome.error->what();
    if (outcome.answer.reason == StopReason::cancelled) {
      ASSERT_LE(outcome.answer.tokens.size(), expected.size());
      EXPECT_TRUE(
          std::equal(outcome.answer.tokens.begin(), outcome.answer.tokens.end(), expected.begin()))
          << "request " << asked.at(id) << " before it was cancelled";
    } else {
      EXPECT_EQ(outcome.answer.tokens, expected) << "request " << asked.at(id);
    }
  }

  std::map<Scheduler::Id, size_t> asked;
  std::map<Scheduler::Id, Outcome> ended;
  uint64_t pieces = 0;
  Scheduler scheduler;
};

TEST(Scheduler, RequestsThatStartTogetherGetWhatTheyGetAlone) {
  for (const unsigned threads : {1u, 2u}) {
    LettersWorld world(shared_model(), 16, threads);
    Desk desk(world);
    for (size_t i = 0; i < cases().size(); ++i) desk.add(i);
    desk.run_to_the_end();
    for (const auto& [id, which] : desk.asked) desk.expect_as_alone(id);
  }
}

// 200 schedules: who comes when, who is cancelled, how small the pool is, how many run at once.
TEST(Scheduler, RandomSchedulesChangeNothing) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const uint32_t pages = seed % 3 == 0 ? 2 + random() % 3 : 3 + random() % 14;
    LettersWorld world(shared_model(), pages, 1 + seed % 2);
    Desk desk(world, {.most_running = 1 + static_cast<uint32_t>(random() % 8)});
    for (int i = 0; i < 40; ++i) {
      if (random() % 5 == 0) desk.add(random() % cases().size());
      if (random() % 23 == 0 && !desk.asked.empty())
        desk.scheduler.cancel(1 + random() % desk.asked.size());
      desk.scheduler.step();
    }
    desk.run_to_the_end();
    for (const auto& [id, which] : desk.asked) desk.expect_as_alone(id);
    if (testing::Test::HasFailure()) FAIL() << "schedule " << seed << ", " << pages << " pages";
    EXPECT_EQ(world.pipeline->kv_pool().in_use(), world.prefixes->pages());
    world.prefixes->clear();
    ASSERT_EQ(world.pipeline->kv_pool().in_use(), 0u) << "schedule " << seed;
  }
}

TEST(Scheduler, AThousandCancelledRequestsLeaveNoPage) {
  LettersWorld world(shared_model(), 8);
  Desk desk(world, {.most_running = 4, .most_waiting = 8});
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    const Scheduler::Id id = desk.add(random() % 4);
    for (size_t steps = random() % 3; steps > 0; --steps) desk.scheduler.step();
    desk.scheduler.cancel(id);
    desk.scheduler.step();
  }
  desk.run_to_the_end();
  EXPECT_EQ(desk.ended.size(), 1000u);
  EXPECT_EQ(desk.scheduler.running() + desk.scheduler.waiting(), 0u);
  world.prefixes->clear();
  EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
}

TEST(Scheduler, ACancelledRequestEndsWithTheNextStep) {
  LettersWorld world(shared_model(), 8);
  Desk desk(world);
  const Scheduler::Id running = desk.add(1);
  for (int i = 0; i < 5; ++i) desk.scheduler.step();
  desk.scheduler.cancel(running);
  desk.scheduler.step();
  ASSERT_TRUE(desk.ended.contains(running));
  EXPECT_EQ(desk.ended.at(running).answer.reason, StopReason::cancelled);
  desk.expect_as_alone(running);
}

TEST(Scheduler, AKnownPrefixIsNotRunAgainAndGivesTheSameTokens) {
  LettersWorld world(shared_model(), 16);
  Desk desk(world);
  const Scheduler::Id first = desk.add(6);
  desk.run_to_the_end();
  const Scheduler::Id again = desk.add(6), sibling = desk.add(7);
  desk.run_to_the_end();
  EXPECT_EQ(desk.ended.at(first).answer.receipt.cached_tokens, 0u);
  EXPECT_EQ(desk.ended.at(again).answer.receipt.cached_tokens, 304u);  // all but the last
  EXPECT_GE(desk.ended.at(sibling).answer.receipt.cached_tokens, 256u);
  for (const auto& [id, which] : desk.asked) desk.expect_as_alone(id);
}

TEST(Scheduler, APromptThatRunsIsSharedBeforeItEnds) {
  LettersWorld world(shared_model(), 16);
  Desk desk(world);
  const Scheduler::Id first = desk.add(5);
  for (int i = 0; i < 8; ++i) desk.scheduler.step();
  ASSERT_FALSE(desk.ended.contains(first));
  const Scheduler::Id second = desk.add(6);
  desk.run_to_the_end();
  EXPECT_EQ(desk.ended.at(second).answer.receipt.cached_tokens, 256u);
  for (const auto& [id, which] : desk.asked) desk.expect_as_alone(id);
}

TEST(Scheduler, APromptThatSomebodyIsComputingIsWaitedForAndNotComputedTwice) {
  LettersWorld world(shared_model(), 16);
  Desk desk(world);
  const Scheduler::Id first = desk.add(5), second = desk.add(6), other = desk.add(1);
  desk.scheduler.step();
  EXPECT_EQ(desk.scheduler.running(), 2u);  // the first and the other
  desk.run_to_the_end();
  EXPECT_EQ(desk.ended.at(first).answer.receipt.cached_tokens, 0u);
  EXPECT_EQ(desk.ended.at(second).answer.receipt.cached_tokens, 256u);
  EXPECT_GT(desk.ended.at(second).answer.receipt.queue_seconds,
            desk.ended.at(other).answer.receipt.queue_seconds);
  for (const auto& [id, which] : desk.asked) desk.expect_as_alone(id);
}

TEST(Scheduler, SaysWhereEachRequestStands) {
  LettersWorld world(shared_model(), 16);
  Desk desk(world, {.most_running = 1});
  const Scheduler::Id first = desk.add(1), second = desk.add(0);
  for (int i = 0; i < 4; ++i) desk.scheduler.step();
  const std::vector<RequestStatus> now = desk.scheduler.requests();
  ASSERT_EQ(now.size(), 2u);
  EXPECT_EQ(now[0].id, first);
  EXPECT_TRUE(now[0].is_running);
  EXPECT_EQ(now[0].prompt_tokens, 7u);
  EXPECT_EQ(now[0].generated_tokens, 4u);
  EXPECT_EQ(now[0].done_tokens, 10u);  // all but the token that was chosen last
  EXPECT_EQ(now[1].id, second);
  EXPECT_FALSE(now[1].is_running);
}

TEST(Scheduler, WhereThePoolIsFullTheYoungestWaitsAndLosesNothing) {
  LettersWorld world(shared_model(), 2);  // a page each, until the oldest needs its second
  Desk desk(world);
  const Scheduler::Id oldest = desk.add(8), youngest = desk.add(5);
  bool has_waited = false;
  while (desk.scheduler.step()) has_waited |= desk.scheduler.waiting() > 0;
  EXPECT_TRUE(has_waited);
  EXPECT_LT(desk.ended.at(oldest).answer.receipt.prefill_seconds,
            desk.ended.at(youngest).answer.receipt.prefill_seconds +
                desk.ended.at(youngest).answer.receipt.decode_seconds);
  for (const auto& [id, which] : desk.asked) desk.expect_as_alone(id);
}

TEST(Scheduler, APromptThatCanNeverFitIsRefusedWithTheNumbers) {
  LettersWorld world(shared_model(), 1);
  Desk desk(world);
  try {
    desk.add(4);
    FAIL() << "257 tokens fit in a page of 256";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::input);
    EXPECT_STREQ(error.what(), "prompt: 257 tokens take 2 pages of 256 positions, and there are 1");
  }
}

TEST(Scheduler, AnAnswerThatOutgrowsThePoolEndsWithAnErrorAndItsTokens) {
  LettersWorld world(shared_model(), 1);
  Desk desk(world);
  const Scheduler::Id id = desk.add(8);  // 250 tokens, and 20 more would be 270
  desk.run_to_the_end();
  ASSERT_TRUE(desk.ended.at(id).error);
  EXPECT_NE(std::string(desk.ended.at(id).error->what()).find("1 of 1 pages"), std::string::npos);
  const std::vector<Token>& tokens = desk.ended.at(id).answer.tokens;
  ASSERT_EQ(tokens.size(), 7u);
  EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), alone()[8].begin()));
  world.prefixes->clear();
  EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
}

TEST(Scheduler, ARequestTooManyIsRefused) {
  LettersWorld world(shared_model(), 8);
  Desk desk(world, {.most_running = 1, .most_waiting = 2});
  desk.add(0);
  desk.add(0);
  try {
    desk.add(0);
    FAIL() << "three wait where two may";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::busy);
  }
  desk.run_to_the_end();
  EXPECT_EQ(desk.ended.size(), 2u);
}

TEST(Scheduler, ReceiptsOfRequestsThatRanTogetherAddUpToTheDevicesCounters) {
  LettersWorld world(shared_model(), 16);
  Desk desk(world);
  for (const size_t which : {1, 2, 5}) desk.add(which);
  desk.run_to_the_end();
  uint64_t bytes = 0, flops = 0, busy = 0;
  for (const auto& [id, outcome] : desk.ended)
    for (const DeviceCounters& device : outcome.answer.receipt.devices) {
      bytes += device.bytes;
      flops += device.flops;
      busy += device.busy_ns;
      EXPECT_EQ(device.submissions, device.completions);
    }
  const DeviceCounters total = world.trace.snapshot().front();
  EXPECT_EQ(bytes, total.bytes);
  EXPECT_EQ(flops, total.flops);
  EXPECT_EQ(busy, total.busy_ns);
}

TEST(ChunkPolicy, KeepsAStepUnderTwiceTheTimeOfATokenWithoutPrompts) {
  ChunkPolicy policy(256);
  EXPECT_EQ(policy.prompt_rows(0, 1), 256u);  // nobody waits
  EXPECT_EQ(policy.prompt_rows(4, 1), 16u);   // nothing is known yet
  for (int i = 0; i < 50; ++i) {
    policy.observe(4, 0, 10'000'000);
    policy.observe(4, 16, 10'000'000 + 16 * 500'000);
  }
  EXPECT_EQ(policy.prompt_rows(4, 1), 20u);
  EXPECT_EQ(policy.prompt_rows(4, 4), 20u);
  EXPECT_EQ(policy.prompt_rows(4, 8), 80u);  // twice as many wait for their prompts
  for (int i = 0; i < 50; ++i) policy.observe(4, 20, 10'000'000 + 20 * 50'000'000ull);
  EXPECT_EQ(policy.prompt_rows(4, 1), 1u);  // slow rows: one at a time, but they do go on
  EXPECT_LE(policy.prompt_rows(250, 1), 6u);
}

// Seven tokens take longer than one, and prompts beside them must not be blamed for it.
TEST(ChunkPolicy, DoesNotStarveThePromptThatComesWhileOthersBeginToDecode) {
  ChunkPolicy policy(256);
  policy.observe(0, 64, 64 * 4'000'000ull);
  policy.observe(1, 0, 40'000'000);
  for (int i = 0; i < 50; ++i) {
    const uint32_t rows = policy.prompt_rows(7, 1);
    policy.observe(7, rows, 90'000'000 + rows * 4'000'000ull);
  }
  EXPECT_GE(policy.prompt_rows(7, 1), 15u);
  EXPECT_LE(policy.prompt_rows(7, 1), 25u);
}

}  // namespace
}  // namespace tyto
