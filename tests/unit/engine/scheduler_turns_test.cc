// Requests on a device that takes one sequence at a time: turns between tokens, and what becomes of
// all requests when it fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "device/vnpu/machine/control.h"
#include "engine/scheduler.h"
#include "support/npu_settings.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::letters;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& turns_model() {
  static const RandomModel model = random_model(testing_support::small_config(), DType::bf16);
  return model;
}

// A row of its caches is a whole cache line, as those of real models are: what a sequence has left
// in a cache can lie beside what the next one's prompt puts there.
const RandomModel& model_of_whole_lines() {
  static const RandomModel model = [] {
    Config config = testing_support::small_config();
    config.head_dim = 32;
    return random_model(config, DType::bf16);
  }();
  return model;
}

enum class Prompts : uint8_t { on_the_npu, on_the_cpu, alone_on_the_npu };

// A whole token in one dispatch, a cache in one piece for each sequence.
struct NpuWorld {
  NpuWorld(uint32_t sequences, NpuWeights weights, OnDeviceError on_error = OnDeviceError::retry,
           Fusion fusion = Fusion::token, const Model& model = turns_model().model,
           Prompts prompts = Prompts::on_the_npu) {
    vxrt::reset();
    NpuSettings npu;
    npu.weights = weights;
    const DeviceEnv env{
        pool,     trace, fusion, model_dims(model.config, 0), testing_support::settings_of(npu),
        sequences};
    std::vector<Device*> order;
    for (const char* name : {"vnpu", "cpu"}) {
      devices.push_back(open_device(name, env));
      order.push_back(devices.back().get());
    }
    PipelineOptions options{.forward = {}, .on_error = on_error};
    options.forward.fusion = fusion;
    options.forward.sequences = sequences;
    SideDevices sides{.decode = order, .prefill = order};
    if (prompts == Prompts::on_the_cpu) sides.prefill = {order.back()};
    if (prompts == Prompts::alone_on_the_npu) sides.decode = {order.back()};
    pipeline = std::make_unique<Pipeline>(model, sides, options, trace);
    prefixes = std::make_unique<PrefixCache>(pipeline->kv_pool(), pipeline->kv_window(),
                                             pipeline->states());
    pipeline->reclaim = [this](KvKind lacking) { return prefixes->evict(lacking); };
    pipeline->on_caches_lost = [this] { prefixes->clear(); };
  }
  ~NpuWorld() {
    prefixes->clear();
    EXPECT_EQ(pipeline->kv_pool().in_use(), 0u);
  }

  Tokenizer tokenizer{letters(), "letters"};
  ThreadPool pool{1};
  Trace trace;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<PrefixCache> prefixes;
};

Request request(size_t which) {
  Request made;
  for (size_t i = 0; i < 5 + 3 * which; ++i)
    made.prompt.push_back(static_cast<Token>((which * 13 + i * 7) % 61));
  made.max_tokens = 8 + static_cast<uint32_t>(which);
  made.ignore_eos = true;
  return made;
}

std::vector<Token> alone(size_t which, NpuWeights weights, Prompts prompts = Prompts::on_the_npu,
                         const Model& model = turns_model().model) {
  NpuWorld world(1, weights, OnDeviceError::retry, Fusion::token, model, prompts);
  Sampler sampler(SamplerOptions{.temperature = 0});
  return generate({world.tokenizer, *world.pipeline, world.trace}, sampler, request(which),
                  [](std::string_view) { return true; })
      .tokens;
}

struct TurnsDesk {
  explicit TurnsDesk(NpuWorld& world)
      : scheduler({world.tokenizer, *world.pipeline, world.trace, world.prefixes.get()}, {}) {}

  Scheduler::Id add(size_t which) {
    const Scheduler::Id id = scheduler.add(
        request(which), {.temperature = 0},
        [this, which](const ChosenToken&) { return order.push_back(which), true; },
        [this](Scheduler::Id done, Outcome outcome) { ended.emplace(done, std::move(outcome)); });
    return id;
  }
  void run_to_the_end() {
    for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 1000);
  }

  std::vector<size_t> order;  // whose each token was
  std::map<Scheduler::Id, Outcome> ended;
  Scheduler scheduler;
};

TEST(SchedulerTurns, RequestsTakeTurnsBetweenTokensAndGetWhatTheyGetAlone) {
  for (const NpuWeights weights : {NpuWeights::bf16, NpuWeights::q4nx}) {
    NpuWorld world(3, weights);
    TurnsDesk desk(world);
    std::vector<Scheduler::Id> ids;
    for (size_t which = 0; which < 3; ++which) ids.push_back(desk.add(which));
    desk.run_to_the_end();
    for (size_t which = 0; which < 3; ++which) {
      const Outcome& outcome = desk.ended.at(ids[which]);
      ASSERT_FALSE(outcome.error) << outcome.error->what();
      EXPECT_EQ(outcome.answer.tokens, alone(which, weights));
      EXPECT_EQ(outcome.answer.receipt.recoveries, 0u);
    }
    // From the last one's first token to the first one's last each has one token of any three.
    const auto begin = std::find(desk.order.begin(), desk.order.end(), 2u);
    const auto end = std::find(desk.order.rbegin(), desk.order.rend(), 0u).base();
    ASSERT_GT(end - begin, 6);
    for (auto at = begin; at + 3 <= end; ++at) {
      std::vector<size_t> three(at, at + 3);
      std::sort(three.begin(), three.end());
      EXPECT_EQ(three, (std::vector<size_t>{0, 1, 2}));
    }
  }
}

// In a step the prompt runs on one device and all tokens on the other.
TEST(SchedulerTurns, WithPromptsOnAnotherDeviceRequestsGetWhatTheyGetAlone) {
  const Model& model = model_of_whole_lines().model;
  for (const Prompts prompts : {Prompts::on_the_cpu, Prompts::alone_on_the_npu})
    for (const uint32_t room : {2, 3}) {
      NpuWorld world(room, NpuWeights::bf16, OnDeviceError::retry, Fusion::token, model, prompts);
      TurnsDesk desk(world);
      std::vector<Scheduler::Id> ids;
      for (size_t which = 0; which < 3; ++which) {
        ids.push_back(desk.add(which));
        desk.scheduler.step();
      }
      desk.run_to_the_end();
      for (size_t which = 0; which < 3; ++which) {
        const Outcome& outcome = desk.ended.at(ids[which]);
        ASSERT_FALSE(outcome.error) << outcome.error->what();
        EXPECT_EQ(outcome.answer.tokens, alone(which, NpuWeights::bf16, prompts, model));
        const Receipt& receipt = outcome.answer.receipt;
        EXPECT_EQ(receipt.handed_over.times, 1u);
        EXPECT_EQ(receipt.handed_over.positions, request(which).prompt.size());
      }
    }
}

// Its kernels compute all their rows however few are used: chunks would cost a whole pass each.
TEST(SchedulerTurns, APromptBesideTokensIsOnePass) {
  const auto prefill_submissions = [](const Outcome& outcome) {
    uint64_t submissions = 0;
    for (const DeviceCounters& device : outcome.answer.receipt.phases.prefill)
      if (device.device == "vnpu") submissions += device.submissions;
    return submissions;
  };
  NpuWorld world(3, NpuWeights::q4nx);
  TurnsDesk desk(world);
  const Scheduler::Id first = desk.add(0);
  while (desk.order.size() < 2) desk.scheduler.step();
  const Scheduler::Id second = desk.add(15), third = desk.add(16);  // 50 and 53 tokens
  desk.scheduler.step();
  EXPECT_EQ(
      std::count_if(desk.order.begin(), desk.order.end(), [](size_t which) { return which >= 15; }),
      1);  // the other one's turn is the next step
  desk.run_to_the_end();
  EXPECT_EQ(prefill_submissions(desk.ended.at(second)), prefill_submissions(desk.ended.at(first)));
  EXPECT_EQ(prefill_submissions(desk.ended.at(third)), prefill_submissions(desk.ended.at(first)));
}

TEST(SchedulerTurns, CachesOfEndedRequestsAreGivenToNewOnes) {
  NpuWorld world(2, NpuWeights::q4nx);
  TurnsDesk desk(world);
  std::vector<Scheduler::Id> ids;
  for (size_t which = 0; which < 5; ++which) ids.push_back(desk.add(which));
  desk.run_to_the_end();
  EXPECT_EQ(world.prefixes->pages(), 2u);
  EXPECT_GT(world.prefixes->counts().evictions, 0u);
  for (size_t which = 0; which < 5; ++which) {
    ASSERT_FALSE(desk.ended.at(ids[which]).error);
    EXPECT_EQ(desk.ended.at(ids[which]).answer.tokens, alone(which, NpuWeights::q4nx));
  }
  // The last one's cache is still there, and is handed over.
  const Scheduler::Id again = desk.add(4);
  desk.run_to_the_end();
  EXPECT_EQ(desk.ended.at(again).answer.receipt.cached_tokens, request(4).prompt.size() - 1);
}

// Dispatches of a step are those of the requests, in order: the second one's fails.
TEST(SchedulerTurns, ADeviceErrorIsTheBusinessOfOneRequest) {
  struct FaultCase {
    OnDeviceError policy;
    bool is_refused;
    const char* own;
    const char* others;
  };
  for (const FaultCase& each : {FaultCase{OnDeviceError::fail, true, "new contexts",
                                          "in another request; run again on new contexts"},
                                FaultCase{OnDeviceError::retry, false, "; retried on new contexts",
                                          "in another request; run again on new contexts"},
                                FaultCase{OnDeviceError::cpu, false, "; finished on the cpu",
                                          "in another request; run again on the cpu"}}) {
    NpuWorld world(3, NpuWeights::q4nx, each.policy);
    TurnsDesk desk(world);
    std::vector<Scheduler::Id> ids;
    for (size_t which = 0; which < 3; ++which) ids.push_back(desk.add(which));
    while (desk.order.size() < 9) desk.scheduler.step();
    vxrt::inject(vxrt::parse_fault("error@2"));
    desk.run_to_the_end();
    ids.push_back(desk.add(3));
    desk.run_to_the_end();
    for (size_t which = 0; which < 4; ++which) {
      const Outcome& outcome = desk.ended.at(ids[which]);
      const Receipt& receipt = outcome.answer.receipt;
      const bool is_hit = which == 1, is_refused = is_hit && each.is_refused;
      const bool is_later = which == 3;
      ASSERT_EQ(outcome.error.has_value(), is_refused) << which;
      EXPECT_EQ(receipt.recoveries, is_refused || is_later ? 0u : 1u) << which;
      const std::string words = is_hit ? each.own : each.others;
      const bool is_told = std::any_of(
          receipt.fallbacks.begin(), receipt.fallbacks.end(),
          [&](const std::string& line) { return line.find(words) != std::string::npos; });
      EXPECT_EQ(is_told, !is_refused && !is_later) << which;
      if (is_refused || each.policy == OnDeviceError::cpu) continue;
      EXPECT_EQ(outcome.answer.tokens, alone(which, NpuWeights::q4nx)) << which;
    }
  }
}

TEST(SchedulerTurns, ADeviceThatStaysBrokenEndsRequestsAndNotTheScheduler) {
  NpuWorld world(2, NpuWeights::q4nx);
  TurnsDesk desk(world);
  const Scheduler::Id first = desk.add(0), second = desk.add(1);
  while (desk.order.size() < 4) desk.scheduler.step();
  vxrt::inject(vxrt::parse_fault("slowx1e9"));
  desk.run_to_the_end();
  EXPECT_TRUE(desk.ended.at(first).error && desk.ended.at(second).error);
  vxrt::inject(vxrt::parse_fault("oom@1"));  // it cannot be made again
  const Scheduler::Id third = desk.add(2);
  desk.run_to_the_end();
  EXPECT_TRUE(desk.ended.at(third).error);
  const Scheduler::Id fourth = desk.add(2);
  desk.run_to_the_end();
  EXPECT_FALSE(desk.ended.at(fourth).error);
}

// The device breaks for good between a prompt's last pass and the next request's dispatch: what the
// prompt left in the cache is not there to be shared any more.
TEST(SchedulerTurns, APromptThatIsLostInTheSameStepIsNotShared) {
  Config config = testing_support::small_config();
  config.context = 600;
  const RandomModel random = random_model(config, DType::bf16);
  NpuWorld world(3, NpuWeights::int8, OnDeviceError::fail, Fusion::op, random.model);
  Scheduler scheduler({world.tokenizer, *world.pipeline, world.trace, world.prefixes.get()}, {});
  size_t refused = 0;
  const auto add = [&](size_t prompt, const OnToken& on_token) {
    Request made = request(0);
    made.prompt.assign(prompt, Token{7});
    scheduler.add(made, {.temperature = 0}, on_token,
                  [&](Scheduler::Id, const Outcome& outcome) { refused += outcome.error ? 1 : 0; });
  };
  const OnToken ignore = [](const ChosenToken&) { return true; };
  add(5, ignore);
  add(260, [](const ChosenToken&) { return vxrt::inject(vxrt::parse_fault("slowx1e9")), true; });
  scheduler.step();
  add(30, ignore);  // longer than what is left of the other, so that it runs behind it
  while (scheduler.step()) ASSERT_LT(scheduler.running(), 4u);
  EXPECT_EQ(refused, 3u);
}

}  // namespace
}  // namespace tyto
