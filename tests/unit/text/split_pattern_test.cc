#include "text/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support/expect_error.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

using SplitParts = std::vector<std::string>;

SplitParts split(const std::vector<std::string>& patterns, std::string_view text) {
  MatchScratch scratch;
  std::vector<uint32_t> ends = {static_cast<uint32_t>(text.size())};
  for (const std::string& pattern : patterns)
    SplitPattern(pattern, "test").split(text, scratch, ends);
  SplitParts parts;
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

SplitParts pre_tokenize(const std::string& name, std::string_view text) {
  return split(pre_tokenizer_by_name(name, "test").split_patterns, text);
}

SplitParts llama3(std::string_view text) {
  return pre_tokenize("llama-bpe", text);
}
SplitParts qwen2(std::string_view text) {
  return pre_tokenize("qwen2", text);
}
SplitParts gpt2(std::string_view text) {
  return pre_tokenize("gpt-2", text);
}

TEST(PreTokenizer, NumbersAreCutAsEachModelCutsThem) {
  EXPECT_EQ(llama3("1234567"), (SplitParts{"123", "456", "7"}));
  EXPECT_EQ(qwen2("123"), (SplitParts{"1", "2", "3"}));
  EXPECT_EQ(gpt2("1234567"), (SplitParts{"1234567"}));
  EXPECT_EQ(llama3("x 12"), (SplitParts{"x", " ", "12"}));
  EXPECT_EQ(gpt2("x 12"), (SplitParts{"x", " 12"}));
  EXPECT_EQ(pre_tokenize("smollm", "x 12"), (SplitParts{"x", " ", "1", "2"}));
  EXPECT_EQ(pre_tokenize("default", "a12345"), (SplitParts{"a", "123", "45"}));
  // Fractions, Roman and circled numerals and superscripts are numbers (Nl, No), not letters.
  EXPECT_EQ(llama3("\u00BD\u2177\u2460\u00B2"), (SplitParts{"\u00BD\u2177\u2460", "\u00B2"}));
  EXPECT_EQ(llama3("\u0663\u0664\u0665\u0666"), (SplitParts{"\u0663\u0664\u0665", "\u0666"}));
}

TEST(PreTokenizer, ContractionsAreCutAsEachModelCutsThem) {
  EXPECT_EQ(llama3("don't DON'T we'Ve"), (SplitParts{"don", "'t", " DON", "'T", " we", "'Ve"}));
  EXPECT_EQ(qwen2("I'LL"), (SplitParts{"I", "'LL"}));
  EXPECT_EQ(gpt2("don't DON'T"), (SplitParts{"don", "'t", " DON", "'", "T"}));
  EXPECT_EQ(llama3("'x"), (SplitParts{"'x"}));
  EXPECT_EQ(gpt2("'x"), (SplitParts{"'", "x"}));
  EXPECT_EQ(llama3("'\u017Fx"), (SplitParts{"'\u017F", "x"}));  // LONG S is a small s to (?i:)
}

TEST(PreTokenizer, LettersTakeOneCharacterBeforeThem) {
  EXPECT_EQ(llama3("(hello)"), (SplitParts{"(hello", ")"}));
  EXPECT_EQ(gpt2("(hello)"), (SplitParts{"(", "hello", ")"}));
  EXPECT_EQ(llama3("\thello"), (SplitParts{"\thello"}));
  EXPECT_EQ(gpt2("\thello"), (SplitParts{"\t", "hello"}));
  EXPECT_EQ(llama3("a\u00A0b"), (SplitParts{"a", "\u00A0b"}));
  EXPECT_EQ(gpt2("a\u00A0b"), (SplitParts{"a", "\u00A0", "b"}));
}

TEST(PreTokenizer, MarksAreNotLetters) {
  // U+0345 is Alphabetic but not \p{L}: a class built from isalpha() would swallow it.
  EXPECT_EQ(llama3("a\u0345b"), (SplitParts{"a", "\u0345b"}));
  EXPECT_EQ(gpt2("a\u0345b"), (SplitParts{"a", "\u0345", "b"}));
  EXPECT_EQ(llama3("e\u0301a"), (SplitParts{"e", "\u0301a"}));
  EXPECT_EQ(pre_tokenize("qwen35", "e\u0301a"), (SplitParts{"e\u0301a"}));
  // Circled letters are symbols (So) though Alphabetic; modifier letters (Lm) are letters.
  EXPECT_EQ(gpt2("a\u24B6"), (SplitParts{"a", "\u24B6"}));
  EXPECT_EQ(gpt2("a\u02B0"), (SplitParts{"a\u02B0"}));
  EXPECT_EQ(gpt2("\u0915\u094D\u0937"), (SplitParts{"\u0915", "\u094D", "\u0937"}));
}

TEST(PreTokenizer, EastAsianTextAndEmoji) {
  EXPECT_EQ(llama3("\u4F60\u597D\uFF0C\u4E16\u754C"),
            (SplitParts{"\u4F60\u597D", "\uFF0C\u4E16\u754C"}));
  EXPECT_EQ(gpt2("\u4F60\u597D\uFF0C\u4E16\u754C"),
            (SplitParts{"\u4F60\u597D", "\uFF0C", "\u4E16\u754C"}));
  EXPECT_EQ(llama3("hi \U0001F642\U0001F642x"), (SplitParts{"hi", " \U0001F642\U0001F642", "x"}));
  EXPECT_EQ(llama3("\U0001F468\u200D\U0001F469"), (SplitParts{"\U0001F468\u200D\U0001F469"}));
}

TEST(PreTokenizer, WhiteSpace) {
  EXPECT_EQ(llama3("a  b"), (SplitParts{"a", " ", " b"}));
  EXPECT_EQ(llama3("a   "), (SplitParts{"a", "   "}));
  EXPECT_EQ(gpt2("a   "), (SplitParts{"a", "   "}));
  EXPECT_EQ(llama3("a \n\n b"), (SplitParts{"a", " \n\n", " b"}));
  EXPECT_EQ(gpt2("a \n\n b"), (SplitParts{"a", " \n\n", " b"}));
  EXPECT_EQ(llama3("a\n\n  b"), (SplitParts{"a", "\n\n", " ", " b"}));
  EXPECT_EQ(gpt2("a\n\n  b"), (SplitParts{"a", "\n\n ", " b"}));
  EXPECT_EQ(llama3("a\r\nb"), (SplitParts{"a", "\r\n", "b"}));
  EXPECT_EQ(gpt2("a\r\nb"), (SplitParts{"a", "\r", "\n", "b"}));
  EXPECT_EQ(llama3("!\n\nx"), (SplitParts{"!\n\n", "x"}));
  EXPECT_EQ(qwen2(";\r\n}"), (SplitParts{";\r\n", "}"}));
  EXPECT_EQ(gpt2("!\n\nx"), (SplitParts{"!", "\n", "\n", "x"}));
}

TEST(PreTokenizer, WhiteSpaceIsTheUnicodeProperty) {
  EXPECT_EQ(llama3("!\u0085!"), (SplitParts{"!", "\u0085", "!"}));  // NEXT LINE
  EXPECT_EQ(llama3("!\u3000!"), (SplitParts{"!", "\u3000", "!"}));
  EXPECT_EQ(llama3("!\u180E!"), (SplitParts{"!\u180E!"}));  // no longer a space since Unicode 6.3
  EXPECT_EQ(llama3("!\u200B!"), (SplitParts{"!\u200B!"}));  // ZERO WIDTH SPACE is not one either
}

TEST(PreTokenizer, OtherNames) {
  EXPECT_EQ(pre_tokenize("tekken", "HelloWorld"), (SplitParts{"Hello", "World"}));
  EXPECT_EQ(pre_tokenize("falcon", "a...12345"), (SplitParts{"a", "...", "123", "45"}));
  EXPECT_EQ(pre_tokenize("deepseek-coder", "a b\n12"), (SplitParts{"a", " b", "\n", "1", "2"}));
  // The distils of DeepSeek-R1 from Qwen; those from Llama have Llama's own.
  EXPECT_EQ(pre_tokenize("deepseek-r1-qwen", "it's 12"), (SplitParts{"it", "'s", " ", "1", "2"}));
  EXPECT_TRUE(pre_tokenizer_by_name("llama-bpe", "t").ignore_merges);
  EXPECT_TRUE(pre_tokenizer_by_name("llama-bpe", "t").add_bos);
  EXPECT_EQ(pre_tokenizer_by_name("qwen2", "t").normalizers, std::vector{Normalizer::nfc});
  EXPECT_FALSE(pre_tokenizer_by_name("gpt-2", "t").ignore_merges);
  try {
    pre_tokenizer_by_name("klingon", "model.gguf: tokenizer.ggml.pre");
    FAIL() << "an unknown name was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("model.gguf: tokenizer.ggml.pre"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("klingon"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("deepseek-llm"), std::string::npos);  // what there is
  }
  EXPECT_ERROR(pre_tokenizer_by_name("", "t"), "pre-tokeniser \"\" is not known");
  EXPECT_ERROR(pre_tokenizer_by_name("llama-bpe llama3", "t"), "\"llama-bpe llama3\" is not known");
}

// What sets each of the others apart.
TEST(PreTokenizer, EveryFamily) {
  const struct {
    const char* name;
    const char* text;
    SplitParts parts;
  } cases[] = {
      {"dbrx", "ab1234", {"ab", "123", "4"}},
      {"glm4", "I'M 12", {"I", "'M", " ", "12"}},
      {"jais-2", "a\u0020\u0020\u0020\u0020\u0020b", {"a", "    ", " b"}},
      {"minicpm5", "12345 x", {"123", "45", " x"}},
      {"laguna", "a\n\nb", {"a", "\n\n", "b"}},
      {"ufakzeka", "Ankara'da", {"Ankara", "'da"}},
      {"seed-coder", "a;\n1", {"a", ";", "\n", "1"}},
      {"bailingmoe", "it'S\n\n x", {"it", "'S", "\n\n", " x"}},
      {"exaone-moe", "! one two  three", {"!", " one two", " ", " three"}},
      {"gpt-4o", "HTMLPage'S 1234//\n", {"HTMLPage'S", " ", "123", "4", "//\n"}},
      {"gpt-4o", "camelCase", {"camel", "Case"}},
      {"tiny_aya", "1234567 1234x", {"1", "234", "567", " ", "123", "4", "x"}},
      {"youtu", "a\uAC00\u3001x12", {"a", "\uAC00", "\u3001", "x", "1", "2"}},
      {"kimi-k2", "\u6F22\u5B57abc \u6F22x", {"\u6F22\u5B57", "abc", " ", "\u6F22", "x"}},
      {"chameleon", "a  b1.", {"a", "  ", "b", "1", "."}},
      {"bloom", "Hello, world!", {"Hello", ",", " world", "!"}},
      {"viking", "a12", {"a", "1", "2"}},
      {"superbpe", "by the way 12345", {"by the way ", "12", "345"}},
      {"deepseek-llm",
       "a \u00E9! \u4F60 12 ",
       {"a", " \u00E9", "!", " ", "\u4F60", " ", "12", " "}},
      {"deepseek-v3", "1234\u3042.abc", {"123", "4", "\u3042", ".abc"}},
      {"spark2_5", "a\n\nb", {"a", "\n", "\n", "b"}},
      {"afmoe", "1234567", {"1", "234", "567"}},
      {"gemma4", "a\u2581b\n\nc", {"a\u2581b", "\n\n", "c"}},
      {"falcon3", "12345", {"123", "45"}},
      {"mellum2", "a12", {"a", "1", "2"}},
      {"granite-docling", "a 12", {"a", " 12"}},
  };
  for (const auto& [name, text, parts] : cases)
    EXPECT_EQ(pre_tokenize(name, text), parts) << name << ": " << text;
  EXPECT_TRUE(pre_tokenizer_by_name("gemma4", "t").marks_spaces);
  EXPECT_TRUE(pre_tokenizer_by_name("gemma4", "t").always_bos);
  EXPECT_FALSE(pre_tokenizer_by_name("sarvam-moe", "t").always_bos);
  EXPECT_TRUE(pre_tokenizer_by_name("chameleon", "t").add_bos);
  EXPECT_TRUE(pre_tokenizer_by_name("youtu", "t").ignore_merges);
}

// The patterns as they are written, against what is done by hand for them.
TEST(PreTokenizer, GroupedNumbersAsTheirPatternsSay) {
  const std::string pool[] = {"1", "2", "3", "\u0664", "\u00BD", "a", "_", " ", ".", "\u00E9"};
  for (const std::string_view pattern :
       {kGroupedNumberPattern, kGroupedDigitPattern, kGroupedWholeNumberPattern}) {
    uint32_t state = 7;
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (int i = 0; i < 14; ++i) {
        state = state * 1664525u + 1013904223u;
        const uint32_t pick = (state >> 10) % 16;
        text += pool[pick < 10 ? pick : pick % 3];
      }
      // Another spelling of the pattern, which nothing knows by heart.
      ASSERT_EQ(split({std::string(pattern)}, text),
                split({"(?:" + std::string(pattern) + ")"}, text))
          << pattern << " on " << text;
    }
  }
}

TEST(SplitPattern, StretchesBetweenMatchesAreParts) {
  EXPECT_EQ(split({"[0-9]+"}, "ab12c3"), (SplitParts{"ab", "12", "c", "3"}));
  EXPECT_EQ(split({"z"}, "abc"), (SplitParts{"abc"}));
  EXPECT_EQ(split({"z"}, ""), (SplitParts{}));
}

TEST(SplitPattern, PartsDoNotSeeEachOther) {
  // The second pattern's look-ahead and look-behind end where its part does.
  EXPECT_EQ(split({"[0-9]", "a(?=1)|(?<=1)b"}, "a1b"), (SplitParts{"a", "1", "b"}));
  EXPECT_EQ(split({"[0-9]", "^."}, "ab1cd"), (SplitParts{"a", "b", "1", "c", "d"}));
}

TEST(SplitPattern, EmptyMatchesMakeNoParts) {
  EXPECT_EQ(split({"x*"}, "axxb"), (SplitParts{"a", "xx", "b"}));
  EXPECT_EQ(split({"(?=a)|$"}, "aba"), (SplitParts{"aba"}));
}

TEST(SplitPattern, PatternsAreRewrittenForPcre2) {
  EXPECT_EQ(to_pcre2_dialect("ab", "t"), "ab");
  EXPECT_EQ(to_pcre2_dialect(R"(\\s)", "t"), R"(\\s)");  // a backslash and an s
  EXPECT_EQ(to_pcre2_dialect(R"([]\]a])", "t"), R"([]\]a])");
  EXPECT_EQ(to_pcre2_dialect("a\\", "t"), "a\\");
  EXPECT_EQ(split({R"([]\s]+)"}, "a] b"), (SplitParts{"a", "] ", "b"}));
  EXPECT_EQ(split({R"(\S+)"}, "a\u180E b"), (SplitParts{"a\u180E", " ", "b"}));
  EXPECT_ERROR(to_pcre2_dialect(R"([\p{L}&&[^a]])", "t"), "class intersection (&&) at byte 6");
  EXPECT_EQ(to_pcre2_dialect("a&&b", "t"), "a&&b");
}

TEST(SplitPattern, BadPatternsAreErrorsThatNameTheField) {
  for (const std::string& pattern :
       {std::string("("), std::string("[a"), std::string("a{2,1}"), std::string("\\p{Nonsense}"),
        std::string("*"), std::string("\xFF"), std::string("\\C"), std::string("a\\"),
        std::string(100'000, 'a'), std::string(5000, '(') + std::string(5000, ')')}) {
    try {
      SplitPattern(pattern, "tokenizer.json: split pattern 0");
      ADD_FAILURE() << "accepted: " << pattern.substr(0, 20);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("tokenizer.json: split pattern 0"),
                std::string::npos);
    }
  }
}

TEST(SplitPattern, RunawayPatternIsAnError) {
  const std::string text = std::string(60, 'a') + "!";
  for (const char* engine : {"", "(*NO_JIT)"})
    EXPECT_ERROR(split({std::string(engine) + "(?:a+a+)+b|(a|aa)+c"}, text), "match limit exceeded")
        << engine;
}

TEST(SplitPattern, LongRunsStayInsideTheLimits) {
  const std::string spaces(1'000'000, ' ');
  for (const char* name : {"llama-bpe", "qwen2", "gpt-2", "deepseek-coder"}) {
    EXPECT_EQ(pre_tokenize(name, spaces + "\n").size(),
              name == std::string("deepseek-coder") ? 2 : 1)
        << name;
    EXPECT_EQ(pre_tokenize(name, std::string(1'000'000, 'a')).size(), 1u) << name;
  }
  for (const std::string& name : pre_tokenizer_names())
    for (const char* unit : {" ", "a", "A", "1", "\n", ".", "\u4F60", "\u0301", "a ", "\t "}) {
      std::string text;
      while (text.size() < 50'000) text += unit;
      EXPECT_NO_THROW(pre_tokenize(name, text + "x")) << name << " on " << unit;
    }
}

// Where PCRE2 has no JIT the interpreter gives the same parts.
TEST(SplitPattern, InterpreterAgrees) {
  const std::string text = "It's 12345 \u4F60\u597D!\r\n  x\u0301 \t y  ";
  for (const char* name : {"llama-bpe", "qwen2", "gpt-2"}) {
    std::vector<std::string> patterns = pre_tokenizer_by_name(name, "t").split_patterns;
    for (std::string& pattern : patterns) pattern.insert(0, "(*NO_JIT)");
    EXPECT_EQ(split(patterns, text), pre_tokenize(name, text)) << name;
  }
}

}  // namespace
}  // namespace tyto
