#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

using Texts = std::vector<std::string>;

Texts streamed(const Tokenizer& tokenizer, const std::vector<Token>& tokens, bool at_start = true) {
  Detokenizer detokenizer(tokenizer, at_start);
  Texts texts;
  for (const Token token : tokens) texts.push_back(detokenizer.push(token));
  texts.push_back(detokenizer.finish());
  return texts;
}

std::vector<Token> byte_ids(std::string_view bytes) {  // in byte_level_vocabulary
  std::vector<Token> ids;
  for (const char byte : bytes) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

TEST(Detokenizer, NeverHalfACodePoint) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  EXPECT_EQ(streamed(tokenizer, byte_ids("a\u00E9\U0001F642")),
            (Texts{"a", "", "\u00E9", "", "", "", "\U0001F642", ""}));
}

TEST(Detokenizer, BytesThatCannotBecomeValidAreReplacedAtOnce) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const std::string bad(kReplacementCharacter);
  EXPECT_EQ(streamed(tokenizer, byte_ids("\xFFz")), (Texts{bad, "z", ""}));
  EXPECT_EQ(streamed(tokenizer, byte_ids("\xE2\x82z")), (Texts{"", "", bad + "z", ""}));
  EXPECT_EQ(streamed(tokenizer, byte_ids("\xE2\xE2\x82\xAC")), (Texts{"", bad, "", "\u20AC", ""}));
  EXPECT_EQ(streamed(tokenizer, byte_ids("\xED\xA0")), (Texts{"", bad + bad, ""}));
}

TEST(Detokenizer, FinishReplacesWhatStillWaits) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const std::string bad(kReplacementCharacter);
  EXPECT_EQ(streamed(tokenizer, byte_ids("\xF0\x9F\x99")), (Texts{"", "", "", bad}));
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.finish(), "");
  detokenizer.push(0xF0);
  EXPECT_EQ(detokenizer.finish(), bad);
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push('a'), "a");
}

TEST(Detokenizer, HidesSpecialTokensAndIdsOutsideTheVocabulary) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  const Token end = tokenizer.find("<|end|>");
  const Token tool = tokenizer.find("<tool>");
  EXPECT_EQ(streamed(tokenizer, {end, 'a', tool, -1, 1 << 30, 'b'}),
            (Texts{"", "a", "<tool>", "", "", "b", ""}));
}

TEST(Detokenizer, SentencePieceSpaceIsRemovedAtTheStartOnly) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"_", "a", "_a"}), "small");
  const Token a = tokenizer.find("\u2581a");
  EXPECT_EQ(streamed(tokenizer, {1, a, a}), (Texts{"", "a", " a", ""}));
  EXPECT_EQ(streamed(tokenizer, {a, a}, false), (Texts{" a", " a", ""}));
  const Token space = tokenizer.find("\u2581");
  EXPECT_EQ(streamed(tokenizer, {space, space, a}), (Texts{"", " ", " a", ""}));
  EXPECT_EQ(streamed(tokenizer, {tokenizer.find("a"), a}), (Texts{"a", " a", ""}));
}

TEST(Detokenizer, NoDummySpaceNothingRemoved) {
  Vocabulary vocabulary = sentencepiece_vocabulary({"_", "a", "_a"});
  vocabulary.prepend_space = false;
  const Tokenizer tokenizer(std::move(vocabulary), "small");
  EXPECT_EQ(streamed(tokenizer, {tokenizer.find("\u2581a")}), (Texts{" a", ""}));
}

TEST(Detokenizer, SentencePieceByteTokens) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"_", "a"}), "small");
  const auto byte = [&](int value) { return tokenizer.find(fmt::format("<0x{:02X}>", value)); };
  EXPECT_EQ(streamed(tokenizer, {byte(0xE2), byte(0x82), byte(0xAC), byte('\n')}),
            (Texts{"", "", "\u20AC", "\n", ""}));
}

// Whatever the tokens, the stream is valid UTF-8 and equals the decoded text where that is valid.
TEST(Detokenizer, StreamOfAnyBytesIsValid) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  ByteStream random(3);
  for (int round = 0; round < 200; ++round) {
    std::vector<Token> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(static_cast<Token>(random.below(256)));
    std::string text;
    for (const std::string& part : streamed(tokenizer, tokens)) {
      ASSERT_EQ(valid_utf8_prefix(part), part.size());
      text += part;
    }
    const std::string whole = tokenizer.decode(tokens);
    if (valid_utf8_prefix(whole) == whole.size()) {
      ASSERT_EQ(text, whole);
    }
  }
}

TEST(Decode, WholeTextByteForByte) {
  const Tokenizer tokenizer(byte_level_vocabulary({}), "small");
  EXPECT_EQ(tokenizer.decode(byte_ids("a\xFF\xE2")), "a\xFF\xE2");
  const Token end = tokenizer.find("<|end|>");
  EXPECT_EQ(tokenizer.decode({end, 'a'}), "a");
  EXPECT_EQ(tokenizer.decode({end, 'a'}, true), "<|end|>a");
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(Decode, SentencePieceKeepsSpaceAfterAShownSpecialToken) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"_", "a", "_a"}), "small");
  const Token a = tokenizer.find("\u2581a");
  EXPECT_EQ(tokenizer.decode({1, a}), "a");
  EXPECT_EQ(tokenizer.decode({1, a}, true), "<s> a");
}

TEST(TokenBytes, OfEveryKind) {
  const Tokenizer bytes(byte_level_vocabulary({"_ a"}), "small");
  EXPECT_EQ(bytes.token_bytes(256), " a");
  EXPECT_EQ(bytes.token_bytes(0xC3), "\xC3");
  EXPECT_EQ(bytes.token_bytes(bytes.find("<|end|>")), "<|end|>");
  EXPECT_EQ(bytes.token_bytes(-1), "");
  EXPECT_EQ(bytes.token_bytes(static_cast<Token>(bytes.size())), "");
  const Tokenizer pieces(sentencepiece_vocabulary({"_", "_a_"}), "small");
  EXPECT_EQ(pieces.token_bytes(3 + 'A'), "A");
  EXPECT_EQ(pieces.token_bytes(pieces.find("\u2581a\u2581")), " a ");
  EXPECT_EQ(pieces.token_bytes(1), "<s>");
}

}  // namespace
}  // namespace tyto
