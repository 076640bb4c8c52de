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

std::string value_name(const Flag& flag) {
  if (flag.allowed) return has_many_choices(flag) ? "NAME" : choices(flag, "|");
  return flag.value;
}

std::string row(const std::string& left, const std::string& meaning) {
  const std::string gap = left.size() + 2 > kFlagColumn
                              ? "\n" + std::string(kFlagColumn, ' ')
                              : std::string(kFlagColumn - left.size(), ' ');
  return left + gap + wrapped(meaning, kFlagColumn) + "\n";
}

std::string row(const Flag& flag) {
  std::string left = "  " + flag.names;
  const size_t comma = left.find(",--");
  if (comma != std::string::npos) left.replace(comma, 1, ", ");
  if (!std::holds_alternative<bool*>(flag.target)) left += " " + value_name(flag);
  std::string meaning = flag.meaning;
  if (has_many_choices(flag)) meaning += ": " + choices(flag, ", ");
  if (!flag.default_text.empty()) meaning += " (default: " + flag.default_text + ")";
  if (flag.rules.required) meaning += " (required)";
  return row(left, meaning);
}

std::string usage(const std::vector<const CommandLine*>& path) {
  std::string line = "Usage:";
  for (const CommandLine* command : path) line += " " + command->name;
  line += " [OPTIONS]";
  const CommandLine& command = *path.back();
  for (const Flag& flag : command.flags) {
    if (!flag.is_positional()) continue;
    const std::string name = flag.names + (takes_several(flag.target) ? "..." : "");
    line += flag.rules.required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) line += command.needs_command ? " SUBCOMMAND" : " [SUBCOMMAND]";
  return line + "\n";
}

std::string positionals(const CommandLine& command) {
  std::string rows;
  for (const Flag& flag : command.flags)
    if (flag.is_positional()) rows += row(flag);
  return rows.empty() ? "" : "Positionals:\n" + rows;
}

// Every command has --help, and a group before all others to have it in.
std::string groups(const CommandLine& command) {
  std::vector<std::string> names = {kPlainGroup};
  for (const Flag& flag : command.flags)
    if (std::count(names.begin(), names.end(), flag.group) == 0) names.push_back(flag.group);
  std::string out;
  for (const std::string& name : names) {
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

std::string help_text(const std::vector<const CommandLine*>& path) {
  const CommandLine& command = *path.back();
  const std::string title =
      path.size() == 1 ? command.summary : "tyto " + command.name + ": " + command.summary;
  const std::string footer = command.footer.empty() ? "" : command.footer + "\n";
  return title + "\n\n" + usage(path) + positionals(command) + groups(command) +
         subcommands(command) + "\n" + footer;
}

}  // namespace tyto
