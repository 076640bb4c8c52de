#include "text/tokenizer/tokenizer_tables.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"

namespace tyto {

namespace {

// Looking for added tokens costs at most this much per byte of text; real ones have tens of bytes.
constexpr size_t kMaxAddedTokenBytes = 1024;

// Bytes that ordinary text is made of. Published byte-level vocabularies leave out control
// characters and bytes that UTF-8 never has, but none of these.
constexpr bool is_essential(unsigned byte) {
  return byte == '\n' || (byte >= ' ' && byte <= '~');
}

void check_token(Token token, size_t vocab, std::string_view what, const std::string& name) {
  if (token < 0 || static_cast<size_t>(token) >= vocab)
    fail_input(name, "{} {} is outside the vocabulary of {} tokens", what, token, vocab);
}

void check_merges(const Vocabulary& vocabulary, const std::string& name) {
  const size_t vocab = vocabulary.pieces.size();
  if (vocabulary.merges.size() != vocabulary.merge_results.size())
    fail_input(name, "{} merges have {} results", vocabulary.merges.size(),
               vocabulary.merge_results.size());
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto [left, right] = vocabulary.merges[rank];
    const Token result = vocabulary.merge_results[rank];
    for (const Token token : {left, right, result}) check_token(token, vocab, "merge token", name);
    const auto piece = [&](Token token) {
      return std::string_view(vocabulary.pieces[static_cast<size_t>(token)]);
    };
    const std::string_view whole = piece(result);
    if (whole.size() != piece(left).size() + piece(right).size() ||
        !whole.starts_with(piece(left)) || !whole.ends_with(piece(right)))
      fail_input(name, "merge {} does not make the piece it names", rank);
  }
}

void check_vocabulary(const Vocabulary& vocabulary, const std::string& name) {
  const size_t vocab = vocabulary.pieces.size();
  if (vocab == 0) fail_input(name, "the vocabulary is empty");
  if (vocab > size_t{std::numeric_limits<Token>::max()})
    fail_input(name, "a vocabulary of {} tokens is too large", vocab);
  if (!vocabulary.scores.empty() && vocabulary.scores.size() != vocab)
    fail_input(name, "{} scores for {} tokens", vocabulary.scores.size(), vocab);
  for (const float score : vocabulary.scores)
    if (std::isnan(score)) fail_input(name, "a token score is not a number");
  if (!vocabulary.byte_tokens.empty() && vocabulary.byte_tokens.size() != 256)
    fail_input(name, "{} byte tokens instead of 256", vocabulary.byte_tokens.size());
  for (const Token token : vocabulary.byte_tokens)
    if (token != -1) check_token(token, vocab, "byte token", name);
  if (vocabulary.bos != -1) check_token(vocabulary.bos, vocab, "BOS token", name);
  if (vocabulary.unknown != -1) check_token(vocabulary.unknown, vocab, "unknown token", name);
  for (const Token token : vocabulary.eos) check_token(token, vocab, "EOS token", name);
  for (const AddedToken& added : vocabulary.added) {
    check_token(added.id, vocab, "added token", name);
    if (added.text.size() > kMaxAddedTokenBytes)
      fail_unsupported(name, "added token {} is {} bytes long; at most {} are supported", added.id,
                       added.text.size(), kMaxAddedTokenBytes);
  }
  check_merges(vocabulary, name);
  if (vocabulary.algorithm == Vocabulary::Algorithm::unigram && vocabulary.scores.empty())
    fail_input(name, "a unigram vocabulary without scores");
}

// True when no piece has a space after something else, as SentencePiece trains them: then no merge
// crosses the beginning of a word, and words may be merged one by one with the same result.
bool spaces_only_lead(const Vocabulary& vocabulary, const std::vector<bool>& left_out) {
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    if (left_out[id]) continue;
    std::string_view rest = vocabulary.pieces[id];
    while (rest.starts_with(kSpaceMark)) rest.remove_prefix(kSpaceMark.size());
    if (rest.find(kSpaceMark) != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace

TokenizerTables::TokenizerTables(Vocabulary from, const std::string& name)
    : vocabulary(std::move(from)) {
  check_vocabulary(vocabulary, name);
  using Algorithm = Vocabulary::Algorithm;
  const Algorithm algorithm = vocabulary.algorithm;
  byte_level = algorithm == Algorithm::byte_level_bpe;
  marks_spaces = algorithm == Algorithm::sentencepiece || algorithm == Algorithm::unigram;
  added.assign(vocabulary.pieces.size(), false);
  special.assign(vocabulary.pieces.size(), false);
  for (const AddedToken& token : vocabulary.added) {
    added[static_cast<size_t>(token.id)] = true;
    if (token.special) special[static_cast<size_t>(token.id)] = true;
  }
  // A unigram model knows no token that was added to it.
  std::vector<bool> left_out = algorithm == Algorithm::unigram ? added : special;
  for (const Token token : vocabulary.byte_tokens)
    if (token >= 0) left_out[static_cast<size_t>(token)] = true;
  all_pieces = PieceIndex(vocabulary.pieces);
  text_pieces = PieceIndex(vocabulary.pieces, left_out);
  switch (algorithm) {
    case Algorithm::byte_level_bpe:
      merges = ranked_merges(vocabulary, left_out);
      break;
    case Algorithm::sentencepiece:
      merges = vocabulary.merges.empty() && !vocabulary.scores.empty()
                   ? scored_merges(vocabulary, text_pieces, name)
                   : ranked_merges(vocabulary, left_out);
      break;
    case Algorithm::unigram:
      unknown_score = tyto::unknown_score(vocabulary, left_out);
      [[fallthrough]];
    case Algorithm::word_piece:
    case Algorithm::longest_match:
      trie = PieceTrie(vocabulary.pieces, left_out, name);
      break;
  }
  words_stand_alone = marks_spaces && spaces_only_lead(vocabulary, left_out);
  normalizer = TextNormalizer(vocabulary, name);
  find_byte_tokens(name);
  for (size_t i = 0; i < vocabulary.split_patterns.size(); ++i)
    patterns.emplace_back(vocabulary.split_patterns[i],
                          fmt::format("{}: split pattern {}", name, i));
  find_added_tokens();
}

// A special token is found where it is written: what a message spells otherwise is no such token.
void TokenizerTables::find_added_tokens() {
  const auto in_normalized_text = [&](const AddedToken& token) {
    return token.normalized && !token.special && !normalizer.changes_nothing();
  };
  for (const AddedToken& token : vocabulary.added) {
    if (!in_normalized_text(token)) {
      as_written_added.push_back(token);
      continue;
    }
    normalized_added.push_back(token);
    normalized_added.back().text = normalizer.apply(as_valid_utf8(token.text));
  }
  added_tokens = AddedTokenMatcher(as_written_added, true);
  plain_added_tokens = AddedTokenMatcher(as_written_added, false);
  normalized_added_tokens = AddedTokenMatcher(normalized_added, false);
}

void TokenizerTables::find_byte_tokens(const std::string& name) {
  byte_token.fill(-1);
  std::string letter;
  for (unsigned byte = 0; byte < 256; ++byte) {
    if (vocabulary.algorithm == Vocabulary::Algorithm::longest_match) {
      byte_token[byte] = text_pieces.find(std::string(1, static_cast<char>(byte)));
    } else if (byte_level) {
      letter.clear();
      append_utf8(byte_level_code_point(static_cast<unsigned char>(byte)), letter);
      byte_token[byte] = text_pieces.find(letter);
    } else if (!vocabulary.byte_tokens.empty()) {
      byte_token[byte] = vocabulary.byte_tokens[byte];
    }
    if (byte_token[byte] < 0 && vocabulary.unknown < 0 && is_essential(byte))
      fail_input(name, "no token for byte 0x{:02X}, and no unknown token", byte);
  }
}

}  // namespace tyto
