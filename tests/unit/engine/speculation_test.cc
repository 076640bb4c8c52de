// Guesses change how many calls an answer takes, and nothing else.
#include "engine/speculation.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/picking_device.h"
#include "text/grammar/constraint.h"
#include "unit/engine/guessing.h"
#include "unit/engine/letters_world.h"

namespace tyto {
namespace {

using testing_support::all_drafters;
using testing_support::eager;
using testing_support::LettersWorld;
using testing_support::NamedDrafter;
using testing_support::oracle;
using testing_support::PickingDevice;
using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;

const RandomModel& speculating_model() {
  static const RandomModel model = random_model(small_config(), DType::f32);
  return model;
}

struct Asking {
  Request request;
  SamplerOptions sampling = {.temperature = 0};
  int most_pieces = INT_MAX;  // before the reader has enough
  std::string grammar = {};
};

// Two turns of a conversation, the second going on from the first's answer.
struct Told {
  std::vector<std::vector<Token>> tokens;
  std::vector<StopReason> reasons;
  std::vector<std::string> texts;
  std::vector<uint32_t> cached;
  bool operator==(const Told&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Told& told) {
  for (size_t i = 0; i < told.texts.size(); ++i)
    out << told.texts[i] << " (" << told.tokens[i].size() << " tokens, " << name(told.reasons[i])
        << ", " << told.cached[i] << " cached) ";
  return out;
}

using MakeSpeculation = std::function<std::shared_ptr<Speculation>(size_t turn)>;

Told tell(LettersWorld& world, const Asking& asking, const MakeSpeculation& make = {},
          SpeculationCounters* counters = nullptr) {
  Told told;
  Sampler sampler(asking.sampling);
  Request request = asking.request;
  for (size_t turn = 0; turn < 2; ++turn) {
    std::string text;
    int pieces = 0;
    if (!asking.grammar.empty())
      request.constraint =
          std::make_shared<Constraint>(std::make_shared<const Grammar>(asking.grammar),
                                       std::make_shared<const TokenTrie>(world.tokenizer));
    if (make) request.speculation = make(turn);
    const Answer answer =
        generate(world.generator(), sampler, request, [&](std::string_view piece) {
          text += piece;
          return ++pieces < asking.most_pieces;
        });
    if (counters != nullptr && turn == 0) *counters = *answer.receipt.speculation;
    told.tokens.push_back(answer.tokens);
    told.reasons.push_back(answer.reason);
    told.texts.push_back(text);
    told.cached.push_back(answer.receipt.cached_tokens);
    request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    request.prompt.push_back(9);
    if (request.prompt.size() >= world.pipeline->context()) break;
  }
  return told;
}

std::vector<Token> whole_of(const Asking& asking, const Told& told, size_t turn) {
  std::vector<Token> whole = asking.request.prompt;
  for (size_t i = 0; i <= turn && i < told.tokens.size(); ++i) {
    whole.insert(whole.end(), told.tokens[i].begin(), told.tokens[i].end());
    whole.push_back(i < turn ? 9 : 11);  // the user's next word; behind the last, anything
  }
  return whole;
}

// Plain and with every drafter, in worlds of their own.
void expect_same(const RandomModel& model, const Asking& asking, const std::string& what,
                 unsigned threads = 1, const std::function<void(LettersWorld&)>& prepare = {}) {
  LettersWorld plain(model, 0, threads);
  if (prepare) prepare(plain);
  const Told expected = tell(plain, asking);
  for (const NamedDrafter& drafter : all_drafters()) {
    LettersWorld world(model, 0, threads);
    if (prepare) prepare(world);
    const Told told = tell(world, asking, [&](size_t turn) {
      return eager(drafter.make(whole_of(asking, expected, turn)));
    });
    EXPECT_EQ(told, expected) << what << ", " << drafter.name;
  }
}

Asking asking_for(uint32_t tokens, SamplerOptions sampling = {.temperature = 0}) {
  Asking asking;
  asking.request.prompt = {7, 8, 9, 7, 8};
  asking.request.max_tokens = tokens;
  asking.sampling = sampling;
  return asking;
}

void ends_with(LettersWorld& world, Token end) {
  Vocabulary vocabulary = testing_support::letters();
  vocabulary.eos = {end};
  world.tokenizer = Tokenizer(vocabulary, "letters");
}

TEST(Speculation, AnswersAsWithoutGuessesWhateverTheSampler) {
  const SamplerOptions kCases[] = {
      {.temperature = 0},
      {.temperature = 1.2f, .seed = 3},
      {.temperature = 1.5f, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 4},
      {.temperature = 0, .repeat_penalty = 1.3f, .penalty_window = 8},
      {.temperature = 0.9f, .frequency_penalty = 0.7f, .presence_penalty = 0.4f, .seed = 5},
      {.temperature = 0, .logit_bias = {{7, 2.0f}, {9, -3.0f}}}};
  for (size_t i = 0; i < std::size(kCases); ++i)
    expect_same(speculating_model(), asking_for(24, kCases[i]), "sampler " + std::to_string(i));
}

TEST(Speculation, AnswersAsWithoutGuessesUnderAGrammar) {
  for (const float temperature : {0.0f, 1.3f}) {
    Asking asking = asking_for(20, {.temperature = temperature, .seed = 6});
    asking.grammar = "root ::= (\"AB\" [XYZ] [A-F])+";
    expect_same(speculating_model(), asking, "grammar");
    asking.grammar = "root ::= [A-F] [A-F] [A-F] [A-F] [A-F] [A-F] [A-F]";
    expect_same(speculating_model(), asking, "grammar that ends inside a round", 1,
                [](LettersWorld& world) { ends_with(world, 60); });
  }
}

TEST(Speculation, AnswersAsWithoutGuessesForEveryTypeAndNumberOfThreads) {
  Config wide = small_config();  // blocks of 256
  wide.emb = wide.hidden = 256;
  wide.heads = 16;
  for (const DType type :
       {DType::bf16, DType::f16, DType::q8_0, DType::q4_0, DType::q4_k, DType::q5_k, DType::q6_k}) {
    const RandomModel model = random_model(wide, type);
    for (const unsigned threads : {1u, 2u, 5u})
      expect_same(model, asking_for(12, {.temperature = 0.8f, .seed = 8}),
                  std::string(info(type).name), threads);
  }
}

TEST(Speculation, EndsWhereItWouldWithoutGuesses) {
  for (uint32_t tokens = 0; tokens < 12; ++tokens)
    expect_same(speculating_model(), asking_for(tokens), std::to_string(tokens) + " tokens");
  for (int pieces = 1; pieces < 8; ++pieces) {
    Asking asking = asking_for(24);
    asking.most_pieces = pieces;
    expect_same(speculating_model(), asking, std::to_string(pieces) + " pieces");
  }
  for (uint32_t prompt = 84; prompt < 96; ++prompt) {
    Asking asking = asking_for(100);
    asking.request.prompt.assign(prompt, 5);
    expect_same(speculating_model(), asking, "context after " + std::to_string(prompt));
  }
}

TEST(Speculation, EndsAtStopStringsAndEndTokensInsideARound) {
  LettersWorld world(speculating_model());
  const Told free = tell(world, asking_for(24));
  for (size_t at = 0; at < 10; ++at) {
    Asking asking = asking_for(24);
    asking.request.stop = {free.texts[0].substr(at, 2)};
    expect_same(speculating_model(), asking, "stop at " + std::to_string(at));
    const Token end = free.tokens[0][at];
    for (const bool ignore : {false, true}) {
      Asking to_eos = asking_for(24);
      to_eos.request.ignore_eos = ignore;
      expect_same(speculating_model(), to_eos, "end token at " + std::to_string(at), 1,
                  [&](LettersWorld& with) { ends_with(with, end); });
    }
  }
}

TEST(Speculation, RightGuessesSaveCallsAndWrongOnesCostNone) {
  LettersWorld plain(speculating_model());
  const Asking asking = asking_for(28);
  const Told expected = tell(plain, asking);
  SpeculationCounters right, wrong;
  LettersWorld one(speculating_model()), other(speculating_model());
  tell(
      one, asking, [&](size_t turn) { return eager(oracle(whole_of(asking, expected, turn)), 3); },
      &right);
  tell(
      other, asking,
      [&](size_t turn) {
        return eager(oracle(whole_of(asking, expected, turn), [](size_t) { return true; }), 3);
      },
      &wrong);
  EXPECT_EQ(right.accepted, right.drafted);
  EXPECT_EQ(right.calls + right.accepted, 27u);  // each call settles a token of its own
  EXPECT_LT(right.calls, 27u);
  EXPECT_EQ(wrong.accepted, 0u);
  EXPECT_GT(wrong.drafted, 0u);
  EXPECT_EQ(wrong.calls, 27u);
}

// Guesses that find no page are left out; the answer goes as far as it would without them.
TEST(Speculation, ShortOfPagesGoesAsFarAsWithoutGuesses) {
  Config config = testing_support::one_layer_config();
  const RandomModel model = random_model(config, DType::f32);
  Asking asking = asking_for(40);
  asking.request.prompt.assign(246, 5);
  const auto shown = [&](const std::shared_ptr<Speculation>& speculation) {
    LettersWorld world(model, 1);
    Sampler sampler(asking.sampling);
    Request request = asking.request;
    request.speculation = speculation;
    std::string text;
    EXPECT_ERROR(generate({world.tokenizer, *world.pipeline, world.trace}, sampler, request,
                          [&](std::string_view piece) { return text += piece, true; }),
                 "257 tokens do not fit");
    EXPECT_EQ(world.pipeline->kv_pool().in_use(), 0u);
    return text;
  };
  const std::string plain = shown(nullptr);
  EXPECT_EQ(plain.size(), 11u);
  std::vector<Token> whole = asking.request.prompt;
  LettersWorld roomy(model);
  const Told free = tell(roomy, asking);
  whole.insert(whole.end(), free.tokens[0].begin(), free.tokens[0].end());
  EXPECT_EQ(shown(eager(oracle(whole))), plain);
  EXPECT_EQ(shown(eager(oracle(whole, [](size_t i) { return i % 2 == 0; }))), plain);
}

std::unique_ptr<Device> open_apart(const DeviceEnv& env) {
  return std::make_unique<PickingDevice>(env, 48, true);
}

// Its rows agree, it picks candidates, and its errors can be recovered from.
struct ApartWorld : LettersWorld {
  ApartWorld() : LettersWorld(speculating_model(), 0, 1, open_apart) {}
  PickingDevice& picking() { return static_cast<PickingDevice&>(*device); }
};

TEST(Speculation, AFaultInARoundIsRecoveredFromOrEndsTheRequestAlone) {
  LettersWorld plain(speculating_model());
  const Asking asking = asking_for(16);
  const Told expected = tell(plain, asking);
  const auto right = [&](size_t turn) { return eager(oracle(whole_of(asking, expected, turn))); };
  for (int faulty = 1; faulty < 5; ++faulty) {
    ApartWorld world;
    int calls = 0;
    world.picking().spoil = [&](std::span<int32_t> row) {
      if (++calls == faulty) std::ranges::fill(row, -7);
    };
    EXPECT_EQ(tell(world, asking, right), expected) << "fault in call " << faulty;
    EXPECT_EQ(world.pipeline->recoveries(), 1u);
  }
  ApartWorld world;
  int calls = 0;
  world.picking().spoil = [&](std::span<int32_t> row) {
    if (++calls > 2) std::ranges::fill(row, -7);
  };
  EXPECT_ERROR(tell(world, asking, right), "the logits are not finite");
  world.picking().spoil = {};
  EXPECT_EQ(tell(world, asking, right), expected);
}

TEST(Speculation, WhoeverReadsTheTextMayThrow) {
  LettersWorld plain(speculating_model()), world(speculating_model());
  const Asking asking = asking_for(16);
  const Told expected = tell(plain, asking);
  Request request = asking.request;
  request.speculation = eager(oracle(whole_of(asking, expected, 0)));
  Sampler sampler(asking.sampling);
  int pieces = 0;
  EXPECT_ERROR(generate(world.generator(), sampler, request,
                        [&](std::string_view) -> bool {
                          if (++pieces == 7) throw std::runtime_error("enough");
                          return true;
                        }),
               "enough");
  request.speculation = nullptr;
  request.prompt = whole_of(asking, expected, 0);
  const Answer after =
      generate(world.generator(), sampler, request, [](std::string_view) { return true; });
  // The rows that seven tokens were chosen from: the prompt's, and those of the first six.
  EXPECT_EQ(after.receipt.cached_tokens, asking.request.prompt.size() + 6);
}

TEST(Lookup, FindsWhatFollowedTheLastTokensMostRecently) {
  const auto after = [](std::vector<Token> text, uint32_t most) {
    return lookup_drafter()(text, most);
  };
  using Tokens = std::vector<Token>;
  EXPECT_EQ(after({1, 2, 3, 4, 1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(after({1, 2, 3, 1, 2, 4, 1, 2}, 1), (Tokens{4}));        // the most recent
  EXPECT_EQ(after({5, 1, 2, 3, 1, 2, 4, 5, 1, 2}, 1), (Tokens{3}));  // but first the longest
  EXPECT_EQ(after({1, 2, 3}, 4), Tokens{});
  EXPECT_EQ(after({1}, 4), Tokens{});
  EXPECT_EQ(after({1, 2}, 4), Tokens{});
  EXPECT_EQ(after({1, 2, 3, 4, 5, 2}, 4), Tokens{});  // one token is no occurrence
  EXPECT_EQ(after({1, 2, 1, 2}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ(after({7, 7, 7}, 3), (Tokens{7, 7, 7}));
  EXPECT_EQ(after({1, 2, 3, 4, 1, 2}, 0), Tokens{});
}

// The index grows with the text; a plain search through it says the same.
TEST(Lookup, AgreesWithAPlainSearchAtEveryLength) {
  std::mt19937 random(3);
  std::vector<Token> text;
  const Drafter drafter = lookup_drafter();
  for (int i = 0; i < 600; ++i) {
    text.push_back(static_cast<Token>(random() % 5));
    if (i % 3 == 1) continue;  // not asked after every token
    std::vector<Token> expected;
    for (size_t length = 4; length >= 2 && expected.empty(); --length)
      for (size_t end = text.size() - 1; end >= length && end > 0; --end) {
        if (text.size() <= length) break;
        if (!std::equal(text.end() - static_cast<long>(length), text.end(),
                        text.begin() + static_cast<long>(end - length)))
          continue;
        for (size_t k = end; expected.size() < 3; ++k)
          expected.push_back(k < text.size() ? text[k] : expected[k - text.size()]);
        break;
      }
    EXPECT_EQ(drafter(text, 3), expected) << "after " << text.size();
  }
}

}  // namespace
}  // namespace tyto
