#include "cli/doctor/doctor_nodes.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <sstream>

#include "base/file.h"
#include "trace/power_sysfs.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// The driver's "get info" request: DRM command 7 (0x40 + 7), question 9 is the power mode. Numbers
// and layout are the kernel's interface, the same in both drivers.
struct GetInfo {
  uint32_t question;
  uint32_t buffer_size;
  uint64_t buffer;
};
constexpr unsigned long kGetInfo = _IOWR('d', 0x47, GetInfo);
constexpr uint32_t kPowerMode = 9;

std::optional<int> power_mode_of(int descriptor) {
  struct {
    uint8_t mode;
    uint8_t padding[7];
  } answer = {};
  GetInfo request{kPowerMode, sizeof(answer), reinterpret_cast<uint64_t>(&answer)};
  if (::ioctl(descriptor, kGetInfo, &request) != 0) return std::nullopt;
  return answer.mode;
}

// "render:x:993:" -> {993, "render"}; passwd has the number in the same place.
std::map<unsigned, std::string> names_of(const fs::path& file) {
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

AccelNode read_node(const fs::path& root, const std::string& name, const Identity& identity) {
  const fs::path file = root / "dev/accel" / name;
  AccelNode node;
  node.path = "/dev/accel/" + name;
  std::error_code error;
  const fs::path device = root / "sys/class/accel" / name / "device";
  const fs::path driver = fs::read_symlink(device / "driver", error);
  if (!error) node.driver = driver.filename().string();

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
  if (node.driver.starts_with("amdxdna")) node.power_mode = power_mode_of(descriptor);
  ::close(descriptor);
  return node;
}

}  // namespace

Identity read_identity(const fs::path& root) {
  const std::string status = read_system_text(root / "proc/self/status").text;
  Identity identity;
  identity.group_names = names_of(root / "etc/group");
  identity.user_names = names_of(root / "etc/passwd");
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
  for (const std::string& name : names_in(root / "dev/accel"))
    if (name.starts_with("accel")) nodes.push_back(read_node(root, name, identity));
  return nodes;
}

}  // namespace tyto
