#include "text/pre_tokenizer.h"

#include <array>

#include "base/error.h"
#include "text/tokenizer.h"

namespace tyto {

namespace {

// The patterns as the models' own tokenizer files publish them.
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuationRun = R"([\p{P}$+<=>^`|~]+)";
constexpr std::string_view kNumber = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kSpacedLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacedPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kEastAsianRun =
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";

struct Row {
  std::string_view name;
  std::array<std::string_view, 5> patterns;  // the first empty one ends the list
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
};

constexpr Row kRows[] = {
    {"llama-bpe", {kLlama3}, false, true, true},
    {"llama3", {kLlama3}, false, true, true},
    {"llama-v3", {kLlama3}, false, true, true},
    {"smaug-bpe", {kLlama3}},
    {"tekken", {kTekken}, false, true, true},
    {"qwen2", {kQwen2}, true},
    {"deepseek-r1-qwen", {kQwen2}, true},
    {"stablelm2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"gpt-2", {kGpt2Pattern}},
    {"gpt2", {kGpt2Pattern}},
    {"phi-2", {kGpt2Pattern}},
    {"mpt", {kGpt2Pattern}},
    {"olmo", {kGpt2Pattern}},
    {"jais", {kGpt2Pattern}},
    {"smollm", {kDigitPattern, kGpt2Pattern}},
    {"starcoder", {kDigitPattern, kGpt2Pattern}},
    {"refact", {kDigitPattern, kGpt2Pattern}},
    {"command-r", {kDigitPattern, kGpt2Pattern}},
    {"codeshell", {kDigitPattern, kGpt2Pattern}},
    {"exaone", {kDigitPattern, kGpt2Pattern}},
    {"minerva-7b", {kDigitPattern, kGpt2Pattern}},
    {"falcon", {kPunctuationRun, kGpt2Pattern, kThreeDigits}},
    {"deepseek-coder",
     {kLineBreak, kSpacedLetters, kSpacedPunctuation, kEastAsianRun, kDigitPattern}},
    // What converters write when they do not know the model.
    {"default", {kPunctuationRun, kGpt2Pattern, kNumber, kThreeDigits}},
};

}  // namespace

PreTokenizer pre_tokenizer_by_name(const std::string& name, const std::string& where) {
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    PreTokenizer found;
    for (const std::string_view pattern : row.patterns)
      if (!pattern.empty()) found.split_patterns.emplace_back(pattern);
    found.normalize_nfc = row.normalize_nfc;
    found.ignore_merges = row.ignore_merges;
    found.add_bos = row.add_bos;
    return found;
  }
  fail_unsupported(where, "pre-tokeniser \"{}\" is not known", name);
}

}  // namespace tyto
