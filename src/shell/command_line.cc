#include "shell/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>  // here and nowhere else: it is slow to compile
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "shell/usage_error.h"

namespace tyto {
namespace {

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

std::string text_of(const std::string& value) {
  return value;
}
std::string text_of(bool value) {
  return value ? "on" : "off";
}
template <class T>
  requires kIsNumber<T>
std::string text_of(T value) {
  if constexpr (std::is_floating_point_v<T>) return fmt::format("{:g}", value);
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "";
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  std::string text;
  for (const T& value : values) text += (text.empty() ? "" : ",") + text_of(value);
  return text;
}

// What a target holds: of an optional or a vector, one of its values.
template <class T>
struct ValueIn {
  using Type = T;
};
template <class T>
struct ValueIn<std::optional<T>> : ValueIn<T> {};
template <class T>
struct ValueIn<std::vector<T>> : ValueIn<T> {};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  const auto next = [&] {
    return separator == '\0' ? std::string::npos : text.find(separator, begin);
  };
  for (size_t end = next(); end != std::string::npos; end = next()) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

// In an error.
std::string shown(const Flag& flag, const std::string& value) {
  return flag.rules.is_secret ? std::string(kHidden) : value;
}

// Plain decimals. CLI11 would read 010 as eight, and a number that is too large as the largest.
template <class T>
T number(const std::string& text, const Flag& flag) {
  if (flag.rules.is_unlimited_at_minus_1 && text == "-1") return std::numeric_limits<T>::max();
  T value = {};
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::optional<Range>& range = flag.rules.range;
  bool is_good = error == std::errc() && rest == end;
  if constexpr (std::is_floating_point_v<T>) is_good = is_good && std::isfinite(value);
  if (range) is_good = is_good && value >= range->least && value <= range->most;
  if (is_good) return value;
  std::string wanted = std::is_integral_v<T> ? "a whole number" : "a number";
  if (flag.rules.is_unlimited_at_minus_1) wanted = "-1 or " + wanted;
  if (range && range->most >= std::numeric_limits<float>::max())
    wanted += fmt::format(" of at least {:.12g}", range->least);
  else if (range)
    wanted += fmt::format(" from {:.12g} to {:.12g}", range->least, range->most);
  else if (std::is_integral_v<T>)
    wanted += fmt::format(" from 0 to {}", std::numeric_limits<T>::max());
  throw Error(ErrorCode::usage, flag.name(),
              fmt::format("\"{}\" is not {}", shown(flag, text), wanted));
}

std::string all_names(const Flag& flag) {
  return flag.rules.alias.empty() ? flag.names : flag.names + "," + flag.rules.alias;
}

template <class T>
CLI::Option* add_number(CLI::App& app, const Flag& flag, T* target) {
  using Value = typename ValueIn<T>::Type;
  const CLI::callback_t store = [&flag, target](const CLI::results_t& texts) {
    if constexpr (std::is_same_v<T, std::vector<Value>>) {
      target->clear();
      for (const std::string& text : texts)
        for (const std::string& part : split(text, flag.rules.separator))
          target->push_back(number<Value>(part, flag));
    } else {
      *target = number<Value>(texts.front(), flag);
    }
    return true;
  };
  CLI::Option* option = app.add_option(all_names(flag), store);
  if (takes_several(flag.target)) option->expected(CLI::detail::expected_max_vector_size);
  return option;
}

CLI::Option* add_option(CLI::App& app, const Flag& flag) {
  return std::visit(
      [&](auto* value) {
        using T = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<T, bool>)
          return app.add_flag(all_names(flag), *value)->disable_flag_override();
        else if constexpr (kIsNumber<typename ValueIn<T>::Type>)
          return add_number(app, flag, value);
        else
          return app.add_option(all_names(flag), *value);
      },
      flag.target);
}

// CLI11 takes a value in brackets for a list and drops the brackets, but "[INST]" is a text; and
// "++" for the end of a command. With this before it CLI11 does not see them.
constexpr char kAsItIs = '\x01';

// This stands for the value of a flag that has none: "--json" alone.
constexpr char kNoValue = '\x02';

// "--name=" has an empty value, where CLI11 would take the next argument for it.
std::vector<std::string> with_values_as_they_are(const std::vector<std::string>& arguments) {
  std::vector<std::string> result;
  bool only_positionals = false;
  for (std::string argument : arguments) {
    only_positionals = only_positionals || argument == "--";
    const bool is_flag = !only_positionals && argument.starts_with("--");
    const size_t equals = is_flag ? argument.find('=') : std::string::npos;
    const size_t value = equals == std::string::npos ? 0 : equals + 1;
    const bool has_no_value = value > 0 && value == argument.size();
    if (has_no_value) argument.pop_back();
    const bool is_bracket =
        value < argument.size() && (argument[value] == '[' || argument[value] == kAsItIs);
    if (is_bracket || argument == "++") argument.insert(value, 1, kAsItIs);
    result.push_back(std::move(argument));
    if (has_no_value) result.emplace_back();
  }
  return result;
}

std::string folded(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void check_value(const Flag& flag, std::string& text) {
  if (text.empty() && !flag.rules.may_be_empty)
    throw Error(ErrorCode::usage, flag.name(), "the value is empty");
  if (flag.allowed) {
    const auto& [values, letters, why_not] = *flag.allowed;
    const bool is_exact = letters == Letters::exact;
    const auto found = std::find_if(values.begin(), values.end(), [&](const std::string& value) {
      return is_exact ? value == text : folded(value) == folded(text);
    });
    if (found == values.end()) throw not_allowed(flag, *flag.allowed, shown(flag, text));
    if (letters == Letters::as_listed) text = *found;
  }
  std::error_code ignored;
  if (flag.rules.is_folder && !std::filesystem::is_directory(text, ignored))
    throw Error(ErrorCode::usage, flag.name(), shown(flag, text) + " is not a folder");
}

void add_checks(CLI::Option& option, const Flag& flag) {
  if (std::holds_alternative<bool*>(flag.target)) return;
  const auto check = [&flag](std::string& text) -> std::string {
    if (text.starts_with(kAsItIs)) text.erase(0, 1);
    if (flag.rules.may_lack_value && text == std::string(1, kNoValue))
      text.clear();
    else
      check_value(flag, text);
    return "";
  };
  option.transform(CLI::Validator(check, ""));
}

// The command that the first words name, whatever follows it.
const CommandLine& command_of(const CommandLine& program,
                              const std::vector<std::string>& arguments) {
  const CommandLine* command = &program;
  for (const std::string& word : arguments) {
    const auto below = std::find_if(
        command->commands.begin(), command->commands.end(), [&](const CommandLine& each) {
          return each.name == word || (!each.alias.empty() && each.alias == word);
        });
    if (below == command->commands.end()) break;
    command = &*below;
  }
  return *command;
}

bool names_flag(const std::vector<std::string>& arguments, const Flag& flag) {
  const std::string names = "," + flag.names + ",";
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument.starts_with('-') &&
           names.find("," + argument.substr(0, argument.find('=')) + ",") != std::string::npos;
  });
}

// Whether a word without a flag can be one of the command's arguments.
bool takes_words(const CommandLine& command, const std::vector<std::string>& arguments) {
  const auto is_any_given = [&](const std::vector<std::string>& flags) {
    return std::any_of(flags.begin(), flags.end(), [&](const std::string& name) {
      return names_flag(arguments, command.flag(name));
    });
  };
  return std::any_of(command.flags.begin(), command.flags.end(), [&](const Flag& flag) {
    return flag.is_positional() && !is_any_given(flag.rules.excludes) &&
           !is_any_given(flag.rules.filled_by);
  });
}

// The word after a flag that may lack a value is its value where it can be no argument of the
// command, or where it is the name of such a file: shell/json_flag.h.
std::vector<std::string> with_values_that_may_lack(const CommandLine& command,
                                                   const std::vector<std::string>& arguments) {
  const bool may_be_word = takes_words(command, arguments);
  std::vector<std::string> result;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--") {
      result.insert(result.end(), arguments.begin() + static_cast<ptrdiff_t>(i), arguments.end());
      break;
    }
    result.push_back(arguments[i]);
    const auto flag = std::find_if(
        command.flags.begin(), command.flags.end(),
        [&](const Flag& each) { return each.rules.may_lack_value && each.name() == arguments[i]; });
    if (flag == command.flags.end()) continue;
    const std::string next = i + 1 < arguments.size() ? arguments[i + 1] : "-";
    const bool has_value = !next.starts_with('-') && (!may_be_word || next.ends_with(".json"));
    if (!has_value) result.emplace_back(1, kNoValue);
  }
  return result;
}

// One parser per command, and which option of it is which flag.
class Parser {
 public:
  explicit Parser(CommandLine& program) : program_(program), app_("", program.name) {
    app_.require_subcommand(0, 1);
    add(app_, program);
    if (!program.version.empty()) app_.set_version_flag("--version", program.version);
  }

  Invocation::Kind parse(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
      if (argument == "--") break;  // what follows is another program's
      for (const char* flag : {"--help=", "--help-all=", "--version="})
        if (argument.starts_with(flag))
          throw Error(ErrorCode::usage, argument, "takes no value", see_help(path()));
    }
    std::vector<std::string> for_cli11 = with_values_as_they_are(
        with_values_that_may_lack(command_of(program_, arguments), arguments));
    std::reverse(for_cli11.begin(), for_cli11.end());  // as it wants them
    try {
      app_.parse(std::move(for_cli11));
    } catch (const CLI::CallForHelp&) {
      refuse_unknown_commands();
      return Invocation::Kind::help;
    } catch (const CLI::CallForAllHelp&) {
      refuse_unknown_commands();
      return Invocation::Kind::whole_help;
    } catch (const CLI::CallForVersion&) {
      return Invocation::Kind::version;
    } catch (const CLI::ParseError& error) {
      refuse_unexpected(arguments);
      throw problem(error);
    } catch (Error& error) {
      refuse_unexpected(arguments);
      const std::string help = see_help(path());
      if (!error.hint.empty() && !help.empty())
        error.hint += error.hint.ends_with('?') ? " " : "; ";
      error.hint += help;
      throw;
    }
    for (const auto& [option, flag] : flags_) {
      flag->given = option->count() > 0;
      flag->given_at.clear();
    }
    for (const CLI::App* app : apps()) {
      CommandLine& command = *commands_.at(app);
      command.arguments = arguments;
      if (command.complete) command.complete();
      check_rules(command, see_help(path()));
    }
    return Invocation::Kind::run;
  }

  CommandPath path() const {
    CommandPath result;
    for (const CLI::App* app : apps()) result.push_back(commands_.at(app));
    return result;
  }

 private:
  std::vector<const CLI::App*> apps() const {
    std::vector<const CLI::App*> result = {&app_};
    while (!result.back()->get_subcommands().empty())
      result.push_back(result.back()->get_subcommands().front());
    return result;
  }

  // What no flag and no place took, in the order given.
  static std::vector<std::string> left_over(const CLI::App& app) {
    std::vector<std::string> arguments = app.remaining();
    std::erase(arguments, "--");
    for (std::string& argument : arguments) std::erase(argument, kAsItIs);
    return arguments;
  }

  void refuse_unexpected(const std::vector<std::string>& arguments) const {
    refuse_long_flags_behind_one_dash(path(), arguments);
    // CLI11 leaves to the program what follows "--".
    const bool has_mark = std::count(arguments.begin(), arguments.end(), "--") > 0;
    CommandPath owner;
    for (const CLI::App* app : apps()) {
      owner.push_back(commands_.at(app));
      std::vector<std::string> unknown = left_over(*app);
      if (unknown.empty()) continue;
      if (has_mark) owner = path();
      hide_values_of_secrets(arguments, unknown);
      throw unexpected(owner, unknown, words_before(*owner.back()));
    }
  }

  // "--api-key one two": what a secret's flag did not take may have been meant for it.
  void hide_values_of_secrets(const std::vector<std::string>& arguments,
                              std::vector<std::string>& unknown) const {
    const bool has_secret = std::any_of(flags_.begin(), flags_.end(), [&](const auto& each) {
      const Flag& flag = *each.second;
      return flag.rules.is_secret &&
             std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
               return argument == flag.name() || argument.starts_with(flag.name() + "=");
             });
    });
    for (std::string& word : unknown)
      if (has_secret && !word.starts_with('-')) word = kHidden;
  }

  // "tyto modells --help" asks for no help of ours.
  void refuse_unknown_commands() const {
    const std::vector<std::string> unknown = left_over(*apps().back());
    const bool has_commands = !path().back()->commands.empty();
    if (has_commands && !unknown.empty() && !unknown.front().starts_with('-'))
      throw unexpected(path(), unknown);
  }

  // The words so far of a command that takes one text, where more words follow.
  GivenText words_before(const CommandLine& command) const {
    for (const auto& [option, flag] : flags_) {
      const bool is_text = is_of(*flag, command) && !flag->rules.text_kind.empty();
      if (!is_text || option->count() == 0) continue;
      std::string words = joined(option->results(), " ");
      std::erase(words, kAsItIs);
      return {flag->rules.text_kind, words};
    }
    return {};
  }

  static bool is_of(const Flag& flag, const CommandLine& command) {
    return std::any_of(command.flags.begin(), command.flags.end(),
                       [&](const Flag& each) { return &each == &flag; });
  }

  Error problem(const CLI::ParseError& error) const {
    const CommandLine& command = *path().back();
    const std::string hint = see_help(path());
    std::string what = error.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
      // It begins with "--name: ", or for a flag without a value with "name ".
      for (const auto& [option, flag] : flags_)
        if (is_of(*flag, command) &&
            (what.starts_with(flag->name() + ":") || ("--" + what).starts_with(flag->name() + " ")))
          return {ErrorCode::usage, flag->name(), wrong_count(*option, *flag), hint};
    }
    if (command.needs_command) return missing_command(path());
    if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
      for (const auto& [option, flag] : flags_)
        if (is_of(*flag, command) && flag->rules.required && option->count() == 0)
          return {ErrorCode::usage, full_name(path()), flag->called() + " is missing", hint};
    std::erase(what, kAsItIs);
    return {ErrorCode::usage, "", what, hint};
  }

  static std::string wrong_count(const CLI::Option& option, const Flag& flag) {
    if (std::holds_alternative<bool*>(flag.target)) return "takes no value";
    if (flag.rules.count > 1)
      return fmt::format("takes {} values, {}", flag.rules.count, flag.value);
    if (option.count() > 1) return "is given more than once";
    return "needs a value" + (flag.value.empty() ? "" : ", " + flag.value);
  }

  void add(CLI::App& app, CommandLine& command) {
    commands_[&app] = &command;
    app.set_help_all_flag("--help-all");
    for (Flag& flag : command.flags) {
      CLI::Option* option = add_option(app, flag);
      if (!flag.value.empty()) option->type_name(flag.value);
      if (flag.rules.count > 0) option->expected(flag.rules.count);
      // Else "--stop END 'a prompt'" would take the prompt, too.
      if (!flag.is_positional()) option->allow_extra_args(false);
      // CLI11 leaves the last arguments to those that must have one; of the others a file may tell.
      option->required(flag.rules.required && flag.is_positional());
      add_checks(*option, flag);
      flags_.emplace_back(option, &flag);
    }
    if (command.needs_command) app.require_subcommand(1);
    if (!command.alias.empty()) app.alias(command.alias);
    for (CommandLine& below : command.commands) add(*app.add_subcommand(below.name), below);
  }

  static void check_rules(const CommandLine& command, const std::string& hint) {
    const auto is_given = [&](const std::string& name) { return command.is_given(name); };
    for (const Flag& flag : command.flags) {
      const auto refuse = [&](const std::string& what) {
        throw Error(ErrorCode::usage, flag.given_at, flag.called() + what, hint);
      };
      if (!flag.given && flag.rules.required) refuse(" is required");
      if (!flag.given) continue;
      for (const std::string& other : flag.rules.excludes)
        if (is_given(other)) refuse(" and " + command.flag(other).called() + " exclude each other");
      // A control that would do nothing is an error, not a hope.
      const std::vector<std::string>& needed = flag.rules.needs_one_of;
      if (!needed.empty() && std::none_of(needed.begin(), needed.end(), is_given))
        refuse(fmt::format(": has no effect without {}", fmt::join(needed, " or ")));
    }
  }

  const CommandLine& program_;
  CLI::App app_;
  std::map<const CLI::App*, CommandLine*> commands_;
  std::vector<std::pair<CLI::Option*, Flag*>> flags_;
};

// "help kernels list" as "kernels list --help".
std::vector<std::string> with_help_last(const CommandLine& program,
                                        const std::vector<std::string>& arguments) {
  if (program.commands.empty() || arguments.empty() || arguments.front() != "help")
    return arguments;
  std::vector<std::string> result(arguments.begin() + 1, arguments.end());
  result.emplace_back("--help");
  return result;
}

std::string default_text(const Flag& flag) {
  return is_unlimited(flag) ? "-1" : value_text(flag.target);
}

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

bool hold_the_same(const Target& one, const Target& other) {
  return std::visit([&](auto* value) { return *value == *std::get<decltype(value)>(other); }, one);
}

void assign(const Target& to, const Target& from) {
  std::visit([&](auto* value) { *value = *std::get<decltype(value)>(from); }, to);
}

std::string value_text(const Target& target) {
  return std::visit([](const auto* value) { return text_of(*value); }, target);
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

std::string Flag::called() const {
  return is_positional() && !value.empty() ? value : name();
}

CommandLine::CommandLine(std::string its_name, std::string its_summary)
    : name(std::move(its_name)), summary(std::move(its_summary)) {}

void CommandLine::add(std::vector<Flag> rows) {
  add(kPlainGroup, std::move(rows));
}

bool is_unlimited(const Flag& flag) {
  const auto* number = std::get_if<uint32_t*>(&flag.target);
  return flag.rules.is_unlimited_at_minus_1 && number != nullptr && **number == UINT32_MAX;
}

void CommandLine::add(const std::string& heading, std::vector<Flag> rows) {
  for (Flag& row : rows) {
    row.group = heading;
    if (row.rules.shows_default) row.default_text = default_text(row);
    flags.push_back(std::move(row));
  }
}

void CommandLine::remove(std::string_view flag) {
  flags.erase(find_flag(flags, flag));
}

Flag& CommandLine::flag(std::string_view flag) {
  return *find_flag(flags, flag);
}

const Flag& CommandLine::flag(std::string_view flag) const {
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

std::string full_name(const CommandPath& path) {
  return joined(path, " ", [](const CommandLine* command) { return command->name; });
}

Invocation parse(CommandLine& program, const std::vector<std::string>& arguments) {
  Parser parser(program);
  Invocation result;
  result.kind = parser.parse(with_help_last(program, arguments));
  result.path = parser.path();
  return result;
}

void refuse_idle_flags(const CommandLine& command, const std::string& mode,
                       const std::function<bool(const Flag&)>& has_effect) {
  for (const Flag& flag : command.flags)
    if (flag.given && flag.name() != mode && !has_effect(flag))
      throw Error(ErrorCode::usage, flag.name(), "has no effect together with " + mode);
}

void set_flag(const Flag& flag, const std::vector<std::string>& arguments) {
  CommandLine alone("", "");
  alone.flags.push_back(flag);
  Rules& rules = alone.flags.front().rules;
  rules.required = false;
  rules.excludes.clear();
  rules.needs_one_of.clear();
  parse(alone, arguments);
}

}  // namespace tyto
