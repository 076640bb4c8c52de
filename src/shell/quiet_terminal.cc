#include "shell/quiet_terminal.h"

#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

namespace tyto {
namespace {

constexpr int kTerminal = STDERR_FILENO;

int nested = 0;
std::atomic<bool> is_quiet = false;

bool is_ours() {
  return ::isatty(STDOUT_FILENO) != 0 && ::isatty(kTerminal) != 0 &&
         ::tcgetpgrp(kTerminal) == ::getpgrp();
}

// The other attributes may have changed meanwhile, and stay as they are. A program in the
// background would be stopped here.
void set_echo(bool is_on) noexcept {
  termios attributes = {};
  if (!is_ours() || ::tcgetattr(kTerminal, &attributes) != 0) return;
  attributes.c_lflag = is_on ? attributes.c_lflag | ECHO : attributes.c_lflag & ~tcflag_t{ECHO};
  ::tcsetattr(kTerminal, TCSANOW, &attributes);
}

bool is_echoing() {
  termios attributes = {};
  return ::tcgetattr(kTerminal, &attributes) == 0 && (attributes.c_lflag & ECHO) != 0;
}

// Ctrl-Z: the shell gets the terminal as it was, and the program makes it quiet again when it goes
// on.
void stop(int) {
  const int error = errno;
  const bool was_quiet = is_quiet;
  restore_echo();
  struct sigaction usual = {}, ours = {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &usual, &ours);
  sigset_t signals, before;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &signals, &before);  // here it stops
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::sigaction(SIGTSTP, &ours, nullptr);
  if (was_quiet) {
    is_quiet = true;
    set_echo(false);
  }
  errno = error;
}

void catch_stops() {
  struct sigaction action = {};
  if (::sigaction(SIGTSTP, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action = {};
  action.sa_handler = stop;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTSTP, &action, nullptr);
}

}  // namespace

QuietTerminal::QuietTerminal() {
  if (nested++ > 0 || !is_ours() || !is_echoing()) return;
  catch_stops();
  is_quiet = true;
  set_echo(false);
}

QuietTerminal::~QuietTerminal() {
  if (--nested == 0) restore_echo();
}

void restore_echo() noexcept {
  if (is_quiet.exchange(false)) set_echo(true);
}

}  // namespace tyto
