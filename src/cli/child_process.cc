#include "cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tyto {
namespace {

// Its stdout goes to `output`.
pid_t start(const std::vector<std::string>& command, int output, const char* errors) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  if (errors != nullptr)
    ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, O_WRONLY, 0);
  posix_spawnattr_t attributes;  // a server takes signals in one thread and blocks them elsewhere
  sigset_t none;
  ::sigemptyset(&none);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail_input(command[0], "cannot be started: {}", std::strerror(error));
  return child;
}

// False when the time is over.
bool wait_until_over(pid_t child, std::chrono::seconds timeout) {
  // The header of Debian 12's C library declares pidfd_open for C alone.
  const auto descriptor = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  if (descriptor < 0) fail_input("child", "cannot be watched: {}", std::strerror(errno));
  const auto end = std::chrono::steady_clock::now() + timeout;
  int ready = -1;
  do {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wait{descriptor, POLLIN, 0};
    ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
  } while (ready < 0 && errno == EINTR);
  ::close(descriptor);
  return ready > 0;
}

using Deadline = std::chrono::steady_clock::time_point;

int milliseconds_until(Deadline end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<int64_t>(0, left.count()));
}

// Up to its end; false when that did not come in time or there is too much.
bool read_all(int pipe, Deadline end, size_t most_bytes, std::string& text) {
  while (text.size() <= most_bytes) {
    pollfd wait{pipe, POLLIN, 0};
    if (::poll(&wait, 1, milliseconds_until(end)) <= 0) return false;
    char buffer[4096];
    const ssize_t got = ::read(pipe, buffer, sizeof buffer);
    if (got == 0) return true;
    if (got < 0 && errno != EINTR) return false;
    if (got > 0) text.append(buffer, static_cast<size_t>(got));
  }
  return false;
}

}  // namespace

std::string output_of_child(const std::vector<std::string>& command, std::chrono::seconds timeout,
                            size_t most_bytes) {
  TYTO_ASSERT(!command.empty());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    fail_input(command[0], "there is no pipe for it: {}", std::strerror(errno));
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  pid_t child = -1;
  try {
    child = start(command, ends[1], "/dev/null");
  } catch (const Error&) {
    ::close(ends[0]);
    ::close(ends[1]);
    throw;
  }
  ::close(ends[1]);
  std::string text;
  const bool over = read_all(ends[0], deadline, most_bytes, text);
  ::close(ends[0]);
  if (!over) ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!over)
    fail_input(command[0], "has not said all within {} s and {} bytes", timeout.count(),
               most_bytes);
  return text;
}

void run_child(const std::vector<std::string>& command, std::chrono::seconds timeout) {
  TYTO_ASSERT(!command.empty());
  const pid_t child = start(command, STDERR_FILENO, nullptr);
  const bool over = wait_until_over(child, timeout);
  if (!over) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!over) fail_input(command[0], "is not done after {} s, killed", timeout.count());
  if (WIFSIGNALED(status)) fail_input(command[0], "was ended by signal {}", WTERMSIG(status));
  if (WEXITSTATUS(status) != 0)
    fail_input(command[0], "ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace tyto
