#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "model/synth.h"
#include "text/byte_level.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace tyto {
namespace {

struct Special {
  Token id;
  std::string_view text;
};

// The special tokens of one family of models. Ids not listed from first_reserved on are reserved
// tokens; reserved_end is 0 where there are none.
struct NamedPieces {
  std::string_view architecture;
  uint32_t vocab;  // 0: any
  std::string_view pre;
  std::string_view chat_template;
  std::array<Special, 8> specials;  // the first empty text ends the list
  Token first_reserved;
  Token reserved_end;
  Token bos;
  std::array<Token, 3> eos;  // -1: none
  bool add_bos;
};

constexpr NamedPieces kNamedPieces[] = {
    {"llama",
     128256,
     "llama-bpe",
     "llama3",
     {{{128000, "<|begin_of_text|>"},
       {128001, "<|end_of_text|>"},
       {128004, "<|finetune_right_pad_id|>"},
       {128006, "<|start_header_id|>"},
       {128007, "<|end_header_id|>"},
       {128008, "<|eom_id|>"},
       {128009, "<|eot_id|>"},
       {128010, "<|python_tag|>"}}},
     128000,
     128256,
     128000,
     {128009, 128001, 128008},
     true},
    {"llama",
     49152,
     "smollm",
     "chatml",
     {{{0, "<|endoftext|>"}, {1, "<|im_start|>"}, {2, "<|im_end|>"}}},
     0,
     17,
     1,
     {2, 0, -1},
     false},
    // TinyLlama's own vocabulary is SentencePiece's; the ids of its special tokens are kept.
    {"llama",
     32000,
     "gpt-2",
     "",
     {{{0, "<unk>"}, {1, "<s>"}, {2, "</s>"}}},
     0,
     0,
     1,
     {2, -1, -1},
     true},
    {"qwen2",
     0,
     "qwen2",
     "chatml",
     {{{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
     151643,
     151665,
     -1,
     {151645, 151643, -1},
     false},
    {"qwen3",
     0,
     "qwen2",
     "chatml",
     {{{151643, "<|endoftext|>"}, {151644, "<|im_start|>"}, {151645, "<|im_end|>"}}},
     151643,
     151669,
     -1,
     {151645, 151643, -1},
     false},
    {"", 0, "gpt-2", "", {{{0, "<|bos|>"}, {1, "<|eos|>"}}}, 0, 0, 0, {1, -1, -1}, true},
};

const NamedPieces& family_of(const Config& config) {
  for (const NamedPieces& family : kNamedPieces) {
    if (!family.architecture.empty() && family.architecture != config.architecture) continue;
    if (family.vocab != 0 && family.vocab != config.vocab) continue;
    if (family.reserved_end > static_cast<Token>(config.vocab)) continue;
    return family;
  }
  TYTO_ASSERT(!"the last family fits everything");
  return kNamedPieces[0];
}

std::map<Token, std::string> special_texts(const NamedPieces& family) {
  std::map<Token, std::string> texts;
  for (const Special& special : family.specials)
    if (!special.text.empty()) texts[special.id] = special.text;
  int reserved = 0;
  for (Token id = family.first_reserved; id < family.reserved_end; ++id)
    if (!texts.contains(id)) texts[id] = fmt::format("<|reserved_special_token_{}|>", reserved++);
  return texts;
}

// Pieces of two letters and then of three, from letters by their frequency in English, so that a
// prompt becomes about as many tokens as a real vocabulary would make of it. Each string of three
// is made by one merge only, which keeps every piece distinct.
constexpr std::string_view kLetters = " etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ.";

class PieceMaker {
 public:
  explicit PieceMaker(Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  // The next piece in the order of ids; false when there are no more letters to combine.
  bool add(Token id) {
    const size_t letters = kLetters.size();
    const size_t index = made_++;
    if (index < 256) return place(id, to_byte_level(byte_text(index)));
    const size_t pair = index - 256;
    if (pair < letters * letters) {
      const Token left = byte_ids_[letter(pair / letters)];
      const Token right = byte_ids_[letter(pair % letters)];
      return join(id, left, right);
    }
    const size_t triple = pair - letters * letters;
    if (triple >= letters * letters * letters) return false;
    return join(id, pair_ids_[triple / letters], byte_ids_[letter(triple % letters)]);
  }

 private:
  static std::string byte_text(size_t byte) { return std::string(1, static_cast<char>(byte)); }
  static size_t letter(size_t index) { return static_cast<unsigned char>(kLetters[index]); }

  bool place(Token id, std::string piece) {
    if (made_ <= 256) byte_ids_.push_back(id);
    vocabulary_.pieces[static_cast<size_t>(id)] = std::move(piece);
    return true;
  }

  bool join(Token id, Token left, Token right) {
    const auto& pieces = vocabulary_.pieces;
    vocabulary_.merges.emplace_back(left, right);
    vocabulary_.merge_results.push_back(id);
    if (pair_ids_.size() < kLetters.size() * kLetters.size()) pair_ids_.push_back(id);
    return place(id, pieces[static_cast<size_t>(left)] + pieces[static_cast<size_t>(right)]);
  }

  Vocabulary& vocabulary_;
  size_t made_ = 0;
  std::vector<Token> byte_ids_;
  std::vector<Token> pair_ids_;
};

std::string template_by_name(std::string_view name) {
  for (const NamedTemplate& entry : named_chat_templates())
    if (entry.name == name) return std::string(entry.source);
  return "";
}

}  // namespace

Vocabulary synthetic_vocabulary(const Config& config) {
  constexpr uint32_t kSmallest = 256 + 2;
  if (config.vocab < kSmallest)
    fail_unsupported("vocabulary size " + std::to_string(config.vocab),
                     "a byte-level vocabulary needs {} tokens", kSmallest);
  const NamedPieces& family = family_of(config);
  const std::map<Token, std::string> specials = special_texts(family);
  Vocabulary vocabulary;
  // Qwen pads its embedding beyond the last token.
  const Token size = family.vocab == 0 && family.reserved_end > 0
                         ? family.reserved_end
                         : static_cast<Token>(config.vocab);
  vocabulary.pieces.resize(static_cast<size_t>(size));
  PieceMaker maker(vocabulary);
  for (Token id = 0; id < size; ++id) {
    const auto special = specials.find(id);
    if (special == specials.end()) {
      if (!maker.add(id)) vocabulary.pieces[static_cast<size_t>(id)] = fmt::format("[PAD{}]", id);
      continue;
    }
    vocabulary.pieces[static_cast<size_t>(id)] = special->second;
    AddedToken token;
    token.id = id;
    token.text = special->second;
    token.special = true;
    vocabulary.added.push_back(std::move(token));
  }
  const PreTokenizer rules = pre_tokenizer_by_name(std::string(family.pre), "synthetic vocabulary");
  vocabulary.split_patterns = rules.split_patterns;
  vocabulary.normalizers = rules.normalizers;
  vocabulary.ignore_merges = rules.ignore_merges;
  vocabulary.bos = family.bos;
  for (const Token id : family.eos)
    if (id >= 0) vocabulary.eos.push_back(id);
  vocabulary.add_bos = family.add_bos;
  vocabulary.chat_template = template_by_name(family.chat_template);
  return vocabulary;
}

}  // namespace tyto
