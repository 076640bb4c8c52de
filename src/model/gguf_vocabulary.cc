// Vocabulary out of tokenizer.* keys.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "model/gguf_metadata.h"
#include "text/piece_index.h"
#include "text/pre_tokenizer.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"
#include "text/word_piece.h"

namespace tyto {
namespace {

// Besides the ids that keys name. Some converters forgot to mark them as control tokens.
constexpr std::string_view kTurnEnds[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|eom_id|>",
                                          "<|endoftext|>",
                                          "<|end_of_text|>",
                                          "<end_of_turn>",
                                          "<turn|>",
                                          "<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<end_of_utterance>",
                                          "<｜end▁of▁sentence｜>"};

Token token_id(const GgufKeys& keys, const char* key, size_t vocab) {
  const auto value = keys.integer(key);
  // Writers store "no such token" as the all-ones pattern of their integer.
  if (!value || *value == UINT32_MAX || *value == UINT64_MAX) return -1;
  if (*value >= vocab) fail_input(keys.where(key), "{} is outside {} tokens", *value, vocab);
  return static_cast<Token>(*value);
}

// Empty texts are unused ids. No reader can tell two others of the same text apart.
void check_distinct(const GgufKeys& keys, const Vocabulary& vocabulary) {
  const PieceIndex index(vocabulary.pieces);
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const std::string& piece = vocabulary.pieces[id];
    const Token first = index.find(piece);
    if (!piece.empty() && first != static_cast<Token>(id))
      fail_input(keys.where("tokenizer.ggml.tokens"), "tokens {} and {} are both \"{}\"", first, id,
                 printable_name(piece));
  }
}

void read_merges(const GgufKeys& keys, Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.merges";
  const std::vector<std::string>* merges = keys.strings(key);
  if (merges == nullptr) fail_input(keys.where(key), "is missing");
  std::vector<PiecePair> pairs;
  pairs.reserve(merges->size());
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    const auto pair = split_merge((*merges)[rank]);
    if (!pair)
      fail_input(fmt::format("{}[{}]", keys.where(key), rank), "\"{}\" is not two pieces",
                 printable_name((*merges)[rank]));
    pairs.push_back(*pair);
  }
  resolve_merges(vocabulary, pairs, keys.where(key));
}

void read_scores(const GgufKeys& keys, Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.scores";
  const std::vector<double>* scores = keys.reals(key);
  if (scores == nullptr || scores->size() != vocabulary.pieces.size())
    fail_input(keys.where(key), "{} scores for {} tokens", scores == nullptr ? 0 : scores->size(),
               vocabulary.pieces.size());
  for (const double score : *scores) {
    if (!std::isfinite(score)) fail_input(keys.where(key), "a score is not finite");
    vocabulary.scores.push_back(static_cast<float>(score));
  }
}

void read_token_types(const GgufKeys& keys, Vocabulary& vocabulary) {
  const char* key = "tokenizer.ggml.token_type";
  const std::vector<int64_t>* types = keys.integers(key);
  if (types == nullptr) return;
  if (types->size() != vocabulary.pieces.size())
    fail_input(keys.where(key), "{} types for {} tokens", types->size(), vocabulary.pieces.size());
  for (size_t i = 0; i < types->size(); ++i) {
    const int64_t type = (*types)[i];
    const bool is_end = ends_turn(vocabulary.pieces[i]);
    if (type != kUnknown && type != kControl && type != kUserDefined && !is_end) continue;
    if (vocabulary.pieces[i].empty()) continue;  // would match everywhere
    AddedToken token;
    token.id = static_cast<Token>(i);
    token.text = vocabulary.pieces[i];
    token.special = type != kUserDefined || is_end;
    vocabulary.added.push_back(std::move(token));
  }
}

void read_ends(const GgufKeys& keys, Vocabulary& vocabulary) {
  const auto add = [&](Token id) {
    if (id >= 0 &&
        std::find(vocabulary.eos.begin(), vocabulary.eos.end(), id) == vocabulary.eos.end())
      vocabulary.eos.push_back(id);
  };
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                          "tokenizer.ggml.eom_token_id"})
    add(token_id(keys, key, vocabulary.pieces.size()));
  for (const AddedToken& token : vocabulary.added)
    if (token.special && ends_turn(token.text)) add(token.id);
  settle_harmony_ends(vocabulary);
}

bool flag_or(const GgufKeys& keys, const char* key, bool fallback) {
  return keys.flag(key).value_or(fallback);
}

void read_bos_and_eos(const GgufKeys& keys, Vocabulary& vocabulary, bool bos, bool eos) {
  vocabulary.add_bos = flag_or(keys, "tokenizer.ggml.add_bos_token", bos);
  vocabulary.add_eos = flag_or(keys, "tokenizer.ggml.add_eos_token", eos);
}

void read_pre_tokenized(const GgufKeys& keys, Vocabulary& vocabulary, const std::string& pre) {
  PreTokenizer rules = pre_tokenizer_by_name(pre, keys.where("tokenizer.ggml.pre"));
  vocabulary.algorithm = rules.marks_spaces ? Vocabulary::Algorithm::sentencepiece
                                            : Vocabulary::Algorithm::byte_level_bpe;
  vocabulary.split_patterns = std::move(rules.split_patterns);
  vocabulary.normalizers = std::move(rules.normalizers);
  vocabulary.ignore_merges = rules.ignore_merges;
  if (rules.marks_spaces) find_byte_tokens(vocabulary);
  read_bos_and_eos(keys, vocabulary, rules.add_bos, false);
  vocabulary.add_bos = vocabulary.add_bos || rules.always_bos;
  read_merges(keys, vocabulary);
}

void read_gpt2(const GgufKeys& keys, Vocabulary& vocabulary) {
  const std::string* named = keys.text("tokenizer.ggml.pre");
  read_pre_tokenized(keys, vocabulary, named == nullptr ? "default" : *named);
}

void read_gemma4(const GgufKeys& keys, Vocabulary& vocabulary) {
  read_pre_tokenized(keys, vocabulary, "gemma4");
}

void read_sentencepiece(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::sentencepiece;
  vocabulary.prepend_space = flag_or(keys, "tokenizer.ggml.add_space_prefix", true);
  read_bos_and_eos(keys, vocabulary, true, false);
  read_scores(keys, vocabulary);
  find_byte_tokens(vocabulary);
  vocabulary.fuses_unknown = lacks_byte_tokens(vocabulary);
}

void read_unigram(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::unigram;
  const char* map_key = "tokenizer.ggml.precompiled_charsmap";
  if (const std::vector<int64_t>* table = keys.integers(map_key)) {
    for (const int64_t byte : *table) {
      if (byte < INT8_MIN || byte > UINT8_MAX) fail_input(keys.where(map_key), "is not bytes");
      vocabulary.charsmap.push_back(static_cast<char>(byte));
    }
    vocabulary.normalizers.push_back(Normalizer::charsmap);
  }
  const bool merge_spaces = flag_or(keys, "tokenizer.ggml.remove_extra_whitespaces", false);
  if (merge_spaces)
    vocabulary.normalizers.insert(
        vocabulary.normalizers.end(),
        {Normalizer::trim_left, Normalizer::trim_right, Normalizer::merge_spaces});
  vocabulary.prepend_space = flag_or(keys, "tokenizer.ggml.add_space_prefix", merge_spaces);
  read_bos_and_eos(keys, vocabulary, false, true);
  read_scores(keys, vocabulary);
  find_byte_tokens(vocabulary);
}

void read_word_piece(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::word_piece;
  const bool lower_case = flag_or(keys, "tokenizer.ggml.normalizer.lowercase", true);
  const bool strip_accents = flag_or(keys, "tokenizer.ggml.normalizer.strip_accents", lower_case);
  vocabulary.normalizers =
      bert_normalizers({.strip_accents = strip_accents, .lower_case = lower_case});
  vocabulary.split_patterns = {std::string(kWhiteSpacePattern), std::string(kPunctuationPattern)};
  read_bos_and_eos(keys, vocabulary, true, true);
  // What stands behind a text is the separator, whatever the file has as its end.
  vocabulary.add_eos = flag_or(keys, "tokenizer.ggml.add_sep_token", true);
}

// "\\n", "\\x41" and the like, which RWKV's pieces are written with since they are bytes.
std::string unescaped(std::string_view piece) {
  std::string bytes;
  for (size_t i = 0; i < piece.size(); ++i) {
    if (piece[i] != '\\' || i + 1 == piece.size()) {
      bytes.push_back(piece[i]);
      continue;
    }
    const char letter = piece[++i];
    unsigned byte = 0;
    const std::string_view hex = piece.substr(i + 1, 2);
    const bool is_hex = letter == 'x' && hex.size() == 2 &&
                        std::from_chars(hex.data(), hex.data() + 2, byte, 16).ptr == hex.data() + 2;
    if (is_hex) i += 2;
    bytes.push_back(is_hex          ? static_cast<char>(byte)
                    : letter == 'n' ? '\n'
                    : letter == 'r' ? '\r'
                    : letter == 't' ? '\t'
                                    : letter);
  }
  return bytes;
}

void read_rwkv(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::longest_match;
  for (std::string& piece : vocabulary.pieces) piece = unescaped(piece);
  read_bos_and_eos(keys, vocabulary, false, false);
}

struct TokenizerKind {
  std::string_view name;  // tokenizer.ggml.model
  void (*read)(const GgufKeys& keys, Vocabulary& vocabulary);
};
constexpr TokenizerKind kKinds[] = {
    {"gpt2", read_gpt2},  {"llama", read_sentencepiece}, {"gemma4", read_gemma4},
    {"t5", read_unigram}, {"bert", read_word_piece},     {"rwkv", read_rwkv},
};

const TokenizerKind& kind_of(const GgufKeys& keys, const std::string& model) {
  std::string known;
  for (const TokenizerKind& kind : kKinds) {
    if (kind.name == model) return kind;
    known.append(" ").append(kind.name);
  }
  fail_unsupported(keys.where("tokenizer.ggml.model"),
                   "the tokenizer \"{}\" is not known; these are:{}", printable_name(model), known);
}

// Ids that a file leaves out because its kind of tokenizer has always had them.
void add_usual_tokens(const GgufKeys& keys, Vocabulary& vocabulary) {
  const auto piece = [&](std::string_view text) {
    const auto at = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), text);
    return at == vocabulary.pieces.end() ? -1 : static_cast<Token>(at - vocabulary.pieces.begin());
  };
  const size_t vocab = vocabulary.pieces.size();
  if (vocabulary.algorithm == Vocabulary::Algorithm::unigram) {
    if (vocabulary.unknown < 0) vocabulary.unknown = piece("<unk>");
    if (vocabulary.eos.empty() && piece("</s>") >= 0) vocabulary.eos = {piece("</s>")};
  } else if (vocabulary.algorithm == Vocabulary::Algorithm::word_piece) {
    if (vocabulary.bos < 0) vocabulary.bos = token_id(keys, "tokenizer.ggml.cls_token_id", vocab);
    if (vocabulary.bos < 0) vocabulary.bos = piece("[CLS]");
    if (vocabulary.unknown < 0) vocabulary.unknown = piece("[UNK]");
    Token separator = token_id(keys, "tokenizer.ggml.seperator_token_id", vocab);
    if (separator < 0) separator = piece("[SEP]");
    if (separator >= 0) {
      std::erase(vocabulary.eos, separator);
      vocabulary.eos.insert(vocabulary.eos.begin(), separator);
    }
  }
}

void read_chat_templates(const Gguf& gguf, Vocabulary& vocabulary) {
  constexpr std::string_view kUsual = "tokenizer.chat_template";
  const GgufKeys keys(gguf);
  if (const std::string* source = keys.text(kUsual)) vocabulary.chat_template = *source;
  for (const auto& [key, value] : gguf.metadata) {
    const std::string_view name = key;
    if (name.size() > kUsual.size() + 1 && name.starts_with(kUsual) && name[kUsual.size()] == '.')
      set_chat_template(vocabulary, name.substr(kUsual.size() + 1), *keys.text(key));
  }
}

bool contains_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::ranges::any_of(
      parts, [&](std::string_view part) { return text.find(part) != std::string_view::npos; });
}

// Which added tokens swallow the white space beside them: no key says it, so that readers go by the
// names of the models whose tokenizer files do.
void read_strips(const GgufKeys& keys, Vocabulary& vocabulary) {
  const auto text = [&](const char* key) {
    const std::string* value = keys.text(key);
    return value == nullptr ? std::string() : *value;
  };
  std::string name = text("general.name");
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool phi = contains_any(name, {"phi-3", "phi3"});
  const bool mask = contains_any(text("tokenizer.ggml.pre"),
                                 {"jina-v2-de", "jina-v2-es", "jina-v2-code", "modern-bert"}) ||
                    contains_any(text("general.architecture"), {"nomic-bert-moe", "jina-bert-v3"});
  for (AddedToken& token : vocabulary.added) {
    const bool stays =
        token.text == "<unk>" || token.text == "<s>" || token.text == "<|endoftext|>";
    token.strip_right = phi && !stays;
    token.strip_left = mask && (token.text == "<mask>" || token.text == "[MASK]");
  }
}

}  // namespace

bool ends_turn(std::string_view text) {
  return std::ranges::find(kTurnEnds, text) != std::end(kTurnEnds);
}

std::optional<Vocabulary> vocabulary_from_gguf(const Gguf& gguf) {
  const GgufKeys keys(gguf);
  const std::string* model = keys.text("tokenizer.ggml.model");
  if (model == nullptr || *model == "none" || *model == "no_vocab") return std::nullopt;
  const TokenizerKind& kind = kind_of(keys, *model);
  const std::vector<std::string>* pieces = keys.strings("tokenizer.ggml.tokens");
  if (pieces == nullptr || pieces->empty())
    fail_input(keys.where("tokenizer.ggml.tokens"), "is missing or empty");

  Vocabulary vocabulary;
  vocabulary.pieces = *pieces;
  check_distinct(keys, vocabulary);
  kind.read(keys, vocabulary);
  read_token_types(keys, vocabulary);
  read_strips(keys, vocabulary);
  vocabulary.bos = token_id(keys, "tokenizer.ggml.bos_token_id", pieces->size());
  vocabulary.unknown = token_id(keys, "tokenizer.ggml.unknown_token_id", pieces->size());
  read_ends(keys, vocabulary);
  add_usual_tokens(keys, vocabulary);
  if (vocabulary.bos < 0) vocabulary.add_bos = false;
  read_chat_templates(gguf, vocabulary);
  return vocabulary;
}

}  // namespace tyto
