#include "power/measured_load.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "base/redaction.h"

namespace tyto {
namespace {

// Its stdout goes to our stderr.
pid_t start_child(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
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

void run_child(const std::vector<std::string>& command, std::chrono::seconds timeout) {
  TYTO_ASSERT(!command.empty());
  const pid_t child = start_child(command);
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

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

PowerLoad program_load(const std::vector<std::string>& command, std::chrono::seconds timeout) {
  const auto run = [command, timeout]() -> uint64_t {
    run_child(command, timeout);
    return 0;
  };
  return {redacted_command(command, {}), run};
}

MeasuredLoad measure_load(const PowerLoad& load, EnergyMeter& meter, const PowerWindows& windows,
                          const Progress& progress) {
  MeasuredLoad result{.load = load, .windows = {}, .rails = {}};
  std::vector<EnergyWindow> idle;
  // Drawn before a window and not inside.
  const auto show = [&](const char* what) {
    if (progress)
      progress(fmt::format("{}: {}", load.name, what), idle.size() + result.windows.size(),
               2 * windows.repetitions + 1);
  };
  const auto rest = [&] {
    show("measuring idle");
    sleep_for(windows.settle_seconds);
    meter.lap();
    sleep_for(windows.idle_seconds);
    idle.push_back(meter.lap());
  };
  meter.start();
  rest();
  for (uint32_t i = 0; i < windows.repetitions; ++i) {
    show("measuring the load");
    result.tokens += static_cast<double>(load.run()) / windows.repetitions;
    result.windows.push_back(meter.lap());
    rest();
  }
  meter.stop();
  result.rails = subtract_idle(idle, result.windows);
  return result;
}

}  // namespace tyto
