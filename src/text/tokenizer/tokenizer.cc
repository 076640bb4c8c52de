#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/tokenizer_tables.h"
#include "text/tokenizer/unigram.h"
#include "text/unicode.h"

namespace tyto {
namespace {

size_t byte(char c) {
  return static_cast<unsigned char>(c);
}

}  // namespace

SpecialEdges::SpecialEdges(const std::vector<AddedToken>& added) : added_(added) {
  for (const AddedToken& token : added) {
    if (!token.special || token.text.size() < 2) continue;
    longest_ = std::max(longest_, token.text.size());
    ends_.last_bytes.set(byte(token.text.back()));
    begins_.last_bytes.set(byte(token.text.front()));
  }
}

bool SpecialEdges::begins_inside(std::string_view text) {
  return begins_with_one(text.substr(0, longest_), ends_, false);
}

bool SpecialEdges::ends_inside(std::string_view text) {
  text.remove_prefix(text.size() - std::min(text.size(), longest_));
  return begins_with_one(std::string(text.rbegin(), text.rend()), begins_, true);
}

bool SpecialEdges::begins_with_one(std::string_view text, Endings& endings, bool is_reversed) {
  steps_ += text.size();
  if (std::none_of(text.begin(), text.end(), [&](char c) { return endings.last_bytes[byte(c)]; }))
    return false;
  if (endings.sorted.empty()) make(endings, is_reversed);
  // What begins the text is the last that is not behind it: all that stand between the two would
  // begin with it.
  const auto behind = std::upper_bound(endings.sorted.begin(), endings.sorted.end(), text,
                                       [&](std::string_view a, std::string_view b) {
                                         ++steps_;
                                         return a < b;
                                       });
  return behind != endings.sorted.begin() && text.starts_with(*std::prev(behind));
}

void SpecialEdges::make(Endings& endings, bool is_reversed) const {
  for (const AddedToken& token : added_) {
    if (!token.special || token.text.size() < 2) continue;
    std::string& word = endings.words.emplace_back(token.text);
    if (is_reversed) std::reverse(word.begin(), word.end());
  }
  std::vector<std::string_view> all;
  for (const std::string_view word : endings.words)
    for (size_t cut = 1; cut < word.size(); ++cut) all.push_back(word.substr(cut));
  std::sort(all.begin(), all.end());
  for (const std::string_view ending : all)
    if (endings.sorted.empty() || !ending.starts_with(endings.sorted.back()))
      endings.sorted.push_back(ending);
}

namespace {

unsigned char byte_at(std::string_view text, size_t i) {
  return static_cast<unsigned char>(text[i]);
}

size_t skip_white_space(std::string_view text, size_t from) {
  while (from < text.size()) {
    const Utf8Head head = utf8_head(text.substr(from));
    if (head.kind != Utf8Head::Kind::valid || !is_white_space(head.code_point)) break;
    from += head.bytes;
  }
  return from;
}

// The beginning of the white space that ends at `to`, not before `from`.
size_t white_space_before(std::string_view text, size_t from, size_t to) {
  while (to > from) {
    size_t lead = to - 1;
    while (lead > from && to - lead < 3 && (byte_at(text, lead) & 0xC0) == 0x80) --lead;
    const Utf8Head head = utf8_head(text.substr(lead, to - lead));
    if (head.kind != Utf8Head::Kind::valid || head.bytes != to - lead ||
        !is_white_space(head.code_point))
      break;
    to = lead;
  }
  return to;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& added, bool with_special) {
  for (const AddedToken& token : added)
    if (!token.text.empty() && (with_special || !token.special)) sorted_.push_back(&token);
  // The first listed of two tokens with one text comes first, and the other is dropped.
  std::sort(sorted_.begin(), sorted_.end(), [](const AddedToken* a, const AddedToken* b) {
    return a->text != b->text ? a->text < b->text : a < b;
  });
  const auto same_text = [](const AddedToken* a, const AddedToken* b) {
    return a->text == b->text;
  };
  sorted_.erase(std::unique(sorted_.begin(), sorted_.end(), same_text), sorted_.end());
  first_.assign(257, static_cast<uint32_t>(sorted_.size()));
  for (size_t i = sorted_.size(); i-- > 0;)
    first_[byte_at(sorted_[i]->text, 0)] = static_cast<uint32_t>(i);
  for (size_t byte = 256; byte-- > 0;) first_[byte] = std::min(first_[byte], first_[byte + 1]);
}

// Narrows the sorted tokens byte by byte, as walking down a trie would.
const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t room) const {
  const unsigned char first = byte_at(text, 0);
  auto low = sorted_.begin() + first_[first];
  auto high = sorted_.begin() + first_[first + 1];
  const AddedToken* longest = nullptr;
  for (size_t depth = 1; low != high; ++depth) {
    if ((*low)->text.size() == depth) {
      if (!(*low)->special || depth <= room) longest = *low;
      ++low;
    }
    if (low == high || depth == text.size()) break;
    const unsigned char wanted = byte_at(text, depth);
    low = std::partition_point(
        low, high, [&](const AddedToken* t) { return byte_at(t->text, depth) < wanted; });
    high = std::partition_point(
        low, high, [&](const AddedToken* t) { return byte_at(t->text, depth) == wanted; });
  }
  return longest;
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from,
                                                 std::span<const size_t> plain) const {
  if (sorted_.empty()) return {};
  auto next_plain = std::lower_bound(plain.begin(), plain.end(), from);
  for (size_t at = from; at < text.size(); ++at) {
    while (next_plain != plain.end() && *next_plain < at) ++next_plain;
    const size_t room = (next_plain == plain.end() ? text.size() : *next_plain) - at;
    const AddedToken* token = longest_at(text.substr(at), room);
    if (token == nullptr) continue;
    const size_t end = at + token->text.size();
    return {token, at, token->strip_left ? white_space_before(text, from, at) : at,
            token->strip_right ? skip_white_space(text, end) : end};
  }
  return {};
}

namespace {

// Positions in a word are 32 bits wide, and marking spaces triples them.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// One call of encode(): text -> segments between added tokens -> normalised -> valid UTF-8 -> words
// -> tokens.
class Encoder {
 public:
  Encoder(const TokenizerTables& tables, std::vector<Token>& out)
      : tables_(tables),
        vocabulary_(tables.vocabulary),
        merger_(tables.merges),
        cutter_(tables.trie, tables.vocabulary.scores, tables.unknown_score),
        out_(out) {}

  void encode(std::string_view text, const EncodeOptions& options);

 private:
  void encode_segment(std::string_view segment, bool first);
  std::string normalize(std::string_view segment) const;
  void encode_normalized(std::string_view segment, bool first);
  std::string prepare(std::string_view segment, bool first) const;
  void encode_longest(std::string_view bytes);
  void encode_valid(std::string_view text);
  void encode_word(std::string_view word);
  void encode_bytes_word(std::string_view word);
  void encode_marked_words(std::string_view text);
  void encode_marked_word(std::string_view word);
  void encode_word_pieces(std::string_view word);
  void emit(std::string_view word);
  void emit_bytes(std::string_view bytes);

  const TokenizerTables& tables_;
  const Vocabulary& vocabulary_;
  WordMerger merger_;
  UnigramCutter cutter_;
  MatchScratch scratch_;
  std::vector<Symbol> symbols_;  // scratch, kept from word to word
  bool last_was_unknown_ = false;
  std::vector<Token>& out_;
};

void Encoder::encode(std::string_view text, const EncodeOptions& options) {
  const AddedTokenMatcher& matcher =
      options.parse_special ? tables_.added_tokens : tables_.plain_added_tokens;
  size_t done = 0;
  while (done < text.size()) {
    const AddedTokenMatcher::Match match = matcher.find(text, done, options.plain);
    const size_t end = match.token != nullptr ? match.begin : text.size();
    if (end > done) encode_segment(text.substr(done, end - done), done == 0);
    if (match.token == nullptr) break;
    out_.push_back(match.token->id);
    done = match.end;
  }
}

void Encoder::encode_segment(std::string_view segment, bool first) {
  if (tables_.normalizer.changes_nothing()) return encode_normalized(segment, first);
  const std::string text = normalize(segment);
  const std::string_view view = text;
  for (size_t done = 0; done < view.size();) {
    const AddedTokenMatcher::Match match = tables_.normalized_added_tokens.find(view, done);
    const size_t end = match.token != nullptr ? match.begin : view.size();
    if (end > done) encode_normalized(view.substr(done, end - done), first && done == 0);
    if (match.token == nullptr) break;
    out_.push_back(match.token->id);
    done = match.end;
  }
}

// What is not UTF-8 stays as it is where the vocabulary has tokens for bytes.
std::string Encoder::normalize(std::string_view segment) const {
  if (!tables_.byte_level && vocabulary_.byte_tokens.empty())
    return tables_.normalizer.apply(as_valid_utf8(segment));
  std::string normalized;
  while (!segment.empty()) {
    const size_t valid = valid_utf8_prefix(segment);
    normalized += tables_.normalizer.apply(segment.substr(0, valid));
    segment.remove_prefix(valid);
    if (segment.empty()) break;
    const size_t invalid = utf8_head(segment).bytes;
    normalized.append(segment.substr(0, invalid));
    segment.remove_prefix(invalid);
  }
  return normalized;
}

void Encoder::encode_normalized(std::string_view segment, bool first) {
  if (vocabulary_.algorithm == Vocabulary::Algorithm::longest_match) return encode_longest(segment);
  const std::string prepared = prepare(segment, first);
  std::string_view rest = prepared;
  last_was_unknown_ = false;
  while (!rest.empty()) {
    const size_t valid = valid_utf8_prefix(rest);
    if (valid > 0) encode_valid(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) break;
    const size_t invalid = utf8_head(rest).bytes;
    for (size_t i = 0; i < invalid; ++i) emit_bytes(rest.substr(i, 1));
    rest.remove_prefix(invalid);
  }
}

// Adds the dummy space, and marks spaces where the vocabulary does.
std::string Encoder::prepare(std::string_view segment, bool first) const {
  const bool has_space =
      segment.starts_with(' ') || (tables_.marks_spaces && segment.starts_with(kSpaceMark));
  // SentencePiece's unigram texts have the space before their first character that is none.
  const bool only_spaces = vocabulary_.algorithm == Vocabulary::Algorithm::unigram &&
                           segment.find_first_not_of(' ') == std::string_view::npos;
  const bool prepend = vocabulary_.prepend_space && (first || !vocabulary_.prepend_once) &&
                       !(has_space && vocabulary_.prepend_if_absent) && !only_spaces;
  std::string prepared;
  prepared.reserve(segment.size() + segment.size() / 4 + kSpaceMark.size());
  if (!tables_.marks_spaces) {
    if (prepend) prepared.push_back(' ');
    prepared.append(segment);
    return prepared;
  }
  if (prepend) prepared.append(kSpaceMark);
  for (const char c : segment) {
    if (c == ' ')
      prepared.append(kSpaceMark);
    else
      prepared.push_back(c);
  }
  return prepared;
}

void Encoder::encode_longest(std::string_view bytes) {
  while (!bytes.empty()) {
    const PieceTrie::Match match = tables_.trie.longest(bytes);
    if (match.token >= 0)
      out_.push_back(match.token);
    else if (vocabulary_.unknown >= 0)
      out_.push_back(vocabulary_.unknown);
    bytes.remove_prefix(std::max<size_t>(match.bytes, 1));
  }
}

void Encoder::encode_valid(std::string_view text) {
  std::vector<uint32_t> ends = {static_cast<uint32_t>(text.size())};
  for (const SplitPattern& pattern : tables_.patterns) pattern.split(text, scratch_, ends);
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    if (begin > 0 && vocabulary_.algorithm != Vocabulary::Algorithm::unigram)
      last_was_unknown_ = false;
    encode_word(text.substr(begin, end - begin));
    begin = end;
  }
}

void Encoder::encode_word(std::string_view word) {
  if (tables_.byte_level)
    encode_bytes_word(word);
  else if (tables_.marks_spaces)
    encode_marked_words(word);
  else
    encode_word_pieces(word);
}

void Encoder::encode_bytes_word(std::string_view word) {
  if (vocabulary_.ignore_merges) {
    const Token whole = tables_.text_pieces.find(to_byte_level(word));
    if (whole >= 0) {
      out_.push_back(whole);
      last_was_unknown_ = false;
      return;
    }
  }
  symbols_.clear();
  for (size_t i = 0; i < word.size(); ++i)
    symbols_.push_back(
        {tables_.byte_token[static_cast<unsigned char>(word[i])], static_cast<uint32_t>(i + 1)});
  merger_.merge(symbols_);
  emit(word);
}

void Encoder::encode_marked_words(std::string_view text) {
  while (tables_.words_stand_alone) {
    size_t letters = 0;
    while (text.substr(letters).starts_with(kSpaceMark)) letters += kSpaceMark.size();
    const size_t end = text.find(kSpaceMark, letters);
    if (end == std::string_view::npos) break;
    encode_marked_word(text.substr(0, end));
    text.remove_prefix(end);
  }
  encode_marked_word(text);
}

void Encoder::encode_marked_word(std::string_view word) {
  if (vocabulary_.algorithm == Vocabulary::Algorithm::unigram) {
    cutter_.cut(word, symbols_);
    return emit(word);
  }
  if (vocabulary_.ignore_merges) {
    const Token whole = tables_.text_pieces.find(word);
    if (whole >= 0) {
      out_.push_back(whole);
      last_was_unknown_ = false;
      return;
    }
  }
  symbols_.clear();
  for (size_t i = 0; i < word.size();) {
    const size_t bytes = utf8_head(word.substr(i)).bytes;
    const Token token = tables_.text_pieces.find(word.substr(i, bytes));
    i += bytes;
    symbols_.push_back({token, static_cast<uint32_t>(i)});
  }
  merger_.merge(symbols_);
  emit(word);
}

// White space, which split patterns have made words of its own, is no word.
void Encoder::encode_word_pieces(std::string_view word) {
  if (is_white_space(utf8_head(word).code_point)) return;
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto characters = static_cast<size_t>(std::count_if(word.begin(), word.end(), starts));
  const bool too_long = vocabulary_.longest_word > 0 && characters > vocabulary_.longest_word;
  if (too_long || !append_word_pieces(tables_.trie, word, out_))
    out_.push_back(vocabulary_.unknown);
}

// Appends the tokens of symbols_, which are the word's.
void Encoder::emit(std::string_view word) {
  uint32_t begin = 0;
  for (const Symbol& symbol : symbols_) {
    if (symbol.token >= 0) {
      out_.push_back(symbol.token);
      last_was_unknown_ = false;
    } else {
      emit_bytes(word.substr(begin, symbol.end - begin));
    }
    begin = symbol.end;
  }
}

// A character without a token of its own: its bytes, or the unknown token. A control character for
// which the vocabulary has neither is left out, as the reference implementations do. A unigram
// vocabulary, and any other that says so, has one unknown token for all that follow one another.
void Encoder::emit_bytes(std::string_view bytes) {
  const auto token_of = [&](char byte) {
    return tables_.byte_token[static_cast<unsigned char>(byte)];
  };
  if (std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return token_of(byte) >= 0; })) {
    for (const char byte : bytes) out_.push_back(token_of(byte));
    last_was_unknown_ = false;
  } else if (vocabulary_.unknown >= 0) {
    if (!last_was_unknown_) out_.push_back(vocabulary_.unknown);
    last_was_unknown_ =
        vocabulary_.fuses_unknown || vocabulary_.algorithm == Vocabulary::Algorithm::unigram;
  }
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, const std::string& name)
    : tables_(std::make_unique<TokenizerTables>(std::move(vocabulary), name)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

const Vocabulary& Tokenizer::vocabulary() const {
  return tables_->vocabulary;
}

std::vector<Token> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes)
    fail_input("text", "{} bytes are more than the {} that can be tokenised", text.size(),
               kMaxTextBytes);
  const Vocabulary& vocab = vocabulary();
  std::vector<Token> tokens;
  if (options.add_bos && vocab.add_bos && vocab.bos >= 0) tokens.push_back(vocab.bos);
  Encoder(*tables_, tokens).encode(text, options);
  if (options.add_eos && vocab.add_eos && !vocab.eos.empty()) tokens.push_back(vocab.eos.front());
  return tokens;
}

std::vector<size_t> Tokenizer::special_places(std::string_view text) const {
  std::vector<size_t> places;
  for (size_t from = 0; from < text.size();) {
    const AddedTokenMatcher::Match match = tables_->added_tokens.find(text, from);
    if (match.token == nullptr) break;
    if (match.token->special) places.push_back(match.at);
    from = match.at + 1;
  }
  return places;
}

bool Tokenizer::is_special(Token token) const {
  return token >= 0 && static_cast<size_t>(token) < size() &&
         tables_->special[static_cast<size_t>(token)];
}

bool Tokenizer::drops_first_space() const {
  using Algorithm = Vocabulary::Algorithm;
  const Vocabulary& vocab = vocabulary();
  return vocab.algorithm == Algorithm::word_piece ||
         (tables_->marks_spaces && (vocab.prepend_space || vocab.drops_space));
}

bool Tokenizer::is_eos(Token token) const {
  const auto& eos = vocabulary().eos;
  return std::find(eos.begin(), eos.end(), token) != eos.end();
}

Token Tokenizer::find(std::string_view piece_text) const {
  return tables_->all_pieces.find(piece_text);
}

// Tokens to text: the decoding half of Tokenizer, and the Detokenizer that streams it.

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
