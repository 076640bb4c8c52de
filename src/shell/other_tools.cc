#include "shell/other_tools.h"

#include <algorithm>
#include <span>

namespace tyto {
namespace {

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

}  // namespace

std::optional<std::string> our_flag_for(std::string_view theirs) {
  return ours(kFlags, theirs);
}

std::optional<std::string> our_command_for(std::string_view theirs) {
  return ours(kTheirCommands, theirs);
}

}  // namespace tyto
