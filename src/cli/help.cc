#include "cli/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <variant>

#include "cli/command_line.h"

namespace tyto {
namespace {

constexpr size_t kFlagColumn = 32;
constexpr size_t kLineWidth = 100;
constexpr size_t kMostChoices = 24;  // characters of choices that fit beside a flag

std::string choices(const Flag& flag, const char* separator) {
  return flag.allowed ? fmt::format("{}", fmt::join(flag.allowed->values, separator)) : "";
}

bool has_many_choices(const Flag& flag) {
  return choices(flag, "|").size() > kMostChoices;
}

std::string row(const std::string& left, const std::string& meaning) {
  const std::string gap = left.size() + 2 > kFlagColumn
                              ? "\n" + std::string(kFlagColumn, ' ')
                              : std::string(kFlagColumn - left.size(), ' ');
  return left + gap + wrapped(meaning, kFlagColumn) + "\n";
}

std::string row(const Flag& flag) {
  const std::string value = flag_value(flag);
  return row("  " + flag_names(flag) + (value.empty() ? "" : " " + value), flag_meaning(flag));
}

std::string positionals(const CommandLine& command) {
  std::string rows;
  for (const Flag& flag : command.flags)
    if (flag.is_positional()) rows += row(flag);
  return rows.empty() ? "" : "Positionals:\n" + rows;
}

// Every command has --help, and a group before all others to have it in.
std::string groups(const CommandLine& command) {
  std::string out;
  for (const std::string& name : flag_groups(command)) {
    out += "\n" + name + ":\n";
    if (name == kPlainGroup) {
      out += row("  -h, --help", "Print this help message and exit");
      if (!command.version.empty())
        out += row("  --version", "Display program version information and exit");
    }
    for (const Flag& flag : command.flags)
      if (flag.group == name && !flag.is_positional()) out += row(flag);
  }
  return out;
}

std::string subcommands(const CommandLine& command) {
  if (command.commands.empty()) return "";
  std::string out = "\nSubcommands:\n";
  for (const CommandLine& below : command.commands)
    out += row("  " + below.name + (below.alias.empty() ? "" : ", " + below.alias), below.summary);
  return out;
}

}  // namespace

std::string wrapped(const std::string& text, size_t indent) {
  std::istringstream words(text);
  std::string out;
  size_t column = indent;
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kLineWidth) {
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
  if (!command.commands.empty()) line += command.needs_command ? " SUBCOMMAND" : " [SUBCOMMAND]";
  return line;
}

std::string help_text(const std::vector<const CommandLine*>& path) {
  const CommandLine& command = *path.back();
  const std::string title =
      path.size() == 1 ? command.summary : "tyto " + command.name + ": " + command.summary;
  const std::string footer = command.footer.empty() ? "" : command.footer + "\n";
  return title + "\n\n" + "Usage: " + usage_line(path) + "\n" + positionals(command) +
         groups(command) + subcommands(command) + "\n" + footer;
}

}  // namespace tyto
