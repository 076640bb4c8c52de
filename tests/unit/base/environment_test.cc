#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

// Sets (or with nullopt unsets) variables, and puts the old values back.
class ScopedEnvironment {
 public:
  using Setting = std::pair<std::string, std::optional<std::string>>;

  ScopedEnvironment(std::initializer_list<Setting> settings) {
    for (const auto& [name, value] : settings) {
      const char* old = std::getenv(name.c_str());
      old_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
      set(name, value);
    }
  }
  ~ScopedEnvironment() {
    for (const auto& [name, value] : old_) set(name, value);
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      setenv(name.c_str(), value->c_str(), 1);
    else
      unsetenv(name.c_str());
  }
  std::vector<Setting> old_;
};

std::vector<std::string> folders() {
  std::vector<std::string> result;
  for (const auto& folder : hugging_face_cache_folders()) result.push_back(folder.string());
  return result;
}

TEST(Environment, CacheFoldersInOrder) {
  const ScopedEnvironment scope{{"HF_HUB_CACHE", "/hub"},
                                {"HF_HOME", "/hf"},
                                {"XDG_CACHE_HOME", "/xdg"},
                                {"HOME", "/home/me"}};
  EXPECT_EQ(folders(), (std::vector<std::string>{"/hub", "/hf/hub", "/xdg/huggingface/hub",
                                                 "/home/me/.cache/huggingface/hub"}));
}

TEST(Environment, AbsentAndEmptyVariablesAreLeftOut) {
  const ScopedEnvironment scope{{"HF_HUB_CACHE", std::nullopt},
                                {"HF_HOME", ""},
                                {"XDG_CACHE_HOME", std::nullopt},
                                {"HOME", "/home/me"}};
  EXPECT_EQ(folders(), std::vector<std::string>{"/home/me/.cache/huggingface/hub"});
  const ScopedEnvironment homeless{{"HOME", std::nullopt}};
  EXPECT_TRUE(folders().empty());
}

TEST(Environment, AcceptsAnEnvironmentWithoutControls) {
  const ScopedEnvironment scope{{"TYTOX", "1"}, {"NOT_TYTO_X", "1"}, {"tyto_x", "1"}};
  EXPECT_NO_THROW(refuse_unknown_environment());
}

TEST(Environment, RefusesUnknownControls) {
  const ScopedEnvironment scope{{"TYTO_THREADS", "4"}};
  try {
    refuse_unknown_environment();
    FAIL() << "TYTO_THREADS was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_EQ(std::string(error.what()), "TYTO_THREADS: no such environment control");
    EXPECT_FALSE(error.hint.empty());
  }
}

TEST(Environment, RefusesAnEmptyControlToo) {
  const ScopedEnvironment scope{{"TYTO_", ""}};
  EXPECT_ERROR(refuse_unknown_environment(), "no such environment control");
}

TEST(Environment, HubVariables) {
  const ScopedEnvironment scope{{"HF_ENDPOINT", "https://hub.example"},
                                {"HF_TOKEN", "secret"},
                                {"HF_TOKEN_PATH", "/t/file"},
                                {"HF_HOME", "/hf"},
                                {"XDG_CACHE_HOME", "/xdg"},
                                {"HOME", "/home/me"}};
  EXPECT_EQ(hub_variables().endpoint, "https://hub.example");
  EXPECT_EQ(hub_variables().token, "secret");
  EXPECT_EQ(hub_variables().token_file, "/t/file");
  const ScopedEnvironment no_path{{"HF_TOKEN_PATH", ""}, {"HF_TOKEN", std::nullopt}};
  EXPECT_EQ(hub_variables().token, "");
  EXPECT_EQ(hub_variables().token_file, "/hf/token");
  const ScopedEnvironment no_home{{"HF_HOME", std::nullopt}};
  EXPECT_EQ(hub_variables().token_file, "/xdg/huggingface/token");
  const ScopedEnvironment no_xdg{{"XDG_CACHE_HOME", std::nullopt}};
  EXPECT_EQ(hub_variables().token_file, "/home/me/.cache/huggingface/token");
}

TEST(Environment, StateFolder) {
  {
    const ScopedEnvironment scope{{"XDG_STATE_HOME", "/state"}, {"HOME", "/home/me"}};
    EXPECT_EQ(state_folder(), "/state/tyto");
  }
  for (const char* ignored : {"", "relative"}) {
    const ScopedEnvironment scope{{"XDG_STATE_HOME", ignored}, {"HOME", "/home/me"}};
    EXPECT_EQ(state_folder(), "/home/me/.local/state/tyto");
  }
  const ScopedEnvironment scope{{"XDG_STATE_HOME", std::nullopt}, {"HOME", std::nullopt}};
  EXPECT_ERROR(state_folder(), "neither is XDG_STATE_HOME");
}

TEST(Environment, ConfigFolder) {
  {
    const ScopedEnvironment scope{{"XDG_CONFIG_HOME", "/config"}, {"HOME", "/home/me"}};
    EXPECT_EQ(config_folder(), "/config/tyto");
  }
  {
    const ScopedEnvironment scope{{"XDG_CONFIG_HOME", "relative"}, {"HOME", "/home/me"}};
    EXPECT_EQ(config_folder(), "/home/me/.config/tyto");
  }
  const ScopedEnvironment scope{{"XDG_CONFIG_HOME", std::nullopt}, {"HOME", std::nullopt}};
  EXPECT_EQ(config_folder(), std::nullopt);
}

}  // namespace
}  // namespace tyto
