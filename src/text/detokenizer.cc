// Tokens to text: the decoding half of Tokenizer, and the Detokenizer that streams it.
#include "text/tokenizer.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/byte_level.h"
#include "text/tokenizer_tables.h"

namespace tyto {

namespace {

// The byte that a SentencePiece byte token "<0x41>" stands for; -1: not such a token.
int byte_of(const Vocabulary& vocabulary, Token token) {
  const std::string& piece = vocabulary.pieces[static_cast<size_t>(token)];
  if (vocabulary.byte_tokens.empty() || piece.size() != 6 || !piece.starts_with("<0x")) return -1;
  unsigned byte = 0;
  for (const char digit : {piece[3], piece[4]}) {
    const bool decimal = digit >= '0' && digit <= '9';
    if (!decimal && !(digit >= 'A' && digit <= 'F')) return -1;
    byte = byte * 16 + static_cast<unsigned>(decimal ? digit - '0' : digit - 'A' + 10);
  }
  return vocabulary.byte_tokens[byte] == token ? static_cast<int>(byte) : -1;
}

std::string unmark_spaces(std::string_view piece) {
  std::string text;
  text.reserve(piece.size());
  while (!piece.empty()) {
    const bool space = piece.starts_with(kSpaceMark);
    text.push_back(space ? ' ' : piece.front());
    piece.remove_prefix(space ? kSpaceMark.size() : 1);
  }
  return text;
}

// WordPiece makes punctuation words of its own; these four are written behind the word before them.
std::string word_text(std::string_view piece) {
  const bool begins = piece.starts_with(kSpaceMark);
  const std::string_view letters = piece.substr(begins ? kSpaceMark.size() : 0);
  const bool ends_clause = letters == "." || letters == "," || letters == "!" || letters == "?";
  return ends_clause ? std::string(letters) : unmark_spaces(piece);
}

// The bytes of a token at its place in the text: without the dummy space where it is the first.
std::string bytes_in_text(const Tokenizer& tokenizer, Token token, bool& at_start) {
  std::string bytes = tokenizer.token_bytes(token);
  if (at_start && tokenizer.drops_first_space() && bytes.starts_with(' ')) bytes.erase(0, 1);
  at_start = false;
  return bytes;
}

// Moves what is complete from `pending` to `out`; an unfinished sequence at the end stays.
void take_complete(std::string& pending, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Utf8Head head = utf8_head(rest);
    if (head.kind == Utf8Head::Kind::truncated) break;
    out.append(head.kind == Utf8Head::Kind::valid ? rest.substr(0, head.bytes)
                                                  : kReplacementCharacter);
    rest.remove_prefix(head.bytes);
  }
  pending.erase(0, pending.size() - rest.size());
}

}  // namespace

std::string Tokenizer::token_bytes(Token token) const {
  if (token < 0 || static_cast<size_t>(token) >= size()) return {};
  const auto id = static_cast<size_t>(token);
  const std::string& piece = vocabulary().pieces[id];
  // As in Hugging Face's decoders, which added tokens pass like all others.
  if (tables_->added[id]) return tables_->marks_spaces ? unmark_spaces(piece) : piece;
  if (tables_->byte_level) return from_byte_level(piece);
  if (vocabulary().algorithm == Vocabulary::Algorithm::longest_match) return piece;
  if (vocabulary().algorithm == Vocabulary::Algorithm::word_piece) return word_text(piece);
  const int byte = byte_of(vocabulary(), token);
  return byte >= 0 ? std::string(1, static_cast<char>(byte)) : unmark_spaces(piece);
}

std::string Tokenizer::decode(const std::vector<Token>& tokens, bool with_special) const {
  std::string text;
  bool at_start = true;
  for (const Token token : tokens)
    if (with_special || !is_special(token)) text += bytes_in_text(*this, token, at_start);
  return text;
}

std::string Detokenizer::push(Token token) {
  const bool is_shown = std::find(shown_.begin(), shown_.end(), token) != shown_.end();
  if (tokenizer_.is_special(token) && !is_shown) return {};
  pending_ += bytes_in_text(tokenizer_, token, at_start_);
  std::string text;
  take_complete(pending_, text);
  return text;
}

std::string Detokenizer::finish() {
  std::string text(pending_.empty() ? std::string_view() : kReplacementCharacter);
  pending_.clear();
  return text;
}

}  // namespace tyto
