#include "text/special_edges.h"

#include <algorithm>
#include <iterator>

namespace tyto {
namespace {

size_t byte(char c) {
  return static_cast<unsigned char>(c);
}

}  // namespace

SpecialEdges::SpecialEdges(const std::vector<AddedToken>& added) : added_(added) {
  for (const AddedToken& token : added) {
    if (!token.special || token.text.size() < 2) continue;
    longest_ = std::max(longest_, token.text.size());
    ends_.last_bytes.set(byte(token.text.back()));
    begins_.last_bytes.set(byte(token.text.front()));
  }
}

bool SpecialEdges::begins_inside(std::string_view text) {
  return begins_with_one(text.substr(0, longest_), ends_, false);
}

bool SpecialEdges::ends_inside(std::string_view text) {
  text.remove_prefix(text.size() - std::min(text.size(), longest_));
  return begins_with_one(std::string(text.rbegin(), text.rend()), begins_, true);
}

bool SpecialEdges::begins_with_one(std::string_view text, Endings& endings, bool is_reversed) {
  steps_ += text.size();
  if (std::none_of(text.begin(), text.end(), [&](char c) { return endings.last_bytes[byte(c)]; }))
    return false;
  if (endings.sorted.empty()) make(endings, is_reversed);
  // What begins the text is the last that is not behind it: all that stand between the two would
  // begin with it.
  const auto behind = std::upper_bound(endings.sorted.begin(), endings.sorted.end(), text,
                                       [&](std::string_view a, std::string_view b) {
                                         ++steps_;
                                         return a < b;
                                       });
  return behind != endings.sorted.begin() && text.starts_with(*std::prev(behind));
}

void SpecialEdges::make(Endings& endings, bool is_reversed) const {
  for (const AddedToken& token : added_) {
    if (!token.special || token.text.size() < 2) continue;
    std::string& word = endings.words.emplace_back(token.text);
    if (is_reversed) std::reverse(word.begin(), word.end());
  }
  std::vector<std::string_view> all;
  for (const std::string_view word : endings.words)
    for (size_t cut = 1; cut < word.size(); ++cut) all.push_back(word.substr(cut));
  std::sort(all.begin(), all.end());
  for (const std::string_view ending : all)
    if (endings.sorted.empty() || !ending.starts_with(endings.sorted.back()))
      endings.sorted.push_back(ending);
}

}  // namespace tyto
