// Text to tokens and back. Immutable after construction; safe to use from many threads.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace tyto {

// Where a text could be a part of a special token whose rest stands beside it.

// A question costs the bytes of the longest special token and a binary search, however many special
// tokens there are. What the search needs is made when a text first needs it, which few do.
class SpecialEdges {
 public:
  // Keeps a reference: `added` must outlive it and not change.
  explicit SpecialEdges(const std::vector<AddedToken>& added);
  SpecialEdges(const SpecialEdges&) = delete;  // it refers to itself
  SpecialEdges& operator=(const SpecialEdges&) = delete;

  bool begins_inside(std::string_view text);  // as a special token ends
  bool ends_inside(std::string_view text);    // as a special token begins
  uint64_t steps() const { return steps_; }   // bytes and entries that questions have looked at

 private:
  // Endings of words, sorted, none of which begins with another.
  struct Endings {
    std::bitset<256> last_bytes = {};
    std::vector<std::string> words = {};
    std::vector<std::string_view> sorted = {};  // in the words
  };
  bool begins_with_one(std::string_view text, Endings& endings, bool is_reversed);
  void make(Endings& endings, bool is_reversed) const;

  const std::vector<AddedToken>& added_;
  size_t longest_ = 0;  // special token
  Endings ends_;        // where special tokens end
  Endings begins_;      // where they begin, read backwards
  uint64_t steps_ = 0;
};

// Finds added tokens in a text: at every place the longest one, from left to right.

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // Keeps a reference: `added` must outlive the matcher and not change.
  AddedTokenMatcher(const std::vector<AddedToken>& added, bool with_special);

  struct Match {
    const AddedToken* token = nullptr;  // null: none
    size_t at = 0;                      // the token's own text
    size_t begin = 0;                   // the token and the white space it swallows
    size_t end = 0;
  };
  // The first match at or after `from`. White space before `from` is not swallowed. `plain` are
  // offsets of bytes that no special token covers, ascending.
  Match find(std::string_view text, size_t from, std::span<const size_t> plain = {}) const;

 private:
  // Special tokens of at most `room` bytes.
  const AddedToken* longest_at(std::string_view text, size_t room) const;

  std::vector<const AddedToken*> sorted_;  // by text
  std::vector<uint32_t> first_;            // [257], where the tokens that begin with a byte start
};

struct EncodeOptions {
  bool add_bos = true;         // where the vocabulary asks for it
  bool add_eos = true;         // where the vocabulary asks for it
  bool parse_special = false;  // recognise special tokens written in the text (chat templates)
  std::span<const size_t> plain = {};  // offsets of bytes that no special token covers, ascending
};

struct TokenizerTables;

class Tokenizer {
 public:
  // Checks the vocabulary (`name` is how errors call it) and builds the look-up tables. After that
  // text can always be encoded, but for a split pattern from the file that runs away on it.
  Tokenizer(Vocabulary vocabulary, const std::string& name);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  const Vocabulary& vocabulary() const;
  size_t size() const { return vocabulary().pieces.size(); }

  // Invalid UTF-8 is never refused: it is encoded byte by byte, or as U+FFFD where the vocabulary
  // has no bytes. Added tokens are recognised before the text is normalised, but for those that the
  // file wants found after it. Time linear in the text (times log for pathological single words).
  std::vector<Token> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Where special tokens are written in the text, overlapping ones too: the offsets of their first
  // bytes, ascending.
  std::vector<size_t> special_places(std::string_view text) const;

  // The bytes one token stands for; special tokens give their text, with spaces for U+2581 where
  // the vocabulary marks them so. May be half a code point. Ids outside the vocabulary (models pad
  // their last layer) stand for nothing.
  std::string token_bytes(Token token) const;

  // The whole text, byte for byte: what is invalid UTF-8 stays so. Special tokens are left out
  // unless asked for. A dummy space at the very beginning is removed. What normalizers changed
  // stays changed.
  std::string decode(const std::vector<Token>& tokens, bool with_special = false) const;

  // Whether a space at the beginning of the first token is none of the decoded text.
  bool drops_first_space() const;

  bool is_special(Token token) const;
  bool is_eos(Token token) const;
  Token find(std::string_view piece_text) const;  // id of a piece as stored, -1 if there is none

 private:
  std::unique_ptr<const TokenizerTables> tables_;
};

// Streams text out of tokens without ever splitting a code point: bytes of an unfinished UTF-8
// sequence wait for the next token. Bytes that can never become valid come out as U+FFFD.
class Detokenizer {
 public:
  // `at_start`: the tokens begin a text, so that SentencePiece's dummy space is removed; false when
  // they continue one that is shown already. `shown` are special tokens that are not hidden: the
  // markers of tool calls.
  explicit Detokenizer(const Tokenizer& tokenizer, bool at_start = true,
                       std::vector<Token> shown = {})
      : tokenizer_(tokenizer), shown_(std::move(shown)), at_start_(at_start) {}
  std::string push(Token token);  // text that became complete, special tokens hidden
  std::string finish();           // what still waited, as U+FFFD

 private:
  const Tokenizer& tokenizer_;
  std::vector<Token> shown_;
  std::string pending_;
  bool at_start_;
};

// tokenizer.json (Hugging Face tokenizers). `tokenizer_config` may be empty; it supplies
// bos/eos/chat_template when present. Both are JSON texts, the names are for errors.
struct TokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_json_name;
  std::string tokenizer_config_json;
  std::string tokenizer_config_name;
};
Vocabulary vocabulary_from_tokenizer_json(const TokenizerFiles& files);

// GGUF names its pre-tokeniser ("llama-bpe", "qwen2", "gpt-2", ...). Throws unsupported when
// unknown.
struct PreTokenizer {
  std::vector<std::string> split_patterns;
  std::vector<Normalizer> normalizers;
  bool ignore_merges = false;
  bool add_bos = false;       // where the file does not say
  bool always_bos = false;    // whatever the file says
  bool marks_spaces = false;  // pieces are text with U+2581 for space, not bytes
};
PreTokenizer pre_tokenizer_by_name(const std::string& name, const std::string& where);

// One name for each set of rules, the commonest first.
std::vector<std::string> pre_tokenizer_names();

}  // namespace tyto
