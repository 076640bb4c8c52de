// A terminal that does not echo what is typed, while the program writes to it.
#pragma once

namespace tyto {

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
