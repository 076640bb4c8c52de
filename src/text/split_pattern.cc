#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/split_pattern.h"

#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <new>

#include "base/error.h"
#include "text/pre_tokenizer.h"

namespace tyto {

namespace {

constexpr size_t kMaxPatternBytes = 16 * 1024;

// Backtracking steps one match may take: white space alone costs about two a byte, and no honest
// pattern is near the constant.
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kMatchLimitPerByte = 16;
constexpr uint32_t kHeapLimitKib = 64 * 1024;  // of PCRE2's interpreter
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

}  // namespace tyto
