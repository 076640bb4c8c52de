// The instruction words of the single-dispatch decode for any length L, from two builds that differ
// in L alone. A few words depend on L, all of them linearly: what the attention cores are told, and
// where the new K and V go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tyto {

struct DecodeBuild {
  std::string file;  // for messages
  std::span<const uint32_t> words;
  uint32_t length = 0;  // its L: positions, the token being decoded included
};

struct WordRange {
  size_t first = 0;
  size_t count = 0;
  bool operator==(const WordRange&) const = default;
};

// The words of one window, and what its one instruction buffer holds.
class DecodeWords {
 public:
  // Copies what it needs. The longer of the two lengths is the window. Throws an Error naming the
  // file, and the word where there is one, unless the builds have equally many words, some depend
  // on L, and every word stays an unsigned 32-bit number on a straight line from L = 1 to the
  // window.
  static DecodeWords from_builds(const DecodeBuild& base, const DecodeBuild& reference);

  // Makes `words` those of this length and returns what was written and must reach the device: all
  // of a buffer that was not the previous call's, and after that the stretch from the first to the
  // last word that depends on L, or nothing when the length is the same. Allocates nothing. Throws
  // an Error for a length outside [1, window] or a buffer of another size, and then writes nothing.
  WordRange patch(uint32_t length, std::span<uint32_t> words);

  // The buffer's contents are gone: the next patch writes all words.
  void forget() { buffer_ = nullptr; }

  size_t size() const { return base_.size(); }
  uint32_t window() const { return window_; }

 private:
  struct Slope {
    size_t word;
    int64_t per_position;
  };

  DecodeWords() = default;
  uint32_t word_at(const Slope& slope, uint32_t length) const;

  std::string file_;
  std::vector<uint32_t> base_;
  std::vector<Slope> slopes_;  // ascending
  uint32_t base_length_ = 0;
  uint32_t window_ = 0;
  const uint32_t* buffer_ = nullptr;  // the one patched last; never read through
  uint32_t length_ = 0;               // what it holds
};

}  // namespace tyto
