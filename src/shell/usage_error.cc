#include "shell/usage_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/redaction.h"
#include "base/spelling.h"

namespace tyto {
namespace {

// What people who come from llama.cpp, Ollama and their like call our flags and commands.
struct Spelling {
  std::string_view theirs;
  std::string_view ours;
};

// They are hints and no aliases: most of these mean something a little different there.
constexpr Spelling kFlags[] = {
    {"--temperature", "--temp"},
    {"--n-predict", "--tokens"},
    {"--predict", "--tokens"},
    {"--max-tokens", "--tokens"},
    {"--max-new-tokens", "--tokens"},
    {"--num-predict", "--tokens"},
    {"--ctx-size", "--context"},
    {"--ctx-len", "--context"},
    {"--num-ctx", "--context"},
    {"--max-model-len", "--context"},
    {"--n-gpu-layers", "--device"},
    {"--gpu-layers", "--device"},
    {"-ngl", "--device"},
    {"-dev", "--device"},
    {"--cache-type-k", "--kv-type"},
    {"--cache-type-v", "--kv-type"},
    {"-ctk", "--kv-type"},
    {"-ctv", "--kv-type"},
    {"--system-prompt", "--system"},
    {"-sys", "--system"},
    {"--reverse-prompt", "--stop"},
    {"--repetition-penalty", "--repeat-penalty"},
    {"--repeat-last-n", "--penalty-window"},
    {"--grammar-file", "--grammar"},
    {"--json-schema-file", "--json-schema"},
    {"--hf-repo", "--model"},
    {"-hf", "--model"},
};

constexpr Spelling kTheirCommands[] = {
    {"list", "models"},    {"ls", "models"},        {"ps", "models"},      {"show", "inspect"},
    {"info", "inspect"},   {"generate", "run"},     {"completion", "run"}, {"server", "serve"},
    {"check", "doctor"},   {"validate", "doctor"},  {"download", "pull"},  {"get", "pull"},
    {"ppl", "perplexity"}, {"convert", "quantize"},
};

std::optional<std::string> ours(std::span<const Spelling> spellings, std::string_view theirs) {
  const auto found = std::find_if(spellings.begin(), spellings.end(),
                                  [&](const Spelling& s) { return s.theirs == theirs; });
  if (found == spellings.end()) return std::nullopt;
  return std::string(found->ours);
}

// "--ctx-size" -> "--context"
std::optional<std::string> our_flag_for(std::string_view theirs) {
  return ours(kFlags, theirs);
}

std::optional<std::string> our_command_for(std::string_view theirs) {
  return ours(kTheirCommands, theirs);
}

std::vector<std::string> spellings_of(const Flag& flag) {
  const size_t comma = flag.names.find(',');
  if (comma == std::string::npos) return {flag.names};
  return {flag.names.substr(0, comma), flag.names.substr(comma + 1)};
}

// Without dashes, so that "-temp" is no further from "--temp" than it is.
std::string_view letters_of(std::string_view flag) {
  return flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
}

bool has_flag(const CommandLine& command, const std::string& name) {
  return std::any_of(command.flags.begin(), command.flags.end(), [&](const Flag& flag) {
    const std::vector<std::string> names = spellings_of(flag);
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

std::optional<std::string> meant_flag(const CommandLine& command, const std::string& typed) {
  const std::optional<std::string> ours = our_flag_for(typed);
  if (ours && has_flag(command, *ours)) return ours;
  std::vector<std::string> known = {"help"};
  for (const Flag& flag : command.flags)
    if (!flag.is_positional()) known.emplace_back(letters_of(flag.name()));
  const std::optional<std::string> found = nearest(letters_of(typed), known);
  return found ? std::optional("--" + *found) : std::nullopt;
}

std::optional<std::string> meant_command(const CommandLine& command, const std::string& typed) {
  std::vector<std::string> known;
  for (const CommandLine& below : command.commands) known.push_back(below.name);
  const std::optional<std::string> ours = our_command_for(typed);
  if (ours && std::find(known.begin(), known.end(), *ours) != known.end()) return ours;
  return nearest(typed, known);
}

std::string hint(const std::optional<std::string>& meant, const CommandPath& path) {
  return (meant ? "did you mean " + *meant + "? " : "") + see_help(path);
}

}  // namespace

std::string see_help(const CommandPath& path) {
  const std::string name = full_name(path);
  return name.empty() ? "" : "see " + name + " --help";
}

Error unexpected(const CommandPath& path, const std::vector<std::string>& given,
                 const GivenText& text) {
  const std::vector<std::string> arguments = redacted_words(given);
  const CommandLine& command = *path.back();
  const std::string name = full_name(path);
  // A value that follows an unknown flag is not the problem.
  const auto flag = std::find_if(
      arguments.begin(), arguments.end(),
      [](const std::string& argument) { return argument.size() > 1 && argument.starts_with('-'); });
  if (flag != arguments.end()) {
    const std::string typed = flag->substr(0, flag->find('='));
    return {ErrorCode::usage, typed, name + " has no such flag",
            hint(meant_flag(command, typed), path)};
  }
  const std::string& typed = arguments.front();
  if (!command.commands.empty()) {
    std::optional<std::string> meant = meant_command(command, typed);
    if (meant) meant = name + " " + *meant;
    return {ErrorCode::usage, typed, name + " has no such command", hint(meant, path)};
  }
  if (text.kind.empty())
    return {ErrorCode::usage, typed, name + " takes no such argument", see_help(path)};
  return {ErrorCode::usage, "",
          fmt::format("{0} takes one {1}; put it in quotes: {0} {2}", name, text.kind,
                      shell_word(text.words + " " + joined(arguments, " ")))};
}

Error missing_command(const CommandPath& path) {
  return {ErrorCode::usage, full_name(path),
          "needs one of its commands: " +
              joined(path.back()->commands, ", ", [](const CommandLine& c) { return c.name; }),
          see_help(path)};
}

Error not_allowed(const Flag& flag, const OneOf& allowed, const std::string& value) {
  const std::string reason = allowed.why_not == nullptr ? "" : allowed.why_not(value);
  if (!reason.empty())
    return {ErrorCode::usage, flag.name(), fmt::format("\"{}\" {}", value, reason),
            "choose one of " + joined(allowed.values)};
  const std::optional<std::string> meant = nearest(value, allowed.values);
  return {ErrorCode::usage, flag.name(),
          fmt::format("\"{}\" is not one of {}", value, joined(allowed.values)),
          meant ? "did you mean " + *meant + "?" : ""};
}

void refuse_long_flags_behind_one_dash(const CommandPath& path,
                                       const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument == "--") return;
    const bool is_long = argument.size() > 2 && argument[0] == '-' && argument[1] != '-';
    if (!is_long || has_flag(*path.back(), argument)) continue;
    const std::optional<std::string> ours = our_flag_for(argument);
    if (has_flag(*path.back(), "-" + argument) || (ours && has_flag(*path.back(), *ours)))
      throw unexpected(path, {argument});
  }
}

}  // namespace tyto
