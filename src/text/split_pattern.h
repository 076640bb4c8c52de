// A pre-tokeniser's regular expression, run through PCRE2. Patterns come from model files, so a bad
// or runaway one is an Error, not a hang.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

// Rewrites what model files mean (Oniguruma and tiktoken read them) but PCRE2 reads otherwise: \s
// and \S are the property White_Space (PCRE2 adds U+180E). Throws unsupported on class
// intersections, which PCRE2 would read as literals. `where` names the file and field.
std::string to_pcre2_dialect(std::string_view pattern, const std::string& where);

// What matching needs besides the pattern: one per thread, for any number of patterns and texts.
class MatchScratch {
 public:
  MatchScratch();
  ~MatchScratch();
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

 private:
  friend class SplitPattern;
  struct Buffers;
  std::unique_ptr<Buffers> buffers_;
};

class SplitPattern {
 public:
  // `where` is how errors call the pattern.
  SplitPattern(std::string_view pattern, const std::string& where);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;

  // `ends` holds where each part of `text` (valid UTF-8, less than 2^32 bytes) ends; each part is
  // split further: every match is a part of its own, and so is every stretch between matches.
  // Parts do not see each other.
  void split(std::string_view text, MatchScratch& scratch, std::vector<uint32_t>& ends) const;

 private:
  struct Compiled;
  std::unique_ptr<const Compiled> compiled_;
};

}  // namespace tyto
