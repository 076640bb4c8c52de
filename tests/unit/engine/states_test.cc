// Requests to a model with recurrent layers get the answers that they get alone: turns, branches,
// several at once, drafts, too little memory. One of its layers has a window besides.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/scheduler.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::all_drafters;
using testing_support::eager;
using testing_support::LettersWorld;
using testing_support::random_model;
using testing_support::RandomModel;
using Text = std::vector<Token>;

const RandomModel& stateful_model() {
  static const RandomModel model = [] {
    Config config = testing_support::small_config();
    config.architecture = "lfm2";
    config.context = 2048;
    config.layers = 4;
    config.qk_norm = true;
    config.conv_taps = 3;
    config.window = 90;
    config.windowed = {false, true, false, false};
    set_layer_kinds(config, {LayerKind::short_conv, LayerKind::attention, LayerKind::short_conv,
                             LayerKind::attention});
    return random_model(config, DType::f32);
  }();
  return model;
}

Text text_of(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Text tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 61);
  return tokens;
}

Text with(Text text, const Text& more) {
  text.insert(text.end(), more.begin(), more.end());
  return text;
}

Answer answer_in(LettersWorld& world, const Text& prompt, uint32_t tokens,
                 std::shared_ptr<Speculation> speculation = {}) {
  Sampler greedy(SamplerOptions{.temperature = 0});
  Request request{.prompt = prompt, .max_tokens = tokens, .stop = {}, .ignore_eos = true};
  request.speculation = std::move(speculation);
  return generate(world.generator(), greedy, request, [](std::string_view) { return true; });
}

// Nothing remembered, nothing drafted, nothing beside it.
Text without_others(const Text& prompt, uint32_t tokens) {
  LettersWorld world(stateful_model());
  return answer_in(world, prompt, tokens).tokens;
}

TEST(States, ATurnRunsOnlyWhatIsNew) {
  LettersWorld world(stateful_model());
  Text text = text_of(300, 1);
  for (unsigned turn = 0; turn < 4; ++turn) {
    const Answer answer = answer_in(world, text, 100);
    EXPECT_EQ(answer.tokens, without_others(text, 100)) << turn;
    if (turn > 0) {
      EXPECT_EQ(answer.receipt.prompt_tokens, 31u) << "the last token and thirty new";
    }
    text = with(with(text, answer.tokens), text_of(30, turn + 7));
  }
}

TEST(States, ThePromptOfAnEarlierRequestRunsItsLastTokenAlone) {
  LettersWorld world(stateful_model());
  const Text prompt = text_of(700, 2);
  const Answer first = answer_in(world, prompt, 60);
  const Answer again = answer_in(world, prompt, 60);
  EXPECT_EQ(again.receipt.cached_tokens, 699u);
  EXPECT_EQ(again.tokens, first.tokens);
}

// One that parts from it goes on from the last whole page before.
TEST(States, ABranchGoesOnFromTheStateBeforeIt) {
  LettersWorld world(stateful_model());
  const Text prompt = text_of(700, 3);
  answer_in(world, prompt, 90);
  for (const auto& [common, cached] :
       {std::pair<size_t, uint32_t>{690, 512}, {512, 512}, {511, 256}, {200, 0}}) {
    const Text other = with(Text(prompt.begin(), prompt.begin() + common), {3, 4, 5});
    const Answer answer = answer_in(world, other, 40);
    EXPECT_EQ(answer.receipt.cached_tokens, cached) << common;
    EXPECT_EQ(answer.tokens, without_others(other, 40)) << common;
  }
}

// Rounds whose drafts are refused run what was accepted again, and lose nothing.
TEST(States, DraftsChangeNothing) {
  const Text prompt = text_of(200, 4);
  const Text expected = without_others(prompt, 400);
  const Text whole = with(with(prompt, expected), {11});
  for (const auto& drafter : all_drafters()) {
    LettersWorld world(stateful_model());
    const Answer answer = answer_in(world, prompt, 400, eager(drafter.make(whole), 32));
    EXPECT_EQ(answer.tokens, expected) << drafter.name;
  }
}

TEST(States, ManyAtOnceGetWhatTheyGetAloneHoweverLittleMemoryThereIs) {
  const Text common = text_of(600, 5);
  std::mt19937 random(6);
  for (const uint32_t pages : {0u, 6u, 9u})
    for (const bool drafts : {false, true}) {
      LettersWorld world(stateful_model(), pages, 2);
      Scheduler scheduler(world.generator(), {.most_running = 4});
      std::map<Scheduler::Id, std::pair<Text, uint32_t>> asked;
      std::map<Scheduler::Id, Outcome> ended;
      for (unsigned i = 0; i < 7; ++i) {
        const size_t shared = i % 3 == 2 ? 0 : 1 + random() % 600;
        const Text prompt = with(Text(common.begin(), common.begin() + shared),
                                 text_of(1 + random() % 150, 20 + i));
        Request request{.prompt = prompt,
                        .max_tokens = 1 + static_cast<uint32_t>(random() % 120),
                        .stop = {},
                        .ignore_eos = true};
        const uint32_t tokens = request.max_tokens;
        if (drafts) request.speculation = eager(lookup_drafter());
        const auto id = scheduler.add(
            std::move(request), SamplerOptions{.temperature = 0},
            [](const ChosenToken&) { return true; },
            [&](Scheduler::Id done, Outcome outcome) { ended.emplace(done, std::move(outcome)); });
        asked[id] = {prompt, tokens};
        for (unsigned steps = random() % 6; steps > 0; --steps) scheduler.step();
      }
      for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 100'000);
      for (const auto& [id, request] : asked) {
        ASSERT_FALSE(ended.at(id).error) << ended.at(id).error->what();
        EXPECT_EQ(ended.at(id).answer.tokens, without_others(request.first, request.second))
            << pages << " " << drafts;
      }
      world.prefixes->clear();
      EXPECT_EQ(world.pipeline->states()->in_use(), 0u) << "nothing leaks";
      EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
    }
}

// Bookkeeping alone: pages of four positions.
struct StatesInPages {
  KvPool pool{32, 4}, states{6, 1};
  PrefixCache cache{pool, kNoWindow, &states};

  void keep(const Text& tokens, const std::vector<uint32_t>& kept) {
    KvTable table(pool, kNoWindow, &states);
    std::optional<KvTable::Copy> copy;
    ASSERT_TRUE(table.grow_to(static_cast<uint32_t>(tokens.size()), copy));
    for (const uint32_t position : kept) ASSERT_TRUE(table.keep_state(position, true));
    table.set_length(static_cast<uint32_t>(tokens.size()));
    cache.keep(tokens, std::move(table));
  }
  uint32_t found(const Text& tokens) {
    return cache.find(tokens, static_cast<uint32_t>(tokens.size())).length();
  }
};

TEST(States, APrefixIsFoundAsFarAsItsLastState) {
  StatesInPages pages;
  const Text tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  pages.keep(tokens, {4, 7});
  EXPECT_EQ(pages.found({1, 2, 3, 4, 5, 6, 7, 8, 9, 0}), 7u);
  EXPECT_EQ(pages.found({1, 2, 3, 4, 5, 6, 0}), 4u);
  EXPECT_EQ(pages.found({1, 2, 3, 0}), 0u);
  EXPECT_EQ(pages.cache.counts().hits, 2u);
  // What a longer one brings is added; what is known stays.
  pages.keep({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {8});
  EXPECT_EQ(pages.found({1, 2, 3, 4, 5, 6, 7, 8, 0}), 8u);
  EXPECT_EQ(pages.found({1, 2, 3, 4, 5, 6, 7, 0}), 7u);
}

TEST(States, TheLeastRecentPrefixGivesItsFirstStateUp) {
  StatesInPages pages;
  pages.keep({1, 2, 3, 4, 5, 6}, {4});
  pages.keep({7, 8, 9, 10, 11, 12}, {4});
  EXPECT_EQ(pages.states.in_use(), 4u);
  ASSERT_TRUE(pages.cache.evict(KvKind::state));
  EXPECT_EQ(pages.found({1, 2, 3, 4, 0}), 0u);
  EXPECT_EQ(pages.found({7, 8, 9, 10, 0}), 4u);
  while (pages.cache.evict(KvKind::state)) continue;
  EXPECT_EQ(pages.states.in_use(), 0u);
  EXPECT_EQ(pages.found({7, 8, 9, 10, 11, 12}), 0u);
  EXPECT_GT(pages.cache.pages(), 0u) << "their pages stay until they are needed";
}

}  // namespace
}  // namespace tyto
