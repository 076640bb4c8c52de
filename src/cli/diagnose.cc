#include <optional>

#include "base/error.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "check/combination.h"
#include "check/diagnose.h"
#include "check/transcript.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "model/description.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

constexpr const char* kDefaultPrompt = "Tell me a story about a fox who finds a lamp.";
constexpr double kFullPrecision = 0.999;
constexpr double kQuantized = 0.99;  // q4nx and int8 weights

struct DiagnoseFlags {
  EngineChoice engine;
  PromptFlags prompt;
  uint32_t tokens = 4;
  std::optional<double> tolerance;
  JsonFlag json;
  std::string html;
  bool force = false;
};

double tolerance_of(const DiagnoseFlags& flags) {
  const DeviceSettings& settings = flags.engine.options.settings;
  const auto weights = settings.find("weights");
  const bool is_quantized = weights != settings.end() && weights->second != "bf16";
  return flags.tolerance.value_or(is_quantized ? kQuantized : kFullPrecision);
}

// What the device shows of the reference's tokens. A failed dispatch ends it, and is told.
std::string run_device(Engine& engine, const ReferenceRecord& reference, Receipt& receipt) {
  const std::span<const Token> tokens = reference.tokens();
  Pipeline& pipeline = engine.pipeline();
  Sequence sequence(pipeline);
  std::string problem;
  try {
    pipeline.run(sequence, tokens.first(reference.prompt_size()), progress_bar());
    sequence.phase = Phase::decode;
    const Progress progress = progress_bar();
    for (size_t i = reference.prompt_size(); i < tokens.size(); ++i) {
      if (progress) progress("the device computes", i, tokens.size());
      pipeline.run(sequence, tokens.subspan(i, 1));
    }
  } catch (const Error& error) {
    if (error.code != ErrorCode::device) throw;
    problem = error.what();
  }
  add_execution(receipt, sequence, pipeline, engine.trace());
  return problem;
}

Diagnosis facts_of(const DiagnoseFlags& flags, Engine& engine, const ReferenceRecord& reference) {
  const Model& model = engine.model();
  const Combination combination = combination_of(engine, flags.engine.options, progress_bar());
  Diagnosis result;
  result.model = describe(model).name;
  result.device = device_names(flags.engine.options);
  const std::vector<DeviceInfo> devices = engine.devices();
  result.is_virtual = std::ranges::any_of(devices, &DeviceInfo::is_virtual);
  result.settings =
      fmt::format("--fusion {}, weights {}, KV cache {}, numerics {}", combination.fusion,
                  combination.weight_form, combination.kv_type, combination.numerics);
  const size_t prompt_size = reference.prompt_size();
  result.prompt = redacted(engine.tokenizer().decode(
      {reference.tokens().begin(),
       reference.tokens().begin() + static_cast<std::ptrdiff_t>(prompt_size)},
      true));
  result.version = TYTO_VERSION;
  result.time = utc_now();
  result.command = command_line();
  result.layers = model.config.layers;
  result.prompt_tokens = static_cast<uint32_t>(prompt_size);
  result.decode_tokens = static_cast<uint32_t>(reference.tokens().size() - prompt_size);
  result.tolerance = tolerance_of(flags);
  return result;
}

void diagnose(const DiagnoseFlags& flags) {
  OutputFile json(flags.json.path(), kDiagnosisFile, flags.force);
  OutputFile page(flags.html, kDiagnosisPage, flags.force);
  DeviceRecord record;
  EngineOptions options = flags.engine.options;
  options.pipeline.forward.observer = record.observer();
  Engine engine(options, progress_bar());
  note_idle_chat_flags(flags.prompt, engine);
  const std::vector<Token> prompt = model_prompt(flags.prompt, engine).tokens;
  engine.pipeline().check_room(0, prompt.size() + flags.tokens);  // before the slow reference runs
  const ReferenceRecord reference(engine.model(), prompt, flags.tokens, progress_bar());
  Receipt receipt;
  const std::string problem = run_device(engine, reference, receipt);
  engine.check_required(receipt.phases);

  Diagnosis diagnosis = facts_of(flags, engine, reference);
  diagnosis.executed = executed_line(receipt);
  const auto why_not =
      why_not_executed(flags.engine.options.prefill(), flags.engine.options.device, receipt);
  diagnosis.problem = !problem.empty() ? problem : why_not.value_or("");
  compare_records(record.dispatches(), reference, diagnosis);

  if (flags.json.is_for_stdout()) {
    print(diagnosis_json(diagnosis));
  } else {
    for (const Table& table : diagnosis_tables(diagnosis))
      print_coloured(to_text(table, stdout_style()) + "\n");
    print_prose(diagnosis_verdict(diagnosis) + "\n");
  }
  note(fmt::format("prompt {} · then {} · {}", counted(diagnosis.prompt_tokens, "token"),
                   counted(diagnosis.decode_tokens, "token"), diagnosis.executed));
  if (json.is_wanted()) json.write(diagnosis_json(diagnosis));
  if (page.is_wanted()) page.write(diagnosis_html(diagnosis));
  if (first_past(diagnosis) != nullptr || !diagnosis.problem.empty())
    throw Error(ErrorCode::device, "diagnose", diagnosis_verdict(diagnosis));
}

}  // namespace

void define_diagnose(CommandLine& command) {
  DiagnoseFlags& flags = command.values<DiagnoseFlags>();
  // A second try would hide what is looked for.
  flags.engine.options.pipeline.on_error = OnDeviceError::fail;
  add_prompt_flags(command, flags.prompt);
  add_engine_flags(command, flags.engine);
  command.add({
      {"-n,--tokens", &flags.tokens, "N",
       "tokens to decode after the prompt; the reference chooses them",
       Rules{.range = Range{0, 1024}, .shows_default = true}},
      {"--tolerance", &flags.tolerance, "X",
       "least cosine that passes (default: 0.999; 0.99 for q4nx and int8 weights)",
       Rules{.range = Range{-1, 1}}},
      json_flag(flags.json),
      {"--html", &flags.html, "FILE", "write an HTML page with a map of layers and steps"},
      force_flag(flags.force, {"--json", "--html"}),
  });
  command.footer =
      "The f32 reference and the device run the same tokens, and the result of every dispatch is "
      "compared. The exit code is 0 if all are within tolerance, else 1.\n\n"
      "--fusion op compares the most steps. With other fusions, steps inside a dispatch cannot be "
      "compared and are listed.\n\n"
      "Examples:\n"
      "  tyto diagnose --device vnpu --fusion op --html map.html\n"
      "  tyto diagnose -m model.gguf -p 'Tell me a story.' --tolerance 0.9999";
  command.first = {"--model",  "--prompt",  "--file",    "--tokens",  "--device",
                   "--fusion", "--weights", "--kv-type", "--threads", "--tolerance",
                   "--html",   "--json",    "--force"};
  command.run = [&command, &flags] {
    settle_words(command, flags.prompt, flags.engine.options.model);
    if (is_prompt_given(command))
      read_prompt(command, flags.prompt);
    else
      flags.prompt.prompt = kDefaultPrompt;
    settle_engine(command, flags.engine);
    diagnose(flags);
  };
}

}  // namespace tyto
