// Vocabularies small enough to work out by hand, shared by the tokenizer tests.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// Ids 0..255 are the bytes; then one token for each merge ("left right", in bytes; a space inside a
// piece is written _), then the added tokens: "<|begin|>" and "<|end|>" special, "<tool>" not.
inline Vocabulary byte_level_vocabulary(const std::vector<std::string>& merges,
                                        const std::string& pre = "llama-bpe") {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.pieces.push_back(to_byte_level(std::string(1, static_cast<char>(byte))));
  std::vector<std::string> spelled;
  for (const std::string& merge : merges) {
    const auto pair = split_merge(merge).value();
    const auto stored = [](std::string_view side) {
      std::string bytes(side);
      for (char& c : bytes)
        if (c == '_') c = ' ';
      return to_byte_level(bytes);
    };
    spelled.push_back(stored(pair.first) + " " + stored(pair.second));
    vocabulary.pieces.push_back(stored(pair.first) + stored(pair.second));
  }
  std::vector<PiecePair> pairs;
  for (const std::string& merge : spelled) pairs.push_back(split_merge(merge).value());
  resolve_merges(vocabulary, pairs, "small vocabulary");
  for (const char* text : {"<|begin|>", "<|end|>", "<tool>"}) {
    vocabulary.added.push_back(
        {static_cast<Token>(vocabulary.pieces.size()), text, std::string_view(text) != "<tool>"});
    vocabulary.pieces.emplace_back(text);
  }
  vocabulary.bos = vocabulary.added[0].id;
  vocabulary.eos = {vocabulary.added[1].id};
  vocabulary.add_bos = true;
  const PreTokenizer pre_tokenizer = pre_tokenizer_by_name(pre, "small vocabulary");
  vocabulary.split_patterns = pre_tokenizer.split_patterns;
  vocabulary.normalizers = pre_tokenizer.normalizers;
  return vocabulary;
}

// <unk> <s> </s>, the 256 byte tokens at 3..258, then the given pieces (a space is written _) with
// falling scores, so that an earlier piece is merged before a later one.
inline Vocabulary sentencepiece_vocabulary(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::sentencepiece;
  vocabulary.pieces = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.pieces.push_back(fmt::format("<0x{:02X}>", byte));
  vocabulary.scores.assign(259, 0.0f);
  for (const std::string& piece : pieces) {
    std::string stored;
    for (const char c : piece) stored += c == '_' ? "\u2581" : std::string(1, c);
    vocabulary.pieces.push_back(stored);
    vocabulary.scores.push_back(-static_cast<float>(vocabulary.pieces.size()));
  }
  vocabulary.added = {{0, "<unk>", true}, {1, "<s>", true}, {2, "</s>", true}};
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = {2};
  vocabulary.add_bos = true;
  vocabulary.prepend_space = true;
  find_byte_tokens(vocabulary);
  return vocabulary;
}

// <unk> <s> </s>, then pieces (a space is written _) with their log probabilities.
inline Vocabulary unigram_vocabulary(const std::vector<std::pair<std::string, float>>& pieces) {
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::unigram;
  vocabulary.pieces = {"<unk>", "<s>", "</s>"};
  vocabulary.scores = {0, 0, 0};
  for (const auto& [piece, score] : pieces) {
    std::string stored;
    for (const char c : piece) stored += c == '_' ? "\u2581" : std::string(1, c);
    vocabulary.pieces.push_back(stored);
    vocabulary.scores.push_back(score);
  }
  vocabulary.added = {{0, "<unk>", true}, {1, "<s>", true}, {2, "</s>", true}};
  vocabulary.unknown = 0;
  vocabulary.eos = {2};
  vocabulary.add_eos = true;
  vocabulary.prepend_space = true;
  return vocabulary;
}

// [PAD] [UNK] [CLS] [SEP], then pieces: those that begin a word with _, those that go on without.
inline Vocabulary word_piece_vocabulary(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary;
  vocabulary.algorithm = Vocabulary::Algorithm::word_piece;
  vocabulary.pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  for (Token id = 0; id < 4; ++id)
    vocabulary.added.push_back({id, vocabulary.pieces[static_cast<size_t>(id)], true});
  for (const std::string& piece : pieces)
    vocabulary.pieces.push_back(piece.starts_with('_') ? "\u2581" + piece.substr(1) : piece);
  vocabulary.normalizers = bert_normalizers({});
  vocabulary.split_patterns = {std::string(kWhiteSpacePattern), std::string(kPunctuationPattern)};
  vocabulary.unknown = 1;
  vocabulary.bos = 2;
  vocabulary.eos = {3};
  vocabulary.add_bos = vocabulary.add_eos = true;
  return vocabulary;
}

// A table as SentencePiece compiles it, from prefixes and their replacements. Each node's children
// have 256 units of their own, which real tables do not afford.
inline std::string compiled_charsmap(
    const std::vector<std::pair<std::string, std::string>>& replacements) {
  constexpr uint32_t kBlock = 256;
  constexpr uint32_t kValue = uint32_t{1} << 31;
  std::vector<uint32_t> units(kBlock, 0);
  const auto block_of = [&](uint32_t node) {
    if (units[node] >> 10 == 0) {
      const auto block = static_cast<uint32_t>(units.size());
      units.resize(block + kBlock, 0);
      units[node] |= (node ^ block) << 10;
    }
    return node ^ units[node] >> 10;
  };
  std::string texts;
  for (const auto& [from, to] : replacements) {
    uint32_t node = 0;
    for (const char c : from) {
      const auto byte = static_cast<unsigned char>(c);
      node = block_of(node) ^ byte;
      units[node] |= byte;
    }
    const uint32_t block = block_of(node);
    units[node] |= 1 << 8;
    units[block] = kValue | static_cast<uint32_t>(texts.size());
    texts += to + '\0';
  }
  const auto number = [](size_t value) {
    std::string bytes;
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift));
    return bytes;
  };
  std::string table = number(units.size() * sizeof(uint32_t));
  for (const uint32_t unit : units) table += number(unit);
  return table + texts;
}

// The tokens' own spelling, which reads better in a failure than ids do.
inline std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text,
                                          const EncodeOptions& options = {.add_bos = false}) {
  std::vector<std::string> pieces;
  for (const Token token : tokenizer.encode(text, options))
    pieces.push_back(tokenizer.vocabulary().pieces.at(static_cast<size_t>(token)));
  return pieces;
}

// Bytes that are reproducible everywhere, for property tests.
class ByteStream {
 public:
  explicit ByteStream(uint32_t seed) : state_(seed) {}
  uint32_t below(uint32_t limit) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) % limit;
  }

 private:
  uint32_t state_;
};

}  // namespace tyto
