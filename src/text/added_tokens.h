// Finds added tokens in a text: at every place the longest one, from left to right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace tyto {

class AddedTokenMatcher {
 public:
  AddedTokenMatcher() = default;
  // Keeps a reference: `added` must outlive the matcher and not change.
  AddedTokenMatcher(const std::vector<AddedToken>& added, bool with_special);

  struct Match {
    const AddedToken* token = nullptr;  // null: none
    size_t at = 0;                      // the token's own text
    size_t begin = 0;                   // the token and the white space it swallows
    size_t end = 0;
  };
  // The first match at or after `from`. White space before `from` is not swallowed. `plain` are
  // offsets of bytes that no special token covers, ascending.
  Match find(std::string_view text, size_t from, std::span<const size_t> plain = {}) const;

 private:
  // Special tokens of at most `room` bytes.
  const AddedToken* longest_at(std::string_view text, size_t room) const;

  std::vector<const AddedToken*> sorted_;  // by text
  std::vector<uint32_t> first_;            // [257], where the tokens that begin with a byte start
};

}  // namespace tyto
