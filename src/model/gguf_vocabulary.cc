// Vocabulary out of tokenizer.* keys.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"
#include "base/printable.h"
#include "model/gguf_metadata.h"
#include "text/piece_index.h"
#include "text/tokenizer.h"

namespace tyto {
namespace {

// tokenizer.ggml.token_type; the others need no treatment of their own.
enum : int64_t { kUnknown = 2, kControl = 3, kUserDefined = 4 };

constexpr std::array<std::string_view, 6> kTurnEnds = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>"};

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
    if (type != kUnknown && type != kControl && type != kUserDefined) continue;
    if (vocabulary.pieces[i].empty()) continue;  // would match everywhere
    AddedToken token;
    token.id = static_cast<Token>(i);
    token.text = vocabulary.pieces[i];
    token.special = type != kUserDefined;
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
}

void read_byte_level(const GgufKeys& keys, Vocabulary& vocabulary) {
  const std::string* named = keys.text("tokenizer.ggml.pre");
  const std::string pre = named == nullptr ? "default" : *named;
  PreTokenizer rules = pre_tokenizer_by_name(pre, keys.where("tokenizer.ggml.pre"));
  vocabulary.algorithm = Vocabulary::Algorithm::byte_level_bpe;
  vocabulary.split_patterns = std::move(rules.split_patterns);
  vocabulary.normalize_nfc = rules.normalize_nfc;
  vocabulary.ignore_merges = rules.ignore_merges;
  vocabulary.add_bos = rules.add_bos;
  read_merges(keys, vocabulary);
}

void read_sentencepiece(const GgufKeys& keys, Vocabulary& vocabulary) {
  vocabulary.algorithm = Vocabulary::Algorithm::sentencepiece;
  vocabulary.prepend_space = keys.flag("tokenizer.ggml.add_space_prefix").value_or(true);
  vocabulary.add_bos = true;
  read_scores(keys, vocabulary);
  find_byte_tokens(vocabulary);
}

}  // namespace

bool ends_turn(std::string_view text) {
  return std::find(kTurnEnds.begin(), kTurnEnds.end(), text) != kTurnEnds.end();
}

std::optional<Vocabulary> vocabulary_from_gguf(const Gguf& gguf) {
  const GgufKeys keys(gguf);
  const std::string* model = keys.text("tokenizer.ggml.model");
  if (model == nullptr || *model == "none" || *model == "no_vocab") return std::nullopt;
  const bool sentencepiece = *model == "llama";
  if (!sentencepiece && *model != "gpt2")
    fail_unsupported(gguf.name, "its tokenizer is {}, and only gpt2 and llama are supported",
                     printable_name(*model));
  const std::vector<std::string>* pieces = keys.strings("tokenizer.ggml.tokens");
  if (pieces == nullptr || pieces->empty())
    fail_input(keys.where("tokenizer.ggml.tokens"), "is missing or empty");

  Vocabulary vocabulary;
  vocabulary.pieces = *pieces;
  check_distinct(keys, vocabulary);
  if (sentencepiece)
    read_sentencepiece(keys, vocabulary);
  else
    read_byte_level(keys, vocabulary);
  read_token_types(keys, vocabulary);
  vocabulary.bos = token_id(keys, "tokenizer.ggml.bos_token_id", pieces->size());
  vocabulary.unknown = token_id(keys, "tokenizer.ggml.unknown_token_id", pieces->size());
  read_ends(keys, vocabulary);
  vocabulary.add_bos = keys.flag("tokenizer.ggml.add_bos_token").value_or(vocabulary.add_bos);
  vocabulary.add_eos = keys.flag("tokenizer.ggml.add_eos_token").value_or(false);
  if (vocabulary.bos < 0) vocabulary.add_bos = false;
  if (const std::string* source = keys.text("tokenizer.chat_template"))
    vocabulary.chat_template = *source;
  return vocabulary;
}

}  // namespace tyto
