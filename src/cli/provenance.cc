#include "cli/provenance.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <variant>
#include <vector>

#include "base/file.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "device/cpu/inner_loops.h"
#include "device/vulkan/gpu.h"
#include "engine/engine.h"
#include "model/description.h"
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
  const Model& model = engine.model();
  const ModelDescription described = describe(model);
  const ModelIdentity& identity = engine.identity(progress_bar());
  std::vector<AdapterFacts> adapters;
  for (size_t i = 0; i < model.adapters.size(); ++i)
    adapters.push_back(
        {model.adapters[i].file.path().string(), identity.adapters[i], model.adapters[i].scale});
  return {.version = TYTO_VERSION,
          .time = utc_now(),
          .command = command_line(),
          .model = model.path.string(),
          .model_format = model.format,
          .model_size = described.size,
          .model_type = described.type,
          .adapters = std::move(adapters),
          .weight_bytes = model.weight_bytes(),
          .weights_hash = identity.hash,
          .weights_hash_form = identity.form,
          .identity_seconds = identity.seconds,
          .identity_cached = identity.is_cached,
          .fusion = std::string(name(engine.fusion())),
          .device_choice = engine.device_choice(),
          .limits = engine.limits()};
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

MachineFacts machine_facts() {
  MachineFacts facts;
  std::istringstream lines(read_system_text("/proc/cpuinfo").text);
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    facts.cpu = line.substr(colon + 2);
    break;
  }
  facts.cpu_threads = std::thread::hardware_concurrency();
  facts.memory_bytes = static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PHYS_PAGES))) *
                       static_cast<uint64_t>(std::max(0L, ::sysconf(_SC_PAGESIZE)));
  utsname system = {};
  if (::uname(&system) == 0) facts.kernel = fmt::format("{} {}", system.sysname, system.release);
  return facts;
}

}  // namespace tyto
