// Line breaks for a text that comes in pieces and is read on a terminal, which would break words
// anywhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tyto {

// Breaks lines at spaces, and between wide characters. Left alone are code between fences, lines
// that begin with a tab or two spaces, lines of a table, and words that are longer than a line. At
// most one word is held back.
class WordWrap {
 public:
  explicit WordWrap(size_t columns);  // 0: no terminal, and every text passes as it is

  std::string push(std::string_view text);  // what may be shown by now
  std::string finish();                     // what was held back
  void begin_line();                        // something else has ended the line that was shown

 private:
  void take(std::string_view character, char32_t code_point, std::string& out);
  void look_at_beginning(char32_t code_point);
  void end_word(std::string& out);
  void end_line(std::string& out);
  void release(std::string& out);

  const size_t columns_;
  std::string incomplete_;  // the beginning of a character
  std::string spaces_;      // behind what was shown, if another word follows in the line
  size_t spaces_width_ = 0;
  std::string word_;
  size_t word_width_ = 0;
  size_t column_ = 0;             // behind what was shown
  size_t seen_ = 0;               // characters of the line that are no spaces
  size_t fence_length_ = 0;       // how many of them, from the first on, may be a fence
  char32_t first_ = 0;            // the first of them
  char32_t fence_ = 0;            // that code is between; 0: it is no code
  bool is_left_alone_ = false;    // the line
  bool is_in_long_word_ = false;  // its beginning was shown already
};

}  // namespace tyto
