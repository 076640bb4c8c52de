// Requests to a model whose layers have windows get the answers that they get with whole caches:
// turns, branches, several at once, guesses, too little memory, a file of caches.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/hash.h"
#include "engine/prompt_cache_file.h"
#include "engine/scheduler.h"
#include "support/picking_device.h"
#include "unit/base/file_fixture.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::all_drafters;
using testing_support::eager;
using testing_support::letters;
using testing_support::NamedDrafter;
using testing_support::PickingDevice;
using testing_support::random_model;
using testing_support::RandomModel;
using TokenList = std::vector<Token>;

RandomModel windowed_model(uint32_t window, bool is_mixed) {
  Config config = testing_support::one_layer_config();
  config.layers = 2;
  config.context = 2048;
  config.window = window;
  if (is_mixed) config.windowed = {true, false};
  return random_model(config, DType::f32);
}

const RandomModel& mixed_model() {
  static const RandomModel model = windowed_model(90, true);
  return model;
}

struct Settings {
  bool frees = true;
  uint64_t kv_pages = 0;  // pages of all layers that there is memory for; 0: as many as it takes
  bool is_apart = false;  // a device whose errors can be recovered from
};

struct World {
  explicit World(const RandomModel& random, const Settings& settings = {}) {
    const DeviceEnv env{pool, trace};
    host = open_device("cpu", env);
    std::vector<Device*> devices = {host.get()};
    if (settings.is_apart) {
      apart = std::make_unique<PickingDevice>(env, 48, true);
      devices.insert(devices.begin(), apart.get());
    }
    PipelineOptions options;
    options.forward.prefill_chunk = 64;
    options.forward.kv_type = DType::f32;
    const Config& config = random.model.config;
    const uint64_t position = uint64_t{2} * config.layers * config.kv_heads * config.head_dim * 4;
    options.forward.kv_memory = settings.kv_pages * 256 * position;
    options.forward.kv_shares = settings.frees ? 1 : 2;  // each of two sides keeps whole caches
    pipeline = std::make_unique<Pipeline>(random.model, devices, options, trace);
    prefixes = std::make_unique<PrefixCache>(pipeline->kv_pool(), pipeline->kv_window(),
                                             pipeline->states());
    pipeline->reclaim = [this](KvKind lacking) { return prefixes->evict(lacking); };
    pipeline->on_caches_lost = [this] { prefixes->clear(); };
    EXPECT_EQ(pipeline->kv_window().pool != nullptr, settings.frees);
  }
  ~World() {
    prefixes->clear();
    EXPECT_EQ(pipeline->kv_pool().in_use(), 0u) << "nothing leaks";
    if (pipeline->kv_window().pool != nullptr) {
      EXPECT_EQ(pipeline->kv_window().pool->in_use(), 0u);
    }
  }

  Generator generator() { return {tokenizer, *pipeline, trace, prefixes.get()}; }
  Answer answer(const TokenList& prompt, uint32_t tokens,
                std::shared_ptr<Speculation> speculation = {}) {
    Sampler greedy(SamplerOptions{.temperature = 0});
    Request request;
    request.prompt = prompt;
    request.max_tokens = tokens;
    request.ignore_eos = true;
    request.speculation = std::move(speculation);
    return generate(generator(), greedy, request, [](std::string_view) { return true; });
  }

  Tokenizer tokenizer{letters(), "letters"};
  ThreadPool pool{1};
  Trace trace;
  std::unique_ptr<Device> host;
  std::unique_ptr<PickingDevice> apart;
  std::unique_ptr<Pipeline> pipeline;
  std::unique_ptr<PrefixCache> prefixes;
};

TokenList window_tokens(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  TokenList tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % 61);
  return tokens;
}

TokenList both(TokenList a, const TokenList& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// With whole caches, nothing remembered.
TokenList alone(const RandomModel& model, const TokenList& prompt, uint32_t tokens) {
  World world(model, {.frees = false});
  return world.answer(prompt, tokens).tokens;
}

TEST(Windows, AnswersAreThoseOfWholeCaches) {
  for (const bool is_mixed : {true, false})
    for (const uint32_t window : {40u, 256u, 300u}) {
      const RandomModel model = windowed_model(window, is_mixed);
      World world(model);
      for (const size_t length : {10, 300, 700})
        EXPECT_EQ(world.answer(window_tokens(length, 5), 600).tokens,
                  alone(model, window_tokens(length, 5), 600))
            << window << " " << length;
    }
}

TEST(Windows, ATurnRunsOnlyWhatIsNew) {
  World world(mixed_model());
  TokenList text = window_tokens(300, 1);
  for (unsigned turn = 0; turn < 4; ++turn) {
    const Answer answer = world.answer(text, 200);
    EXPECT_EQ(answer.tokens, alone(mixed_model(), text, 200));
    if (turn > 0) {
      EXPECT_EQ(answer.receipt.prompt_tokens, 31u) << "the last token and thirty new";
    }
    text = both(both(text, answer.tokens), window_tokens(30, turn + 7));
  }
}

TEST(Windows, AnotherAnswerToAnEarlierPromptHasItsWholePages) {
  World world(mixed_model());
  const TokenList prompt = window_tokens(1200, 1);
  world.answer(prompt, 700);
  const TokenList other = both(prompt, {3, 4});
  const Answer answer = world.answer(other, 50);
  EXPECT_EQ(answer.receipt.cached_tokens, 1024u);
  EXPECT_EQ(answer.tokens, alone(mixed_model(), other, 50));
  const TokenList early = both(TokenList(prompt.begin(), prompt.begin() + 300), {3, 4});
  const Answer third = world.answer(early, 50);
  EXPECT_EQ(third.receipt.cached_tokens, 0u) << "the window in front of it is gone";
  EXPECT_EQ(third.tokens, alone(mixed_model(), early, 50));
}

TEST(Windows, GuessesChangeNothing) {
  const TokenList prompt = window_tokens(200, 3);
  const TokenList expected = alone(mixed_model(), prompt, 700);
  for (const NamedDrafter& drafter : all_drafters()) {
    World world(mixed_model());
    const TokenList whole = both(both(prompt, expected), {11});
    EXPECT_EQ(world.answer(prompt, 700, eager(drafter.make(whole), 32)).tokens, expected)
        << drafter.name;
  }
}

struct Asked {
  TokenList prompt;
  uint32_t tokens;
};

std::vector<Asked> many() {
  const TokenList common = window_tokens(600, 1);
  const auto first = [&](size_t count) {
    return TokenList(common.begin(), common.begin() + count);
  };
  return {{first(520), 300},
          {both(first(520), window_tokens(9, 4)), 200},
          {both(first(300), window_tokens(300, 5)), 90},
          {window_tokens(3, 6), 400},
          {both(first(256), window_tokens(2, 7)), 40},
          {first(600), 64},
          {window_tokens(700, 8), 20}};
}

void expect_all_as_alone(const RandomModel& model, World& world, bool guesses) {
  Scheduler scheduler(world.generator(), {.most_running = 4});
  std::map<Scheduler::Id, size_t> asked;
  std::map<Scheduler::Id, Outcome> ended;
  const std::vector<Asked> requests = many();
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request;
    request.prompt = requests[i].prompt;
    request.max_tokens = requests[i].tokens;
    request.ignore_eos = true;
    if (guesses) request.speculation = eager(lookup_drafter());
    const auto id = scheduler.add(
        std::move(request), {.temperature = 0}, [](const ChosenToken&) { return true; },
        [&](Scheduler::Id done, Outcome outcome) { ended.emplace(done, std::move(outcome)); });
    asked[id] = i;
  }
  for (int steps = 0; scheduler.step(); ++steps) ASSERT_LT(steps, 100'000);
  for (const auto& [id, which] : asked) {
    ASSERT_FALSE(ended.at(id).error) << ended.at(id).error->what();
    EXPECT_EQ(ended.at(id).answer.tokens,
              alone(model, requests[which].prompt, requests[which].tokens))
        << which;
  }
}

TEST(Windows, ManyAtOnceGetWhatTheyGetAloneHoweverLittleMemoryThereIs) {
  for (const bool is_mixed : {true, false}) {
    const RandomModel model = windowed_model(90, is_mixed);
    for (const uint64_t pages : {0u, 5u, 7u, 12u}) {
      SCOPED_TRACE(testing::Message() << pages << " pages" << (is_mixed ? ", mixed" : ""));
      World world(model, {.kv_pages = pages});
      expect_all_as_alone(model, world, pages == 7);
    }
  }
}

// While the other's prompt still runs, and as long as it has the window in front of them.
TEST(Windows, PagesOfAPromptThatRunsAreSharedWithTheirWindow) {
  const TokenList common = window_tokens(290, 1),
                  long_prompt = both(common, window_tokens(1500, 2));
  const TokenList short_prompt = both(common, window_tokens(10, 3));
  for (const bool is_late : {false, true}) {
    World world(mixed_model());
    Scheduler scheduler(world.generator(), {});
    std::map<Scheduler::Id, Outcome> ended;
    const auto add = [&](const TokenList& prompt) {
      Request request{.prompt = prompt, .max_tokens = 20, .stop = {}};
      request.ignore_eos = true;
      return scheduler.add(
          std::move(request), {.temperature = 0}, [](const ChosenToken&) { return true; },
          [&](Scheduler::Id done, Outcome outcome) { ended.emplace(done, std::move(outcome)); });
    };
    const Scheduler::Id longer = add(long_prompt);
    while (is_late && (scheduler.requests().empty() || scheduler.requests()[0].done_tokens < 900))
      scheduler.step();
    const Scheduler::Id shorter = add(short_prompt);
    while (scheduler.requests().back().generated_tokens == 0) scheduler.step();
    EXPECT_EQ(scheduler.requests().front().generated_tokens, 0u) << "its prompt still runs";
    while (scheduler.step()) ASSERT_LE(scheduler.running(), 2u);
    EXPECT_EQ(ended.at(shorter).answer.receipt.cached_tokens, is_late ? 0u : 256u);
    EXPECT_EQ(ended.at(shorter).answer.tokens, alone(mixed_model(), short_prompt, 20));
    EXPECT_EQ(ended.at(longer).answer.tokens, alone(mixed_model(), long_prompt, 20));
  }
}

TEST(Windows, AFaultIsRecoveredFrom) {
  const TokenList prompt = window_tokens(300, 3);
  const TokenList expected = alone(mixed_model(), prompt, 500);
  for (const int faulty : {1, 250, 480}) {
    World world(mixed_model(), {.is_apart = true});
    int calls = 0;
    world.apart->spoil = [&](std::span<int32_t> row) {
      if (++calls == faulty) std::ranges::fill(row, -7);
    };
    EXPECT_EQ(world.answer(prompt, 500).tokens, expected) << faulty;
    EXPECT_EQ(world.pipeline->recoveries(), 1u);
  }
}

class WindowsFileTest : public FileTest {
 protected:
  static PromptCacheOrigin origin(World& world) {
    return prompt_cache_origin(*world.pipeline, mixed_model().model.config, "a model", "a build");
  }
  static uint32_t place(World& world, std::span<const std::byte> file) {
    const PromptCacheContent content = read_prompt_cache(file, origin(world), 61);
    EXPECT_EQ(content.why_not, "");
    return place_prompt_cache(content, *world.pipeline, *world.prefixes);
  }
  fs::path written(const TokenList& prompt) {
    World world(mixed_model());
    world.answer(prompt, 5);
    const KvTable table = world.prefixes->find(prompt, static_cast<uint32_t>(prompt.size()));
    EXPECT_EQ(table.length(), prompt.size());
    const fs::path path = folder_ / "cache";
    AtomicFile file(path, Replace::same_kind_read, kPromptCacheFile);
    write_prompt_cache(file, origin(world), prompt, table, *world.pipeline);
    file.commit();
    return path;
  }
};

TEST_F(WindowsFileTest, HoldsTheWindowsThatAContinuationAttendsTo) {
  for (const size_t length : {5, 256, 300, 900}) {
    const TokenList prompt = window_tokens(length, 9);
    const MappedFile file(written(prompt));
    World world(mixed_model());
    EXPECT_EQ(place(world, file.bytes()), length);
    const TokenList longer = both(prompt, {1, 2, 3});
    const Answer answer = world.answer(longer, 300);
    EXPECT_EQ(answer.receipt.cached_tokens, length);
    EXPECT_EQ(answer.tokens, alone(mixed_model(), longer, 300)) << length;
  }
}

TEST_F(WindowsFileTest, IsSmallerThanWholeCachesAndOfNoUseToThem) {
  const TokenList prompt = window_tokens(1500, 9);
  const MappedFile file(written(prompt));
  World world(mixed_model()), whole(mixed_model(), {.frees = false});
  const uint64_t position = whole.pipeline->position_bytes();
  EXPECT_LT(file.bytes().size(), 1500 * position * 3 / 4);
  EXPECT_EQ(read_prompt_cache(file.bytes(), origin(whole), 61).why_not,
            "has pages of another form");
  EXPECT_EQ(origin(world).position_bytes(KvKind::full), position / 2);
}

TEST_F(WindowsFileTest, AWindowThatTheFileLacksIsNotMadeUp) {
  const TokenList prompt = window_tokens(900, 9);
  const MappedFile file(written(prompt));
  World world(mixed_model());
  PromptCacheContent content = read_prompt_cache(file.bytes(), origin(world), 61);
  content.tokens.resize(600);  // as much as there might be room for
  EXPECT_EQ(place_prompt_cache(content, *world.pipeline, *world.prefixes), 0u);
  EXPECT_EQ(world.answer(prompt, 5).receipt.cached_tokens, 0u);
}

TEST_F(WindowsFileTest, HostilePlacesOfTheWindowAreReasons) {
  World world(mixed_model());
  std::string whole = text_of(written(window_tokens(700, 9)));
  const size_t at = whole.find("\"window_from\":1");
  ASSERT_NE(at, std::string::npos);
  for (const char* from : {"0", "2", "3", "-1", "4294967295", "18446744073709551615", "null"}) {
    std::string text = whole;
    text.replace(at, 15, std::string("\"window_from\":") + from);
    text.resize(text.size() - sizeof(Hash128));
    const Hash128 hash = hash_bytes(std::as_bytes(std::span(text)));
    text.append(reinterpret_cast<const char*>(&hash), sizeof hash);
    EXPECT_NE(read_prompt_cache(std::as_bytes(std::span(text)), origin(world), 61).why_not, "")
        << from;
  }
}

}  // namespace
}  // namespace tyto
