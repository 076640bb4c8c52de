// What people see while they wait: progress on stderr, text on stdout.
#pragma once

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

}  // namespace tyto
