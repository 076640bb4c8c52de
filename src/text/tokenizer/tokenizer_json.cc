// tokenizer.json (Hugging Face tokenizers) to a Vocabulary. The file describes a pipeline of
// components; those that Llama-family models use are understood, any other is refused by name.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_tables.h"
#include "text/tokenizer/unigram.h"

namespace tyto {
namespace {

// A token written as its text or as an object that has the text as "content". Absent, null, empty:
// none. A text outside the vocabulary is an error where the token is needed.
Token token_of(const Json& root, std::string_view key, const Vocabulary& vocabulary, bool needed) {
  const auto value = root.find(key);
  if (!value) return -1;
  const std::string_view text =
      value->is(Json::Type::object) ? value->at("content").as_string() : value->as_string();
  if (text.empty()) return -1;
  const auto at = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), text);
  if (at != vocabulary.pieces.end()) return static_cast<Token>(at - vocabulary.pieces.begin());
  if (needed) value->fail("the token is not in the vocabulary");
  return -1;
}

// One template, or several with names.
void read_chat_templates(const Json& value, Vocabulary& vocabulary) {
  if (value.is(Json::Type::string))
    return set_chat_template(vocabulary, "default", std::string(value.as_string()));
  value.for_each_element([&](size_t, const Json& each) {
    set_chat_template(vocabulary, each.at("name").as_string(),
                      std::string(each.at("template").as_string()));
  });
}

}  // namespace

SaysTokens apply_tokenizer_config(const std::string& json, const std::string& name,
                                  Vocabulary& vocabulary) {
  const Json root = Json::parse(json, name);
  vocabulary.add_bos = root.bool_or("add_bos_token", vocabulary.add_bos);
  vocabulary.add_eos = root.bool_or("add_eos_token", vocabulary.add_eos);
  if (const Token bos = token_of(root, "bos_token", vocabulary, vocabulary.add_bos); bos >= 0)
    vocabulary.bos = bos;
  const Token eos = token_of(root, "eos_token", vocabulary, true);
  auto& ends = vocabulary.eos;
  if (eos >= 0 && std::find(ends.begin(), ends.end(), eos) == ends.end()) ends.push_back(eos);
  vocabulary.ignores_system = root.bool_or("ignores_system_messages", false);
  if (const auto chat = root.find("chat_template")) read_chat_templates(*chat, vocabulary);
  return {root.find("add_bos_token").has_value(), root.find("add_eos_token").has_value()};
}

namespace {

// Ids may leave gaps, but not such that a small file asks for a huge table.
constexpr uint64_t kMaxIdGap = 65536;

// What the components said that Vocabulary has no field for.
struct Pipeline {
  bool bytes = false;         // ByteLevel: text as bytes
  bool marks_spaces = false;  // Replace or Metaspace: spaces as U+2581
  bool drops_spaces = false;  // WhitespaceSplit: white space is gone before anything is marked
  // Where the post-processor has a second token in front of the text and behind it; empty: nowhere.
  std::string second_before, second_behind;
};

using Algorithm = Vocabulary::Algorithm;

[[noreturn]] void refuse(const Json& component, std::string_view what) {
  fail_unsupported(component.path(), "{} is not supported", what);
}

std::string type_of(const Json& component) {
  return std::string(component.at("type").as_string());
}

// A token may be listed again with the same text, as the special ones are among the added tokens.
void set_piece(Vocabulary& vocabulary, size_t id, std::string_view text, const Json& place) {
  if (id >= vocabulary.pieces.size()) vocabulary.pieces.resize(id + 1);
  std::string& piece = vocabulary.pieces[id];
  if (!piece.empty() && piece != text)
    place.fail(fmt::format("token {} is \"{}\" already", id, piece));
  piece = text;
}

Token find_piece(const Vocabulary& vocabulary, std::string_view text) {
  const auto at = std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), text);
  return at == vocabulary.pieces.end() ? -1 : static_cast<Token>(at - vocabulary.pieces.begin());
}

// --- model ---

void read_merges(const Json& merges, Vocabulary& vocabulary) {
  std::vector<PiecePair> pairs;
  merges.for_each_element([&](size_t, const Json& merge) {
    std::optional<PiecePair> pair;
    if (merge.is(Json::Type::string)) {
      pair = split_merge(merge.as_string());
    } else if (merge.size() == 2) {
      pair.emplace();
      merge.for_each_element([&](size_t side, const Json& piece) {
        (side == 0 ? pair->first : pair->second) = piece.as_string();
      });
    }
    if (!pair) merge.fail("expected a pair of pieces");
    pairs.push_back(*pair);
  });
  resolve_merges(vocabulary, pairs, merges.path());
}

void read_vocab(const Json& vocab, Vocabulary& vocabulary) {
  const uint64_t limit = 2 * vocab.size() + kMaxIdGap;
  vocabulary.pieces.reserve(vocab.size());
  vocab.for_each_member([&](std::string_view piece, const Json& id) {
    set_piece(vocabulary, id.as_uint(limit), piece, id);
  });
}

void read_unknown_token(const Json& model, Vocabulary& vocabulary) {
  if (const std::string unknown = model.string_or("unk_token", ""); !unknown.empty())
    vocabulary.unknown = find_piece(vocabulary, unknown);
}

void read_bpe(const Json& model, Vocabulary& vocabulary) {
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!model.string_or(affix, "").empty()) refuse(model, affix);
  if (model.double_or("dropout", 0) != 0) refuse(model, "dropout");
  read_vocab(model.at("vocab"), vocabulary);
  read_merges(model.at("merges"), vocabulary);
  vocabulary.ignore_merges = model.bool_or("ignore_merges", false);
  if (model.bool_or("byte_fallback", false)) find_byte_tokens(vocabulary);
  vocabulary.fuses_unknown = model.bool_or("fuse_unk", false) && lacks_byte_tokens(vocabulary);
  read_unknown_token(model, vocabulary);
}

void read_unigram(const Json& model, Vocabulary& vocabulary) {
  vocabulary.algorithm = Algorithm::unigram;
  const Json vocab = model.at("vocab");
  vocab.for_each_element([&](size_t, const Json& entry) {
    if (entry.size() != 2) entry.fail("expected a piece and its score");
    entry.for_each_element([&](size_t side, const Json& part) {
      if (side == 0)
        vocabulary.pieces.emplace_back(part.as_string());
      else
        vocabulary.scores.push_back(static_cast<float>(part.as_double()));
    });
    if (!std::isfinite(vocabulary.scores.back())) entry.fail("the score is not finite");
  });
  if (const auto unknown = model.find("unk_id"); unknown && !vocabulary.pieces.empty())
    vocabulary.unknown = static_cast<Token>(unknown->as_uint(vocabulary.pieces.size() - 1));
  if (model.bool_or("byte_fallback", false)) find_byte_tokens(vocabulary);
}

void read_word_piece(const Json& model, Vocabulary& vocabulary) {
  vocabulary.algorithm = Algorithm::word_piece;
  read_vocab(model.at("vocab"), vocabulary);
  read_unknown_token(model, vocabulary);
  if (const auto longest = model.find("max_input_chars_per_word"))
    vocabulary.longest_word = static_cast<uint32_t>(longest->as_uint(UINT32_MAX));
}

// Pieces that go on with a word are marked in this file, those that begin one in a Vocabulary.
void mark_words(const Json& model, Vocabulary& vocabulary) {
  const std::string prefix = model.string_or("continuing_subword_prefix", "##");
  if (prefix.empty()) refuse(model, "an empty continuing_subword_prefix");
  std::vector<bool> added(vocabulary.pieces.size(), false);
  for (const AddedToken& token : vocabulary.added) added[static_cast<size_t>(token.id)] = true;
  for (size_t id = 0; id < added.size(); ++id) {
    std::string& piece = vocabulary.pieces[id];
    if (added[id] || piece.empty()) continue;
    if (piece.starts_with(prefix))
      piece.erase(0, prefix.size());
    else
      piece.insert(0, kSpaceMark);
  }
}

void read_model(const Json& model, Vocabulary& vocabulary) {
  // Files of the first versions of the format name no type.
  const std::string type = model.string_or("type", "BPE");
  if (type == "BPE")
    read_bpe(model, vocabulary);
  else if (type == "Unigram")
    read_unigram(model, vocabulary);
  else if (type == "WordPiece")
    read_word_piece(model, vocabulary);
  else
    fail_unsupported(model.path(),
                     "model type \"{}\" is not known; these are: BPE Unigram WordPiece",
                     printable_name(type));
}

void read_added_tokens(const Json& list, Vocabulary& vocabulary) {
  const uint64_t limit = vocabulary.pieces.size() + list.size() + kMaxIdGap;
  list.for_each_element([&](size_t, const Json& each) {
    AddedToken token;
    const uint64_t id = each.at("id").as_uint(limit);
    token.id = static_cast<Token>(id);
    token.text = each.at("content").as_string();
    token.special = each.bool_or("special", false);
    token.strip_left = each.bool_or("lstrip", false);
    token.strip_right = each.bool_or("rstrip", false);
    token.normalized = each.bool_or("normalized", !token.special);
    if (each.bool_or("single_word", false)) refuse(each, "single_word");
    set_piece(vocabulary, id, token.text, each);
    vocabulary.added.push_back(std::move(token));
  });
}

// --- normalizer ---

constexpr struct {
  std::string_view type;
  Normalizer step;
} kPlainNormalizers[] = {{"NFC", Normalizer::nfc},
                         {"NFD", Normalizer::nfd},
                         {"NFKC", Normalizer::nfkc},
                         {"NFKD", Normalizer::nfkd},
                         {"Lowercase", Normalizer::lower_case},
                         {"StripAccents", Normalizer::strip_marks}};

void read_replace(const Json& component, Vocabulary& vocabulary, Pipeline& pipeline) {
  const Json pattern = component.at("pattern");
  const auto text = pattern.find("String");
  const auto regex = pattern.find("Regex");
  const std::string_view to = component.at("content").as_string();
  if (text && text->as_string() == " " && to == kSpaceMark)
    pipeline.marks_spaces = true;
  else if (regex && regex->as_string() == " {2,}" && (to == " " || to == kSpaceMark))
    vocabulary.normalizers.push_back(Normalizer::merge_spaces);
  else
    refuse(component, "this Replace");
}

void read_bert_normalizer(const Json& component, Vocabulary& vocabulary) {
  const bool lower_case = component.bool_or("lowercase", true);
  const std::vector<Normalizer> steps =
      bert_normalizers({.clean_controls = component.bool_or("clean_text", true),
                        .space_ideographs = component.bool_or("handle_chinese_chars", true),
                        .strip_accents = component.bool_or("strip_accents", lower_case),
                        .lower_case = lower_case});
  vocabulary.normalizers.insert(vocabulary.normalizers.end(), steps.begin(), steps.end());
}

void read_normalizer(const Json& component, Vocabulary& vocabulary, Pipeline& pipeline) {
  const std::string type = type_of(component);
  const auto plain =
      std::ranges::find_if(kPlainNormalizers, [&](const auto& each) { return each.type == type; });
  if (plain != std::end(kPlainNormalizers)) {
    vocabulary.normalizers.push_back(plain->step);
  } else if (type == "Sequence") {
    component.at("normalizers").for_each_element([&](size_t, const Json& each) {
      read_normalizer(each, vocabulary, pipeline);
    });
  } else if (type == "Prepend") {
    if (component.at("prepend").as_string() != kSpaceMark) refuse(component, "this Prepend");
    vocabulary.prepend_space = true;
  } else if (type == "Replace") {
    read_replace(component, vocabulary, pipeline);
  } else if (type == "Strip") {
    if (component.bool_or("strip_left", true))
      vocabulary.normalizers.push_back(Normalizer::trim_left);
    if (component.bool_or("strip_right", true))
      vocabulary.normalizers.push_back(Normalizer::trim_right);
  } else if (type == "BertNormalizer") {
    read_bert_normalizer(component, vocabulary);
  } else if (type == "Precompiled") {
    if (!vocabulary.charsmap.empty()) refuse(component, "a second Precompiled");
    const Json table = component.at("precompiled_charsmap");
    vocabulary.charsmap = from_base64(table.as_string(), table.path());
    if (!vocabulary.charsmap.empty()) vocabulary.normalizers.push_back(Normalizer::charsmap);
  } else {
    refuse(component, fmt::format("normalizer \"{}\"", type));
  }
}

// --- pre_tokenizer ---

std::string escaped(std::string_view literal) {
  std::string pattern;
  for (const char c : literal) {
    if (std::string_view(R"(\^$.[]|()?*+{}-#&~ )").find(c) != std::string_view::npos)
      pattern.push_back('\\');
    pattern.push_back(c);
  }
  return pattern;
}

// A pattern whose matches, and the stretches between them, are the parts this Split makes.
std::string split_form(const Json& split, const std::string& pattern, bool invert) {
  const std::string behavior(split.string_or("behavior", "Isolated"));
  if (behavior == "Isolated") return pattern;
  // Keeps the matches and drops the rest; the patterns written so match everything.
  if (behavior == "Removed" && invert) return pattern;
  if (!invert && behavior == "Contiguous") return fmt::format("(?:{})+", pattern);
  if (!invert && behavior == "MergedWithPrevious")
    return fmt::format("(?s:.)*?(?:{})|(?s:.)+", pattern);
  if (!invert && behavior == "MergedWithNext")
    return fmt::format("(?:{0})(?:(?!{0})(?s:.))*|(?:(?!{0})(?s:.))+", pattern);
  refuse(split, fmt::format("behavior \"{}\"{}", behavior, invert ? " with invert" : ""));
}

void read_split(const Json& component, Vocabulary& vocabulary) {
  const Json pattern = component.at("pattern");
  const auto literal = pattern.find("String");
  const std::string text =
      literal ? escaped(literal->as_string()) : std::string(pattern.at("Regex").as_string());
  if (text.empty()) pattern.fail("the pattern is empty");
  vocabulary.split_patterns.push_back(
      split_form(component, text, component.bool_or("invert", false)));
}

void read_byte_level(const Json& component, Vocabulary& vocabulary) {
  if (component.bool_or("add_prefix_space", false)) {
    // The space would go before every part made so far, not before the text.
    if (!vocabulary.split_patterns.empty()) refuse(component, "add_prefix_space after a split");
    vocabulary.prepend_space = true;
    vocabulary.prepend_if_absent = true;
  }
  if (component.bool_or("use_regex", true)) vocabulary.split_patterns.emplace_back(kGpt2Pattern);
}

void read_metaspace(const Json& component, Vocabulary& vocabulary) {
  if (component.string_or("replacement", kSpaceMark) != kSpaceMark)
    refuse(component, "this replacement");
  const bool legacy_prefix = component.bool_or("add_prefix_space", true);
  const std::string scheme =
      component.string_or("prepend_scheme", legacy_prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    refuse(component, fmt::format("prepend_scheme \"{}\"", scheme));
  if (!vocabulary.prepend_space) {  // a normalizer's Prepend has done it already
    vocabulary.prepend_space = scheme != "never";
    vocabulary.prepend_once = scheme == "first";
    vocabulary.prepend_if_absent = true;
  }
  if (component.bool_or("split", true))
    vocabulary.split_patterns.push_back(fmt::format("{0}[^{0}]*", kSpaceMark));
}

// White space between words goes. Where words are marked, marking single spaces says the same.
void read_white_space_split(const Json& component, Vocabulary& vocabulary, Pipeline& pipeline) {
  if (vocabulary.algorithm == Algorithm::word_piece) {
    vocabulary.split_patterns.emplace_back(kWhiteSpacePattern);
  } else if (vocabulary.algorithm == Algorithm::unigram && !pipeline.marks_spaces) {
    vocabulary.normalizers.insert(vocabulary.normalizers.end(),
                                  {Normalizer::spaces, Normalizer::trim_left,
                                   Normalizer::trim_right, Normalizer::merge_spaces});
    pipeline.drops_spaces = true;
  } else {
    refuse(component, "WhitespaceSplit here");
  }
}

void read_pre_tokenizer(const Json& component, Vocabulary& vocabulary, Pipeline& pipeline) {
  const std::string type = type_of(component);
  // What follows ByteLevel would see its alphabet instead of the text.
  if (pipeline.bytes) refuse(component, fmt::format("\"{}\" after ByteLevel", type));
  if (type == "Sequence") {
    component.at("pretokenizers").for_each_element([&](size_t, const Json& each) {
      read_pre_tokenizer(each, vocabulary, pipeline);
    });
  } else if (type == "ByteLevel") {
    read_byte_level(component, vocabulary);
    pipeline.bytes = true;
  } else if (type == "Metaspace") {
    read_metaspace(component, vocabulary);
    pipeline.marks_spaces = true;
  } else if (type == "WhitespaceSplit") {
    read_white_space_split(component, vocabulary, pipeline);
  } else if (type == "BertPreTokenizer" && vocabulary.algorithm == Algorithm::word_piece) {
    vocabulary.split_patterns.insert(
        vocabulary.split_patterns.end(),
        {std::string(kWhiteSpacePattern), std::string(kPunctuationPattern)});
  } else if (type == "Split") {
    read_split(component, vocabulary);
  } else if (type == "Digits") {
    const bool single = component.bool_or("individual_digits", false);
    vocabulary.split_patterns.push_back(std::string(kDigitPattern) + (single ? "" : "+"));
  } else if (type == "Punctuation") {
    vocabulary.split_patterns.push_back(
        split_form(component, std::string(kPunctuationPattern), false));
  } else {
    refuse(component, fmt::format("pre-tokenizer \"{}\"", type));
  }
}

// --- post_processor ---

// The one token that a template's special token stands for.
Token template_token(const Json& processor, std::string_view name, const Vocabulary& vocabulary) {
  const Json ids = processor.at("special_tokens").at(name).at("ids");
  if (ids.size() != 1) refuse(ids, "a special token of several ids");
  Token token = -1;
  ids.for_each_element([&](size_t, const Json& id) {
    token = static_cast<Token>(id.as_uint(vocabulary.pieces.size() - 1));
  });
  return token;
}

// A vocabulary has one token for each side. Of several none is taken: the tokenizer's config may
// name the one to add.
void read_template(const Json& processor, Vocabulary& vocabulary, Pipeline& pipeline) {
  bool after_text = false;
  processor.at("single").for_each_element([&](size_t, const Json& item) {
    const auto special = item.find("SpecialToken");
    if (!special) {
      after_text = true;
      return;
    }
    bool& add = after_text ? vocabulary.add_eos : vocabulary.add_bos;
    const bool is_second = add;
    add = true;
    const Token token = template_token(processor, special->at("id").as_string(), vocabulary);
    if (is_second) (after_text ? pipeline.second_behind : pipeline.second_before) = item.path();
    if (after_text)
      vocabulary.eos = is_second ? std::vector<Token>() : std::vector<Token>{token};
    else
      vocabulary.bos = is_second ? -1 : token;
  });
}

// A pair of text and id, as these processors have their two tokens.
Token pair_token(const Json& processor, const char* key, const Vocabulary& vocabulary) {
  Token token = -1;
  processor.at(key).for_each_element([&](size_t side, const Json& part) {
    if (side == 1) token = static_cast<Token>(part.as_uint(vocabulary.pieces.size() - 1));
  });
  if (token < 0) processor.at(key).fail("expected a token's text and id");
  return token;
}

void read_post_processor(const Json& component, Vocabulary& vocabulary, Pipeline& pipeline) {
  const std::string type = type_of(component);
  if (type == "Sequence") {
    component.at("processors").for_each_element([&](size_t, const Json& each) {
      read_post_processor(each, vocabulary, pipeline);
    });
  } else if (type == "TemplateProcessing") {
    read_template(component, vocabulary, pipeline);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    vocabulary.bos = pair_token(component, "cls", vocabulary);
    vocabulary.eos = {pair_token(component, "sep", vocabulary)};
    vocabulary.add_bos = vocabulary.add_eos = true;
  } else if (type != "ByteLevel") {  // which only trims offsets
    refuse(component, fmt::format("post-processor \"{}\"", type));
  }
}

// --- decoder ---

// Whether a space at the beginning of a text is dropped once its pieces are joined.
bool drops_space(const Json& decoder) {
  if (!decoder.is(Json::Type::object) || decoder.string_or("type", "") != "Sequence") return false;
  bool joined = false, drops = false;
  decoder.at("decoders").for_each_element([&](size_t, const Json& each) {
    const std::string type = each.string_or("type", "");
    joined = joined || type == "Fuse";
    drops = drops || (joined && type == "Strip" && each.string_or("content", "") == " " &&
                      each.uint_or("start", 0, UINT32_MAX) > 0);
  });
  return drops;
}

void check_sides(const Pipeline& pipeline, SaysTokens says) {
  const std::string& second = !says.bos && !pipeline.second_before.empty() ? pipeline.second_before
                              : !says.eos                                  ? pipeline.second_behind
                                                                           : std::string();
  if (!second.empty())
    throw Error(ErrorCode::unsupported, second,
                "more than one token on one side of the text is not supported",
                "say in tokenizer_config.json what to add: add_bos_token, add_eos_token");
}

// Whether the components make sense for the model; says of BPE which kind it is.
void check_pipeline(const Pipeline& pipeline, const std::string& name, Vocabulary& vocabulary) {
  const bool is_bpe = vocabulary.algorithm == Algorithm::byte_level_bpe;
  if (is_bpe && pipeline.bytes == pipeline.marks_spaces)
    fail_unsupported(name,
                     "neither byte-level BPE nor SentencePiece-style BPE (ByteLevel, or spaces "
                     "replaced by U+2581)");
  if (is_bpe && pipeline.marks_spaces) vocabulary.algorithm = Algorithm::sentencepiece;
  if (vocabulary.algorithm == Algorithm::unigram &&
      (pipeline.bytes || !pipeline.marks_spaces ||
       (pipeline.drops_spaces && (!vocabulary.prepend_space || vocabulary.prepend_once))))
    fail_unsupported(name, "a Unigram model whose words are not marked with U+2581");
  if (vocabulary.algorithm == Algorithm::word_piece && (pipeline.bytes || pipeline.marks_spaces))
    fail_unsupported(name, "a WordPiece model with ByteLevel, Metaspace or a Replace of spaces");
}

}  // namespace

Vocabulary vocabulary_from_tokenizer_json(const TokenizerFiles& files) {
  const Json root = Json::parse(files.tokenizer_json, files.tokenizer_json_name);
  Vocabulary vocabulary;
  Pipeline pipeline;
  read_model(root.at("model"), vocabulary);
  if (const auto added = root.find("added_tokens")) read_added_tokens(*added, vocabulary);
  if (vocabulary.pieces.empty()) root.fail("the vocabulary is empty");
  if (!vocabulary.scores.empty()) vocabulary.scores.resize(vocabulary.pieces.size());
  if (const auto part = root.find("normalizer")) read_normalizer(*part, vocabulary, pipeline);
  if (const auto part = root.find("pre_tokenizer")) read_pre_tokenizer(*part, vocabulary, pipeline);
  if (const auto part = root.find("post_processor"))
    read_post_processor(*part, vocabulary, pipeline);
  if (const auto part = root.find("decoder"))
    vocabulary.drops_space = drops_space(*part) && !vocabulary.prepend_space;
  if (vocabulary.algorithm == Algorithm::word_piece) mark_words(root.at("model"), vocabulary);
  check_pipeline(pipeline, files.tokenizer_json_name, vocabulary);
  SaysTokens says;
  if (!files.tokenizer_config_json.empty())
    says = apply_tokenizer_config(files.tokenizer_config_json, files.tokenizer_config_name,
                                  vocabulary);
  check_sides(pipeline, says);
  return vocabulary;
}

}  // namespace tyto
