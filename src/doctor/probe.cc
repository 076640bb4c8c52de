#include "doctor/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "device/npu/store/kernel_store.h"
#include "device/vulkan/context.h"
#include "model/model.h"
#include "model/stores/stores.h"

namespace tyto {
namespace {

// Where an image does not say what a run of it holds, its file's size stands for it. Of the two
// templates of a decode only one is loaded.
ImageBytes held_by(const KernelEntry& entry) {
  if (entry.run_bytes > 0) return {entry.program, entry.run_bytes, false};
  uint32_t longest = 0;
  for (const StoredImage& image : entry.images) longest = std::max(longest, image.length);
  ImageBytes held{entry.program};
  for (const StoredImage& image : entry.images)
    if (image.length == longest) held.bytes += image.bytes;
  return held;
}

void plan_heap(const KernelManifest& manifest, KernelCacheFacts& facts) {
  std::map<std::string, std::vector<ImageBytes>> models;
  for (const KernelEntry& entry : manifest.entries)
    if (entry.platform != kVirtualPlatform) models[entry.shape].push_back(held_by(entry));
  for (const auto& [model, images] : models) {
    const HeapPlan plan = npu_heap(images);
    if (plan.bytes <= facts.heap.bytes) continue;
    facts.largest_model = model;
    facts.heap = plan;
  }
}

}  // namespace

KernelCacheFacts probe_kernel_cache(const std::filesystem::path& store) {
  KernelCacheFacts facts;
  facts.folder = store.string();
  try {
    const CheckReport report = check_store(store, false);
    facts.images = report.images;
    plan_heap(read_manifest(store), facts);
    for (const ImageProblem& problem : report.problems)
      facts.problems.push_back(fmt::format("{} {}: {}", to_string(problem.fault),
                                           problem.entry.empty() ? problem.file : problem.entry,
                                           problem.reason));
  } catch (const Error& error) {
    facts.problems.push_back(error.what());
  }
  return facts;
}

ModelFacts probe_model(const std::string& name) {
  ModelFacts facts;
  facts.name = name;
  try {
    const Model model = open_model(find_model(name));
    facts.format = model.format;
    facts.weight_bytes = model.weight_bytes();
  } catch (const Error& error) {
    facts.error = error.what();
    facts.hint = error.hint;
  }
  return facts;
}

// Vulkan's physical devices, listed in a process of its own.

namespace {

constexpr const char* kListGpus = "--list-gpus-for-doctor";
constexpr unsigned kLongestChild_s = 120;

// One line per device, or "!" and the reason.
std::string list_devices(const std::string& library) {
  try {
    std::string lines;
    for (const vulkan::GpuFacts& gpu : vulkan::list_gpus(library))
      lines += fmt::format("{} ({}, Vulkan {})\n", gpu.name, vulkan::name(gpu.kind), gpu.vulkan);
    return lines;
  } catch (const std::exception& error) {
    return fmt::format("!{}", error.what());
  }
}

// What the child wrote until it closed the pipe; false when the time was over.
bool read_all(int descriptor, std::chrono::milliseconds timeout, std::string& text) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wait{descriptor, POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    std::array<char, 4096> piece;
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(piece.data(), static_cast<size_t>(got));
  }
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

// Starts this program as a process that writes its list into `descriptor` and has no other file of
// ours. Zero, or the reason why not.
int start_child(const std::string& library, int descriptor, pid_t& process) {
  std::string program = "tyto", word = kListGpus, argument = library;
  std::array<char*, 4> arguments = {program.data(), word.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, descriptor, STDOUT_FILENO);
  // Drivers talk.
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  const int error =
      ::posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

void list_gpus_if_asked(int argc, char** argv) {
  if (argc != 3 || argv[1] != std::string_view(kListGpus)) return;
  ::alarm(kLongestChild_s);  // who asked may have ended
  write_all(STDOUT_FILENO, list_devices(argv[2]));
  ::_exit(0);  // without the destructors of drivers
}

void probe_vulkan(const std::string& library, VulkanFacts& vulkan,
                  std::chrono::milliseconds timeout) {
  vulkan.enumerated = true;
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    vulkan.error = std::strerror(errno);
    return;
  }
  pid_t process = -1;
  const int not_started = start_child(library, ends[1], process);
  ::close(ends[1]);
  std::string text;
  const bool over = not_started == 0 && read_all(ends[0], timeout, text);
  ::close(ends[0]);
  if (not_started != 0) {
    vulkan.error = fmt::format("cannot start a process to ask it: {}", std::strerror(not_started));
    return;
  }
  if (!over) ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  vulkan.broke_its_process = !over || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (!over)
    vulkan.error = fmt::format("gave no answer in {} ms", timeout.count());
  else if (WIFSIGNALED(status))
    vulkan.error = fmt::format("crashed with signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    vulkan.error = fmt::format("ended the program with exit code {}", WEXITSTATUS(status));
  else if (text.starts_with("!"))
    vulkan.error = text.substr(1);
  std::istringstream lines(vulkan.error.empty() ? text : "");
  for (std::string line; std::getline(lines, line);) vulkan.devices.push_back(line);
}

}  // namespace tyto
