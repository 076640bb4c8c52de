#include "shell/config_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "shell/command_line.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

struct ConfigValues {
  ConfigFlags config;
  bool loud = false;
  std::string host = "127.0.0.1";
  uint32_t queue = 64;
  float share = 0.5f;
  std::optional<std::string> kv_memory;
  std::optional<std::string> device;
  std::vector<std::string> models;
  std::vector<uint32_t> lengths;
  std::string api_key;
  std::vector<std::string> words;  // known by their place
};

ConfigValues* last_made = nullptr;

void define(CommandLine& serve) {
  ConfigValues& values = serve.values<ConfigValues>();
  last_made = &values;
  serve.add({
      {"words", &values.words, "WORD...", "words"},
      {"--loud", &values.loud, "with sound", Rules{.excludes = {"--share"}}},
      {"--host", &values.host, "HOST", "where", Rules{.needs_one_of = {"--api-key", "--loud"}}},
      {"--queue", &values.queue, "N", "how many", Rules{.range = Range{1, 1000}}},
      {"--share", &values.share, "X", "how much"},
      {"--kv-memory", &values.kv_memory, "SIZE", "memory"},
      {"--device", &values.device, OneOf{"cpu", "npu"}, "a device"},
      {"-m,--model", &values.models, "NAME", "models"},
      {"--lengths", &values.lengths, "N", "numbers", Rules{.alias = "--sizes"}},
      {"--api-key", &values.api_key, "KEY", "who may", Rules{.is_secret = true}},
  });
  add_config_flag(serve, values.config);
}

class ConfigFileTest : public testing::Test {
 protected:
  ConfigFileTest() : path_(fmt::format("{}/tyto-config-{}.toml", testing::TempDir(), ::getpid())) {
    write("");
  }
  ~ConfigFileTest() override { fs::remove(path_); }

  void write(const std::string& text) {
    std::ofstream(path_) << text;
    fs::permissions(path_, fs::perms::owner_read | fs::perms::owner_write);
  }

  // "tyto serve --config FILE" and more.
  const ConfigValues& started(std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(), {"--config", path_});
    return started_with(std::move(arguments));
  }

  const ConfigValues& started_with(std::vector<std::string> arguments) {
    program_ = std::make_unique<CommandLine>("tyto", "A program.");
    serve_ = &program_->add_command("serve", "answer");
    define(*serve_);
    const ConfigValues& values = *last_made;
    arguments.insert(arguments.begin(), "serve");
    parse(*program_, arguments);
    return values;
  }

  // In a file of this text; without the file's name.
  std::string problem(const std::string& text, std::vector<std::string> arguments = {}) {
    write(text);
    try {
      started(std::move(arguments));
    } catch (const Error& error) {
      EXPECT_EQ(error.code, ErrorCode::usage);
      const std::string what = error.what();
      return what.starts_with(path_) ? what.substr(path_.size()) : what;
    }
    return "none";
  }

  ConfigChanges reloaded(const std::string& text) {
    write(text);
    return reload_config(*serve_, define, {"--queue", "--api-key", "--model"}, take_);
  }

  std::unique_ptr<CommandLine> program_;
  CommandLine* serve_ = nullptr;
  std::function<void()> take_ = [] {};
  const std::string path_;
};

TEST_F(ConfigFileTest, EveryKindOfValueArrives) {
  write(R"(# a server
[serve]
loud = true
queue = 8
kv-memory = "2GiB"
device = 'npu'
model = ["owlet", "a=b"]
lengths = [1, 2]
api-key = "[secret]"
)");
  const ConfigValues& values = started();
  EXPECT_TRUE(values.loud);
  EXPECT_EQ(values.queue, 8u);
  EXPECT_EQ(values.kv_memory, "2GiB");
  EXPECT_EQ(values.device, "npu");
  EXPECT_EQ(values.models, (std::vector<std::string>{"owlet", "a=b"}));
  EXPECT_EQ(values.lengths, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(values.api_key, "[secret]");
  EXPECT_TRUE(serve_->is_given("--queue"));
  EXPECT_EQ(serve_->flag("--queue").given_at, path_ + ":4:1");
  EXPECT_FALSE(serve_->is_given("--share"));
}

TEST_F(ConfigFileTest, NumbersMayBeWholeAndListsMayBeOneValue) {
  write("[serve]\nshare = 2\nmodel = \"owlet\"\nloud = false\nlengths = []\n");
  const ConfigValues& values = started();
  EXPECT_EQ(values.share, 2.0f);
  EXPECT_EQ(values.models, std::vector<std::string>{"owlet"});
  EXPECT_FALSE(serve_->is_given("--loud"));
  EXPECT_FALSE(serve_->is_given("--lengths"));
  write("[serve]\nshare = 0.25\n");
  EXPECT_EQ(started().share, 0.25f);
}

TEST_F(ConfigFileTest, AnOlderNameOfAFlagIsTaken) {
  write("[serve]\nsizes = [3, 4]\n");
  EXPECT_EQ(started().lengths, (std::vector<uint32_t>{3, 4}));
  EXPECT_TRUE(serve_->is_given("--lengths"));
}

TEST_F(ConfigFileTest, TheCommandLineGoesFirst) {
  write("[serve]\nqueue = 8\nmodel = [\"a\", \"b\"]\ndevice = \"cpu\"\n");
  const ConfigValues& values = started({"--queue", "9", "-m", "c"});
  EXPECT_EQ(values.queue, 9u);
  EXPECT_EQ(values.models, std::vector<std::string>{"c"});
  EXPECT_EQ(values.device, "cpu");
  EXPECT_EQ(serve_->flag("--queue").given_at, "");
}

TEST_F(ConfigFileTest, ErrorsSayWhere) {
  EXPECT_EQ(problem("[serve]\n  quue = 8\n"), ":2:3: serve has no setting named quue");
  EXPECT_EQ(problem("[serve]\nwords = 8\n"), ":2:1: serve has no setting named words");
  EXPECT_EQ(problem("[serve]\nconfig = \"x\"\n"), ":2:1: serve has no setting named config");
  EXPECT_EQ(problem("[serve]\nm = \"x\"\n"), ":2:1: serve has no setting named m");
  EXPECT_EQ(problem("[chat]\n"), ":1:2: no command reads [chat]");
  EXPECT_EQ(problem("queue = 8\n"), ":1:1: queue is outside a table");
  EXPECT_TRUE(problem("[serve\n").starts_with(":1:")) << problem("[serve\n");
  EXPECT_TRUE(problem("[serve]\nqueue = 1\nqueue = 2\n").starts_with(":3:"));
  EXPECT_NE(problem("[serve]\nhost = \"\xff\"\n"), "none");
}

TEST_F(ConfigFileTest, ValuesObeyTheRulesOfTheirFlags) {
  EXPECT_EQ(problem("[serve]\nqueue = 0\n"),
            ":2:9: --queue: \"0\" is not a whole number from 1 to 1000");
  EXPECT_EQ(problem("[serve]\nlengths = [1, -2]\n"),
            ":2:11: --lengths: \"-2\" is not a whole number from 0 to 4294967295");
  EXPECT_EQ(problem("[serve]\nshare = nan\n"), ":2:9: --share: \"nan\" is not a number");
  EXPECT_EQ(problem("[serve]\ndevice = \"gpu\"\n"),
            ":2:10: --device: \"gpu\" is not one of cpu, npu");
  EXPECT_EQ(problem("[serve]\nkv-memory = \"\"\n"), ":2:13: --kv-memory: the value is empty");
}

TEST_F(ConfigFileTest, ValuesOfAnotherKindAreErrors) {
  EXPECT_EQ(problem("[serve]\nqueue = \"8\"\n"), ":2:9: --queue takes a whole number");
  EXPECT_EQ(problem("[serve]\nqueue = 8.0\n"), ":2:9: --queue takes a whole number");
  EXPECT_EQ(problem("[serve]\nqueue = [8]\n"), ":2:9: --queue takes a whole number");
  EXPECT_EQ(problem("[serve]\nloud = 1\n"), ":2:8: --loud takes true or false");
  EXPECT_EQ(problem("[serve]\nshare = \"x\"\n"), ":2:9: --share takes a number");
  EXPECT_EQ(problem("[serve]\nkv-memory = 5\n"), ":2:13: --kv-memory takes a text in quotes");
  EXPECT_EQ(problem("[serve]\nmodel = [\"a\", 5]\n"),
            ":2:15: --model takes a text in quotes, or several in brackets");
  EXPECT_EQ(problem("[serve]\nqueue = \"8\"\n", {"--queue", "8"}),
            ":2:9: --queue takes a whole number");
}

TEST_F(ConfigFileTest, RulesBetweenFlagsHoldAcrossBoth) {
  EXPECT_EQ(problem("[serve]\nloud = true\n", {"--share", "1"}),
            ":2:1: --loud and --share exclude each other");
  EXPECT_EQ(problem("[serve]\nshare = 1\n", {"--loud"}), "--loud and --share exclude each other");
  EXPECT_EQ(problem("[serve]\nhost = \"x\"\n"),
            ":2:1: --host: has no effect without --api-key or --loud");
  EXPECT_EQ(problem("[serve]\napi-key = \"k\"\n", {"--host", "x"}), "none");
}

TEST_F(ConfigFileTest, AFileThatIsNamedMustBeThere) {
  fs::remove(path_);
  EXPECT_ERROR(started(), "cannot open");
}

TEST_F(ConfigFileTest, TheUsersOwnFileIsReadWhereThereIsOne) {
  const char* const before = std::getenv("XDG_CONFIG_HOME");
  const std::string restored = before == nullptr ? "" : before;
  const fs::path home = path_ + "-home";
  ::setenv("XDG_CONFIG_HOME", home.c_str(), 1);
  EXPECT_EQ(started_with({}).queue, 64u);
  fs::create_directories(home / "tyto");
  std::ofstream(home / "tyto" / "config.toml") << "[serve]\nqueue = 8\n";
  EXPECT_EQ(started_with({}).queue, 8u);
  EXPECT_EQ(started_with({"--config", "none"}).queue, 64u);
  EXPECT_EQ(started().queue, 64u);  // another file instead, not as well
  fs::remove_all(home);
  if (before != nullptr)
    ::setenv("XDG_CONFIG_HOME", restored.c_str(), 1);
  else
    ::unsetenv("XDG_CONFIG_HOME");
}

TEST_F(ConfigFileTest, KeysThatOthersCanReadAreNoted) {
  const auto noted = [&] {
    testing::internal::CaptureStderr();
    started();
    return testing::internal::GetCapturedStderr();
  };
  write("[serve]\napi-key = \"k3y\"\n");
  EXPECT_EQ(noted(), "");
  fs::permissions(path_, fs::perms::others_read, fs::perm_options::add);
  const std::string line = noted();
  EXPECT_NE(line.find("holds --api-key and other users can read it"), std::string::npos) << line;
  EXPECT_EQ(line.find("k3y"), std::string::npos);
  write("[serve]\nqueue = 8\n");
  fs::permissions(path_, fs::perms::others_read, fs::perm_options::add);
  EXPECT_EQ(noted(), "");
}

TEST_F(ConfigFileTest, ReloadingTakesWhatMayChange) {
  write("[serve]\nqueue = 8\nshare = 0.5\nmodel = [\"a\"]\n");
  const ConfigValues& values = started({"--api-key", "mine"});
  const ConfigChanges changes =
      reloaded("[serve]\nqueue = 9\nshare = 0.75\nkv-memory = \"1GiB\"\napi-key = \"other\"\n");
  EXPECT_EQ(changes.taken, (std::vector<std::string>{"--queue", "--model"}));
  EXPECT_EQ(changes.need_restart, (std::vector<std::string>{"--share", "--kv-memory"}));
  EXPECT_EQ(values.queue, 9u);
  EXPECT_TRUE(values.models.empty());
  EXPECT_EQ(values.share, 0.5f);
  EXPECT_EQ(values.api_key, "mine");
  EXPECT_FALSE(serve_->is_given("--model"));
  EXPECT_EQ(reloaded("[serve]\nshare = 0.5\n").taken, std::vector<std::string>{"--queue"});
  EXPECT_EQ(values.queue, 64u);  // its default
}

TEST_F(ConfigFileTest, AnErrorWhileReloadingChangesNothing) {
  write("[serve]\nqueue = 8\n");
  const ConfigValues& values = started();
  EXPECT_ERROR(reloaded("[serve]\nqueue = 9\nlengths = \"x\"\n"),
               "3:11: --lengths takes a whole number");
  EXPECT_ERROR(reloaded("[serve"), "while parsing table header");
  EXPECT_EQ(values.queue, 8u);
  EXPECT_TRUE(reloaded("[serve]\nqueue = 8\n").taken.empty());
}

TEST_F(ConfigFileTest, WhatCannotBeTakenOverChangesNothing) {
  write("[serve]\nqueue = 8\napi-key = \"first\"\n");
  const ConfigValues& values = started();
  const std::string given_at = serve_->flag("--queue").given_at;
  take_ = [&] {
    EXPECT_EQ(values.queue, 64u);
    EXPECT_EQ(values.api_key, "second");
    throw Error(ErrorCode::usage, "--api-key", "is refused");
  };
  EXPECT_ERROR(reloaded("[serve]\napi-key = \"second\"\n"), "--api-key: is refused");
  EXPECT_EQ(values.queue, 8u);
  EXPECT_EQ(values.api_key, "first");
  EXPECT_EQ(serve_->flag("--queue").given_at, given_at);
  EXPECT_TRUE(serve_->is_given("--queue"));
  take_ = [] {};
  EXPECT_EQ(reloaded("[serve]\napi-key = \"second\"\n").taken,
            (std::vector<std::string>{"--queue", "--api-key"}));
  EXPECT_EQ(values.api_key, "second");
}

TEST_F(ConfigFileTest, ErrorsQuoteNoKeys) {
  for (const char* value :
       {"true-s3cret", "tr1234", "1234567890123456789012", "[s3cret", "'s3cret"}) {
    const std::string line = problem(fmt::format("[serve]\napi-key = {}\n", value));
    EXPECT_TRUE(line.starts_with(":2:")) << line;
    for (const char* piece : {"s3c", "tr1", "123"})
      EXPECT_EQ(line.find(piece), std::string::npos) << line;
  }
}

}  // namespace
}  // namespace tyto
