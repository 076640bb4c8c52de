// Vulkan's physical devices, by its C interface and nothing of its headers: four functions, whose
// arguments below are the specification's.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <sstream>

#include "cli/doctor/doctor_probe.h"

namespace tyto {
namespace {

using Instance = void*;
using PhysicalDevice = void*;

struct ApplicationInfo {
  uint32_t type = 0;  // VK_STRUCTURE_TYPE_APPLICATION_INFO
  const void* next = nullptr;
  const char* application = "tyto";
  uint32_t application_version = 0;
  const char* engine = "tyto";
  uint32_t engine_version = 0;
  uint32_t api_version = 1u << 22;  // 1.0
};

struct InstanceCreateInfo {
  uint32_t type = 1;  // VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO
  const void* next = nullptr;
  uint32_t flags = 0;
  const ApplicationInfo* application = nullptr;
  uint32_t layer_count = 0;
  const char* const* layers = nullptr;
  uint32_t extension_count = 0;
  const char* const* extensions = nullptr;
};

// The beginning of VkPhysicalDeviceProperties; what follows the name is 548 bytes of limits and
// flags in version 1.0, and is not looked at.
struct DeviceProperties {
  uint32_t api_version;
  uint32_t driver_version;
  uint32_t vendor;
  uint32_t device;
  uint32_t type;
  char name[256];
  alignas(8) std::array<char, 4096> rest;
};

std::string_view kind(uint32_t type) {
  constexpr std::array<std::string_view, 5> kKinds = {"other", "integrated GPU", "discrete GPU",
                                                      "virtual GPU", "software"};
  return kKinds[type < kKinds.size() ? type : 0];
}

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

// One line per device, or "!" and the reason.
std::string list_devices(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fmt::format("!cannot be loaded: {}", ::dlerror());
  const auto create =
      find<int (*)(const InstanceCreateInfo*, const void*, Instance*)>(library, "vkCreateInstance");
  const auto enumerate =
      find<int (*)(Instance, uint32_t*, PhysicalDevice*)>(library, "vkEnumeratePhysicalDevices");
  const auto properties_of =
      find<void (*)(PhysicalDevice, DeviceProperties*)>(library, "vkGetPhysicalDeviceProperties");
  if (create == nullptr || enumerate == nullptr || properties_of == nullptr)
    return "!is no Vulkan loader";

  const ApplicationInfo application;
  InstanceCreateInfo info;
  info.application = &application;
  Instance instance = nullptr;
  if (const int code = create(&info, nullptr, &instance); code != 0)
    return fmt::format("!vkCreateInstance gave {}", code);
  std::array<PhysicalDevice, 16> devices = {};
  auto count = static_cast<uint32_t>(devices.size());
  if (const int code = enumerate(instance, &count, devices.data()); code < 0)
    return fmt::format("!vkEnumeratePhysicalDevices gave {}", code);
  std::string lines;
  for (uint32_t i = 0; i < count; ++i) {
    DeviceProperties properties = {};
    properties_of(devices[i], &properties);
    lines += fmt::format("{} ({}, Vulkan {}.{})\n", properties.name, kind(properties.type),
                         properties.api_version >> 22 & 0x7f, properties.api_version >> 12 & 0x3ff);
  }
  return lines;
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

[[noreturn]] void child(const std::string& library, int descriptor) {
  if (const int nowhere = ::open("/dev/null", O_WRONLY); nowhere >= 0)
    ::dup2(nowhere, STDERR_FILENO);  // drivers talk
  const std::string lines = list_devices(library);
  size_t done = 0;
  while (done < lines.size()) {
    const ssize_t written = ::write(descriptor, lines.data() + done, lines.size() - done);
    if (written < 0 && errno != EINTR) break;
    if (written > 0) done += static_cast<size_t>(written);
  }
  ::_exit(0);  // without the destructors of drivers
}

}  // namespace

void probe_vulkan(const std::string& library, VulkanFacts& vulkan,
                  std::chrono::milliseconds timeout) {
  vulkan.enumerated = true;
  std::array<int, 2> ends;
  if (::pipe(ends.data()) != 0) {
    vulkan.error = std::strerror(errno);
    return;
  }
  const pid_t process = ::fork();
  if (process == 0) {
    ::close(ends[0]);
    child(library, ends[1]);
  }
  ::close(ends[1]);
  std::string text;
  const bool over = process > 0 && read_all(ends[0], timeout, text);
  ::close(ends[0]);
  if (process < 0) {
    vulkan.error = "cannot start a process to ask it";
    return;
  }
  if (!over) ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
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
