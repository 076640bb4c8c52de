// The normalizers of a vocabulary: what is done to a text before it is cut into words.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/charsmap.h"
#include "text/vocabulary.h"

namespace tyto {

class TextNormalizer {
 public:
  TextNormalizer() = default;
  // `name` is how errors call the vocabulary.
  TextNormalizer(const Vocabulary& vocabulary, const std::string& name);

  bool changes_nothing() const { return steps_.empty(); }

  // Valid UTF-8 to valid UTF-8, in time linear in the text.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Normalizer> steps_;
  std::optional<Charsmap> charsmap_;
};

// The text with U+FFFD for what is not UTF-8.
std::string as_valid_utf8(std::string_view text);

}  // namespace tyto
