// Lists in messages: "a, b, c".
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tyto {

// `text_of` is a function or a member of the items that gives a string.
template <typename Range, typename TextOf = std::identity>
std::string joined(Range&& range, std::string_view separator = ", ", TextOf text_of = {}) {
  std::string text;
  bool is_first = true;
  for (auto&& item : range) {
    if (!is_first) text += separator;
    text += std::invoke(text_of, item);
    is_first = false;
  }
  return text;
}

}  // namespace tyto
