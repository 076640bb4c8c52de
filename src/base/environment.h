// Every environment variable Tyto looks at, read in one place.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

// Where Hugging Face checkpoints may already lie, first match wins:
// HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub,
// ~/.cache/huggingface/hub.
std::vector<std::filesystem::path> hugging_face_cache_folders();

// Where llama.cpp keeps what it has downloaded: LLAMA_CACHE, XDG_CACHE_HOME/llama.cpp or
// ~/.cache/llama.cpp.
std::optional<std::filesystem::path> llama_cpp_cache_folder();

// Where Ollama keeps models: OLLAMA_MODELS alone where it is set, otherwise ~/.ollama/models and
// those of its system service.
std::vector<std::filesystem::path> ollama_folders();

std::optional<std::filesystem::path> home_folder();  // HOME

// What Tyto may keep between runs: XDG_CACHE_HOME/tyto, or ~/.cache/tyto. An Error when neither
// that variable nor HOME is set. As the XDG specification wants, a relative XDG_CACHE_HOME is
// ignored.
std::filesystem::path cache_folder();

// What Tyto keeps for good, such as results and verdicts: XDG_STATE_HOME/tyto, or
// ~/.local/state/tyto; otherwise as above.
std::filesystem::path state_folder();

// Where people write down what they want: XDG_CONFIG_HOME/tyto, or ~/.config/tyto; none when
// neither variable is set.
std::optional<std::filesystem::path> config_folder();

// What systemd tells a service that it starts.
struct ServiceVariables {
  std::string listen_pid, listen_fds;  // for socket activation
  std::string notify_socket;           // where the service says how it is
};
// Takes them out of the environment, so that programs which Tyto starts do not have them. To be
// called before there are threads.
ServiceVariables take_service_variables();

// Which hub `tyto pull` asks, and as whom; with huggingface_hub's names, so that what is set up for
// that serves here too.
struct HubVariables {
  std::string endpoint;              // HF_ENDPOINT
  std::string token;                 // HF_TOKEN
  std::filesystem::path token_file;  // HF_TOKEN_PATH, or `token` in the folder HF_HOME
};
HubVariables hub_variables();

// The variables whose names begin so: for code that others load, and that has no flags.
std::map<std::string, std::string> environment_of(std::string_view prefix);

// What says who the user is and where their files lie: for files that must hold none of it.
struct PersonalVariables {
  std::vector<std::filesystem::path> folders;  // HOME, TMPDIR, XDG_CACHE_HOME, XDG_STATE_HOME
  std::vector<std::string> names;              // USER, LOGNAME, SUDO_USER, HOSTNAME
};
PersonalVariables personal_variables();  // those that are set

// Unless NO_COLOR is set to something (no-color.org).
bool is_colour_wanted();
bool is_terminal_dumb();  // TERM says that it obeys no escapes

// A TYTO_* variable that nothing reads is a control that silently does nothing: an error.
void refuse_unknown_environment();

// Where a machine keeps its shared libraries.

// XRT's own folder first, then the system's.
const std::vector<std::string>& library_folders();

// The first folder below `root` that has the file, as a path of the machine, without `root`; empty:
// none has. A link to nowhere is no file.
std::string find_library(const std::filesystem::path& root, const std::vector<std::string>& folders,
                         const std::string& name);

}  // namespace tyto
