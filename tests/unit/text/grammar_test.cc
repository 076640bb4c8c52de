#include "text/grammar/grammar.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "base/error.h"
#include "support/expect_error.h"
#include "text/grammar/constraint.h"

namespace tyto {
namespace {

std::string refusal(const std::string& gbnf) {
  try {
    (void)Grammar(gbnf);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

enum class Match { no, prefix, sentence };

Match match(const std::string& gbnf, std::string_view text) {
  GrammarMatcher matcher(std::make_shared<const Grammar>(gbnf));
  auto place = matcher.start();
  for (const char byte : text) place = matcher.next(place, static_cast<uint8_t>(byte));
  if (place == GrammarMatcher::kNowhere) return Match::no;
  return matcher.may_end(place) ? Match::sentence : Match::prefix;
}

TEST(Grammar, TextsAndEscapes) {
  const std::string gbnf = R"(root ::= "a\n\t\"\\\x41\u00e9\U0001F600" "[]")";
  EXPECT_EQ(match(gbnf, "a\n\t\"\\Aé😀[]"), Match::sentence);
  EXPECT_EQ(match(gbnf, "a\n\t\"\\Aé\xF0\x9F"), Match::prefix);
  EXPECT_EQ(match(gbnf, "a\n\t\"\\B"), Match::no);
}

TEST(Grammar, ClassesMatchCharactersAndNotBytes) {
  EXPECT_EQ(match("root ::= [a-c-]", "-"), Match::sentence);
  EXPECT_EQ(match("root ::= [a-c]", "d"), Match::no);
  EXPECT_EQ(match(R"(root ::= [\]\\\x00-\x1f])", "]"), Match::sentence);
  EXPECT_EQ(match("root ::= [^a-c]", "b"), Match::no);
  EXPECT_EQ(match("root ::= [^a-c]", "é"), Match::sentence);
  EXPECT_EQ(match("root ::= [^é]", "\xC3"), Match::prefix);
  EXPECT_EQ(match("root ::= [^é]", "é"), Match::no);
  EXPECT_EQ(match("root ::= [α-ω]+", "αλφα"), Match::sentence);
  EXPECT_EQ(match("root ::= .", "\n"), Match::sentence);
  EXPECT_EQ(match("root ::= .", "\U0010FFFF"), Match::sentence);
  EXPECT_EQ(match("root ::= .", "\xED\xA0"), Match::no) << "a surrogate is no character";
  EXPECT_EQ(match("root ::= .", "\xC0"), Match::no) << "overlong";
}

TEST(Grammar, RepetitionsTakeAsManyAsTheySay) {
  for (const auto& [times, least, most] :
       std::vector<std::tuple<std::string, int, int>>{{"*", 0, 9},
                                                      {"+", 1, 9},
                                                      {"?", 0, 1},
                                                      {"{3}", 3, 3},
                                                      {"{2,}", 2, 9},
                                                      {"{1,4}", 1, 4},
                                                      {"{0,2}", 0, 2},
                                                      {"{0}", 0, 0},
                                                      {"{ 1 , 2 }", 1, 2}})
    for (int count = 0; count < 8; ++count) {
      std::string text;
      for (int i = 0; i < count; ++i) text += "ab";
      const Match expected = count < least   ? Match::prefix
                             : count <= most ? Match::sentence
                                             : Match::no;
      EXPECT_EQ(match("root ::= \"ab\"" + times, text), expected) << times << " of " << count;
      EXPECT_EQ(match("root ::= ab" + times + "\nab ::= \"ab\"", text), expected)
          << times << " of " << count << " of a rule";
    }
}

TEST(Grammar, RulesGroupsAndLines) {
  const std::string gbnf =
      "# a list\nroot ::=\n  \"[\" ( # items\n    item (\",\" item)*\n  )? \"]\"\n"
      "item ::= num\n  | \"-\" num |\n  root\nnum ::= [0-9]+";
  EXPECT_EQ(match(gbnf, "[1,-22,[],[3]]"), Match::sentence);
  EXPECT_EQ(match(gbnf, "[1,[2"), Match::prefix);
  EXPECT_EQ(match(gbnf, "[1,]"), Match::no);
  EXPECT_EQ(match("root ::= \"a\" | ", ""), Match::sentence);
}

TEST(Grammar, WhatMayBeEmpty) {
  const std::string gbnf = "root ::= a a \"x\" a\na ::= b? c\nb ::= \"b\"*\nc ::= \"c\" |";
  EXPECT_EQ(match(gbnf, "x"), Match::sentence);
  EXPECT_EQ(match(gbnf, "bbcbxbc"), Match::sentence);
  EXPECT_EQ(match(gbnf, "ccc"), Match::no);
  EXPECT_EQ(match("root ::= (\"\")* (\"a\"*)* ((\"\" | \"b\")+)?", "aab"), Match::sentence);
}

// What can never be finished is not begun.
TEST(Grammar, DeadEnds) {
  EXPECT_EQ(match("root ::= \"a\" endless | \"b\"\nendless ::= \"c\" endless", "a"), Match::no);
  EXPECT_EQ(match("root ::= \"a\" \"b\" [] | \"b\"", "a"), Match::no);
  EXPECT_EQ(refusal("root ::= \"a\" root"), "grammar: no text that ends matches the rule \"root\"");
}

TEST(Grammar, RefusalsNameTheLineAndTheFault) {
  EXPECT_EQ(refusal("root ::= \"a\"\nroot ::= \"b\""),
            "grammar: line 2: the rule \"root\" is there twice");
  EXPECT_EQ(refusal("root ::= \"a\"\n  b"), "grammar: line 2: there is no rule \"b\"");
  EXPECT_EQ(refusal("a ::= \"a\""), "grammar: there is no rule \"root\"");
  EXPECT_EQ(refusal(""), "grammar: there is no rule \"root\"");
  EXPECT_EQ(refusal("root ::=\n\n \"a"), "grammar: line 3: a text or class is not closed");
  EXPECT_EQ(refusal("root ::= (\"a\""), "grammar: line 1: a group is not closed");
  EXPECT_EQ(refusal("root ::= \"a\")"),
            "grammar: line 1: expected a rule (name ::= ...), found \")\"");
  EXPECT_EQ(refusal("root ::= \"\\q\""), "grammar: line 1: unknown escape \"\\q\"");
  EXPECT_EQ(refusal("root ::= [z-a]"), "grammar: line 1: a range ends before it begins");
  EXPECT_EQ(refusal("root ::= \"a\"{3,2}"), "grammar: line 1: 3 to 2 times is not a repetition");
  EXPECT_EQ(refusal("root ::= \"a\"{x}"), "grammar: line 1: expected a number, found \"x}\"");
  EXPECT_NE(refusal("root ::= \"\xff\"").find("not UTF-8"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"\\ud800\"").find("surrogate"), std::string::npos);
  EXPECT_NE(refusal("root ::= <think>").find("tokens in a grammar"), std::string::npos);
  EXPECT_NE(refusal("root ::= \"a\"**").find("repeated"), std::string::npos);
}

TEST(Grammar, LeftRecursion) {
  EXPECT_EQ(refusal("root ::= e\ne ::= e \"+\" n | n\nn ::= [0-9]"),
            "grammar: line 2: the rule \"e\" may begin with itself");
  EXPECT_EQ(refusal("root ::= a\na ::= n? b \"x\"\nb ::= (\"\" | n) c\nc ::= a | n\nn ::= \"1\"")
                .substr(0, 15),
            "grammar: line 2");
  EXPECT_EQ(refusal("root ::= n | n root\nn ::= \"1\"*"),
            "grammar: line 1: the rule \"root\" may begin with itself");
  EXPECT_EQ(refusal("root ::= \"a\"\nunused ::= unused \"b\""), "");
}

// None of these may take long or much memory.
TEST(Grammar, HostileSizes) {
  EXPECT_NE(refusal("root ::= \"a\"{1,1000000}").find("more than 65536"), std::string::npos);
  EXPECT_NE(refusal("root ::= ((\"a\"{1,60000}){1,60000}){1,60000}").find("too large"),
            std::string::npos);
  EXPECT_NE(refusal("root ::= (((\"\"){60000}){60000}){60000}").find("too large"),
            std::string::npos);
  EXPECT_NE(refusal("root ::= (\"a\"? \"b\"?){20000}").find("too large"), std::string::npos);
  EXPECT_NE(refusal("root ::= " + std::string(200, '(') + "\"a\"" + std::string(200, ')'))
                .find("deeper than 64"),
            std::string::npos);
  EXPECT_NE(refusal("root ::= \"" + std::string(600 << 10, 'a') + "\"").find("bytes are more"),
            std::string::npos);
  std::string many = "root ::= r0\n";
  for (int i = 0; i < 9000; ++i) many += fmt::format("r{} ::= \"a\" r{}\n", i, i + 1);
  EXPECT_NE(refusal(many).find("more than 8192 rules"), std::string::npos);
  // A chain of rules as long as may be, each beginning with the next.
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 8000; ++i) chain += fmt::format("r{} ::= r{} | \"b\"\n", i, i + 1);
  chain += "r8000 ::= \"a\"";
  EXPECT_EQ(match(chain, "a"), Match::sentence);
  EXPECT_EQ(match("root ::= [a-z]{0,60000}", "hello"), Match::sentence);
}

TEST(Grammar, AmbiguityHasALimit) {
  const auto follow = [](const std::string& gbnf) {
    GrammarMatcher matcher(std::make_shared<const Grammar>(gbnf));
    auto place = matcher.start();
    for (int i = 0; i < 100000; ++i) place = matcher.next(place, 'a');
  };
  // After n letters there are n places to have begun each of many loops.
  EXPECT_ERROR(follow("root ::= s\ns ::= \"a\" s s | \"a\" s \"b\" s | \"a\""),
               "one token takes more than 2000000 steps");
  // Each of many places leads to all that come after it.
  EXPECT_ERROR(follow("root ::= (\"a\"?){1500}"), "too much of it may be left out");
  EXPECT_NO_THROW(follow("root ::= root2\nroot2 ::= \"a\"* \"a\"* | \"a\" root2"));
}

TEST(Utf8Ranges, SpellEveryCharacterOnce) {
  const CharacterRange range{0x61, 0x10123};
  std::vector<ByteRanges> sequences = utf8_sequences(range);
  uint64_t spelled = 0;
  for (const ByteRanges& sequence : sequences) {
    uint64_t count = 1;
    for (const ByteInterval& bytes : sequence) count *= uint64_t{bytes.last} - bytes.first + 1;
    spelled += count;
  }
  EXPECT_EQ(spelled, uint64_t{range.last} - range.first + 1 - 0x800);  // without surrogates
}

}  // namespace
}  // namespace tyto
