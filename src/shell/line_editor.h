// Lines that a person types: edited with the usual keys, recalled with the arrows, and of several
// lines where they are pasted so or end with a backslash. They are kept for the next run.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

struct TypedLine {
  enum class Kind { line, interrupted, end };
  Kind kind = Kind::end;
  std::string text = {};  // UTF-8, with line breaks inside; of an interrupted line what was typed
};

// What the end of a line may become.
struct Completions {
  size_t from = 0;                        // where that end begins
  std::vector<std::string> choices = {};  // in the order in which they are shown
};
using Completer = std::function<Completions(std::string_view before_cursor)>;

// There is one at a time. It reads stdin and draws on stderr; both are terminals.
class LineEditor {
 public:
  explicit LineEditor(Completer completer);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  TypedLine read();
  void remember(const std::string& line);  // for the arrows

  static bool is_possible();  // on these streams

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What was typed, kept from run to run for the arrow keys: one JSON string per line, for its
// owner's eyes alone.
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
