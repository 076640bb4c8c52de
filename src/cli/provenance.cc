#include "cli/provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <variant>
#include <vector>

#include "base/redaction.h"
#include "base/spelling.h"
#include "check/combination.h"
#include "device/cpu/inner_loops.h"
#include "device/vulkan/gpu.h"
#include "shell/help.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

std::string& recorded_command() {
  static std::string text;
  return text;
}

void add_values(const Target& target, std::vector<std::string>& values) {
  if (const auto* several = std::get_if<std::vector<std::string>*>(&target))
    values.insert(values.end(), (*several)->begin(), (*several)->end());
  else
    values.push_back(value_text(target));
}

}  // namespace

void record_command_line(const CommandPath& path, int argc, char** argv) {
  std::vector<std::string> secrets;
  for (const CommandLine* command : path)
    for (const Flag& flag : command->flags)
      if (flag.rules.is_secret && flag.given) add_values(flag.target, secrets);
  const std::vector<std::string> words(argv, argv + argc);
  recorded_command() = redacted_command(words, secrets);
  const std::vector<std::vector<TextPart>> parts = secret_parts(words, secrets);
  for (size_t i = 0; i < words.size(); ++i)
    for (const TextPart& part : parts[i]) std::fill(argv[i] + part.begin, argv[i] + part.end, '*');
}

std::string command_line() {
  return recorded_command();
}

ReceiptContext receipt_context(Engine& engine) {
  return receipt_context(engine, command_line(), progress_bar());
}

std::string version_text() {
  const BuildFacts built = build_facts();
  const std::pair<const char*, std::string> rows[] = {
      {"compiler", fmt::format("{}{}{}", built.compiler, built.build_type.empty() ? "" : ", ",
                               built.build_type)},
      {"processor", fmt::format("{} are built in; {} is used here", built.instruction_sets,
                                cpu::best_inner_loops().name)},
      {"XRT", built.xrt},
      {"Vulkan", fmt::format("{} kernels are built in; `tyto doctor` says what the machine has",
                             vulkan::shaders().size())},
      {"libraries", built.libraries},
  };
  std::string text = std::string("tyto ") + TYTO_VERSION;
  if (!built.commit.empty()) text += " (" + built.commit + ")";
  constexpr size_t kColumn = 11;
  for (const auto& [what, fact] : rows)
    text += fmt::format("\n{:<{}}{}", what, kColumn, wrapped(fact, kColumn));
  return text;
}

}  // namespace tyto
