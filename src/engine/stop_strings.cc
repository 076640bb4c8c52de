#include "engine/stop_strings.h"

#include <algorithm>
#include <utility>

namespace tyto {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return "";
  pending_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  stopped_ = first != std::string::npos;
  const size_t shown = stopped_ ? first : pending_.size() - held_back();
  std::string out = pending_.substr(0, shown);
  pending_.erase(0, stopped_ ? pending_.size() : shown);
  return out;
}

std::string StopStrings::finish() {
  return std::exchange(pending_, "");
}

// Length of the longest tail that begins some stop string.
size_t StopStrings::held_back() const {
  size_t longest = 0;
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > longest; --n)
      if (pending_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  return longest;
}

}  // namespace tyto
