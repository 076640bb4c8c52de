// Requests on a device that picks candidates get the text that all logits give, and ask for these
// only where their sampler may look at any.
#include <gtest/gtest.h>

#include <map>

#include "engine/scheduler.h"
#include "support/picking_device.h"
#include "text/grammar/constraint.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::LettersWorld;
using testing_support::one_layer_config;
using testing_support::PickingDevice;
using testing_support::random_model;
using testing_support::RandomModel;

const RandomModel& shared_model() {
  static const RandomModel model = random_model(one_layer_config(), DType::f32);
  return model;
}

constexpr uint32_t kPicked = 48;

std::unique_ptr<Device> open_picking(const DeviceEnv& env) {
  return std::make_unique<PickingDevice>(env, kPicked);
}

struct PickingWorld : LettersWorld {
  PickingWorld() : LettersWorld(shared_model(), 0, 1, open_picking) {}
  PickingDevice& picking() { return static_cast<PickingDevice&>(*device); }
};

struct Case {
  const char* name;
  SamplerOptions sampling;
  bool suffice;  // candidates, for it
  bool is_constrained = false;
  bool wants_all_logits = false;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"greedy", {.temperature = 0}, true},
      {"default", {.seed = 3}, true},
      {"as many as there are", {.temperature = 1.5f, .top_k = kPicked, .seed = 4}, true},
      {"one more", {.temperature = 1.5f, .top_k = kPicked + 1, .seed = 4}, false},
      {"no top-k", {.top_k = 0, .seed = 5}, false},
      {"penalty", {.temperature = 0, .repeat_penalty = 1.3f}, false},
      {"bias", {.temperature = 0, .logit_bias = {{7, 1.0f}}}, false},
      {"grammar", {.temperature = 0}, false, true},
      {"log probabilities", {.seed = 6}, false, false, true}};
  return all;
}

Request request_of(const Case& each, const LettersWorld& world) {
  Request request{.prompt = {7, 8, 9, 10, 3}, .max_tokens = 12, .stop = {}};
  request.prompt.push_back(static_cast<Token>(&each - cases().data()));
  request.ignore_eos = true;
  request.wants_all_logits = each.wants_all_logits;
  if (each.is_constrained)
    request.constraint =
        std::make_shared<Constraint>(std::make_shared<const Grammar>("root ::= [A-F]+"),
                                     std::make_shared<const TokenTrie>(world.tokenizer));
  return request;
}

std::vector<Token> answer_of(const Case& each, LettersWorld& world) {
  Sampler sampler(each.sampling);
  return generate(world.generator(), sampler, request_of(each, world),
                  [](std::string_view) { return true; })
      .tokens;
}

TEST(RequestsWithCandidates, GetTheTextOfAllLogits) {
  for (const Case& each : cases()) {
    LettersWorld plain(shared_model());
    PickingWorld picking;
    EXPECT_EQ(answer_of(each, picking), answer_of(each, plain)) << each.name;
    const PickingDevice& device = picking.picking();
    EXPECT_EQ(device.rows_of_candidates, each.suffice ? 12u : 0u) << each.name;
    EXPECT_EQ(device.rows_of_logits, each.suffice ? 0u : 12u) << each.name;
  }
}

// All at once: a request that wants all logits gets them, and so do all in the same step.
TEST(RequestsWithCandidates, BesideOthersGetTheSame) {
  PickingWorld world;
  Scheduler scheduler(world.generator(), {});
  std::map<Scheduler::Id, std::vector<Token>> answers;
  std::map<Scheduler::Id, const Case*> asked;
  for (const Case& each : cases())
    asked[scheduler.add(
        request_of(each, world), each.sampling,
        [&each](const ChosenToken& chosen) {
          if (!each.wants_all_logits) return true;
          EXPECT_EQ(std::span<const float>(chosen.logits).size(), 61u);
          return true;
        },
        [&](Scheduler::Id id, Outcome outcome) {
          EXPECT_FALSE(outcome.error);
          answers[id] = outcome.answer.tokens;
        })] = &each;
  while (scheduler.step()) continue;
  for (const auto& [id, each] : asked) {
    LettersWorld alone(shared_model());
    EXPECT_EQ(answers[id], answer_of(*each, alone)) << each->name;
  }
}

TEST(RequestsWithCandidates, TogetherReadNoLogitsWhenAllCanDoWithThem) {
  PickingWorld world;
  Scheduler scheduler(world.generator(), {});
  for (const Case& each : cases())
    if (each.suffice)
      scheduler.add(
          request_of(each, world), each.sampling,
          [](const ChosenToken& chosen) { return chosen.logits.are_candidates(); },
          [](Scheduler::Id, const Outcome& outcome) {
            EXPECT_EQ(outcome.answer.reason, StopReason::max_tokens);
          });
  while (scheduler.step()) continue;
  EXPECT_EQ(world.picking().rows_of_candidates, 3 * 12u);
  EXPECT_EQ(world.picking().rows_of_logits, 0u);
}

}  // namespace
}  // namespace tyto
