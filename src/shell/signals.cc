#include "shell/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>

#include "base/signal_tables.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// Sanitizers have a handler of their own, which gets what is not ours.
struct sigaction bus_action_before = {};

std::atomic<bool> interrupt_noted = false;

void end_by_signal(int signal) {
  erase_progress();
  restore_echo();
  remove_partial_paths();
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // pending until this handler returns, and then it ends the program
}

void print_line(const char* text) {
  const char* const parts[] = {"tyto: ", text, "\n"};
  for (const char* part : parts) (void)!::write(STDERR_FILENO, part, std::strlen(part));
}

void on_bus_error(int, siginfo_t* about, void*) {
  const auto* address = static_cast<const std::byte*>(about->si_addr);
  const char* loss = about->si_code == BUS_ADRERR ? loss_of({address, 1}) : nullptr;
  if (loss == nullptr) {
    ::sigaction(SIGBUS, &bus_action_before, nullptr);
    return;  // and the same instruction faults again
  }
  // Several workers may meet the end of the file at once; one of them speaks.
  static std::atomic_flag spoken = ATOMIC_FLAG_INIT;
  while (spoken.test_and_set()) ::pause();
  remove_partial_paths();
  erase_progress();
  restore_echo();
  print_line(loss);
  ::_exit(1);
}

void end_by(int signal) {
  struct sigaction action = {};
  if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = end_by_signal;
  ::sigaction(signal, &action, nullptr);
}

void note_interrupt(int) {
  interrupt_noted = true;
  end_by(SIGINT);
}

}  // namespace

InterruptWatch::InterruptWatch() {
  interrupt_noted = false;
  struct sigaction action = {};
  if (::sigaction(SIGINT, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) return;
  action = {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;  // whatever is being read or written goes on
  ::sigaction(SIGINT, &action, nullptr);
}

InterruptWatch::~InterruptWatch() {
  end_by(SIGINT);
}

bool InterruptWatch::is_interrupted() const {
  return interrupt_noted;
}

void handle_signals() {
  // A closed pipe and a file that may not grow show as write errors, not as sudden death.
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) end_by(signal);
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, &bus_action_before);
}

void end_by_closed_pipe() {
  end_by_signal(SIGPIPE);
  ::_exit(128 + SIGPIPE);  // reached where the program was started with the signal blocked
}

}  // namespace tyto
