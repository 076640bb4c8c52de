#include "base/environment.h"

#include <unistd.h>

#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tyto {
namespace {

std::filesystem::path variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::optional<std::filesystem::path> folder_below(const char* xdg_name, const char* below_home) {
  if (const auto folder = variable(xdg_name); folder.is_absolute()) return folder / "tyto";
  if (const auto home = variable("HOME"); !home.empty()) return home / below_home / "tyto";
  return std::nullopt;
}

std::filesystem::path user_folder(const char* xdg_name, const char* below_home, const char* what) {
  if (const auto folder = folder_below(xdg_name, below_home)) return *folder;
  throw Error(ErrorCode::usage, "HOME", fmt::format("is not set, and neither is {}", xdg_name),
              fmt::format("set one of them, so that Tyto knows where its {} is", what));
}

}  // namespace

std::vector<std::filesystem::path> hugging_face_cache_folders() {
  std::vector<std::filesystem::path> folders;
  const auto add = [&](const std::filesystem::path& root, const char* below) {
    if (!root.empty()) folders.push_back(*below == '\0' ? root : root / below);
  };
  add(variable("HF_HUB_CACHE"), "");
  add(variable("HUGGINGFACE_HUB_CACHE"), "");
  add(variable("HF_HOME"), "hub");
  add(variable("XDG_CACHE_HOME"), "huggingface/hub");
  add(variable("HOME"), ".cache/huggingface/hub");
  return folders;
}

std::optional<std::filesystem::path> llama_cpp_cache_folder() {
  if (const auto folder = variable("LLAMA_CACHE"); !folder.empty()) return folder;
  if (const auto folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder / "llama.cpp";
  if (const auto home = home_folder()) return *home / ".cache/llama.cpp";
  return std::nullopt;
}

std::vector<std::filesystem::path> ollama_folders() {
  if (const auto folder = variable("OLLAMA_MODELS"); !folder.empty()) return {folder};
  std::vector<std::filesystem::path> folders = {"/usr/share/ollama/.ollama/models",
                                                "/var/lib/ollama/models", "/var/lib/ollama"};
  if (const auto home = home_folder()) folders.insert(folders.begin(), *home / ".ollama/models");
  return folders;
}

std::optional<std::filesystem::path> home_folder() {
  const auto home = variable("HOME");
  return home.empty() ? std::nullopt : std::optional(home);
}

std::filesystem::path cache_folder() {
  return user_folder("XDG_CACHE_HOME", ".cache", "cache");
}

std::filesystem::path state_folder() {
  return user_folder("XDG_STATE_HOME", ".local/state", "state");
}

std::optional<std::filesystem::path> config_folder() {
  return folder_below("XDG_CONFIG_HOME", ".config");
}

ServiceVariables take_service_variables() {
  const auto take = [](const char* name) {
    std::string value = variable(name).string();
    ::unsetenv(name);
    return value;
  };
  ServiceVariables result{take("LISTEN_PID"), take("LISTEN_FDS"), take("NOTIFY_SOCKET")};
  take("LISTEN_FDNAMES");
  return result;
}

HubVariables hub_variables() {
  HubVariables result{variable("HF_ENDPOINT"), variable("HF_TOKEN"), variable("HF_TOKEN_PATH")};
  const auto add = [&](const std::filesystem::path& root, const char* below) {
    if (result.token_file.empty() && !root.empty()) result.token_file = root / below;
  };
  add(variable("HF_HOME"), "token");
  add(variable("XDG_CACHE_HOME"), "huggingface/token");
  add(variable("HOME"), ".cache/huggingface/token");
  return result;
}

std::map<std::string, std::string> environment_of(std::string_view prefix) {
  std::map<std::string, std::string> result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view setting(*entry);
    const size_t end = setting.find('=');
    if (!setting.starts_with(prefix) || end == std::string_view::npos) continue;
    result.emplace(setting.substr(0, end), setting.substr(end + 1));
  }
  return result;
}

PersonalVariables personal_variables() {
  PersonalVariables found;
  for (const char* name : {"HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME"})
    if (const auto folder = variable(name); !folder.empty()) found.folders.push_back(folder);
  for (const char* name : {"USER", "LOGNAME", "SUDO_USER", "HOSTNAME"})
    if (const auto value = variable(name); !value.empty()) found.names.push_back(value.string());
  return found;
}

bool is_colour_wanted() {
  return variable("NO_COLOR").empty();
}

bool is_terminal_dumb() {
  return variable("TERM") == "dumb";
}

void refuse_unknown_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view setting(*entry);
    if (!setting.starts_with("TYTO_")) continue;
    const std::string name(setting.substr(0, setting.find('=')));
    throw Error(ErrorCode::usage, name, "no such environment control",
                "Tyto is controlled by flags alone; unset it");
  }
}

const std::vector<std::string>& library_folders() {
  static const std::vector<std::string> folders = {
      "/opt/xilinx/xrt/lib",  "/opt/xilinx/xrt/lib64",
      "/usr/local/lib",       "/usr/lib/x86_64-linux-gnu",
      "/usr/lib64",           "/usr/lib",
      "/lib/x86_64-linux-gnu"};
  return folders;
}

std::string find_library(const std::filesystem::path& root, const std::vector<std::string>& folders,
                         const std::string& name) {
  std::error_code ignored;
  for (const std::string& folder : folders)
    if (std::filesystem::exists(root / folder.substr(1) / name, ignored))
      return folder + "/" + name;
  return "";
}

}  // namespace tyto
