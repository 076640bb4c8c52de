#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <new>

#include <fmt/format.h>
#include <pcre2.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace tyto {

namespace {

constexpr size_t kMaxPatternBytes = 16 * 1024;

// Backtracking steps one match may take: white space alone costs about two a byte, and no honest
// pattern is near the constant.
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kMatchLimitPerByte = 16;
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // for the interpreter of PCRE2
constexpr size_t kJitStackStart = 32 * 1024;
constexpr size_t kJitStackMax = 1024 * 1024;

// The property White_Space as the inside of a character class.
constexpr std::string_view kWhiteSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Patterns that cut numbers into threes from the right, and what finds a whole number at once.
struct Grouped {
  std::string_view pattern;
  std::string_view number;
};
constexpr Grouped kGrouped[] = {
    {kGroupedNumberPattern, R"(\p{N}++)"},
    {kGroupedDigitPattern, "[0-9]++"},
    {kGroupedWholeNumberPattern, R"((?<!\d)\d++\b)"},
};
constexpr size_t kGroupDigits = 3;

// Where the groups of `number` end, which begins at `begin`.
void append_groups(std::string_view number, uint32_t begin, std::vector<uint32_t>& ends) {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  auto digits = static_cast<size_t>(std::count_if(number.begin(), number.end(), starts));
  for (size_t i = 0; i < number.size(); ++i)
    if (starts(number[i]) && digits-- % kGroupDigits == 0 && i > 0)
      ends.push_back(begin + static_cast<uint32_t>(i));
  ends.push_back(begin + static_cast<uint32_t>(number.size()));
}

struct Free {
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

std::string message(int code) {
  std::array<PCRE2_UCHAR, 128> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

std::string to_pcre2_dialect(std::string_view pattern, const std::string& where) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's' && in_class)
        out += kWhiteSpace;
      else if ((escaped == 's' || escaped == 'S') && !in_class)
        out.append(escaped == 's' ? "[" : "[^").append(kWhiteSpace).append("]");
      else
        out.append({c, escaped});
      continue;
    }
    if (in_class && pattern.substr(i, 2) == "&&")
      fail_unsupported(where, "class intersection (&&) at byte {} of the pattern", i);
    if (c == '[' && !in_class) {
      in_class = true;
      out.push_back(c);
      // A bracket that opens the list is literal.
      if (pattern.substr(i + 1, 1) == "^") out.push_back(pattern[++i]);
      if (pattern.substr(i + 1, 1) == "]") out.push_back(pattern[++i]);
      continue;
    }
    if (c == ']') in_class = false;
    out.push_back(c);
  }
  return out;
}

struct MatchScratch::Buffers {
  Owned<pcre2_match_data> data{pcre2_match_data_create(1, nullptr)};
  Owned<pcre2_match_context> context{pcre2_match_context_create(nullptr)};
  Owned<pcre2_jit_stack> stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr)};

  size_t begin() const { return pcre2_get_ovector_pointer(data.get())[0]; }
  size_t end() const { return pcre2_get_ovector_pointer(data.get())[1]; }
};

MatchScratch::MatchScratch() : buffers_(std::make_unique<Buffers>()) {
  if (!buffers_->data || !buffers_->context) throw std::bad_alloc();
  pcre2_set_heap_limit(buffers_->context.get(), kHeapLimitKib);
  // Absent where PCRE2 has no JIT, which then does not want it.
  if (buffers_->stack)
    pcre2_jit_stack_assign(buffers_->context.get(), nullptr, buffers_->stack.get());
}

MatchScratch::~MatchScratch() = default;

struct SplitPattern::Compiled {
  std::string where;
  Owned<pcre2_code> code;
  bool grouped = false;  // a match is a number to be cut into threes
};

SplitPattern::SplitPattern(std::string_view pattern, const std::string& where) {
  const auto* const grouped = std::ranges::find(kGrouped, pattern, &Grouped::pattern);
  const bool is_grouped = grouped != std::end(kGrouped);
  const std::string translated = to_pcre2_dialect(is_grouped ? grouped->number : pattern, where);
  if (translated.size() > kMaxPatternBytes)
    fail_unsupported(where, "a split pattern of {} bytes is too long", pattern.size());
  const Owned<pcre2_compile_context> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto compiled = std::make_unique<Compiled>();
  compiled->where = where;
  compiled->grouped = is_grouped;
  compiled->code.reset(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, context.get()));
  if (!compiled->code)
    fail_input(where, "split pattern does not compile: {} (near byte {})", message(error), at);
  // Without JIT (no support, or no executable memory) the interpreter does the same work slower.
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);
  compiled_ = std::move(compiled);
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

void SplitPattern::split(std::string_view text, MatchScratch& scratch,
                         std::vector<uint32_t>& ends) const {
  MatchScratch::Buffers& match = *scratch.buffers_;
  const uint64_t limit = kMatchLimit + uint64_t{text.size()} * kMatchLimitPerByte;
  pcre2_set_match_limit(match.context.get(),
                        static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  std::vector<uint32_t> refined;
  refined.reserve(ends.size());
  uint32_t begin = 0;
  for (const uint32_t end : ends) {
    const std::string_view part = text.substr(begin, end - begin);
    size_t done = 0;
    while (done < part.size()) {
      const int found = pcre2_match(
          compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(part.data()), part.size(), done,
          PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match.data.get(), match.context.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0)
        fail_input(compiled_->where, "split pattern fails on this text: {}", message(found));
      if (match.begin() < done || match.end() <= match.begin())
        fail_input(compiled_->where, "split pattern makes no progress");
      if (match.begin() > done) refined.push_back(begin + static_cast<uint32_t>(match.begin()));
      done = match.end();
      if (compiled_->grouped)
        append_groups(part.substr(match.begin(), done - match.begin()),
                      begin + static_cast<uint32_t>(match.begin()), refined);
      else
        refined.push_back(begin + static_cast<uint32_t>(done));
    }
    if (done < part.size()) refined.push_back(end);
    begin = end;
  }
  ends = std::move(refined);
}

namespace {

// The patterns as the models' own tokenizer files publish them, or as llama.cpp has them where
// those are not public.
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
    R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})";
constexpr std::string_view kMiniCpm5 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kUfakzeka =
    R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kBailing = R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|)"
                                      R"( ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
// Words with single spaces between them stay together; possessive, so that a megabyte of them does.
constexpr std::string_view kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}\p{M}*+(?: ?+\p{L}\p{M}*+)*+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kYoutu =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Kimi's own pattern is GPT-4o's with every letter class cut with [^\p{Han}]. A class that lists
// all but the wanted categories, and Han, says the same without a cut.
constexpr std::string_view kKimiK2 =
    R"([\p{Han}]+|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]*)"
    R"([^\p{Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[^\p{Han}\p{Ll}\p{N}\p{P}\p{S}\p{Z}\p{C}]+)"
    R"([^\p{Han}\p{Lu}\p{Lt}\p{N}\p{P}\p{S}\p{Z}\p{C}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepseek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSpark =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
    R"( ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+)";
constexpr std::string_view kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{0964}\x{06D4}\x{060C})]+)";

constexpr std::string_view kPunctuationRun = R"([\p{P}$+<=>^`|~]+)";
constexpr std::string_view kAsciiPunctuation = R"([\p{P}!-/:-@\[-`{-~])";
constexpr std::string_view kNumber = R"(\p{N}+)";
constexpr std::string_view kThreeNumbers = R"(\p{N}{1,3})";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kLineBreak = R"([\r\n])";
constexpr std::string_view kLines = R"([^\n]+|\n+)";
constexpr std::string_view kSpacedLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacedPunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kEastAsianRun =
    R"([\x{4E00}-\x{9FA5}\x{0800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kHanAndKana =
    R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kYoutuEastAsian =
    R"([\x{AC00}-\x{D7A3}\x{3131}-\x{318E}]+|[\x{FF01}\x{2026}\x{201C}\x{201D}\x{2018}\x{2019})"
    R"(\x{2014}\x{FF1A}\x{FF1B}\x{FF0C}\x{3001}-\x{303F}\x{FE30}-\x{FE4F}]+|[\x{3105}-\x{312F}])"
    R"(+|[\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)";
constexpr std::string_view kAfmoeEastAsian =
    R"([\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{8C48}-\x{FAFF}\x{3040}-\x{309F}\x{30A0}-\x{30FF})"
    R"(\x{FF65}-\x{FF9F}\x{2F00}-\x{2FDF}\x{0E40}-\x{0E7F}\x{0E80}-\x{0EFF}\x{1780}-\x{17FF})"
    R"(\x{1000}-\x{109F}\x{AA60}-\x{AA7F}\x{A9E0}-\x{A9FF}\x{AC00}-\x{D7AF}\x{1100}-\x{11FF}]+)";
// DeepSeek's first models list the letters of alphabets with upper and lower case.
constexpr std::string_view kSpacedCasedLetters =
    R"(\s?[A-Za-z\x{00B5}\x{00C0}-\x{00D6}\x{00D8}-\x{00F6}\x{00F8}-\x{01BA}\x{01BC}-\x{01BF})"
    R"(\x{01C4}-\x{0293}\x{0295}-\x{02AF}\x{0370}-\x{0373}\x{0376}\x{0377}\x{037B}-\x{037D})"
    R"(\x{037F}\x{0386}\x{0388}-\x{038A}\x{038C}\x{038E}-\x{03A1}\x{03A3}-\x{03F5})"
    R"(\x{03F7}-\x{0481}\x{048A}-\x{052F}\x{0531}-\x{0556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5})"
    R"(\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77})"
    R"(\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D})"
    R"(\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4})"
    R"(\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3})"
    R"(\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D})"
    R"(\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184})"
    R"(\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D})"
    R"(\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF})"
    R"(\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}]+)";
constexpr std::string_view kSpacedWidePunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
// The file's \s+$; looking behind keeps white space inside of a text from being tried at each byte.
constexpr std::string_view kSpaceAtEnd = R"((?<!\s)\s++\z)";
constexpr std::string_view kSentinel = "<sentinel:[0-9]+>";
constexpr std::string_view kImageToken = "IMGIMG[A-I]{1,4}Z";
constexpr std::string_view kTabsAndSpaces = R"([\t\n]|    |  )";

struct Row {
  std::string_view names;                    // separated by spaces
  std::array<std::string_view, 6> patterns;  // the first empty one ends the list
  bool normalize_nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;
  bool always_bos = false;
  bool marks_spaces = false;
};

constexpr Row kRows[] = {
    {.names = "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     .patterns = {kLlama3Pattern},
     .ignore_merges = true,
     .add_bos = true},
    {.names = "smaug-bpe dbrx glm4 chatglm-bpe", .patterns = {kLlama3Pattern}},
    {.names = "jais-2", .patterns = {kJais2}},
    {.names = "minicpm5", .patterns = {kThreeNumbers, kMiniCpm5}, .ignore_merges = true},
    {.names = "tekken", .patterns = {kTekken}, .ignore_merges = true, .add_bos = true},
    {.names = "qwen2 deepseek-r1-qwen", .patterns = {kQwen2}, .normalize_nfc = true},
    {.names = "stablelm2 hunyuan solar-open grok-2 megrez kormo f2llmv2", .patterns = {kQwen2}},
    {.names = "qwen35", .patterns = {kQwen35}},
    {.names = "laguna", .patterns = {kLines, kQwen2}},
    {.names = "ufakzeka", .patterns = {kUfakzeka}},
    {.names = "seed-coder", .patterns = {kSeedCoder}},
    {.names = "bailingmoe bailingmoe2 llada-moe", .patterns = {kBailing}},
    {.names = "exaone-moe", .patterns = {kExaoneMoe}},
    {.names = "gpt-4o llama4 kanana2 talkie minimax-m2", .patterns = {kGpt4o}},
    {.names = "granite-embed-multi-97m", .patterns = {kGpt4o}, .ignore_merges = true},
    {.names = "tiny_aya cohere2moe", .patterns = {kGroupedWholeNumberPattern, kGpt4o}},
    {.names = "youtu", .patterns = {kYoutuEastAsian, kYoutu}, .ignore_merges = true},
    {.names = "kimi-k2", .patterns = {kKimiK2}},
    {.names = "gpt-2 gpt2 phi-2 jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code "
              "roberta-bpe gigachat a.x-4.0 mellum modern-bert mpt olmo jais trillion "
              "granite-docling exaone4",
     .patterns = {kGpt2Pattern}},
    {.names = "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
     .patterns = {kDigitPattern, kGpt2Pattern}},
    {.names = "falcon", .patterns = {kPunctuationRun, kGpt2Pattern, kThreeDigits}},
    {.names = "chameleon",
     .patterns = {kSentinel, kImageToken, kTabsAndSpaces, kDigitPattern, kAsciiPunctuation,
                  kGpt2Pattern},
     .add_bos = true},
    {.names = "bloom gpt3-finnish poro-chat", .patterns = {kBloom}},
    {.names = "viking", .patterns = {kBloom, kDigitPattern}},
    {.names = "superbpe", .patterns = {kNumber, kGroupedDigitPattern}},
    {.names = "deepseek-coder",
     .patterns = {kLineBreak, kSpacedLetters, kSpacedPunctuation, kEastAsianRun, kDigitPattern}},
    {.names = "deepseek-llm",
     .patterns = {kLineBreak, kSpacedCasedLetters, kSpacedWidePunctuation, kSpaceAtEnd,
                  kEastAsianRun, kNumber}},
    {.names = "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
     .patterns = {kThreeNumbers, kHanAndKana, kDeepseek3}},
    {.names = "spark2_5", .patterns = {kThreeNumbers, kHanAndKana, kSpark, kDigitPattern}},
    {.names = "afmoe", .patterns = {kGroupedNumberPattern, kAfmoeEastAsian, kDeepseek3}},
    {.names = "gemma4 granite-embed-multi-311m",
     .patterns = {kLines},
     .always_bos = true,
     .marks_spaces = true},
    {.names = "sarvam-moe", .patterns = {kLines}, .marks_spaces = true},
    // What converters write when they do not know the model.
    {.names = "default", .patterns = {kPunctuationRun, kGpt2Pattern, kNumber, kThreeDigits}},
};

// Whether `name` is one of the names.
bool is_among(std::string_view names, std::string_view name) {
  const size_t at = (" " + std::string(names) + " ").find(" " + std::string(name) + " ");
  return !name.empty() && name.find(' ') == std::string_view::npos && at != std::string::npos;
}

}  // namespace

std::string spelled_out(std::string_view pattern) {
  std::string result;
  bool is_escaped = false;  // by a backslash that is in `result` already
  while (!pattern.empty()) {
    const Utf8Head head = utf8_head(pattern);
    const char first = pattern.front();
    const bool is_wide = head.kind == Utf8Head::Kind::valid && head.bytes > 1;
    const std::string escape =
        first == '\n'   ? "n"
        : first == '\r' ? "r"
        : first == '\t' ? "t"
        : is_wide       ? fmt::format("x{{{:04X}}}", static_cast<uint32_t>(head.code_point))
                        : "";
    if (!escape.empty() && !is_escaped) result += '\\';
    result += escape.empty() ? std::string(pattern.substr(0, head.bytes)) : escape;
    is_escaped = first == '\\' && !is_escaped;
    pattern.remove_prefix(head.bytes);
  }
  return result;
}

PreTokenizer pre_tokenizer_by_name(const std::string& name, const std::string& where) {
  std::string known;
  for (const Row& row : kRows) {
    known.append(" ").append(row.names);
    if (!is_among(row.names, name)) continue;
    PreTokenizer found;
    for (const std::string_view pattern : row.patterns)
      if (!pattern.empty()) found.split_patterns.emplace_back(pattern);
    if (row.normalize_nfc) found.normalizers = {Normalizer::nfc};
    found.ignore_merges = row.ignore_merges;
    found.add_bos = row.add_bos || row.always_bos;
    found.always_bos = row.always_bos;
    found.marks_spaces = row.marks_spaces;
    return found;
  }
  fail_unsupported(where, "pre-tokeniser \"{}\" is not known; these are:{}", printable_name(name),
                   known);
}

std::vector<std::string> pre_tokenizer_names() {
  std::vector<std::string> names;
  for (const Row& row : kRows) names.emplace_back(row.names.substr(0, row.names.find(' ')));
  return names;
}

namespace {

constexpr uint32_t kTrieBlock = 256;  // units of one node's children lie inside of such a block

// Real tables make a character at most eleven times as long (U+FDFA).
constexpr size_t kMaxGrowth = 64;

// The fields of a unit. One that has its highest bit set is a value, which no label equals.
uint32_t label(uint32_t unit) {
  return unit & (uint32_t{1} << 31 | 0xFF);
}
bool is_value(uint32_t unit) {
  return unit >> 31 != 0;
}
uint32_t value(uint32_t unit) {
  return unit & ~(uint32_t{1} << 31);
}
bool has_value(uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
uint32_t offset(uint32_t unit) {
  return unit >> 10 << ((unit & uint32_t{1} << 9) >> 6);
}

uint32_t little_endian(std::string_view bytes) {
  uint32_t number = 0;
  for (size_t i = 4; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
  return number;
}

}  // namespace

Charsmap::Charsmap(std::string_view table, const std::string& name) : name_(name) {
  constexpr size_t kUnitBytes = sizeof(uint32_t);
  const size_t trie_bytes = table.size() < kUnitBytes ? 0 : little_endian(table);
  if (trie_bytes == 0 || trie_bytes % (kTrieBlock * kUnitBytes) != 0 ||
      trie_bytes >= table.size() - kUnitBytes || table.back() != '\0')
    fail_input(name, "its {} bytes are not a table of {} bytes of trie and replacements",
               table.size(), trie_bytes);
  for (size_t at = 0; at < trie_bytes; at += kUnitBytes)
    units_.push_back(little_endian(table.substr(kUnitBytes + at)));
  replacements_ = table.substr(kUnitBytes + trie_bytes);
  for (uint32_t i = 0; i < units_.size(); ++i) {
    if (is_value(units_[i])) continue;
    const uint64_t children = i ^ offset(units_[i]);
    if (children >= units_.size() ||
        (has_value(units_[i]) && value(units_[children]) >= replacements_.size()))
      fail_input(name, "unit {} of its trie leads outside", i);
  }
  if (is_value(units_[0])) fail_input(name, "its trie has no root");
}

Charsmap::Found Charsmap::longest(std::string_view text) const {
  Found found;
  uint32_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    const uint32_t unit = units_[node];
    if (byte == 0 || label(unit) != byte) break;
    node ^= offset(unit);
    if (has_value(unit)) found = {i + 1, value(units_[node])};
  }
  return found;
}

std::string Charsmap::apply(std::string_view text) const {
  const size_t most = kMaxGrowth * (text.size() + 1);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Found found = longest(text);
    if (found.bytes > 0)
      out.append(replacements_.c_str() + found.replacement);
    else
      out.append(text.substr(0, utf8_head(text).bytes));
    text.remove_prefix(found.bytes > 0 ? found.bytes : utf8_head(text).bytes);
    if (out.size() > most) fail_input(name_, "makes a text more than {} times as long", kMaxGrowth);
  }
  return out;
}

std::string from_base64(std::string_view letters, const std::string& where) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  while (letters.ends_with('=')) letters.remove_suffix(1);
  std::string bytes;
  bytes.reserve(letters.size() * 3 / 4);
  uint32_t bits = 0;
  for (size_t i = 0; i < letters.size(); ++i) {
    const size_t six = kLetters.find(letters[i]);
    if (six == std::string_view::npos) fail_input(where, "byte {} is not a letter of base64", i);
    bits = bits << 6 | static_cast<uint32_t>(six);
    if (i % 4 != 0) bytes.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
  }
  return bytes;
}

namespace {

constexpr char32_t kReplacement = 0xFFFD;

// The blocks of Chinese characters as BERT's published tokenizers have them, gap and all.
constexpr struct {
  char32_t first, last;
} kIdeographs[] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF}, {0x2A700, 0x2B73F},
                   {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};

bool is_ideograph(char32_t c) {
  return std::ranges::any_of(
      kIdeographs, [&](const auto& block) { return c >= block.first && c <= block.last; });
}

// The text with each character replaced by what `change` appends for it.
template <typename Change>
std::string each_character(std::string_view text, Change&& change) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Utf8Head head = utf8_head(text);
    change(head.code_point, out);
    text.remove_prefix(head.bytes);
  }
  return out;
}

void clean_control(char32_t c, std::string& out) {
  const bool is_space = c == '\t' || c == '\n' || c == '\r';
  if (c == 0 || c == kReplacement || (is_control(c) && !is_space)) return;
  append_utf8(is_white_space(c) ? U' ' : c, out);
}

void space_ideograph(char32_t c, std::string& out) {
  const bool spaced = is_ideograph(c);
  if (spaced) out.push_back(' ');
  append_utf8(c, out);
  if (spaced) out.push_back(' ');
}

std::string merge_spaces(std::string_view text) {
  std::string out(text);
  const auto both_spaces = [](char a, char b) { return a == ' ' && b == ' '; };
  out.erase(std::unique(out.begin(), out.end(), both_spaces), out.end());
  return out;
}

std::string trim(std::string_view text, bool left) {
  const size_t at = left ? text.find_first_not_of(' ') : text.find_last_not_of(' ');
  if (at == std::string_view::npos) return {};
  return std::string(left ? text.substr(at) : text.substr(0, at + 1));
}

std::string step(Normalizer normalizer, std::string_view text, const Charsmap* charsmap) {
  switch (normalizer) {
    case Normalizer::nfc:
      return to_normal_form(text, NormalForm::nfc);
    case Normalizer::nfd:
      return to_normal_form(text, NormalForm::nfd);
    case Normalizer::nfkc:
      return to_normal_form(text, NormalForm::nfkc);
    case Normalizer::nfkd:
      return to_normal_form(text, NormalForm::nfkd);
    // The table may say anything.
    case Normalizer::charsmap:
      return as_valid_utf8(charsmap->apply(text));
    case Normalizer::clean_controls:
      return each_character(text, clean_control);
    case Normalizer::space_ideographs:
      return each_character(text, space_ideograph);
    case Normalizer::strip_accents:
      return each_character(text, [](char32_t c, std::string& out) {
        if (!is_nonspacing_mark(c)) append_utf8(c, out);
      });
    case Normalizer::strip_marks:
      return each_character(text, [](char32_t c, std::string& out) {
        if (!is_mark(c)) append_utf8(c, out);
      });
    case Normalizer::lower_case:
      return each_character(text,
                            [](char32_t c, std::string& out) { append_utf8(lower_case(c), out); });
    case Normalizer::spaces:
      return each_character(text, [](char32_t c, std::string& out) {
        append_utf8(is_white_space(c) ? U' ' : c, out);
      });
    case Normalizer::merge_spaces:
      return merge_spaces(text);
    case Normalizer::trim_left:
      return trim(text, true);
    case Normalizer::trim_right:
      return trim(text, false);
  }
  return std::string(text);
}

}  // namespace

TextNormalizer::TextNormalizer(const Vocabulary& vocabulary, const std::string& name)
    : steps_(vocabulary.normalizers) {
  if (std::ranges::find(steps_, Normalizer::charsmap) != steps_.end())
    charsmap_.emplace(vocabulary.charsmap, name + ": precompiled_charsmap");
}

std::string TextNormalizer::apply(std::string_view text) const {
  std::string normalized(text);
  for (const Normalizer each : steps_)
    normalized = step(each, normalized, charsmap_ ? &*charsmap_ : nullptr);
  return normalized;
}

std::string as_valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const size_t good = valid_utf8_prefix(text);
    valid.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) break;
    valid.append(kReplacementCharacter);
    text.remove_prefix(utf8_head(text).bytes);
  }
  return valid;
}

}  // namespace tyto
