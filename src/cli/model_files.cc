// quantize and synth: commands that write model files.
#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "model/convert.h"
#include "model/shapes.h"
#include "model/synth.h"
#include "model/type_mix.h"

namespace tyto {
namespace {

struct QuantizeFlags {
  ModelFlags model;
  std::string type;
  std::string out;
  unsigned threads = 0;
};

struct SynthFlags {
  std::string shape;
  std::string type = "bf16";
  uint64_t seed = 1;
  std::string out;
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
  const Model model = open_model(find_model(model_or_shipped(flags.model)));
  if (std::filesystem::exists(flags.out) && std::filesystem::equivalent(flags.out, model.path))
    throw Error(ErrorCode::usage, "-o " + flags.out, "is the model itself");
  ThreadPool pool(flags.threads);
  report(flags.out, quantize_model(model, flags.type, flags.out, pool, progress_bar()));
}

void synth(const SynthFlags& flags) {
  report(flags.out,
         synthesize(shape_by_name(flags.shape), flags.type, flags.seed, flags.out, progress_bar()));
}

}  // namespace

void define_quantize(CLI::App& command) {
  auto flags = std::make_shared<QuantizeFlags>();
  add_model_flag(command, flags->model);
  command.add_option("--type", flags->type, "type of the matrices")
      ->check(CLI::IsMember(type_mix_names(), CLI::ignore_case))
      ->required();
  command.add_option("-o,--output", flags->out, "GGUF to write")->type_name("FILE")->required();
  command.add_option("-t,--threads", flags->threads, "CPU threads (default: one per usable core)")
      ->type_name("N")
      ->check(CLI::Range(1u, 1024u));
  command.footer(
      "Norms and biases stay f32. The file loads in llama.cpp too.\n\n"
      "Example:\n  tyto quantize -m ./Llama-3.2-1B-Instruct --type q4_k_m -o llama-1b-q4.gguf");
  command.callback([flags] { quantize(*flags); });
}

void define_synth(CLI::App& command) {
  auto flags = std::make_shared<SynthFlags>();
  command.add_option("--shape", flags->shape, "public shape")
      ->check(CLI::IsMember(shape_names(), CLI::ignore_case))
      ->required();
  command.add_option("--dtype", flags->type, "type of the matrices")
      ->check(CLI::IsMember(type_mix_names(), CLI::ignore_case))
      ->capture_default_str();
  command.add_option("--seed", flags->seed, "same seed, same bytes")
      ->type_name("N")
      ->capture_default_str();
  command.add_option("-o,--output", flags->out, "FILE.gguf, or a folder for safetensors")
      ->type_name("PATH")
      ->required();
  command.footer(
      "For measuring speed without anybody's weights: the text such a model makes means "
      "nothing.\n\n"
      "Example:\n  tyto synth --shape llama-3.2-1b --dtype q8_0 -o synth-1b-q8.gguf");
  command.callback([flags] { synth(*flags); });
}

}  // namespace tyto
