#include "shell/help.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>
#include <variant>

#include "shell/command_line.h"

namespace tyto {
namespace {

constexpr size_t kFlagColumn = 32;
constexpr size_t kMostChoices = 20;  // characters of choices that fit beside a flag

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

// "[MODEL] [PROMPT]" stands for several words, and says itself which may be left out.
bool says_what_may_be_left_out(const std::string& value) {
  return value.starts_with('[') && value.ends_with(']');
}

std::string left_of(const Flag& flag) {
  const std::string value = flag_value(flag);
  if (flag.is_positional()) return "  " + value;
  return "  " + flag_names(flag) + (value.empty() ? "" : " " + value);
}

std::string row(const Flag& flag, size_t column, size_t width) {
  return row(left_of(flag), flag_meaning(flag), column, width);
}

std::string positionals(const CommandLine& command, size_t column, size_t width) {
  std::string rows;
  for (const Flag& flag : command.flags)
    if (flag.is_positional()) rows += row(flag, column, width);
  return rows.empty() ? "" : "\nArguments:\n" + rows;
}

// Every command has these, which are in no table.
std::string help_rows(const CommandLine& command, HelpSize size, size_t width) {
  const bool is_whole = size == HelpSize::whole;
  std::string out =
      row("  -h, --help", is_whole ? "print a short help" : "print this help", kFlagColumn, width);
  if (is_whole) out += row("  --help-all", "print this help", kFlagColumn, width);
  if (!command.version.empty())
    out += row("  --version", "print the version and what it was built with", kFlagColumn, width);
  return out;
}

std::string groups(const CommandLine& command, HelpSize size, size_t width) {
  std::string out;
  for (const std::string& name : flag_groups(command)) {
    out += "\n" + name + ":\n";
    if (name == kPlainGroup) out += help_rows(command, size, width);
    for (const Flag& flag : command.flags)
      if (flag.group == name && !flag.is_positional()) out += row(flag, kFlagColumn, width);
  }
  return out;
}

bool is_cut(const CommandLine& command, HelpSize size) {
  return size == HelpSize::brief && !command.first.empty();
}

// Where few flags are shown, meanings begin as far to the left as those let them.
size_t meaning_column(const CommandLine& command, HelpSize size) {
  if (!is_cut(command, size)) return kFlagColumn;
  size_t column = 0;
  for (const std::string& name : command.first)
    column = std::max(column, left_of(command.flag(name)).size() + 2);
  return std::min(column, kFlagColumn);
}

std::string options(const CommandLine& command, HelpSize size, size_t width) {
  if (!is_cut(command, size)) return groups(command, size, width);
  std::string out = "\nOptions:\n";
  for (const std::string& name : command.first)
    out += row(command.flag(name), meaning_column(command, size), width);
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

// Two columns, filled downwards.
std::string group_of_commands(const std::vector<const CommandLine*>& group, size_t width) {
  constexpr size_t kNameColumn = 14, kHalf = 40;
  const size_t columns = width >= 2 * kHalf ? 2 : 1;
  const size_t rows = (group.size() + columns - 1) / columns;
  std::string out;
  for (size_t i = 0; i < rows; ++i) {
    std::string line;
    for (size_t at = i; at < group.size(); at += rows) {
      const std::string cell =
          fmt::format("  {:<{}}{}", group[at]->name, kNameColumn - 2, group[at]->summary);
      line += at + rows < group.size() ? fmt::format("{:<{}}", cell, kHalf) : cell;
    }
    out += line + "\n";
  }
  return out;
}

std::string commands_in_groups(const CommandLine& program, size_t width) {
  std::vector<std::string> names;
  for (const CommandLine& command : program.commands)
    if (std::count(names.begin(), names.end(), command.group) == 0) names.push_back(command.group);
  std::string out = "\n";
  for (const std::string& name : names) {
    std::vector<const CommandLine*> group;
    for (const CommandLine& command : program.commands)
      if (command.group == name) group.push_back(&command);
    out += name + ":\n" + group_of_commands(group, width);
  }
  return out;
}

// The first paragraph and two examples.
std::string brief(const std::string& text) {
  constexpr int kMostExamples = 2;
  std::istringstream lines(text);
  std::string notes, examples;
  bool in_first = true, in_examples = false;
  int shown = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Example:" || line == "Examples:") {
      in_examples = true;
      examples = line + "\n";
    } else if (in_examples) {
      if (!line.starts_with(' ') || shown == kMostExamples) break;
      examples += line + "\n";
      if (!line.ends_with('\\')) ++shown;
    } else {
      in_first = in_first && !line.empty();
      if (in_first) notes += line + "\n";
    }
  }
  return notes + (notes.empty() || examples.empty() ? "" : "\n") + examples;
}

std::string footer(const std::string& text, size_t width) {
  std::istringstream lines(with_documents_found(text));
  std::string out;
  for (std::string line; std::getline(lines, line);)
    out += (line.starts_with(' ') ? line : wrapped(line, 0, width)) + "\n";
  return out;
}

// The last line of a short help, which says what it leaves out.
std::string pointer_to_the_rest(const std::vector<const CommandLine*>& path,
                                const std::string& shown_footer) {
  const CommandLine& command = *path.back();
  const auto flags = 2 + std::count_if(command.flags.begin(), command.flags.end(),
                                       [](const Flag& flag) { return !flag.is_positional(); });
  if (!command.first.empty())
    return fmt::format("\n{} --help-all shows all {} options.\n", full_name(path), flags);
  const bool is_cut = shown_footer.size() < command.footer.size();
  return is_cut ? fmt::format("\n{} --help-all shows more.\n", full_name(path)) : "";
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
  const CommandLine& command = *path.back();
  if (path.size() == 1) return command.name + " COMMAND [OPTIONS]";
  std::string line = full_name(path) + " [OPTIONS]";
  for (const Flag& flag : command.flags) {
    if (!flag.is_positional()) continue;
    const std::string value = flag_value(flag);
    if (says_what_may_be_left_out(value)) {
      line += " " + value;
      continue;
    }
    const bool needs_dots = takes_several(flag.target) && !value.ends_with("...");
    const std::string name = value + (needs_dots ? "..." : "");
    line += flag.rules.required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) line += command.needs_command ? " COMMAND" : " [COMMAND]";
  return line;
}

std::string help_text(const std::vector<const CommandLine*>& path, size_t width, HelpSize size) {
  const CommandLine& command = *path.back();
  const std::string start = wrapped(full_name(path) + ": " + command.summary, 0, width) + "\n\n" +
                            "Usage: " + usage_line(path) + "\n";
  const bool is_whole = size == HelpSize::whole;
  const std::string notes = is_whole ? command.footer : brief(command.footer);
  const std::string end = notes.empty() ? "" : "\n" + footer(notes, width);
  if (path.size() == 1)
    return start + commands_in_groups(command, width) +
           (is_whole ? options(command, size, width) : "") + end;
  return start + positionals(command, meaning_column(command, size), width) +
         options(command, size, width) + commands(command, width) + end +
         (is_whole ? "" : pointer_to_the_rest(path, notes));
}

namespace {

namespace fs = std::filesystem;

// Seen from an installation (bin/tyto) or a source tree (build/release/tyto).
constexpr const char* kDocumentsBelow[] = {"../share/doc/tyto", "../.."};

std::string found_page(const std::string& page, const fs::path& folder) {
  std::error_code ignored;
  for (const char* below : kDocumentsBelow) {
    const fs::path file = (folder / below / page).lexically_normal();
    if (fs::exists(file, ignored)) return file.string();
  }
  return page;
}

}  // namespace

std::string with_documents_found(const std::string& text) {
  std::error_code ignored;
  return with_documents_found(text, fs::read_symlink("/proc/self/exe", ignored).parent_path());
}

std::string with_documents_found(const std::string& text, const fs::path& folder) {
  constexpr std::string_view kFolder = "docs/", kEnd = ".md";
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz-";
  std::string out;
  size_t done = 0;
  for (size_t at = text.find(kFolder); at != std::string::npos; at = text.find(kFolder, at + 1)) {
    const size_t end = text.find_first_not_of(kLetters, at + kFolder.size());
    const bool is_whole = at == 0 || text[at - 1] != '/';
    if (!is_whole || end == std::string::npos || text.compare(end, kEnd.size(), kEnd) != 0)
      continue;
    out += text.substr(done, at - done);
    out += found_page(text.substr(at, end + kEnd.size() - at), folder);
    done = end + kEnd.size();
  }
  return out + text.substr(done);
}

}  // namespace tyto
