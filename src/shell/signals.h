// What signals do to the program.
#pragma once

namespace tyto {

// SIGINT, SIGTERM, SIGHUP and SIGQUIT remove what is half written and then end the program as they
// would have; one that was ignored stays so. A SIGBUS from a file that is no longer there in full
// is one line and exit code 1. A closed pipe is a write error: a server loses one client by it.
void handle_signals();

// While one lives, the first SIGINT is only noted; the second ends the program as it would have.
// One that was ignored stays so.
class InterruptWatch {
 public:
  InterruptWatch();
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool is_interrupted() const;
};

// Ends the program with the exit code that shells expect after a SIGINT. All is said already.
struct Interrupted {};
inline constexpr int kInterruptedExitCode = 130;

// What becomes of a program whose reader has gone, as of `tyto inspect --tensors | head -1`: what
// is half written is removed, and SIGPIPE ends it without a word.
[[noreturn]] void end_by_closed_pipe();

}  // namespace tyto
