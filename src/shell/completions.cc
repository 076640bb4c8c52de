#include "shell/completions.h"

#include <fmt/format.h>

#include <sstream>

#include "base/error.h"
#include "shell/command_line.h"
#include "shell/manual.h"

namespace tyto {
namespace {

enum class Completes { none, any, words, file, folder, model };

// What may follow a flag, or stand at an argument's place.
struct Values {
  Completes kind = Completes::any;
  std::string words = {};  // with spaces between them
};

// A flag without a list of values is known by what --help calls its value.
Values values_of(const Flag& flag, const CommandLine& program) {
  struct Row {
    std::string_view value;
    Completes kind;
  };
  constexpr Row kRows[] = {
      {"FILE", Completes::file},
      {"KEYFILE", Completes::file},
      {"NAME|FILE", Completes::file},
      {"PATH", Completes::file},
      {"reference|FILE", Completes::file},
      {"DIR", Completes::folder},
      {"MODEL", Completes::model},
      {"[NAME=]MODEL", Completes::model},
      {"MODEL,...", Completes::model},
      {"FILE[=SCALE]", Completes::file},
      {"[MODEL] [PROMPT]", Completes::model},
      {"[FILE]", Completes::file},
  };
  if (std::holds_alternative<bool*>(flag.target)) return {Completes::none};
  if (flag.allowed)
    return {Completes::words, fmt::format("{}", fmt::join(flag.allowed->values, " "))};
  if (flag.rules.is_folder) return {Completes::folder};
  const bool may_be_auto = flag.name() == "--device" && flag.value == "NAME";  // no list of them
  if (flag.name().ends_with("-device"))
    return {Completes::words, program.device_names + (may_be_auto ? " auto" : "")};
  for (const Row& row : kRows)
    if (row.value == flag.value) return {row.kind};
  return {Completes::any};
}

// Every command has --help and --help-all, which are in no table.
std::vector<Flag> all_flags(const CommandLine& command) {
  bool* const nothing = nullptr;
  std::vector<Flag> flags = {{"-h,--help", nothing, "print a short help"},
                             {"--help-all", nothing, "print all options"}};
  if (!command.version.empty())
    flags.emplace_back("--version", nothing, "print the version and what it was built with");
  flags.insert(flags.end(), command.flags.begin(), command.flags.end());
  return flags;
}

std::vector<std::string> names_of(const Flag& flag) {
  std::vector<std::string> names;
  std::istringstream list(flag.names);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  return names;
}

std::vector<std::string> names_of(const CommandLine& command) {
  std::vector<std::string> names = {command.name};
  if (!command.alias.empty()) names.push_back(command.alias);
  return names;
}

std::string replaced(std::string_view text, char what, std::string_view by) {
  std::string out;
  for (char c : text) c == what ? out += by : out += c;
  return out;
}

std::string in_quotes(std::string_view text) {  // for bash and zsh
  return "'" + replaced(text, '\'', "'\\''") + "'";
}

// "kernels list"; a command with an alias has two.
std::vector<std::string> spellings(const CommandPath& path) {
  std::vector<std::string> result = {""};
  for (size_t i = 1; i < path.size(); ++i) {
    std::vector<std::string> longer;
    for (const std::string& above : result)
      for (const std::string& name : names_of(*path[i]))
        longer.push_back(above + (above.empty() ? "" : " ") + name);
    result = std::move(longer);
  }
  return result;
}

std::string bash_values(const Values& values) {
  switch (values.kind) {
    case Completes::words:
      return values.words;
    case Completes::file:
      return "@file";
    case Completes::folder:
      return "@folder";
    case Completes::model:
      return "@model";
    case Completes::none:
    case Completes::any:
      break;
  }
  return "@any";
}

// Sets what _tyto, below, goes by.
std::string bash_command(const CommandPath& path) {
  std::string flags, commands, aliases, takes, place;
  for (const Flag& flag : all_flags(*path.back())) {
    const Values values = values_of(flag, *path.front());
    if (flag.is_positional()) {
      place = bash_values(values);
      continue;
    }
    for (const std::string& name : names_of(flag)) flags += (flags.empty() ? "" : " ") + name;
    if (values.kind != Completes::none && !flag.rules.may_lack_value)
      takes += fmt::format("        {}) takes={} ;;\n", fmt::join(names_of(flag), "|"),
                           in_quotes(bash_values(values)));
  }
  for (const CommandLine& below : path.back()->commands) {
    commands += (commands.empty() ? "" : " ") + below.name;
    if (!below.alias.empty()) aliases += (aliases.empty() ? "" : " ") + below.alias;
  }
  std::string patterns;
  for (const std::string& each : spellings(path))
    patterns += (patterns.empty() ? "" : "|") + in_quotes(each);
  return fmt::format(
      "    {})\n      flags={}\n      commands={}\n      aliases={}\n      place={}\n"
      "      case $2 in\n{}      esac ;;\n",
      patterns, in_quotes(flags), in_quotes(commands), in_quotes(aliases), in_quotes(place), takes);
}

constexpr const char* kBash = R"sh(
_tyto_complete() {  # prints what fits: $1 has the words that there are, or @ and a kind
  case $1 in
    @file) compgen -f -- "$2" ;;
    @folder) compgen -d -- "$2" ;;
    @model)
      compgen -f -- "$2"
      local IFS=$'\n'
      compgen -W "$(tyto models --names 2> /dev/null < /dev/null)" -- "$2" ;;
    @any) ;;
    *) compgen -W "$1" -- "$2" ;;
  esac
}

_tyto() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]}
  local before=${line%"$word"}
  before=${before%"${before##*[![:space:]]}"}
  local flag=${before##*[[:space:]]} command="" flags commands aliases place takes i
  if [[ $word == --*=* ]]; then
    flag=${word%%=*}
    word=${word#*=}
  fi
  _tyto_facts "" ""
  for ((i = 1; i < COMP_CWORD; ++i)); do
    if [[ " $commands $aliases " == *" ${COMP_WORDS[i]} "* ]]; then
      command+=${command:+ }${COMP_WORDS[i]}
      _tyto_facts "$command" ""
    fi
  done
  _tyto_facts "$command" "$flag"
  local wanted=$takes
  if [[ -z $wanted && $word == -* ]]; then
    wanted=$flags
  elif [[ -z $wanted ]]; then
    wanted=${commands:-${place:-$flags}}
  fi
  case $wanted in
    @file | @folder | @model) compopt -o filenames 2> /dev/null ;;
  esac
  mapfile -t COMPREPLY < <(_tyto_complete "$wanted" "$word")
  # For bash, words end at colons; names of models have them.
  COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*:}"}"}")
}

complete -F _tyto tyto
)sh";

std::string zsh_text(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (std::string_view("\\[]:").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Values& values) {
  switch (values.kind) {
    case Completes::words:
      return "(" + values.words + ")";
    case Completes::file:
      return "_files";
    case Completes::folder:
      return "_files -/";
    case Completes::model:
      return "_tyto_models";
    case Completes::none:
    case Completes::any:
      break;
  }
  return " ";
}

std::string zsh_flag(const Flag& flag, const CommandLine& program) {
  const Values values = values_of(flag, program);
  const std::vector<std::string> names = names_of(flag);
  const std::string value = flag.value.empty() ? "value" : flag.value;
  const std::string action = ":" + zsh_text(value) + ":" + zsh_action(values);
  if (flag.is_positional())
    return "    " + in_quotes((takes_several(flag.target) ? "*" : ":") + action) + " \\\n";
  const std::string others =
      takes_several(flag.target) ? "*" : fmt::format("({})", fmt::join(names, " "));
  std::string out;
  for (const std::string& name : names) {
    const bool has_value = values.kind != Completes::none && !flag.rules.may_lack_value;
    out += "    " +
           in_quotes(others + name + (has_value && name.starts_with("--") ? "=" : "") + "[" +
                     zsh_text(flag.meaning) + "]" + (has_value ? action : "")) +
           " \\\n";
  }
  return out;
}

std::string zsh_function(const CommandPath& path) {
  return "_" + replaced(page_name(path), '-', "_");
}

std::string zsh_command(const CommandPath& path) {
  const CommandLine& command = *path.back();
  std::string out = zsh_function(path) + "() {\n";
  std::string flags;
  for (const Flag& flag : all_flags(command)) flags += zsh_flag(flag, *path.front());
  if (command.commands.empty())
    return out + "  _arguments -S \\\n" + flags + "    && return 0\n}\n\n";
  out += "  local context state state_descr line\n  typeset -A opt_args\n  local -a commands\n";
  out += "  commands=(\n";
  std::string calls;
  for (const CommandLine& below : command.commands) {
    CommandPath its_path = path;
    its_path.push_back(&below);
    out += "    " + in_quotes(zsh_text(below.name) + ":" + zsh_text(below.summary)) + "\n";
    calls +=
        fmt::format("        {}) {} ;;\n", fmt::join(names_of(below), "|"), zsh_function(its_path));
  }
  return out + "  )\n  _arguments -C \\\n" + flags +
         "    '1: :->command' \\\n    '*:: :->rest' && return 0\n"
         "  case $state in\n    command) _describe command commands ;;\n    rest)\n"
         "      case $words[1] in\n" +
         calls + "      esac ;;\n  esac\n}\n\n";
}

constexpr const char* kZsh = R"sh(_tyto_models() {
  local -a names
  names=(${(f)"$(tyto models --names 2> /dev/null < /dev/null)"})
  _alternative 'files:file:_files' 'models:model:compadd -a names'
}

if [[ $funcstack[1] == _tyto ]]; then
  _tyto "$@"
else
  compdef _tyto tyto
fi
)sh";

std::string fish_quotes(std::string_view text) {
  return "'" + replaced(replaced(text, '\\', "\\\\"), '\'', "\\'") + "'";
}

std::string fish_values(const Values& values) {
  switch (values.kind) {
    case Completes::none:
      return "";
    case Completes::words:
      return " -x -a " + fish_quotes(values.words);
    case Completes::file:
      return " -r -F";
    case Completes::folder:
      return " -x -a '(__fish_complete_directories)'";
    case Completes::model:
      return " -r -F -a '(__tyto_models)'";
    case Completes::any:
      break;
  }
  return " -x";
}

std::string fish_flag(const Flag& flag, const CommandLine& program, const std::string& where) {
  const Values values = values_of(flag, program);
  std::string out = "complete -c tyto -n " + fish_quotes(where);
  if (flag.is_positional())
    return values.kind == Completes::any ? "" : out + fish_values(values) + "\n";
  for (const std::string& name : names_of(flag)) {
    const bool is_long = name.starts_with("--");
    out += is_long ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  return out + (flag.rules.may_lack_value ? "" : fish_values(values)) + " -d " +
         fish_quotes(flag.meaning) + "\n";
}

std::string fish_command(const CommandPath& path) {
  std::string out;
  for (const std::string& spelling : spellings(path)) {
    for (const CommandLine& below : path.back()->commands)
      out +=
          fmt::format("complete -c tyto -n {} -a {} -d {}\n", fish_quotes("__tyto_is " + spelling),
                      below.name, fish_quotes(below.summary));
    const std::string where = spelling.empty() ? "__tyto_is" : "__tyto_at " + spelling;
    for (const Flag& flag : all_flags(*path.back())) out += fish_flag(flag, *path.front(), where);
  }
  return out;
}

constexpr const char* kFish = R"sh(
function __tyto_is -d 'Whether these are all words before the cursor, flags left out'
    set -l words (string match -v -- '-*' (commandline -opc))
    test "$words[2..]" = "$argv"
end

function __tyto_at -d 'Whether the words before the cursor begin with these'
    set -l last (math 1 + (count $argv))
    set -l words (commandline -opc)
    test "$words[2..$last]" = "$argv"
end

function __tyto_models
    tyto models --names 2>/dev/null </dev/null
end

complete -c tyto -f
)sh";

std::string bash_completions(const CommandLine& program) {
  std::string facts;
  for (const CommandPath& path : all_commands(program)) facts += bash_command(path);
  return "# Completion of tyto in bash; written by `tyto completions bash`.\n\n"
         "_tyto_facts() {  # of a command, and of a flag of it\n"
         "  takes=''\n  case $1 in\n" +
         facts + "  esac\n}\n" + kBash;
}

std::string zsh_completions(const CommandLine& program) {
  std::string functions;
  for (const CommandPath& path : all_commands(program)) functions += zsh_command(path);
  return "#compdef tyto\n# Completion of tyto in zsh; written by `tyto completions zsh`.\n\n" +
         functions + kZsh;
}

std::string fish_completions(const CommandLine& program) {
  std::string rows;
  for (const CommandPath& path : all_commands(program)) rows += fish_command(path);
  return std::string("# Completion of tyto in fish; written by `tyto completions fish`.\n") +
         kFish + rows;
}

}  // namespace

std::string completions(const std::string& shell, const CommandLine& program) {
  if (shell == "bash") return bash_completions(program);
  if (shell == "zsh") return zsh_completions(program);
  TYTO_ASSERT(shell == "fish");
  return fish_completions(program);
}

}  // namespace tyto
