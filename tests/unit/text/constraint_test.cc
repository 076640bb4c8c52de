#include "text/grammar/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
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

TEST(Constraint, WhatContinuesATextKeepsItsSpace) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"yes", "_yes", "_"}), "test");
  const auto tokens = trie_of(tokenizer);
  Constraint constraint(std::make_shared<const Grammar>("root ::= \" yes\""), tokens,
                        {.thoughts = {}, .continues_text = true});
  EXPECT_EQ(allowed_texts(constraint, *tokens), (std::vector<std::string>{" ", " yes", " "}));
}

// Thinks in the given pieces, each of which must be a token, and gives what is allowed then.
struct Thinking {
  Thinking(const Vocabulary& vocabulary, const std::string& gbnf, std::string_view prompt)
      : tokenizer(vocabulary, "test"),
        tokens(trie_of(tokenizer)),
        constraint(std::make_shared<const Grammar>(gbnf), tokens,
                   {.thoughts = thoughts_ahead(tokenizer, prompt)}) {}

  Token token(const std::string& text) const {
    const Token whole = tokenizer.find(text);
    return whole >= 0 ? whole : tokenizer.find(to_byte_level(text));
  }
  bool allows(const std::string& text) { return is_allowed(constraint.allowed(), token(text)); }
  bool allows_end() { return is_allowed(constraint.allowed(), tokenizer.vocabulary().eos[0]); }
  void write(const std::vector<std::string>& pieces) {
    for (const std::string& piece : pieces) {
      ASSERT_TRUE(allows(piece)) << piece;
      constraint.accept(token(piece));
    }
  }

  const Tokenizer tokenizer;
  const std::shared_ptr<const TokenTrie> tokens;
  Constraint constraint;
};

constexpr const char* kYes = "root ::= \"yes\"";
constexpr const char* kThinkPrompt = "<assistant>\n<think>\n";

TEST(Constraint, BeginsBehindTheThoughts) {
  Thinking to(vocabulary_with({"</", "think", ">\n\n", ">y", ">no", "think>yes", "x>y"}), kYes,
              kThinkPrompt);
  EXPECT_FALSE(to.constraint.is_complete());
  to.write({"h", "m", "x>y", "</", "x", ">no"});
  EXPECT_FALSE(to.allows_end());
  to.write({"</"});
  EXPECT_TRUE(to.allows("think>yes"));
  EXPECT_TRUE(to.allows("<"));
  to.write({"think"});
  EXPECT_TRUE(to.allows(">"));
  EXPECT_TRUE(to.allows(">y"));
  EXPECT_FALSE(to.allows(">no"));
  EXPECT_TRUE(to.allows("x"));
  to.write({">\n\n", "\n"});
  EXPECT_FALSE(to.allows("x"));
  EXPECT_FALSE(to.allows_end());
  to.write({"y", "e", "s"});
  EXPECT_TRUE(to.allows_end());
  EXPECT_TRUE(to.constraint.is_complete());
  EXPECT_EQ(allowed_texts(to.constraint, *to.tokens), (std::vector<std::string>{""}));
}

TEST(Constraint, BytesBehindTheEndOfAThoughtAreTheAnswers) {
  Thinking to(vocabulary_with({">ye"}), kYes, kThinkPrompt);
  to.write({"<", "/", "t", "h", "i", "n", "k", ">ye"});
  EXPECT_EQ(allowed_texts(to.constraint, *to.tokens), (std::vector<std::string>{"s"}));
}

TEST(Constraint, WhiteSpaceBehindThoughtsHasAnEnd) {
  Thinking to(vocabulary_with({}), kYes, kThinkPrompt);
  to.write({"<", "/", "t", "h", "i", "n", "k", ">", "\n", " ", "\t", "\r"});
  EXPECT_EQ(allowed_texts(to.constraint, *to.tokens), (std::vector<std::string>{"y"}));
  Thinking own(vocabulary_with({}), "root ::= \"\\n\" \"yes\"", kThinkPrompt);
  own.write({"<", "/", "t", "h", "i", "n", "k", ">", " ", "\n"});
  EXPECT_EQ(allowed_texts(own.constraint, *own.tokens), (std::vector<std::string>{"y"}));
}

Vocabulary vocabulary_with_markers(const std::vector<std::string>& markers, bool special) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  for (const std::string& text : markers) {
    vocabulary.added.push_back({static_cast<Token>(vocabulary.pieces.size()), text, special});
    vocabulary.pieces.push_back(text);
  }
  return vocabulary;
}

TEST(Constraint, TheModelMayOpenAThought) {
  for (const bool special : {false, true}) {
    const Vocabulary vocabulary = vocabulary_with_markers({"<think>", "</think>"}, special);
    Thinking to(vocabulary, kYes, "<assistant>");
    EXPECT_TRUE(to.allows("y"));
    EXPECT_FALSE(to.allows("n"));
    EXPECT_FALSE(to.allows("</think>"));
    to.write({"<think>", "n", "o", "</think>"});
    EXPECT_FALSE(to.allows("<think>"));
    to.write({"y", "e", "s"});
    EXPECT_TRUE(to.allows_end());
    Thinking at_once(vocabulary, kYes, "<assistant>");
    at_once.write({"y"});
    EXPECT_EQ(allowed_texts(at_once.constraint, *at_once.tokens), (std::vector<std::string>{"e"}));
    // A call in Hermes' way begins like a thought.
    Thinking call(vocabulary, "root ::= \"<tool_call>\" | \"\"", "<assistant>");
    EXPECT_TRUE(call.allows_end());
    call.write({"<think>"});
    EXPECT_FALSE(call.allows_end());
    call.write({"</think>", "<"});
    EXPECT_EQ(allowed_texts(call.constraint, *call.tokens), (std::vector<std::string>{"t"}));
  }
}

TEST(Constraint, AGrammarMayDescribeThoughtsItself) {
  Thinking to(vocabulary_with_markers({"<think>", "</think>"}, false),
              "root ::= \"<think>\" \"a\"? \"</think>\" \"yes\"", "<assistant>");
  to.write({"<think>"});
  EXPECT_FALSE(to.allows("b"));
  to.write({"a", "</think>", "y"});
}

TEST(Constraint, BeginsInTheFinalChannel) {
  Vocabulary vocabulary = vocabulary_with_markers(
      {"<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|return|>", "<|call|>"}, true);
  settle_harmony_ends(vocabulary);
  ASSERT_EQ(vocabulary.eos.size(), 2u);
  Thinking to(vocabulary, kYes, "<|start|>assistant");
  EXPECT_FALSE(to.allows("y"));
  EXPECT_FALSE(to.allows("<|end|>"));
  to.write({"<|channel|>", "a", "n", "<|message|>", "n", "o"});
  EXPECT_FALSE(to.allows_end());
  EXPECT_FALSE(to.allows("<|call|>"));
  to.write({"<|end|>"});
  EXPECT_FALSE(to.allows("y"));
  to.write({"<|start|>", "a", "<|channel|>", "f", "i", "n", "a", "l", " ", "<|constrain|>", "j"});
  to.write({"<|message|>"});
  EXPECT_EQ(allowed_texts(to.constraint, *to.tokens), (std::vector<std::string>{"y"}));
  to.write({"y", "e", "s"});
  EXPECT_TRUE(to.allows_end());
  EXPECT_FALSE(to.allows("<|end|>"));
}

// Whatever is allowed is chosen: what a divider takes for the answer is always the beginning of a
// sentence, and the text can only end where it is a whole one.
TEST(Constraint, AgreesWithTheDivider) {
  const std::string gbnf = "root ::= \"yes\" (\" \" \"yes\")* | \"<y>\" | \"\\n\" \"no\"";
  const std::vector<std::string> pieces = {"</",   "think",    "think>", ">y",  ">\n",
                                           "> <",  "</think",  ">x",     "yes", "</think>y",
                                           "<|me", "ssage|>y", "final",  "<y>", " <think>"};
  for (const bool is_harmony : {false, true})
    for (const char* prompt : {"", "<think>", "<|start|>assistant<|channel|>final"}) {
      Vocabulary vocabulary = vocabulary_with_markers(
          is_harmony ? std::vector<std::string>{"<|start|>", "<|channel|>", "<|message|>",
                                                "<|constrain|>", "<|return|>", "<|call|>"}
                     : std::vector<std::string>{"<think>", "</think>"},
          true);
      settle_harmony_ends(vocabulary);
      for (const std::string& piece : pieces) vocabulary.pieces.push_back(to_byte_level(piece));
      const Tokenizer tokenizer(vocabulary, "test");
      const auto tokens = trie_of(tokenizer);
      const auto grammar = std::make_shared<const Grammar>(gbnf);
      GrammarOracle oracle(gbnf);
      ByteStream random(11);
      int ended = 0;
      for (int answer = 0; answer < 100; ++answer) {
        Constraint constraint(grammar, tokens, {.thoughts = thoughts_ahead(tokenizer, prompt)});
        ReasoningStream stream(thought_format(tokenizer), prompt, true);
        Detokenizer text(tokenizer, true, special_thought_markers(tokenizer));
        std::string content;
        for (int step = 0; step < 30; ++step) {
          const auto mask = constraint.allowed();
          std::vector<Token> choices;  // markers and what spells them are more probable
          for (Token token = 0; static_cast<size_t>(token) < tokenizer.size(); ++token)
            if (is_allowed(mask, token)) choices.insert(choices.end(), token < 256 ? 1 : 20, token);
          ASSERT_FALSE(choices.empty());
          const Token chosen = choices[random.below(static_cast<uint32_t>(choices.size()))];
          if (tokenizer.is_eos(chosen)) {
            ++ended;
            content += stream.finish().content;
            EXPECT_TRUE(oracle.is_sentence(content) || oracle.is_sentence("\n" + content))
                << content;
            break;
          }
          constraint.accept(chosen);
          content += stream.push(text.push(chosen)).content;
          ASSERT_TRUE(oracle.is_prefix(content) || oracle.is_prefix("\n" + content)) << content;
        }
      }
      EXPECT_GT(ended, 0) << is_harmony << prompt;
    }
}

// Two answers to one prompt each have a constraint of their own, made from the same beginning.
TEST(Constraint, BeginningsAreCopied) {
  const Tokenizer tokenizer(vocabulary_with({}), "test");
  const auto tokens = trie_of(tokenizer);
  const auto grammar = std::make_shared<const Grammar>(kYes);
  const AnswerPlace begin{.thoughts = thoughts_ahead(tokenizer, kThinkPrompt)};
  Constraint one(grammar, tokens, begin), other(grammar, tokens, begin);
  for (const char c : std::string("</think>")) one.accept(c);
  EXPECT_FALSE(is_allowed(one.allowed(), 'x'));
  EXPECT_TRUE(is_allowed(other.allowed(), 'x'));
}

}  // namespace
}  // namespace tyto
