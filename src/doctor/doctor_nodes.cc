#include "doctor/doctor_nodes.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>

#include "base/file.h"
#include "power/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// The driver's "get info" request: DRM command 7 (0x40 + 7). Numbers and layouts are the kernel's
// interface, the same in both drivers.
struct GetInfo {
  uint32_t question;
  uint32_t buffer_size;
  uint64_t buffer;
};
constexpr unsigned long kGetInfo = _IOWR('d', 0x47, GetInfo);

struct PowerModeAnswer {
  static constexpr uint32_t kQuestion = 9;
  uint8_t mode;
  uint8_t padding[7];
};

struct ResourceAnswer {
  static constexpr uint32_t kQuestion = 12;  // since interface 0.4
  uint64_t most_mhz, most_tops, most_contexts, tops, contexts;
};

template <typename Answer>
std::optional<Answer> ask(int descriptor) {
  Answer answer = {};
  GetInfo request{Answer::kQuestion, sizeof(answer), reinterpret_cast<uint64_t>(&answer)};
  if (::ioctl(descriptor, kGetInfo, &request) != 0) return std::nullopt;
  return answer;
}

void ask_driver(int descriptor, AccelNode& node) {
  if (const auto answer = ask<PowerModeAnswer>(descriptor)) node.power_mode = answer->mode;
  const auto resources = ask<ResourceAnswer>(descriptor);
  if (resources && resources->most_contexts > 0)
    node.contexts = ContextCount{resources->contexts, resources->most_contexts};
}

// "render:x:993:" -> {993, "render"}; passwd has the number in the same place.
std::map<unsigned, std::string> names_by_id(const fs::path& file) {
  std::map<unsigned, std::string> names;
  std::istringstream lines(read_system_text(file).text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    unsigned number = 0;
    const char* begin = line.data() + second + 1;
    if (std::from_chars(begin, line.data() + line.size(), number).ec == std::errc())
      names.emplace(number, line.substr(0, first));
  }
  return names;
}

std::string name_in(const std::map<unsigned, std::string>& names, unsigned number) {
  const auto found = names.find(number);
  return found == names.end() ? std::to_string(number) : found->second;
}

// The effective ids: the second number of "Uid:" and "Gid:", and all of "Groups:".
std::vector<unsigned> ids_in(const std::string& status, const std::string& field) {
  std::istringstream lines(status);
  std::vector<unsigned> ids;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream numbers(line.substr(field.size()));
    for (unsigned id = 0; numbers >> id;) ids.push_back(id);
  }
  return ids;
}

AccelNode read_node(const fs::path& root, const AccelDevice& device, const Identity& identity) {
  const fs::path file = root / "dev/accel" / device.name;
  AccelNode node;
  node.path = "/dev/accel/" + device.name;
  node.driver = device.driver;

  struct stat status = {};
  if (::stat(file.c_str(), &status) == 0) {
    node.mode = status.st_mode & 07777;
    node.owner = name_in(identity.user_names, status.st_uid);
    node.group = name_in(identity.group_names, status.st_gid);
  }
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    node.open_error = errno;
    return node;
  }
  // To another maker's driver the request would mean something else.
  if (device.is_npu()) ask_driver(descriptor, node);
  ::close(descriptor);
  return node;
}

// "12 MiB" as DRM writes sizes, in KiB and MiB where they are whole; nothing where there is none.
std::optional<uint64_t> size_of(const std::string& fdinfo, const std::string& field) {
  std::istringstream lines(fdinfo);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    uint64_t size = 0;
    std::string unit;
    if (!(words >> size)) return std::nullopt;
    words >> unit;
    return size << (unit == "KiB" ? 10 : unit == "MiB" ? 20 : 0);
  }
  return std::nullopt;
}

std::optional<NpuHolder> holder_of(const fs::path& process, const fs::directory_iterator& files,
                                   const std::vector<AccelNode>& nodes) {
  std::optional<NpuHolder> holder;
  for (const fs::directory_entry& file : files) {
    std::error_code error;
    const std::string target = fs::read_symlink(file.path(), error).string();
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const AccelNode& each) {
      return each.path == target && each.driver.starts_with("amdxdna");
    });
    if (error || node == nodes.end()) continue;
    if (!holder) holder.emplace().program = read_system_text(process / "comm").text;
    const auto heap = size_of(read_system_text(process / "fdinfo" / file.path().filename()).text,
                              node->driver + "-heap-alloc:");
    if (heap) holder->heap_bytes = holder->heap_bytes.value_or(0) + *heap;
  }
  return holder;
}

}  // namespace

Identity read_identity(const fs::path& root) {
  const std::string status = read_system_text(root / "proc/self/status").text;
  Identity identity;
  identity.group_names = names_by_id(root / "etc/group");
  identity.user_names = names_by_id(root / "etc/passwd");
  const auto users = ids_in(status, "Uid:");
  identity.is_root = users.size() > 1 && users[1] == 0;
  for (const char* field : {"Gid:", "Groups:"})
    for (unsigned id : ids_in(status, field)) {
      const std::string name = name_in(identity.group_names, id);
      if (std::find(identity.groups.begin(), identity.groups.end(), name) == identity.groups.end())
        identity.groups.push_back(name);
    }
  return identity;
}

std::vector<AccelNode> read_accel_nodes(const fs::path& root, const Identity& identity) {
  std::vector<AccelNode> nodes;
  for (const AccelDevice& device : read_accel_devices(root))
    nodes.push_back(read_node(root, device, identity));
  return nodes;
}

HolderFacts read_holders(const fs::path& root, const std::vector<AccelNode>& nodes) {
  HolderFacts facts;
  for (const std::string& name : names_in(root / "proc")) {
    int pid = 0;
    const auto number = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (number.ec != std::errc() || number.ptr != name.data() + name.size()) continue;
    std::error_code error;
    const fs::directory_iterator files(root / "proc" / name / "fd", error);
    facts.unreadable += error == std::errc::permission_denied;
    if (error) continue;
    if (auto holder = holder_of(root / "proc" / name, files, nodes)) {
      holder->pid = pid;
      facts.holders.push_back(std::move(*holder));
    }
  }
  return facts;
}

}  // namespace tyto
