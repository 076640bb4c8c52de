#include "text/grammar/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/sampler.h"
#include "unit/text/grammar_oracle.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

// The bytes of two letters and of some longer characters, whole and cut, and tokens across them.
const std::vector<std::string> kPieces = {"ab",
                                          "ba",
                                          "aa",
                                          "aab",
                                          "bab",
                                          "abab",
                                          "é",
                                          "éa",
                                          "bé",
                                          "\xA9"
                                          "a",
                                          "b\xC3",
                                          "€",
                                          "\x82\xAC",
                                          "\xE2\x82",
                                          "a€b",
                                          "\U0001F600",
                                          "\x9F\x98",
                                          "\x98\x80"
                                          "a",
                                          "a\xF0\x9F",
                                          "bb",
                                          "bbbbbbbb"};

std::shared_ptr<const TokenTrie> trie_of(const Tokenizer& tokenizer) {
  return std::make_shared<const TokenTrie>(tokenizer);
}

Vocabulary vocabulary_with(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  for (const std::string& piece : pieces) vocabulary.pieces.push_back(to_byte_level(piece));
  return vocabulary;
}

Constraint constraint_of(const std::string& gbnf, std::shared_ptr<const TokenTrie> tokens) {
  return Constraint(std::make_shared<const Grammar>(gbnf), std::move(tokens));
}

bool is_allowed(std::span<const uint64_t> mask, Token token) {
  return (mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
}

std::vector<std::string> allowed_texts(Constraint& constraint, const TokenTrie& tokens) {
  std::vector<std::string> texts;
  const auto mask = constraint.allowed();
  for (Token token = 0; static_cast<size_t>(token) < tokens.vocabulary_size(); ++token)
    if (is_allowed(mask, token)) texts.emplace_back(tokens.bytes_of(token));
  return texts;
}

std::string random_expression(ByteStream& random, int depth) {
  static const std::vector<std::string> kTerminals = {
      "\"a\"", "\"b\"", "\"ab\"", "[ab]", "[à-ÿ]", "\"€\"", "[a€]", "\"\"", "[😀-😎]", "\"bé\""};
  static const std::vector<std::string> kRepeats = {"*", "+", "?", "{2}", "{0,2}", "{1,}"};
  const auto below = [&] { return random_expression(random, depth - 1); };
  switch (depth == 0 ? random.below(2) : random.below(6)) {
    case 0:
      return kTerminals[random.below(static_cast<uint32_t>(kTerminals.size()))];
    case 1:
      return depth > 1 ? "\"a\" r1" : "r" + std::to_string(random.below(4));
    case 2:
      return below() + " " + below();
    case 3:
      return "(" + below() + " | " + below() + ")";
    case 4:
      return "(" + below() + ")" + kRepeats[random.below(static_cast<uint32_t>(kRepeats.size()))];
    default:
      return below() + " r" + std::to_string(random.below(4)) + " " + below();
  }
}

// One token after the other, as a sampler that knows nothing would choose: each time the mask is
// what the plain definition says of every token.
void compare_with_oracle(const std::string& gbnf, const std::shared_ptr<const TokenTrie>& tokens,
                         ByteStream& random) {
  SCOPED_TRACE(gbnf);
  Constraint constraint = constraint_of(gbnf, tokens);
  GrammarOracle oracle(gbnf);
  std::string text;
  for (int step = 0; step < 5; ++step) {
    const auto mask = constraint.allowed();
    std::vector<Token> choices;
    for (Token token = 0; static_cast<size_t>(token) < tokens->vocabulary_size(); ++token) {
      const std::string_view bytes = tokens->bytes_of(token);
      if (bytes.empty()) continue;
      const bool expected = oracle.is_prefix(text + std::string(bytes));
      ASSERT_EQ(is_allowed(mask, token), expected) << "text " << text << " token " << bytes;
      if (expected) choices.push_back(token);
    }
    for (const Token end : tokens->ends_of_text())
      ASSERT_EQ(is_allowed(mask, end), oracle.is_sentence(text)) << "text " << text;
    ASSERT_EQ(constraint.is_complete(), oracle.is_sentence(text)) << "text " << text;
    if (choices.empty()) return;
    const Token chosen = choices[random.below(static_cast<uint32_t>(choices.size()))];
    constraint.accept(chosen);
    text += tokens->bytes_of(chosen);
  }
}

TEST(Constraint, IsWhatThePlainDefinitionSays) {
  const Tokenizer tokenizer(vocabulary_with(kPieces), "test");
  const auto tokens = trie_of(tokenizer);
  ByteStream random(7);
  int compared = 0;
  for (int i = 0; compared < 120; ++i) {
    ASSERT_LT(i, 5000) << "nearly all random grammars are refused";
    std::string gbnf;
    for (const char* rule : {"r1", "r2", "r3", "r0"})
      gbnf += fmt::format("{} ::= {}\n", rule, random_expression(random, 3));
    gbnf += "root ::= r0 | \"b\" r2";
    try {
      (void)Grammar(gbnf);
    } catch (const Error&) {
      continue;  // a rule may begin with itself, or never ends
    }
    ++compared;
    compare_with_oracle(gbnf, tokens, random);
    if (HasFatalFailure()) return;
  }
}

TEST(Constraint, TokensMayCrossRulesAndCutCharacters) {
  const Tokenizer tokenizer(
      vocabulary_with({"{\"", "\":", "\": \"", "ab\"}", "\"}", "\xC3", "é\""}), "test");
  const auto tokens = trie_of(tokenizer);
  const std::string gbnf =
      "root ::= \"{\" pair \"}\"\npair ::= key \": \" value\nkey ::= \"\\\"k\\\"\"\n"
      "value ::= \"\\\"\" [aé]+ \"\\\"\"";
  ByteStream random(3);
  for (int i = 0; i < 5; ++i) compare_with_oracle(gbnf, tokens, random);
  Constraint constraint = constraint_of(gbnf, tokens);
  EXPECT_EQ(allowed_texts(constraint, *tokens), (std::vector<std::string>{"{", "{\""}));
}

TEST(Constraint, AmbiguityDoesNotMultiply) {
  const Tokenizer tokenizer(vocabulary_with(kPieces), "test");
  const auto tokens = trie_of(tokenizer);
  // Each letter may have been either of two, so that there are 2^n ways to have come here.
  Constraint constraint = constraint_of(
      "root ::= s\ns ::= \"a\" s \"b\" | \"a\" s \"é\" | \"a\" \"a\"* s | \"a\"", tokens);
  for (int i = 0; i < 200; ++i) constraint.accept('a');
  EXPECT_TRUE(is_allowed(constraint.allowed(), 'b'));
  for (int i = 0; i < 100; ++i) constraint.accept('b');
  EXPECT_TRUE(constraint.is_complete());
  EXPECT_FALSE(is_allowed(constraint.allowed(), 'a'));
}

TEST(Constraint, GoesOnAfterItForgot) {
  const Tokenizer tokenizer(vocabulary_with(kPieces), "test");
  GrammarMatcher matcher(std::make_shared<const Grammar>("root ::= \"a\" root \"b\" | \"é\""));
  auto place = matcher.start();
  const auto follow = [&](std::string_view text) {
    for (const char byte : text) place = matcher.next(place, static_cast<uint8_t>(byte));
  };
  for (int i = 0; i < 3000; ++i) follow("a");
  const size_t before = matcher.bytes();
  follow("\xC3");
  place = matcher.forget_but(place);
  EXPECT_LT(matcher.bytes(), before + 4096);
  follow("\xA9");
  for (int i = 0; i < 3000; ++i) {
    ASSERT_FALSE(matcher.may_end(place));
    follow("b");
  }
  EXPECT_TRUE(matcher.may_end(place));
  place = matcher.start();
  follow("aéb");
  EXPECT_TRUE(matcher.may_end(place));
}

TEST(Constraint, SpecialTokensAreNoText) {
  const Tokenizer tokenizer(vocabulary_with({}), "test");
  const auto tokens = trie_of(tokenizer);
  const auto special = [&](const char* text) { return tokenizer.find(text); };
  Constraint any = constraint_of("root ::= .*", tokens);
  EXPECT_FALSE(is_allowed(any.allowed(), special("<|begin|>")));
  EXPECT_TRUE(is_allowed(any.allowed(), special("<|end|>")));
  EXPECT_TRUE(is_allowed(any.allowed(), special("<tool>")));
  any.accept(special("<|end|>"));  // as when a caller ignores it
  EXPECT_TRUE(is_allowed(any.allowed(), 'x'));
  Constraint tool = constraint_of("root ::= \"<tool>\" \"<|end|>\"", tokens);
  EXPECT_FALSE(is_allowed(tool.allowed(), special("<|end|>")));
  tool.accept(special("<tool>"));
  EXPECT_EQ(allowed_texts(tool, *tokens), (std::vector<std::string>{"<"}));
}

// The space that SentencePiece puts before a text is not shown, and so no part of the answer.
TEST(Constraint, TheDummySpaceIsNotTheText) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"yes", "_yes", "_"}), "test");
  const auto tokens = trie_of(tokenizer);
  Constraint constraint = constraint_of("root ::= \"yes\" \" yes\"", tokens);
  const Token yes = tokenizer.find("yes"), with_space = tokenizer.find("\u2581yes");
  EXPECT_TRUE(is_allowed(constraint.allowed(), yes));
  EXPECT_TRUE(is_allowed(constraint.allowed(), with_space));
  constraint.accept(with_space);
  EXPECT_FALSE(is_allowed(constraint.allowed(), yes));
  EXPECT_TRUE(is_allowed(constraint.allowed(), with_space));
  constraint.accept(with_space);
  EXPECT_TRUE(constraint.is_complete());
  EXPECT_EQ(tokenizer.decode({with_space, with_space}), "yes yes");
}

TEST(Constraint, BoundsTheSampler) {
  const Tokenizer tokenizer(vocabulary_with({"no", "yes"}), "test");
  const auto tokens = trie_of(tokenizer);
  const auto grammar = std::make_shared<const Grammar>("root ::= \"yes\" | \"no\"");
  const Token no = tokenizer.find("no"), yes = tokenizer.find("yes");
  std::vector<float> logits(tokenizer.size() + 100, 5.0f);  // padded, as some models' are
  for (const char letter : {'n', 'y'}) logits[static_cast<size_t>(letter)] = -10;
  logits[static_cast<size_t>(no)] = -3;
  logits[static_cast<size_t>(yes)] = -4;
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerOptions options;
    options.temperature = temperature;
    options.top_k = 1;  // of what is allowed
    options.logit_bias = {{'q', 1000.0f}};
    Sampler sampler(options);
    sampler.accept('y');  // of the prompt
    sampler.constrain(std::make_shared<Constraint>(grammar, tokens));
    const Token first = sampler.sample(logits);
    EXPECT_EQ(first, no);
    sampler.accept(first);
    EXPECT_TRUE(tokenizer.is_eos(sampler.sample(logits)));
    sampler.constrain(nullptr);
    EXPECT_EQ(sampler.sample(logits), 'q');
  }
}

TEST(Constraint, WithoutATokenThatGoesOnThereIsAnError) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"a"}), "test");
  Vocabulary without_bytes = tokenizer.vocabulary();
  without_bytes.byte_tokens.clear();
  for (size_t i = 3; i < 259; ++i) without_bytes.pieces[i] = "pad" + std::to_string(i);
  const Tokenizer few(without_bytes, "test");
  Sampler sampler({});
  sampler.constrain(std::make_shared<Constraint>(std::make_shared<const Grammar>("root ::= \"z\""),
                                                 trie_of(few)));
  EXPECT_THROW(sampler.sample(std::vector<float>(few.size(), 0.0f)), Error);
}

}  // namespace
}  // namespace tyto
