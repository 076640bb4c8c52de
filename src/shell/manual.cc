#include "shell/manual.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "shell/command_line.h"
#include "shell/help.h"

namespace tyto {
namespace {

// Plain text as roff: no character of it is a request, a minus is one that can be copied.
std::string roff(std::string_view text) {
  std::string out;
  for (char c : text) {
    const bool begins_line = out.empty() || out.back() == '\n';
    if (begins_line && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string bold(std::string_view text) {
  return "\\fB" + roff(text) + "\\fR";
}

std::string quoted(std::string text) {  // an argument of a request
  std::replace(text.begin(), text.end(), '"', '\'');
  return "\"" + roff(text) + "\"";
}

std::string capitals(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return text;
}

std::string row(const std::string& names, const std::string& value, const std::string& meaning) {
  return ".TP\n" + bold(names) + (value.empty() ? "" : " \\fI" + roff(value) + "\\fR") + "\n" +
         roff(meaning) + "\n";
}

std::string row(const Flag& flag) {
  if (flag.is_positional()) return row(flag_value(flag), "", flag_meaning(flag));
  return row(flag_names(flag), flag_value(flag), flag_meaning(flag));
}

std::string options(const CommandLine& command) {
  std::string out;
  for (const Flag& flag : command.flags)
    if (flag.is_positional()) out += row(flag);
  if (!out.empty()) out = ".SH ARGUMENTS\n" + out;
  out += ".SH OPTIONS\n" + row("-h, --help", "", "print what people use first") +
         row("--help-all", "", "print all options, as this page lists them");
  if (!command.version.empty())
    out += row("--version", "", "print the version and what it was built with");
  for (const std::string& name : flag_groups(command)) {
    if (name != kPlainGroup) out += ".SS " + quoted(name) + "\n";
    for (const Flag& flag : command.flags)
      if (flag.group == name && !flag.is_positional()) out += row(flag);
  }
  return out;
}

std::string commands(const CommandPath& path) {
  if (path.back()->commands.empty()) return "";
  std::string out = ".SH COMMANDS\n";
  for (const CommandLine& below : path.back()->commands) {
    CommandPath its_path = path;
    its_path.push_back(&below);
    const std::string alias = below.alias.empty() ? "" : ", " + bold(below.alias);
    out += ".TP\n" + bold(below.name) + alias + "\n" + roff(below.summary) + "; see " +
           bold(page_name(its_path)) + "(1)\n";
  }
  return out;
}

// A footer's paragraphs; what is indented stays as it is, and "Examples:" is a heading.
std::string footer(const std::string& text) {
  std::istringstream lines(text);
  std::string description, examples;
  bool in_examples = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "Example:" || line == "Examples:") {
      in_examples = true;
    } else if (line.starts_with(' ')) {
      std::string& out = in_examples ? examples : description;
      out += ".PP\n.nf\n" + bold(line.substr(line.find_first_not_of(' '))) + "\n.fi\n";
    } else {
      if (!line.empty()) in_examples = false;
      description += line.empty() ? ".PP\n" : roff(line) + "\n";
    }
  }
  while (description.ends_with(".PP\n")) description.resize(description.size() - 4);
  if (!description.empty()) description = ".SH NOTES\n" + description;
  if (!examples.empty()) examples = ".SH EXAMPLES\n" + examples;
  return description + examples;
}

// Footers name documents as docs/NAME.md.
constexpr const char* kFiles =
    ".SH FILES\n.TP\nshare/doc/tyto/docs\nbelow the folder that Tyto is installed in: the "
    "documents "
    "that pages of the manual call docs/NAME.md\n";

std::string see_also(const CommandPath& path) {
  if (path.size() == 1) return "";
  const CommandPath above(path.begin(), path.end() - 1);
  std::string out = ".SH SEE ALSO\n" + bold("tyto") + "(1)";
  if (above.size() > 1) out += ", " + bold(page_name(above)) + "(1)";
  return out + "\n";
}

}  // namespace

std::vector<CommandPath> all_commands(const CommandLine& program) {
  std::vector<CommandPath> paths = {{&program}};
  for (const CommandLine& command : program.commands)
    for (CommandPath path : all_commands(command)) {
      path.insert(path.begin(), &program);
      paths.push_back(std::move(path));
    }
  return paths;
}

std::string command_words(const CommandPath& path) {
  std::string out;
  for (size_t i = 1; i < path.size(); ++i) out += (i > 1 ? " " : "") + path[i]->name;
  return out;
}

std::string page_name(const CommandPath& path) {
  std::string name = path.front()->name;
  for (size_t i = 1; i < path.size(); ++i) name += "-" + path[i]->name;
  return name;
}

std::string manual_page(const CommandPath& path) {
  const CommandLine& command = *path.back();
  const std::string name = page_name(path);
  const std::string usage = usage_line(path);
  const size_t rest = std::min(usage.find(" [OPTIONS]"), usage.find(" COMMAND"));
  return ".\\\" Written by `tyto manual`.\n" +
         fmt::format(".TH {} 1 \"\" {} {}\n", quoted(capitals(name)),
                     quoted(std::string("tyto ") + TYTO_VERSION), quoted("Tyto's manual")) +
         ".SH NAME\n" + roff(name) + " \\- " + roff(command.summary) + "\n.SH SYNOPSIS\n" +
         bold(usage.substr(0, rest)) + roff(usage.substr(rest)) + "\n" + options(command) +
         commands(path) + footer(command.footer) + kFiles + see_also(path);
}

}  // namespace tyto
