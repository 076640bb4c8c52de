#include "shell/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>  // here and nowhere else: it is slow to compile

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/redaction.h"
#include "shell/command_line.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostConfigBytes = 1 << 20;
// The commands that read the file: its tables.
constexpr std::array<std::string_view, 1> kReaders = {"serve"};

enum class ValueKind { truth, text, whole_number, number };

ValueKind kind_of(const Target& target) {
  return std::visit(
      [](const auto& value) {
        using T = std::remove_pointer_t<std::remove_cvref_t<decltype(value)>>;
        if constexpr (std::is_same_v<T, bool>) return ValueKind::truth;
        if constexpr (std::is_same_v<T, Typed> || std::is_same_v<T, std::string> ||
                      std::is_same_v<T, std::optional<std::string>> ||
                      std::is_same_v<T, std::vector<std::string>>)
          return ValueKind::text;
        if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> ||
                      std::is_same_v<T, std::optional<float>> ||
                      std::is_same_v<T, std::optional<double>>)
          return ValueKind::number;
        return ValueKind::whole_number;
      },
      target);
}

// As it would stand on the command line; none: a value of another kind.
std::optional<std::string> text_of(const toml::node& node, ValueKind kind) {
  switch (kind) {
    case ValueKind::text:
      if (const auto* text = node.as_string()) return text->get();
      return std::nullopt;
    case ValueKind::number:
      if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
      [[fallthrough]];
    case ValueKind::whole_number:
      if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
      return std::nullopt;
    case ValueKind::truth:
      return std::nullopt;
  }
  return std::nullopt;
}

// What toml++ quotes may be a piece of a key whose quotes are missing. Single characters stay.
std::string without_quoted(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t begin = std::min(text.find('\''), text.size());
    const size_t end = std::min(text.find('\'', begin + 1), text.size());
    const bool is_long = end > begin + 3;
    result += text.substr(0, is_long ? begin + 1 : end);
    if (is_long) result += kHidden;
    if (end < text.size()) result += '\'';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// Also by an argument known by its place that means the same.
bool is_given(const CommandLine& command, const Flag& flag) {
  return std::any_of(command.flags.begin(), command.flags.end(),
                     [&](const Flag& each) { return each.given && each.target == flag.target; });
}

class ConfigFile {
 public:
  explicit ConfigFile(const fs::path& path) : path_(path) {
    const std::string text = read_text_file(path, kMostConfigBytes);
    try {
      root_ = toml::parse(text);
    } catch (const toml::parse_error& error) {
      throw Error(ErrorCode::usage, place(error.source()), without_quoted(error.description()));
    }
    for (const auto& [key, node] : root_) {
      if (!node.is_table())
        fail(key.source(), fmt::format("{} is outside a table", key.str()),
             fmt::format("write it below [{}]", fmt::join(kReaders, "] or [")));
      if (std::find(kReaders.begin(), kReaders.end(), key.str()) == kReaders.end())
        fail(key.source(), fmt::format("no command reads [{}]", key.str()),
             fmt::format("this file is for [{}]", fmt::join(kReaders, "] and [")));
    }
  }

  // What the command line gave stays.
  void set_flags_of(CommandLine& command) const {
    const toml::table* table = root_[command.name].as_table();
    if (table == nullptr) return;
    for (const auto& [key, node] : *table) {
      Flag& flag = flag_of(command, key);
      std::vector<std::string> arguments = arguments_of(flag, node);
      if (is_given(command, flag) || arguments.empty()) continue;
      set(flag, arguments, node.source());
      flag.given = true;
      flag.given_at = place(key.source());
    }
  }

  bool holds(const CommandLine& command, const Flag& flag) const {
    const std::string name = flag.name();
    return name.starts_with("--") && root_[command.name][name.substr(2)].node() != nullptr;
  }

 private:
  std::string place(const toml::source_region& region) const {
    return fmt::format("{}:{}:{}", path_.string(), region.begin.line, region.begin.column);
  }

  [[noreturn]] void fail(const toml::source_region& region, const std::string& what,
                         const std::string& next_step = "") const {
    throw Error(ErrorCode::usage, place(region), what, next_step);
  }

  // Not every flag is one of a file: --config itself is not, nor are arguments known by their
  // place.
  Flag& flag_of(CommandLine& command, const toml::key& key) const {
    const std::string name = fmt::format("--{}", key.str());
    const auto found = std::find_if(
        command.flags.begin(), command.flags.end(),
        [&](const Flag& flag) { return flag.name() == name || flag.rules.alias == name; });
    if (found == command.flags.end() || name == "--config")
      fail(key.source(), fmt::format("{} has no setting named {}", command.name, key.str()),
           fmt::format("see tyto {} --help", command.name));
    return *found;
  }

  // None where the file says that a flag is not given.
  std::vector<std::string> arguments_of(const Flag& flag, const toml::node& node) const {
    const ValueKind kind = kind_of(flag.target);
    if (kind == ValueKind::truth && node.is_boolean())
      return node.as_boolean()->get() ? std::vector{flag.name()} : std::vector<std::string>{};
    std::vector<std::string> arguments;
    const auto add = [&](const toml::node& value) {
      constexpr std::array<const char*, 4> kWanted = {"true or false", "a text in quotes",
                                                      "a whole number", "a number"};
      const std::optional<std::string> text = text_of(value, kind);
      if (!text)
        fail(value.source(),
             fmt::format("{} takes {}{}", flag.name(), kWanted[size_t(kind)],
                         takes_several(flag.target) ? ", or several in brackets" : ""));
      arguments.push_back(flag.name() + "=" + *text);
    };
    const toml::array* several = takes_several(flag.target) ? node.as_array() : nullptr;
    if (several == nullptr)
      add(node);
    else
      for (const toml::node& value : *several) add(value);
    return arguments;
  }

  void set(const Flag& flag, const std::vector<std::string>& arguments,
           const toml::source_region& region) const {
    try {
      set_flag(flag, arguments);
    } catch (const Error& error) {
      fail(region, error.what(), error.hint);
    }
  }

  fs::path path_;
  toml::table root_;
};

std::optional<fs::path> path_of(const ConfigFlags& flags) {
  if (flags.config == "none") return std::nullopt;
  if (!flags.config.empty()) return flags.config;
  std::optional<fs::path> path = config_folder();
  if (path) *path /= "config.toml";
  std::error_code unreadable;  // then reading it says why
  if (path && !fs::exists(*path, unreadable) && !unreadable) return std::nullopt;
  return path;
}

void warn_of_secrets(const CommandLine& command, const ConfigFile& file, const fs::path& path) {
  const bool is_public =
      (fs::status(path).permissions() & fs::perms::others_read) != fs::perms::none;
  for (const Flag& flag : command.flags)
    if (is_public && flag.rules.is_secret && file.holds(command, flag))
      note(fmt::format("{}: holds {} and other users can read it; take that away with chmod o-r",
                       path.string(), flag.name()));
}

// Both targets are of one kind.
void swap_values(const Target& one, const Target& other) {
  if (const auto* typed_one = std::get_if<Typed>(&one)) {
    const std::vector<std::string> words = typed_one->words();
    assign(one, other);
    return std::get<Typed>(other).read(words, "");
  }
  std::visit(
      [&](const auto& value) {
        using T = std::remove_cvref_t<decltype(value)>;
        if constexpr (std::is_pointer_v<T>) std::swap(*value, *std::get<T>(other));
      },
      one);
}

void exchange(CommandLine& one, CommandLine& other, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    Flag& flag = one.flag(name);
    Flag& with = other.flag(name);
    swap_values(flag.target, with.target);
    std::swap(flag.given, with.given);
    std::swap(flag.given_at, with.given_at);
  }
}

}  // namespace

void add_config_flag(CommandLine& command, ConfigFlags& flags) {
  TYTO_ASSERT(std::find(kReaders.begin(), kReaders.end(), command.name) != kReaders.end());
  command.add({{"--config", &flags.config, "FILE",
                "read flags from this file; none: from no file (default: "
                "~/.config/tyto/config.toml)"}});
  command.complete = [&command, &flags] {
    const std::optional<fs::path> path = path_of(flags);
    if (!path) return;
    const ConfigFile file(*path);
    file.set_flags_of(command);
    warn_of_secrets(command, file, *path);
  };
}

ConfigChanges reload_config(CommandLine& command, void (*define)(CommandLine&),
                            const std::vector<std::string>& may_change,
                            const std::function<void()>& take) {
  CommandLine program("tyto", "");
  CommandLine& again = program.add_command(command.name, command.summary);
  define(again);
  parse(program, command.arguments);
  ConfigChanges changes;
  for (Flag& flag : command.flags) {
    if (flag.is_positional()) continue;  // a flag has the same target
    if (hold_the_same(flag.target, again.flag(flag.name()).target)) continue;
    const bool is_taken =
        std::find(may_change.begin(), may_change.end(), flag.name()) != may_change.end();
    (is_taken ? changes.taken : changes.need_restart).push_back(flag.name());
  }
  exchange(command, again, changes.taken);
  try {
    take();
  } catch (...) {
    exchange(command, again, changes.taken);
    throw;
  }
  return changes;
}

}  // namespace tyto
