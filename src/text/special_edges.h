// Where a text could be a part of a special token whose rest stands beside it.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace tyto {

// A question costs the bytes of the longest special token and a binary search, however many special
// tokens there are. What the search needs is made when a text first needs it, which few do.
class SpecialEdges {
 public:
  // Keeps a reference: `added` must outlive it and not change.
  explicit SpecialEdges(const std::vector<AddedToken>& added);
  SpecialEdges(const SpecialEdges&) = delete;  // it refers to itself
  SpecialEdges& operator=(const SpecialEdges&) = delete;

  bool begins_inside(std::string_view text);  // as a special token ends
  bool ends_inside(std::string_view text);    // as a special token begins
  uint64_t steps() const { return steps_; }   // bytes and entries that questions have looked at

 private:
  // Endings of words, sorted, none of which begins with another.
  struct Endings {
    std::bitset<256> last_bytes = {};
    std::vector<std::string> words = {};
    std::vector<std::string_view> sorted = {};  // in the words
  };
  bool begins_with_one(std::string_view text, Endings& endings, bool is_reversed);
  void make(Endings& endings, bool is_reversed) const;

  const std::vector<AddedToken>& added_;
  size_t longest_ = 0;  // special token
  Endings ends_;        // where special tokens end
  Endings begins_;      // where they begin, read backwards
  uint64_t steps_ = 0;
};

}  // namespace tyto
