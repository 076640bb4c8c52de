// Many people at once on the thread that owns the devices.
#include "serve/engine_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <map>
#include <mutex>

#include "base/json.h"
#include "engine/generate.h"
#include "serve/metrics.h"
#include "support/count_allocations.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

using namespace std::chrono_literals;
constexpr auto kLong = std::chrono::seconds(120);

const std::string kModel = TYTO_SOURCE_DIR "/models/owlet";

EngineThreadOptions options_for(const std::string& model = kModel) {
  EngineThreadOptions options;
  ModelToServe& owlet = options.models.emplace_back();
  owlet.name = "owlet";
  owlet.engine.model = model;
  owlet.engine.threads = 1;
  owlet.engine.pipeline.forward.sequences = 8;
  options.receipt_context = [](Engine& engine) {
    return ReceiptContext{.model = engine.model().path.string(), .limits = engine.limits()};
  };
  return options;
}

// What one request was told.
struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<uint32_t, std::string> texts;
  std::map<uint32_t, size_t> tokens;
  std::map<uint32_t, Outcome> ends;
  std::map<uint32_t, std::string> receipts;
  std::vector<LogProbabilities> probable;
  uint32_t after_end = 0;
  size_t enough = SIZE_MAX;  // tokens

  CompletionEvents events() {
    return {.on_token =
                [this](const TokenEvent& event) {
                  const std::lock_guard lock(mutex);
                  after_end += ends.contains(event.choice);
                  texts[event.choice] += event.text;
                  ++tokens[event.choice];
                  if (event.log_probabilities) probable.push_back(*event.log_probabilities);
                  changed.notify_all();
                  return tokens[event.choice] < enough;
                },
            .on_done =
                [this](const ChoiceEnd& end) {
                  const std::lock_guard lock(mutex);
                  texts[end.choice] += end.outcome.rest;
                  ends.emplace(end.choice, end.outcome);
                  receipts[end.choice] = end.receipt;
                  changed.notify_all();
                }};
  }
  bool wait_ends(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, [&] { return ends.size() >= count; });
  }
  bool wait_tokens(size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kLong, [&] { return tokens[0] >= count; });
  }
};

class EngineThreads : public testing::Test {
 protected:
  void start(EngineThreadOptions options = options_for()) {
    thread = std::make_unique<EngineThread>(std::move(options), metrics);
    ASSERT_TRUE(thread->wait_ready(kLong));
  }
  CompletionRequest ask(const std::string& text, uint32_t most = 12) {
    CompletionRequest asked;
    asked.id = "test";
    asked.request.prompt = thread->text("")->tokenizer->encode(text);
    asked.request.max_tokens = most;
    asked.request.ignore_eos = true;
    asked.sampling.temperature = 0;
    return asked;
  }

  ServeMetrics metrics;
  std::unique_ptr<EngineThread> thread;
};

TEST_F(EngineThreads, AnswersAndKeepsASealedReceipt) {
  start();
  Told told;
  thread->submit("owlet", ask("Once upon a time"), told.events());
  ASSERT_TRUE(told.wait_ends(1));
  EXPECT_EQ(told.tokens[0], 12u);
  EXPECT_FALSE(told.texts[0].empty());
  EXPECT_FALSE(told.ends.at(0).error);
  const StoredReceipt stored = thread->receipts().find("test");
  EXPECT_EQ(stored.json, told.receipts[0]);
  EXPECT_EQ(stored.badge, "real");
  EXPECT_EQ(Json::parse(stored.json, "receipt").at("generated_tokens").as_int(), 12);
  EXPECT_TRUE(thread->receipts().find("nobody").id.empty());
}

TEST_F(EngineThreads, ChoicesOfOneRequestComeWithSeedsOfTheirOwn) {
  start();
  CompletionRequest asked = ask("Once upon a time there was", 16);
  asked.sampling = {.temperature = 1.0f, .seed = 5};
  asked.choices = 3;
  asked.log_probabilities = true;
  asked.top_log_probabilities = 2;
  Told told;
  thread->submit("", asked, told.events());
  ASSERT_TRUE(told.wait_ends(3));
  EXPECT_NE(told.texts[0], told.texts[1]);
  ASSERT_EQ(told.probable.size(), 48u);
  for (const LogProbabilities& each : told.probable) {
    ASSERT_EQ(each.top.size(), 2u);
    EXPECT_LE(each.chosen, each.top[0].value);
    EXPECT_LE(each.top[1].value, each.top[0].value);
    EXPECT_LE(each.top[0].value, 0);
  }
  EXPECT_EQ(thread->receipts().find("test.2").generated_tokens, 16u);
  // The second of three is the only one of the next seed.
  asked.choices = 1;
  asked.sampling.seed = 6;
  Told alone;
  thread->submit("", asked, alone.events());
  ASSERT_TRUE(alone.wait_ends(1));
  EXPECT_EQ(alone.texts[0], told.texts[1]);
}

TEST_F(EngineThreads, CancellingEndsARequestAndNothingComesAfter) {
  start();
  Told told;
  const auto ticket = thread->submit("owlet", ask("Once", 400), told.events());
  ASSERT_TRUE(told.wait_tokens(3));
  thread->cancel(ticket);
  ASSERT_TRUE(told.wait_ends(1));
  EXPECT_EQ(told.ends.at(0).answer.reason, StopReason::cancelled);
  EXPECT_EQ(told.after_end, 0u);
  EXPECT_LT(told.tokens[0], 400u);
}

TEST_F(EngineThreads, WhoHasEnoughGetsAnAnswerThatEnded) {
  start();
  Told told;
  told.enough = 3;
  thread->submit("owlet", ask("Once", 400), told.events());
  ASSERT_TRUE(told.wait_ends(1));
  EXPECT_EQ(told.ends.at(0).answer.reason, StopReason::eos);
  EXPECT_FALSE(told.ends.at(0).error);
  EXPECT_EQ(told.tokens[0], 3u);
}

TEST_F(EngineThreads, ADeadlineEndsARequestWithAnError) {
  start();
  CompletionRequest asked = ask("Once", 1500);
  asked.deadline = std::chrono::steady_clock::now() + 50ms;
  Told told;
  thread->submit("owlet", asked, told.events());
  ASSERT_TRUE(told.wait_ends(1));
  ASSERT_TRUE(told.ends.at(0).error);
  EXPECT_EQ(told.ends.at(0).error->code, ErrorCode::deadline);
}

TEST_F(EngineThreads, NoRequestTakesLongerThanTheServerAllows) {
  EngineThreadOptions options = options_for();
  options.longest_request = 50ms;
  start(std::move(options));
  CompletionRequest asked = ask("Once", 1500);
  asked.deadline = std::chrono::steady_clock::now() + kLong;
  Told told;
  thread->submit("owlet", asked, told.events());
  ASSERT_TRUE(told.wait_ends(1));
  ASSERT_TRUE(told.ends.at(0).error);
  EXPECT_EQ(told.ends.at(0).error->code, ErrorCode::deadline);
}

TEST_F(EngineThreads, EmbedsBesideAnswers) {
  start();
  Told told;
  thread->submit("owlet", ask("Once", 40), told.events());
  std::promise<std::vector<std::vector<float>>> made;
  const auto tokens = thread->text("")->tokenizer->encode("a fox and a lamp");
  thread->embed("owlet", {tokens, tokens},
                [&](std::vector<std::vector<float>> values, std::optional<Error> error) {
                  EXPECT_FALSE(error);
                  made.set_value(std::move(values));
                });
  auto future = made.get_future();
  ASSERT_EQ(future.wait_for(kLong), std::future_status::ready);
  const std::vector<std::vector<float>> values = future.get();
  ASSERT_EQ(values.size(), 2u);
  EXPECT_EQ(values[0].size(), thread->text("")->embedding_size);
  EXPECT_EQ(values[0], values[1]);
  ASSERT_TRUE(told.wait_ends(1));
}

TEST_F(EngineThreads, RefusesOneTooManyWithoutLosingTheOthers) {
  EngineThreadOptions options = options_for();
  options.most_running = 1;
  options.most_waiting = 1;
  start(std::move(options));
  Told first, second, third;
  thread->submit("owlet", ask("Once", 200), first.events());
  thread->submit("owlet", ask("Twice", 4), second.events());
  try {
    thread->submit("owlet", ask("Thrice", 4), third.events());
    FAIL() << "a third request where one may run and one wait";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::busy);
  }
  ASSERT_TRUE(first.wait_ends(1));
  ASSERT_TRUE(second.wait_ends(1));
  EXPECT_EQ(second.tokens[0], 4u);
  EXPECT_EQ(third.ends.size(), 0u);
}

TEST_F(EngineThreads, AThousandAbortedRequestsLeaveNoSlotAndNoPage) {
  start();
  std::vector<std::unique_ptr<Told>> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(std::make_unique<Told>());
    const auto ticket = thread->submit("owlet", ask("Once upon", 100), all.back()->events());
    if (i % 3 == 0) {
      ASSERT_TRUE(all.back()->wait_tokens(1));
    }
    thread->cancel(ticket);
    if (i % 16 == 0) {
      ASSERT_TRUE(all.back()->wait_ends(1));
    }
  }
  for (const auto& told : all) ASSERT_TRUE(told->wait_ends(1));
  ASSERT_TRUE(thread->drain(kLong));
  for (int i = 0; i < 2000 && !thread->slots().empty(); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(thread->slots().empty());
  const ModelStatus status = thread->models().front();
  EXPECT_EQ(status.kv_pages_in_use, status.prefix_pages);
}

TEST_F(EngineThreads, UnloadsAnIdleModelAndLoadsItForTheNextRequest) {
  EngineThreadOptions options = options_for();
  options.keep_alive = 1ms;
  start(std::move(options));
  for (int i = 0; i < 2000 && thread->models().front().is_loaded; ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(thread->models().front().is_loaded);
  Told told;
  thread->submit("owlet", ask("Once upon a time"), told.events());
  ASSERT_TRUE(told.wait_ends(1));
  EXPECT_FALSE(told.ends.at(0).error);
  EXPECT_EQ(told.tokens[0], 12u);
}

TEST_F(EngineThreads, LoadsAndUnloadsWhenAsked) {
  start();
  const auto load = [&] {
    std::promise<std::optional<Error>> loaded;
    thread->load("owlet", [&](std::optional<Error> error) { loaded.set_value(std::move(error)); });
    return loaded.get_future().get();
  };
  EXPECT_FALSE(load());
  EXPECT_TRUE(thread->models().front().is_loaded);
  Told told;
  thread->submit("owlet", ask("Once upon a time"), told.events());
  thread->unload("");  // waits for the answer
  ASSERT_TRUE(told.wait_ends(1));
  EXPECT_FALSE(told.ends.at(0).error);
  EXPECT_EQ(told.tokens[0], 12u);
  for (int i = 0; i < 2000 && thread->models().front().is_loaded; ++i)
    std::this_thread::sleep_for(5ms);
  EXPECT_FALSE(thread->models().front().is_loaded);
  EXPECT_FALSE(load());
  EXPECT_TRUE(thread->models().front().is_loaded);
  EXPECT_ERROR(thread->load("other", [](const std::optional<Error>&) {}),
               "\"other\" is not served");
  EXPECT_ERROR(thread->unload("other"), "\"other\" is not served");
}

TEST_F(EngineThreads, ARequestThatRunsAloneCanBeRecorded) {
  start();
  CompletionRequest asked = ask("Once upon a time");
  asked.profile = true;
  Told told;
  thread->submit("owlet", asked, told.events());
  ASSERT_TRUE(told.wait_ends(1));
  const StoredReceipt stored = thread->receipts().find("test");
  ASSERT_NE(stored.profile, nullptr) << stored.why_no_profile;
  ASSERT_EQ(stored.profile->runs.size(), 1u);
  EXPECT_FALSE(stored.profile->runs[0].events.empty());
  EXPECT_EQ(stored.profile->runs[0].lost, 0u);
}

TEST_F(EngineThreads, ARequestThatSharesPassesIsNotRecordedAndSaysWhy) {
  start();
  Told other, told;
  thread->submit("owlet", ask("Once", 300), other.events());
  ASSERT_TRUE(other.wait_tokens(1));
  CompletionRequest asked = ask("Once upon a time");
  asked.profile = true;
  thread->submit("owlet", asked, told.events());
  ASSERT_TRUE(told.wait_ends(1));
  const StoredReceipt stored = thread->receipts().find("test");
  EXPECT_EQ(stored.profile, nullptr);
  EXPECT_EQ(stored.why_no_profile, "other requests ran at the same time");
  ASSERT_TRUE(other.wait_ends(1));
}

// By a clock of its own, on which a step of one model takes a hundred times that of the other.
TEST_F(EngineThreads, AModelWithLongStepsDoesNotKeepTheOtherInStep) {
  std::atomic<uint64_t> time_ns = 0;
  EngineThreadOptions options = options_for();
  options.clock_ns = [&] { return time_ns.load(); };
  ModelToServe slow = options.models.front();
  slow.name = "slow";
  options.models.push_back(slow);
  start(std::move(options));
  std::string steps;  // what the engine's thread did until all had ended
  const auto counting = [&](Told& told, char letter, uint64_t ns) {
    CompletionEvents events = told.events();
    events.on_token = [&, letter, ns](const TokenEvent&) {
      steps += letter;
      time_ns += ns;
      return true;
    };
    return events;
  };
  Told of_slow, of_fast;
  thread->load("owlet", [&](const auto&) {  // both are found in the same turn
    thread->submit("slow", ask("Once", 3), counting(of_slow, 's', 100'000'000));
    thread->submit("owlet", ask("Once", 250), counting(of_fast, 'f', 1'000'000));
  });
  ASSERT_TRUE(of_slow.wait_ends(1));
  ASSERT_TRUE(of_fast.wait_ends(1));
  EXPECT_EQ(std::ranges::count(steps, 's'), 3);
  EXPECT_EQ(std::ranges::count(steps, 'f'), 250);
  const size_t first = steps.find('s'), second = steps.find('s', first + 1);
  EXPECT_NEAR(static_cast<double>(second - first), 100, 5) << steps;
  EXPECT_NEAR(static_cast<double>(steps.find('s', second + 1) - second), 100, 5) << steps;
}

// Every way for others' code to throw on the engine's thread, and everything that may be thrown.
TEST_F(EngineThreads, WhateverIsThrownEndsItsOwnRequestAlone) {
  const std::vector<std::function<void()>> throws = {
      [] { throw Error(ErrorCode::device, "test", "an Error"); },
      [] { throw std::bad_alloc(); },
      [] { throw std::filesystem::filesystem_error("test", std::error_code()); },
      [] { throw 7; },
  };
  std::function<void()> in_receipt;  // called by the engine's thread
  EngineThreadOptions options = options_for();
  ModelToServe other = options.models.front();
  other.name = "other";
  options.models.push_back(other);
  options.receipt_context = [&, made = options.receipt_context](Engine& engine) {
    if (in_receipt) std::exchange(in_receipt, nullptr)();
    return made(engine);
  };
  start(std::move(options));
  Told beside;
  thread->submit("other", ask("Once", 1500), beside.events());
  for (const std::function<void()>& thrown : throws) {
    CompletionRequest constrained = ask("Once");
    constrained.constraint = [&]() -> std::shared_ptr<Constraint> {
      thrown();
      return nullptr;
    };
    Told of_constraint, of_token;
    std::promise<void> ended;
    thread->submit("owlet", constrained, of_constraint.events());
    CompletionEvents at_token = of_token.events(), at_end = of_token.events();
    at_token.on_token = [&](const TokenEvent&) {
      thrown();
      return true;
    };
    at_end.on_done = [&](const ChoiceEnd&) {
      ended.set_value();
      thrown();
    };
    thread->submit("owlet", ask("Once"), at_token);
    thread->submit("owlet", ask("Once"), at_end);
    thread->embed("owlet", {{1, 2, 3}}, [&](const auto&, const auto&) { thrown(); });
    thread->load("owlet", [&](const auto&) { thrown(); });
    ASSERT_TRUE(of_constraint.wait_ends(1));
    EXPECT_TRUE(of_constraint.ends.at(0).error);
    ASSERT_TRUE(of_token.wait_ends(1));
    EXPECT_TRUE(of_token.ends.at(0).error);
    ASSERT_EQ(ended.get_future().wait_for(kLong), std::future_status::ready);
    in_receipt = thrown;
    Told of_receipt, after;
    thread->submit("owlet", ask("Once"), of_receipt.events());
    ASSERT_TRUE(of_receipt.wait_ends(1));
    EXPECT_TRUE(of_receipt.ends.at(0).error);
    thread->submit("owlet", ask("Once"), after.events());
    ASSERT_TRUE(after.wait_ends(1));
    EXPECT_FALSE(after.ends.at(0).error);
    EXPECT_EQ(after.tokens[0], 12u);
  }
  ASSERT_TRUE(thread->end_all(kLong));  // nothing is left over
  ASSERT_TRUE(beside.wait_ends(1));
  EXPECT_FALSE(beside.ends.at(0).error);
  EXPECT_GT(beside.tokens[0], 0u);
}

// The numbers of allocations to let fail: all of the first ones, then ever fewer of them.
std::vector<int64_t> failing_allocations(int64_t all_below, int64_t last) {
  std::vector<int64_t> result;
  for (int64_t n = 0; n < last; n += 1 + std::max<int64_t>(0, n - all_below) / 3)
    result.push_back(n);
  return result;
}

// Known when the last copy of the callbacks that hold it has gone.
struct Gone {
  std::shared_ptr<std::promise<void>> is_gone = std::make_shared<std::promise<void>>();
  std::shared_ptr<void> holder =
      std::shared_ptr<void>(nullptr, [gone = is_gone](void*) { gone->set_value(); });
};

// Whatever a request was doing when there was no memory: it ends, or its callbacks are dropped, and
// the server goes on.
TEST_F(EngineThreads, AnAllocationThatFailsEndsNothingButRequests) {
  EngineThreadOptions options = options_for();
  options.most_running = 2;
  options.most_waiting = 2;  // a place that is never free again would be missed soon
  start(std::move(options));
  const auto set_failing = [&](int64_t n) {
    for (bool was_called = false; !was_called;) {
      Gone gone;
      thread->load("owlet", [&, holder = std::exchange(gone.holder, nullptr)](const auto&) {
        testing_support::failing = n;
        was_called = true;
      });
      ASSERT_EQ(gone.is_gone->get_future().wait_for(kLong), std::future_status::ready);
    }
  };
  size_t failed = 0;
  for (const int64_t n : failing_allocations(40, 3000)) {
    Gone gone;
    Told told;
    CompletionEvents events = told.events();
    events.on_done = [holder = std::exchange(gone.holder, nullptr),
                      on_done = events.on_done](const ChoiceEnd& end) { on_done(end); };
    set_failing(n);
    CompletionRequest asked = ask("Once", 3);
    asked.choices = 2;
    thread->submit("owlet", std::move(asked), std::exchange(events, {}));
    ASSERT_EQ(gone.is_gone->get_future().wait_for(kLong), std::future_status::ready) << n;
    failed += told.ends.size() < 2 || told.ends.at(0).error || told.ends.at(1).error;
    set_failing(-1);
    Told after;
    thread->submit("owlet", ask("Once", 3), after.events());
    ASSERT_TRUE(after.wait_ends(1)) << n;
    EXPECT_FALSE(after.ends.at(0).error) << n;
  }
  EXPECT_GT(failed, 10u);
  ASSERT_TRUE(thread->drain(kLong));
}

TEST_F(EngineThreads, ABatchIsTakenAsAWholeOrNotAtAll) {
  EngineThreadOptions options = options_for();
  options.most_running = 1;
  options.most_waiting = 3;
  start(std::move(options));
  Told first, batch, last;
  const auto refused = [&](size_t prompts, uint32_t choices) -> std::optional<ErrorCode> {
    std::vector<EngineThread::Submission> all;
    for (size_t i = 0; i < prompts; ++i) {
      all.push_back({ask("Once", 3), batch.events()});
      all.back().request.choices = choices;
    }
    try {
      thread->submit_all("owlet", std::move(all));
    } catch (const Error& error) {
      return error.code;
    }
    return std::nullopt;
  };
  EXPECT_EQ(refused(5, 1), ErrorCode::input);
  EXPECT_EQ(refused(2, 3), ErrorCode::input);
  EXPECT_EQ(refused(3, UINT32_MAX), ErrorCode::input);
  const auto ticket = thread->submit("owlet", ask("Once", 1500), first.events());
  EXPECT_EQ(refused(2, 2), ErrorCode::busy);
  thread->submit("owlet", ask("Twice", 3), last.events());  // which has its place
  thread->cancel(ticket);
  ASSERT_TRUE(last.wait_ends(1));
  EXPECT_FALSE(last.ends.at(0).error);
  EXPECT_EQ(batch.ends.size(), 0u);
  EXPECT_EQ(refused(2, 2), std::nullopt);
  ASSERT_TRUE(thread->drain(kLong));
  EXPECT_EQ(batch.ends.size(), 2u);  // by their index, of two each
}

TEST_F(EngineThreads, WhatHasNotRunHasNoReceipt) {
  EngineThreadOptions options = options_for();
  options.most_running = 1;
  start(std::move(options));
  Told running, waiting;
  const auto first = thread->submit("owlet", ask("Once", 1500), running.events());
  ASSERT_TRUE(running.wait_tokens(1));
  CompletionRequest asked = ask("Once", 12);
  asked.id = "waiting";
  const auto second = thread->submit("owlet", asked, waiting.events());
  thread->cancel(second);
  ASSERT_TRUE(waiting.wait_ends(1));
  EXPECT_EQ(waiting.receipts[0], "");
  EXPECT_EQ(thread->receipts().find("waiting").id, "");
  thread->cancel(first);
  ASSERT_TRUE(running.wait_ends(1));
  EXPECT_NE(running.receipts[0], "");
}

TEST_F(EngineThreads, EndingAllEndsWhatRunsAndWhatWaits) {
  EngineThreadOptions options = options_for();
  options.most_running = 1;
  start(std::move(options));
  Told running, waiting;
  thread->submit("owlet", ask("Once", 1500), running.events());
  thread->submit("owlet", ask("Once", 1500), waiting.events());
  std::promise<std::optional<Error>> embedded;
  thread->embed("owlet", {std::vector<Token>(1000, 7)},
                [&](const auto&, std::optional<Error> error) { embedded.set_value(error); });
  ASSERT_TRUE(running.wait_tokens(1));
  ASSERT_TRUE(thread->end_all(kLong));
  ASSERT_TRUE(running.wait_ends(1));
  ASSERT_TRUE(waiting.wait_ends(1));
  EXPECT_EQ(running.ends.at(0).answer.reason, StopReason::cancelled);
  const Outcome& unbegun = waiting.ends.at(0);  // taken by its model, or not yet
  EXPECT_TRUE(unbegun.error || unbegun.answer.reason == StopReason::cancelled);
  auto future = embedded.get_future();
  ASSERT_EQ(future.wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(future.get());
  EXPECT_ERROR(thread->submit("owlet", ask("Once"), waiting.events()), "it is shutting down");
}

TEST_F(EngineThreads, AModelThatCannotBeLoadedIsTheErrorOfTheStart) {
  thread = std::make_unique<EngineThread>(options_for("/nonexistent.gguf"), metrics);
  EXPECT_ERROR(thread->wait_ready(kLong), "no such model here");
  EXPECT_FALSE(thread->is_ready());
  EXPECT_ERROR(thread->text("owlet"), "is being loaded");
}

TEST_F(EngineThreads, ANameThatIsNotServedIsAnErrorThatNamesThoseThatAre) {
  start();
  try {
    thread->text("gpt-4");
    FAIL() << "gpt-4 is served";
  } catch (const Error& error) {
    EXPECT_EQ(error.hint, "there is owlet");
  }
}

}  // namespace
}  // namespace tyto
