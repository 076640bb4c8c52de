// What was typed in chats, kept from run to run for the arrow keys: one JSON string per line, for
// its owner's eyes alone.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tyto {

class InputHistory {
 public:
  explicit InputHistory(std::filesystem::path path);

  // The newest last; lines that are damaged are passed over.
  std::vector<std::string> read() const;
  // At once, so that chats that run at the same time lose nothing of each other's. As in shells, a
  // line that begins with a space is not kept. Nor is a very long one.
  void add(const std::string& line) const;

  static bool is_kept(const std::string& line);

 private:
  std::filesystem::path path_;
};

}  // namespace tyto
