// quantize and synth: commands that write model files.
#include <filesystem>
#include <optional>
#include <utility>

#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "model/convert.h"
#include "model/stores/stores.h"
#include "model/synth.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

struct QuantizeFlags {
  std::string model;
  std::string type;
  std::string importance;
  std::string out;
  bool force = false;
  unsigned threads = 0;
};

struct SynthFlags {
  std::string shape;
  std::string type = "bf16";
  uint64_t seed = 1;
  std::string out;
  bool force = false;
};

uint64_t size_on_disk(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return std::filesystem::file_size(path);
  uint64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) total += entry.file_size();
  return total;
}

void report(const std::string& out, const std::vector<std::string>& notes) {
  for (const std::string& line : notes) note("note: " + line);
  note(fmt::format("wrote {} ({})", out, human_bytes(size_on_disk(out))));
}

void quantize(const QuantizeFlags& flags) {
  const Model model =
      open_model(find_model(model_or_shipped(flags.model)), Need::weights, progress_bar());
  std::optional<ImportanceMatrix> importance;
  if (!flags.importance.empty()) importance = read_importance(flags.importance);
  ThreadPool pool(flags.threads);
  report(flags.out, quantize_model(model, flags.type, flags.out, pool, progress_bar(),
                                   replacing(flags.force), importance ? &*importance : nullptr));
}

void synth(const SynthFlags& flags) {
  report(flags.out, synthesize(shape_by_name(flags.shape), flags.type, flags.seed, flags.out,
                               progress_bar(), replacing(flags.force)));
}

// One word for it in every command; --dtype is what synth called it once.
Flag type_flag(std::string& type, Rules rules) {
  rules.alias = "--dtype";
  return {"--type", &type, OneOf(type_mix_names(), Letters::any_case, why_not_written),
          "number type of the weight matrices", std::move(rules)};
}

}  // namespace

void define_quantize(CommandLine& command) {
  QuantizeFlags& flags = command.values<QuantizeFlags>();
  add_model_flag(command, flags.model);
  command.add({
      type_flag(flags.type, Rules{.required = true}),
      {"--imatrix", &flags.importance, "FILE",
       "importance matrix from llama-imatrix, which lowers the error of small types"},
      {"-o,--output", &flags.out, "FILE", "write this GGUF file", Rules{.required = true}},
      force_flag(flags.force, {"--output"}),
      {"-t,--threads", &flags.threads, "N", "CPU threads (default: one per usable core)",
       Rules{.range = Range{1, 1024}}},
  });
  command.footer =
      "Each matrix gets the type that llama-quantize would give it; norms and biases stay f32. "
      "llama.cpp can load the file, too.\n\n"
      "Examples:\n  tyto quantize --type q8_0 -o owlet-q8.gguf\n"
      "  tyto quantize -m ./Llama-3.2-1B-Instruct --type q4_k_m -o llama-1b-q4.gguf";
  command.run = [&flags] { quantize(flags); };
}

void define_synth(CommandLine& command) {
  SynthFlags& flags = command.values<SynthFlags>();
  command.add({
      {"--shape", &flags.shape, OneOf(shape_names(), Letters::any_case), "shape of a public model",
       Rules{.required = true}},
      type_flag(flags.type, Rules{.shows_default = true}),
      {"--seed", &flags.seed, "N", "seed of the weights: the same seed gives the same bytes",
       Rules{.shows_default = true}},
      {"-o,--output", &flags.out, "PATH", "write FILE.gguf, or a folder with safetensors",
       Rules{.required = true}},
      force_flag(flags.force, {"--output"}),
  });
  command.footer =
      "Such a model is for measuring speed without a download; the text that it makes means "
      "nothing.\n\n"
      "Example:\n  tyto synth --shape llama-3.2-1b --type q8_0 -o synth-1b-q8.gguf";
  command.run = [&flags] { synth(flags); };
}

}  // namespace tyto
