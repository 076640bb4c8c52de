// What a tokenizer is made from, whichever file it came from (tokenizer.json or GGUF metadata).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tyto {

using Token = int32_t;

// A token that is matched in the text before any other rule.
struct AddedToken {
  Token id = -1;
  std::string text;
  bool special = false;  // never produced from user text unless asked for; hidden when detokenising
  bool strip_left = false;  // swallows white space before it
  bool strip_right = false;
  bool normalized = false;  // found in the text that the normalizers made, not before them
};

// What is done to a text before it is cut into words, in the order of the list.
enum class Normalizer {
  nfc,
  nfd,
  nfkc,
  nfkd,
  charsmap,          // Vocabulary::charsmap, SentencePiece's table of replacements
  clean_controls,    // BERT: control characters go, white space becomes spaces
  space_ideographs,  // BERT: a space on both sides of each Chinese character
  strip_accents,     // nonspacing marks (Mn) go, which a decomposition has set free
  strip_marks,       // all marks (M) go
  lower_case,
  spaces,        // every white space becomes a space
  merge_spaces,  // one space instead of several
  trim_left,     // no space at the beginning
  trim_right,
};

// A chat template beside the usual one.
struct ChatSource {
  std::string name;    // "tool_use", "rag"
  std::string source;  // Jinja
};

struct Vocabulary {
  enum class Algorithm {
    byte_level_bpe,  // GPT-2 family: bytes as printable code points, ranked merges
    sentencepiece,   // Llama-2 family: U+2581 for space, byte fallback, merges
    unigram,         // T5, XLM-RoBERTa: U+2581 for space, the likeliest pieces by their scores
    word_piece,      // BERT: from the left the longest piece, U+2581 where a word begins
    longest_match,   // RWKV: pieces are bytes, from the left the longest
  };

  Algorithm algorithm = Algorithm::byte_level_bpe;
  std::vector<std::string> pieces;  // [vocab], as stored (byte-level alphabet or U+2581)
  std::vector<float> scores;        // [vocab] or empty; merges or ways are chosen by score
  std::vector<std::pair<Token, Token>> merges;  // by rank; when present, scores are not used
  std::vector<Token> merge_results;             // [merges], the token each merge makes
  std::vector<std::string> split_patterns;  // pre-tokeniser regular expressions, applied in turn
  std::vector<AddedToken> added;
  std::vector<Token> byte_tokens;  // [256] or empty; SentencePiece <0x00>..<0xFF>, -1: none
  std::vector<Normalizer> normalizers;
  std::string charsmap;            // SentencePiece's precompiled table, or empty
  bool prepend_space = false;      // a dummy space before the text and after every added token ...
  bool prepend_once = false;       // ... or before the text only
  bool prepend_if_absent = false;  // ... and not where a space stands already
  bool drops_space = false;        // decoding drops a space at the beginning that the text had
  bool fuses_unknown = false;      // one unknown token for all that follow one another in a word
  bool ignore_merges = false;      // a whole word in the vocabulary is taken as it is (Llama 3)
  uint32_t longest_word = 0;       // characters; WordPiece knows no longer word. 0: any length
  Token bos = -1;                  // -1: none
  Token unknown = -1;              // for bytes and characters the vocabulary has no token for
  std::vector<Token> eos;          // any of these ends a generation; the first is what add_eos adds
  bool add_bos = false;
  bool add_eos = false;
  std::string chat_template;  // Jinja source, may be empty
  std::vector<ChatSource> more_templates;
  bool ignores_system = false;  // the model's files say that system messages change no answer
};

// "default" is chat_template; one of a name that is there already is replaced.
void set_chat_template(Vocabulary& vocabulary, std::string_view name, std::string source);

// The Jinja source for a conversation: "tool_use" where there are tools and the model has it.
const std::string& chat_template_for(const Vocabulary& vocabulary, bool with_tools);

// Fills merges and merge_results from pairs of pieces, by rank. A merge that names or makes a piece
// outside the vocabulary is an Error. `where` names the file and field.
using PiecePair = std::pair<std::string_view, std::string_view>;
void resolve_merges(Vocabulary& vocabulary, const std::vector<PiecePair>& merges,
                    const std::string& where);

// A pair written "left right", as GGUF and older tokenizer.json have it; nullopt: it is not one.
std::optional<PiecePair> split_merge(std::string_view merge);

// Fills byte_tokens with the ids of the pieces <0x00>..<0xFF>; leaves it empty when there is none.
void find_byte_tokens(Vocabulary& vocabulary);
// Whether a text can have unknown characters: some byte has no token.
bool lacks_byte_tokens(const Vocabulary& vocabulary);

// tokenizer_config.json: which tokens begin and end a text, the chat template, and
// "ignores_system_messages", which is Tyto's own.

// Whether the config itself says if a token is added in front of a text and behind it.
struct SaysTokens {
  bool bos = false;
  bool eos = false;
};

// Overrides what tokenizer.json said where the config says something. `name` is for errors.
SaysTokens apply_tokenizer_config(const std::string& json, const std::string& name,
                                  Vocabulary& vocabulary);

}  // namespace tyto
