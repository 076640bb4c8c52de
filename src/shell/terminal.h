// What people see while they wait: progress on stderr, text on stdout, line breaks for a text that
// comes in pieces, and a terminal that does not echo what is typed while the program writes to it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "base/utf8.h"

namespace tyto {

// Draws a bar on stderr when that is a terminal, and nothing otherwise.
Progress progress_bar();

// To stdout, flushed; an unwritable stdout is an Error, and a closed pipe ends the program
// silently (shell/signals.h). Names from files and devices may be in the text: it goes out
// printable (base/utf8.h).
void print(std::string_view text);
// Sentences: on a terminal lines are broken at spaces.
void print_prose(std::string_view text, Ink ink = Ink::plain);
// Text with colours, whose parts are printable already.
void print_coloured(std::string_view text);
// What other programs may read: byte for byte into a file or a pipe, printable on a terminal.
void print_data(std::string_view bytes);

void print_to_stderr(std::string_view text);
// To stderr, as one line; on a terminal broken at spaces. A line that cannot be written ends
// nothing: the next that can says how many were lost.
void note(std::string_view line, Ink ink = Ink::plain) noexcept;
// From now on a line is lost that stderr has not taken by then, as a pipe that nothing reads. What
// follows a lost line does not wait at all.
void bound_waits_of_notes(std::chrono::milliseconds most);
void end_answer_on_terminal();  // an empty line on stderr, where that is a terminal

// Before any file is opened, which would else become the stream that the program was started
// without.
void hold_closed_streams();
bool is_stdout_terminal();
size_t stderr_columns();  // 0: it is no terminal
// As wide as the terminal, in colour unless NO_COLOR is set; into a file or a pipe plain and of any
// width.
TextStyle stdout_style();
TextStyle stderr_style();

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

// While an object lives, the terminal does not echo keys, neither into a bar nor as "^C" into an
// answer. What is typed is kept for the next read. Nothing happens unless stdout and stderr are the
// terminal of this program in its foreground. Objects may be nested.
class QuietTerminal {
 public:
  QuietTerminal();
  ~QuietTerminal();
  QuietTerminal(const QuietTerminal&) = delete;
  QuietTerminal& operator=(const QuietTerminal&) = delete;
};

// As it was before the first of them. Async-signal-safe, for whatever ends the program.
void restore_echo() noexcept;

}  // namespace tyto
