#include "cli/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>  // here and nowhere else: it is slow to compile
#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

std::string default_text(const Target& target) {
  return std::visit(
      [](const auto* value) -> std::string {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, std::string>) return *value;
        if constexpr (std::is_floating_point_v<T>) return fmt::format("{:g}", *value);
        if constexpr (kIsNumber<T>) return fmt::format("{}", *value);
        return "";
      },
      target);
}

bool is_fractional(const Target& target) {
  return std::holds_alternative<float*>(target) || std::holds_alternative<double*>(target) ||
         std::holds_alternative<std::optional<float>*>(target) ||
         std::holds_alternative<std::optional<double>*>(target);
}

CLI::Option* add_option(CLI::App& app, const Flag& flag) {
  return std::visit(
      [&](auto* value) {
        if constexpr (std::is_same_v<decltype(value), bool*>)
          return app.add_flag(flag.names, *value);
        else
          return app.add_option(flag.names, *value);
      },
      flag.target);
}

void add_checks(CLI::Option& option, const Flag& flag) {
  if (flag.allowed) {
    const auto& [values, letters] = *flag.allowed;
    if (letters == Letters::exact) option.check(CLI::IsMember(values));
    if (letters == Letters::any_case) option.check(CLI::IsMember(values, CLI::ignore_case));
    if (letters == Letters::as_listed) option.transform(CLI::IsMember(values, CLI::ignore_case));
  }
  const std::optional<Range>& range = flag.rules.range;
  if (range && is_fractional(flag.target))
    option.check(CLI::Range(range->least, range->most));
  else if (range)
    option.check(
        CLI::Range(static_cast<uint32_t>(range->least), static_cast<uint32_t>(range->most)));
  if (flag.rules.is_folder) option.check(CLI::ExistingDirectory);
}

// One parser per command, and which option of it is which flag.
class Parser {
 public:
  explicit Parser(CommandLine& program) : app_("", program.name) {
    app_.require_subcommand(0, 1);
    add(app_, program);
    if (!program.version.empty()) app_.set_version_flag("--version", program.version);
  }

  Invocation::Kind parse(std::vector<std::string> arguments) {
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
    try {
      app_.parse(std::move(arguments));
    } catch (const CLI::CallForHelp&) {
      return Invocation::Kind::help;
    } catch (const CLI::CallForVersion&) {
      return Invocation::Kind::version;
    } catch (const CLI::ParseError& error) {
      throw Error(ErrorCode::usage, "", error.what(), "see --help");
    }
    for (const auto& [option, flag] : flags_) flag->given = option->count() > 0;
    return Invocation::Kind::run;
  }

  std::vector<const CommandLine*> path() {
    std::vector<const CommandLine*> result = {commands_.at(&app_)};
    for (const CLI::App* app = &app_; !app->get_subcommands().empty();) {
      app = app->get_subcommands().front();
      result.push_back(commands_.at(app));
    }
    return result;
  }

 private:
  void add(CLI::App& app, CommandLine& command) {
    commands_[&app] = &command;
    for (Flag& flag : command.flags) {
      CLI::Option* option = add_option(app, flag);
      if (!flag.value.empty()) option->type_name(flag.value);
      if (flag.rules.separator != '\0') option->delimiter(flag.rules.separator);
      if (flag.rules.count > 0) option->expected(flag.rules.count);
      option->required(flag.rules.required);
      add_checks(*option, flag);
      flags_.emplace_back(option, &flag);
    }
    for (const Flag& flag : command.flags)  // now that all are there
      for (const std::string& other : flag.rules.excludes)
        app.get_option(flag.name())->excludes(app.get_option(other));
    if (command.needs_command) app.require_subcommand(1);
    if (!command.alias.empty()) app.alias(command.alias);
    for (CommandLine& below : command.commands) add(*app.add_subcommand(below.name), below);
  }

  CLI::App app_;
  std::map<const CLI::App*, CommandLine*> commands_;
  std::vector<std::pair<CLI::Option*, Flag*>> flags_;
};

template <class Flags>
auto find_flag(Flags& flags, std::string_view name) {
  const auto found =
      std::find_if(flags.begin(), flags.end(), [&](const Flag& f) { return f.name() == name; });
  TYTO_ASSERT(found != flags.end());
  return found;
}

}  // namespace

bool takes_several(const Target& target) {
  return std::holds_alternative<std::vector<std::string>*>(target) ||
         std::holds_alternative<std::vector<uint32_t>*>(target);
}

bool is_set(const Target& target) {
  return std::visit(
      [](const auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        return *value != T();
      },
      target);
}

void unset(const Target& target) {
  std::visit([](auto* value) { *value = {}; }, target);
}

Flag::Flag(std::string its_names, bool* its_target, std::string its_meaning, Rules its_rules)
    : names(std::move(its_names)),
      target(its_target),
      meaning(std::move(its_meaning)),
      rules(std::move(its_rules)) {}

Flag::Flag(std::string its_names, Target its_target, std::string its_value, std::string its_meaning,
           Rules its_rules)
    : names(std::move(its_names)),
      target(its_target),
      value(std::move(its_value)),
      meaning(std::move(its_meaning)),
      rules(std::move(its_rules)) {}

Flag::Flag(std::string its_names, Target its_target, OneOf choices, std::string its_meaning,
           Rules its_rules)
    : names(std::move(its_names)),
      target(its_target),
      allowed(std::move(choices)),
      meaning(std::move(its_meaning)),
      rules(std::move(its_rules)) {}

std::string Flag::name() const {
  const size_t comma = names.find(",--");
  return comma == std::string::npos ? names : names.substr(comma + 1);
}

CommandLine::CommandLine(std::string its_name, std::string its_summary)
    : name(std::move(its_name)), summary(std::move(its_summary)) {}

void CommandLine::add(std::vector<Flag> rows) {
  add(kPlainGroup, std::move(rows));
}

void CommandLine::add(const std::string& group, std::vector<Flag> rows) {
  for (Flag& row : rows) {
    row.group = group;
    if (row.rules.shows_default) row.default_text = default_text(row.target);
    flags.push_back(std::move(row));
  }
}

void CommandLine::remove(std::string_view flag) {
  flags.erase(find_flag(flags, flag));
}

Flag& CommandLine::flag(std::string_view flag) {
  return *find_flag(flags, flag);
}

bool CommandLine::is_given(std::string_view flag) const {
  return find_flag(flags, flag)->given;
}

CommandLine& CommandLine::add_command(const std::string& its_name, const std::string& its_summary) {
  CommandLine& command = commands.emplace_back(its_name, its_summary);
  command.footer = footer;
  return command;
}

Invocation parse(CommandLine& program, std::vector<std::string> arguments) {
  Parser parser(program);
  Invocation result;
  result.kind = parser.parse(std::move(arguments));
  result.path = parser.path();
  return result;
}

}  // namespace tyto
