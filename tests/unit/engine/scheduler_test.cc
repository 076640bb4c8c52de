// Many requests at once: each gets what it would have got alone, nothing is lost, nothing leaks.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/recording.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::eager;
using testing_support::LettersWorld;
using testing_support::one_layer_config;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& scheduled_model() {
  static const RandomModel model = random_model(one_layer_config(), DType::f32);
  return model;
}

std::vector<Token> some_tokens(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 61);
  return tokens;
}

struct ScheduledCase {
  Request request;
  SamplerOptions sampling;
};

// Prompts of one token, of less than a page, of just a page and of more; some begin alike.
std::vector<ScheduledCase> scheduled_cases() {
  std::vector<ScheduledCase> cases;
  const std::vector<Token> common = some_tokens(300, 1);
  const auto add = [&](size_t shared, size_t own, uint32_t answer, float temperature) {
    ScheduledCase made;
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

const std::vector<ScheduledCase>& cases() {
  static const std::vector<ScheduledCase> made = scheduled_cases();
  return made;
}

// What each request gets from generate(), in a world of its own, without a cache.
const std::vector<std::vector<Token>>& alone() {
  static const std::vector<std::vector<Token>> answers = [] {
    std::vector<std::vector<Token>> result;
    for (const ScheduledCase& each : cases()) {
      LettersWorld world(scheduled_model());
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
    const ScheduledCase& each = cases()[which];
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
    LettersWorld world(scheduled_model(), 16, threads);
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
    LettersWorld world(scheduled_model(), pages, 1 + seed % 2);
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
  LettersWorld world(scheduled_model(), 8);
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
  LettersWorld world(scheduled_model(), 8);
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
  LettersWorld world(scheduled_model(), 16);
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
  LettersWorld world(scheduled_model(), 16);
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
  LettersWorld world(scheduled_model(), 16);
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
  LettersWorld world(scheduled_model(), 16);
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
  LettersWorld world(scheduled_model(), 2);  // a page each, until the oldest needs its second
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
  LettersWorld world(scheduled_model(), 1);
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
  LettersWorld world(scheduled_model(), 1);
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
  LettersWorld world(scheduled_model(), 8);
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
  LettersWorld world(scheduled_model(), 16);
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

// Adds requests and counts the steps that each takes.
struct Queue {
  explicit Queue(LettersWorld& world, SchedulerOptions options = {})
      : scheduler(world.generator(), options) {}

  // The first `shared` tokens are those of `like`, the others its own.
  Scheduler::Id add(size_t length, uint32_t answer = 1, size_t shared = 0, unsigned like = 1) {
    Request request;
    request.prompt = some_tokens(shared, like);
    const std::vector<Token> own = some_tokens(length - shared, 1000 + ++count);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.max_tokens = answer;
    request.ignore_eos = true;
    return scheduler.add(
        std::move(request), {.temperature = 0}, [this](const ChosenToken&) { return true; },
        [this](Scheduler::Id id, Outcome outcome) { ended.emplace(id, std::move(outcome)); });
  }

  RequestStatus status(Scheduler::Id id) const {
    for (const RequestStatus& each : scheduler.requests())
      if (each.id == id) return each;
    return {};
  }
  // Steps until a request has a token.
  int steps_to_first_token(Scheduler::Id id) {
    for (int steps = 0; steps < 10'000; ++steps) {
      if (ended.contains(id) || status(id).generated_tokens > 0) return steps;
      scheduler.step();
    }
    return -1;
  }
  void run_to_the_end() {
    for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 100'000);
  }
  const Receipt& receipt(Scheduler::Id id) const { return ended.at(id).answer.receipt; }

  unsigned count = 0;
  std::map<Scheduler::Id, Outcome> ended;
  Scheduler scheduler;
};

// A request that gives its pages back in its prompt finds them again, and has still computed them.
TEST(Scheduler, WhatARequestHasComputedItselfIsNotCached) {
  LettersWorld world(scheduled_model(), 4);
  Queue queue(world);
  const Scheduler::Id oldest = queue.add(1000);
  const Scheduler::Id youngest = queue.add(800);  // each of them needs all the pages
  uint32_t most_done = 0;
  bool gave_back = false, found_again = false;
  while (queue.scheduler.step()) {
    const RequestStatus now = queue.status(youngest);
    gave_back |= now.done_tokens < most_done && now.id == youngest;
    found_again |= gave_back && now.done_tokens >= 256;
    most_done = std::max(most_done, now.done_tokens);
    if (found_again) queue.scheduler.cancel(oldest);
  }
  ASSERT_TRUE(gave_back && found_again);
  EXPECT_EQ(queue.receipt(youngest).cached_tokens, 0u);
  EXPECT_EQ(queue.receipt(youngest).prompt_tokens, 800u);
}

// The common pages take at most 8 steps of 32 rows, the rest of the short one's prompt two more;
// the long one's prompt alone would take 14 steps of 64.
TEST(Scheduler, AShortPromptWaitsForCommonPagesAndNotForTheOthersWholePrompt) {
  LettersWorld world(scheduled_model(), 16);
  Queue queue(world);
  const Scheduler::Id longer = queue.add(890, 5, 290), shorter = queue.add(300, 1, 290);
  const int steps = queue.steps_to_first_token(shorter);
  EXPECT_LE(steps, 11);
  EXPECT_EQ(queue.status(longer).generated_tokens, 0u);
  ASSERT_LT(queue.status(longer).done_tokens, 600u);
  // One that comes when the pages are written does not wait at all.
  const Scheduler::Id later = queue.add(270, 1, 260);
  EXPECT_LE(queue.steps_to_first_token(later), 1);
  queue.run_to_the_end();
  EXPECT_EQ(queue.receipt(longer).cached_tokens, 0u);
  EXPECT_EQ(queue.receipt(shorter).cached_tokens, 256u);
  EXPECT_GE(queue.receipt(later).cached_tokens, 256u);
  world.prefixes->clear();
  EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
}

// It is as urgent as the request that waits for it, which else would wait for all shorter ones.
TEST(Scheduler, APromptWhosePagesAnotherWaitsForGoesBeforeThoseOfMiddleLength) {
  LettersWorld world(scheduled_model(), 16);
  Queue queue(world);
  queue.add(900);
  const Scheduler::Id middle = queue.add(400), longer = queue.add(850, 1, 290);
  const Scheduler::Id shorter = queue.add(300, 1, 290);
  EXPECT_GT(queue.steps_to_first_token(shorter), 0);
  EXPECT_FALSE(queue.ended.contains(middle));
  EXPECT_FALSE(queue.ended.contains(longer));
  queue.run_to_the_end();
  EXPECT_EQ(queue.receipt(shorter).cached_tokens, 256u);
}

// Rows, which are what a step's time is made of: its own and a quarter of each step for the other.
TEST(Scheduler, AShortPromptBesideALongOneWaitsForFewRowsOfIt) {
  LettersWorld world(scheduled_model(), 16);
  Queue queue(world);
  const Scheduler::Id longer = queue.add(1000);
  for (int i = 0; i < 4; ++i) queue.scheduler.step();
  for (const size_t length : {37, 12, 60}) {
    world.trace.start(100'000);
    const uint32_t before = queue.status(longer).done_tokens;
    const int steps = queue.steps_to_first_token(queue.add(length));
    world.trace.stop();
    uint32_t rows = 0;
    for (const Event& event : world.trace.events())
      if (event.kind == EventKind::run) rows += event.rows;
    EXPECT_LE(steps, length < 40 ? 1 : 3);
    EXPECT_LE(rows, length + static_cast<uint32_t>(steps) * 16) << length;
    EXPECT_GT(queue.status(longer).done_tokens, before) << "the long one goes on";
  }
  EXPECT_FALSE(queue.ended.contains(longer));
}

TEST(Scheduler, AStreamOfShortPromptsDoesNotStarveALongOne) {
  LettersWorld world(scheduled_model(), 16);
  Queue queue(world, {.most_running = 4});
  const Scheduler::Id longer = queue.add(800);
  int steps = 0;
  for (; !queue.ended.contains(longer) && steps < 1000; ++steps) {
    while (queue.scheduler.waiting() < 3) queue.add(30);
    queue.scheduler.step();
  }
  EXPECT_LE(steps, 101);  // a quarter of 32 rows each
  EXPECT_GT(queue.ended.size(), 40u);
}

using EventCounts = std::map<std::pair<EventKind, std::string>, size_t>;

EventCounts counts_of(const Trace& trace) {
  EventCounts counts;
  for (const Event& event : trace.events()) ++counts[{event.kind, trace.names()[event.name].label}];
  return counts;
}

EventCounts recorded_by_generate(const Request& request) {
  LettersWorld world(scheduled_model(), 16);
  Sampler sampler(SamplerOptions{.temperature = 0});
  world.trace.start(100'000);
  generate(world.generator(), sampler, request, [](std::string_view) { return true; });
  return counts_of(world.trace);
}

EventCounts recorded_by_the_scheduler(Request request) {
  LettersWorld world(scheduled_model(), 16);
  Scheduler scheduler(world.generator(), {});
  world.trace.start(recorded_events(*world.pipeline, request.prompt.size(), request.max_tokens,
                                    request.speculation ? Decoding::speculative : Decoding::plain));
  request.is_recorded = true;
  scheduler.add(
      std::move(request), {.temperature = 0}, [](const ChosenToken&) { return true; },
      [](Scheduler::Id, const Outcome&) {});
  while (scheduler.step()) continue;
  EXPECT_EQ(world.trace.lost(), 0u);
  return counts_of(world.trace);
}

TEST(Scheduler, RecordsTheEventsThatGenerateRecords) {
  Request request = {.prompt = some_tokens(20, 1), .max_tokens = 12, .stop = {}};
  request.ignore_eos = true;
  const EventCounts plain = recorded_by_generate(request);
  for (const char* part : {"sample", "detokenize", "output"})
    ASSERT_GE(plain.at({EventKind::host, part}), 12u) << part;
  EXPECT_EQ(recorded_by_the_scheduler(request), plain);
  // How often it guesses is decided by the clock.
  request.speculation = eager(lookup_drafter());
  const EventCounts alone = recorded_by_generate(request);
  request.speculation = eager(lookup_drafter());
  const EventCounts scheduled = recorded_by_the_scheduler(request);
  ASSERT_TRUE(alone.contains({EventKind::host, "draft"}));
  for (const auto& [event, count] : alone) EXPECT_TRUE(scheduled.contains(event)) << event.second;
}

// Also of a prompt in its smallest passes.
TEST(Scheduler, ARecordingHasRoomForALongPrompt) {
  LettersWorld world(scheduled_model(), 16);
  EXPECT_GE(recorded_events(*world.pipeline, 960, 1, Decoding::plain),
            960 / 32 * world.pipeline->event_count(32, 0));
  recorded_by_the_scheduler({.prompt = some_tokens(960, 1), .max_tokens = 1, .stop = {}});
}

TEST(ChunkPolicy, KeepsAStepUnderTwiceTheTimeOfATokenWithoutPrompts) {
  ChunkPolicy policy(256, ChunkPolicy::Cut::by_clock);
  EXPECT_EQ(policy.prompt_rows(4, 1), 0u);  // nothing is known yet: the tokens alone first
  policy.observe(4, 0, 10'000'000);
  EXPECT_EQ(policy.prompt_rows(4, 1), 16u);
  for (int i = 0; i < 50; ++i) {
    policy.observe(4, 0, 10'000'000);
    policy.observe(4, 16, 10'000'000 + 16 * 500'000);
  }
  EXPECT_EQ(policy.prompt_rows(4, 1), 20u);
  EXPECT_EQ(policy.prompt_rows(4, 4), 20u);
  EXPECT_EQ(policy.prompt_rows(4, 8), 80u);  // twice as many wait for their prompts
  for (int i = 0; i < 50; ++i) policy.observe(4, 20, 10'000'000 + 20 * 50'000'000ull);
  EXPECT_EQ(policy.prompt_rows(4, 1), 0u);  // it is time to see the tokens alone
  policy.observe(4, 0, 10'000'000);
  EXPECT_EQ(policy.prompt_rows(4, 1), 1u);  // slow rows: one at a time, but they do go on
  EXPECT_LE(policy.prompt_rows(250, 1), 6u);
}

// Seven tokens take longer than one, and prompts beside them must not be blamed for it.
TEST(ChunkPolicy, DoesNotStarveThePromptThatComesWhileOthersBeginToDecode) {
  ChunkPolicy policy(256, ChunkPolicy::Cut::by_clock);
  policy.observe(0, 64, 64 * 4'000'000ull);
  policy.observe(1, 0, 40'000'000);
  for (int i = 0; i < 50; ++i) {
    const uint32_t rows = policy.prompt_rows(7, 1);
    policy.observe(7, rows, 90'000'000 + rows * 4'000'000ull);
  }
  EXPECT_GE(policy.prompt_rows(7, 1), 15u);
  EXPECT_LE(policy.prompt_rows(7, 1), 25u);
}

// Whatever a cold first step has taught it, and when tokens get slower as their texts grow.
TEST(ChunkPolicy, DoesNotBlameRowsForTheTimeOfTokens) {
  ChunkPolicy policy(256, ChunkPolicy::Cut::by_clock);
  policy.observe(0, 32, 32 * 40'000'000ull);
  const auto rows_after = [&](uint64_t token_ns) {
    uint32_t rows = 0, most = 0, plain = 0;
    for (int i = 0; i < 400; ++i) {
      rows = policy.prompt_rows(1, 1);
      plain += rows == 0 ? 1 : 0;
      policy.observe(1, rows, token_ns + rows * 4'000'000ull);
      if (i >= 380) most = std::max(most, rows);
    }
    EXPECT_LE(plain, 400u / 16);
    return most;
  };
  EXPECT_EQ(rows_after(45'000'000), 11u);
  EXPECT_NEAR(rows_after(90'000'000), 22, 1);
}

// A request that comes in the middle of a step waits for its end.
TEST(ChunkPolicy, KeepsAStepOfPromptsAloneUnderATenthOfASecond) {
  using Cut = ChunkPolicy::Cut;
  const auto rows_at = [](double ns_per_row, Cut cut = Cut::by_clock, uint32_t most = 256) {
    ChunkPolicy policy(most, cut);
    policy.observe(0, 32, static_cast<uint64_t>(32 * ns_per_row));
    return policy.prompt_rows(0, 1);
  };
  EXPECT_EQ(ChunkPolicy(256, ChunkPolicy::Cut::by_clock).prompt_rows(0, 1),
            32u);  // nothing is known yet
  EXPECT_EQ(rows_at(100'000), 256u);
  EXPECT_EQ(rows_at(1'000'000), 96u);
  EXPECT_EQ(rows_at(10'000'000), 32u);  // no fewer, or the weights are read too often
  EXPECT_EQ(ChunkPolicy(20, ChunkPolicy::Cut::by_clock).prompt_rows(0, 1), 20u);
  // A device whose results depend on the passes gets the same ones whatever the clock says.
  for (const double ns_per_row : {1.0, 10'000'000.0}) {
    EXPECT_EQ(rows_at(ns_per_row, Cut::fixed, 2048), 256u);
    EXPECT_EQ(rows_at(ns_per_row, Cut::fixed, 64), 64u);
    EXPECT_EQ(rows_at(ns_per_row, Cut::none, 2048), 2048u);
  }
}

}  // namespace
}  // namespace tyto
