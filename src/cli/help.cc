#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <variant>

#include "cli/command_line.h"

namespace tyto {
namespace {

constexpr size_t kFlagColumn = 32;
constexpr size_t kMostChoices = 24;  // characters of choices that fit beside a flag

std::string choices(const Flag& flag, const char* separator) {
  return flag.allowed ? fmt::format("{}", fmt::join(flag.allowed->values, separator)) : "";
}

bool has_many_choices(const Flag& flag) {
  return choices(flag, "|").size() > kMostChoices;
}

std::string row(const std::string& left, const std::string& meaning, size_t column, size_t width) {
  const std::string gap = left.size() + 2 > column ? "\n" + std::string(column, ' ')
                                                   : std::string(column - left.size(), ' ');
  return left + gap + wrapped(meaning, column, width) + "\n";
}

std::string row(const Flag& flag, size_t width) {
  const std::string value = flag_value(flag);
  return row("  " + flag_names(flag) + (value.empty() ? "" : " " + value), flag_meaning(flag),
             kFlagColumn, width);
}

std::string positionals(const CommandLine& command, size_t width) {
  std::string rows;
  for (const Flag& flag : command.flags)
    if (flag.is_positional()) rows += row(flag, width);
  return rows.empty() ? "" : "\nArguments:\n" + rows;
}

// Every command has --help, and a group before all others to have it in.
std::string groups(const CommandLine& command, size_t width) {
  std::string out;
  for (const std::string& name : flag_groups(command)) {
    out += "\n" + name + ":\n";
    if (name == kPlainGroup) {
      out += row("  -h, --help", "print this help and exit", kFlagColumn, width);
      if (!command.version.empty())
        out += row("  --version", "say what was built, and exit", kFlagColumn, width);
    }
    for (const Flag& flag : command.flags)
      if (flag.group == name && !flag.is_positional()) out += row(flag, width);
  }
  return out;
}

std::string commands(const CommandLine& command, size_t width) {
  if (command.commands.empty()) return "";
  const auto left = [](const CommandLine& below) {
    return "  " + below.name + (below.alias.empty() ? "" : ", " + below.alias);
  };
  size_t column = 0;
  for (const CommandLine& below : command.commands)
    column = std::max(column, left(below).size() + 2);
  std::string out = "\nCommands:\n";
  for (const CommandLine& below : command.commands)
    out += row(left(below), below.summary, column, width);
  return out;
}

std::string footer(const std::string& text, size_t width) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);)
    out += (line.starts_with(' ') ? line : wrapped(line, 0, width)) + "\n";
  return out;
}

}  // namespace

std::string wrapped(const std::string& text, size_t indent, size_t width) {
  std::istringstream words(text);
  std::string out;
  size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string flag_names(const Flag& flag) {
  std::string names = flag.names;
  const size_t comma = names.find(",--");
  if (comma != std::string::npos) names.replace(comma, 1, ", ");
  return names;
}

std::string flag_value(const Flag& flag) {
  if (flag.allowed) return has_many_choices(flag) ? "NAME" : choices(flag, "|");
  return flag.value;
}

std::string flag_meaning(const Flag& flag) {
  std::string meaning = flag.meaning;
  if (has_many_choices(flag)) meaning += ": " + choices(flag, ", ");
  if (!flag.default_text.empty()) meaning += " (default: " + flag.default_text + ")";
  if (flag.rules.required) meaning += " (required)";
  return meaning;
}

std::vector<std::string> flag_groups(const CommandLine& command) {
  std::vector<std::string> names = {kPlainGroup};
  for (const Flag& flag : command.flags)
    if (std::count(names.begin(), names.end(), flag.group) == 0) names.push_back(flag.group);
  return names;
}

std::string usage_line(const std::vector<const CommandLine*>& path) {
  std::string line;
  for (const CommandLine* command : path) line += command->name + " ";
  line += "[OPTIONS]";
  const CommandLine& command = *path.back();
  for (const Flag& flag : command.flags) {
    if (!flag.is_positional()) continue;
    const std::string name = flag.names + (takes_several(flag.target) ? "..." : "");
    line += flag.rules.required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) line += command.needs_command ? " COMMAND" : " [COMMAND]";
  return line;
}

std::string help_text(const std::vector<const CommandLine*>& path, size_t width) {
  const CommandLine& command = *path.back();
  const std::string title =
      path.size() == 1 ? command.summary : full_name(path) + ": " + command.summary;
  return wrapped(title, 0, width) + "\n\n" + "Usage: " + usage_line(path) + "\n" +
         positionals(command, width) + groups(command, width) + commands(command, width) + "\n" +
         footer(command.footer, width);
}

}  // namespace tyto
