// Finds stop strings in streamed text. What could still become a stop string is held back, so no
// part of one is ever shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tyto {

class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);

  // Adds text and returns what is safe to show. After a stop string was found, stopped() is true
  // and nothing more comes out.
  std::string push(std::string_view text);
  std::string finish();  // what was held back and is no stop string
  bool stopped() const { return stopped_; }

 private:
  size_t held_back() const;

  std::vector<std::string> stops_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace tyto
