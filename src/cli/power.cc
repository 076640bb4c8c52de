// power: what a load uses above idle, by putting it between idle windows.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "engine/sampler.h"
#include "power/measured_load.h"
#include "report/energy.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

struct PowerFlags {
  EngineChoice engine;
  std::vector<std::string> command;
  uint32_t prompt = 512;
  uint32_t generate = 128;
  PowerWindows windows;
  double load_seconds = 5;
  uint32_t timeout_seconds = 600;
  JsonFlag json;
  std::string root;
  PowerSources sources;
};

// Prefill of `prompt` tokens or decode of `generate`, again and again until the time is over.
PowerLoad pipeline_load(Engine& engine, Sequence& sequence, const PowerFlags& flags, bool prefill) {
  const uint32_t count = prefill ? flags.prompt : flags.generate;
  const std::vector<Token> tokens = made_up_tokens(count, engine.model().config.vocab);
  const auto run = [&engine, &sequence, &flags, tokens, prefill]() -> uint64_t {
    const auto end = Clock::now() + std::chrono::duration<double>(flags.load_seconds);
    uint64_t done = 0;
    do {
      sequence.rewind(0);
      if (prefill)
        engine.pipeline().run(sequence, tokens);
      else
        for (const Token& token : tokens) engine.pipeline().run(sequence, {&token, 1});
      done += tokens.size();
    } while (Clock::now() < end);
    return done;
  };
  return {fmt::format("{}{}", prefill ? "pp" : "tg", count), run};
}

std::vector<MeasuredLoad> measure_model(const PowerFlags& flags, EnergyMeter& meter) {
  Engine engine(flags.engine.options, progress_bar());
  for (const DeviceInfo& device : engine.devices())
    if (device.is_virtual)
      throw Error(ErrorCode::usage, "--device " + device.name,
                  "power measures, and this device's work is simulated");
  std::vector<MeasuredLoad> results;
  for (const bool prefill : {true, false}) {
    if ((prefill ? flags.prompt : flags.generate) == 0) continue;
    Sequence sequence(engine.pipeline());
    sequence.phase = prefill ? Phase::prefill : Phase::decode;
    sequence.candidates = candidates_needed(SamplerOptions{}, false);
    const PowerLoad load = pipeline_load(engine, sequence, flags, prefill);
    results.push_back(measure_load(load, meter, flags.windows, progress_bar()));
    engine.check_required(sequence.executed);
    Receipt receipt;
    add_execution(receipt, sequence, engine.pipeline(), engine.trace());
    results.back().load.executed_on = execution_text(receipt);
  }
  return results;
}

// Without a rail there is nothing to wait for; the reasons are the result.
void refuse_without_rails(const std::vector<RailReader>& readers, const JsonFlag& json) {
  const auto readable = [](const RailReader& reader) { return reader.unavailable.empty(); };
  if (std::any_of(readers.begin(), readers.end(), readable)) return;
  std::string text;
  for (const RailReader& reader : readers)
    text += fmt::format("{}: n/a ({})\n", reader.rail.label(), reader.unavailable);
  if (!json.is_given() || !put_json(json, unreadable_rails_json(readers))) print_prose(text);
  throw Error(ErrorCode::input, "power", "this machine has no power rail that can be read",
              "docs/energy.md says what each needs");
}

void power(const PowerFlags& flags) {
  if (flags.command.empty() && flags.prompt == 0 && flags.generate == 0)
    throw Error(ErrorCode::usage, "power", "nothing to measure", "give -p or -n, or -- COMMAND");
  EnergyMeter meter(power_rails(flags.sources));
  refuse_without_rails(meter.readers(), flags.json);
  std::vector<MeasuredLoad> results;
  if (flags.command.empty())
    results = measure_model(flags, meter);
  else
    results.push_back(
        measure_load(program_load(flags.command, std::chrono::seconds(flags.timeout_seconds)),
                     meter, flags.windows, progress_bar()));
  if (flags.json.is_given() && put_json(flags.json, power_json(results, flags.windows))) return;
  for (const MeasuredLoad& result : results)
    print_coloured(to_text(power_table(result, flags.windows), stdout_style()));
}

void add_window_flags(CommandLine& command, PowerFlags& flags) {
  const Rules window{.range = Range{0.01, 3600}, .shows_default = true};
  command.add({
      {"--idle", &flags.windows.idle_seconds, "S", "seconds of each idle measurement", window},
      {"--settle", &flags.windows.settle_seconds, "S", "seconds to wait before an idle measurement",
       window},
      {"--load", &flags.load_seconds, "S", "least seconds of a measurement of a model", window},
      {"-r,--repetitions", &flags.windows.repetitions, "N", "times that the load is measured",
       Rules{.range = Range{1, 1000}, .shows_default = true}},
      {"--timeout", &flags.timeout_seconds, "S", "kill the command after S seconds",
       Rules{.range = Range{1, 86400}, .shows_default = true}},
  });
}

}  // namespace

void define_power(CommandLine& command) {
  PowerFlags& flags = command.values<PowerFlags>();
  command.add({
      {"command", &flags.command, "COMMAND...", "after --: measure this program instead of a model",
       Rules{.may_be_empty = true}},
      {"-p,--n-prompt", &flags.prompt, "N", "tokens of the prompt; 0: measure no prompt",
       Rules{.shows_default = true}},
      {"-n,--n-gen", &flags.generate, "N", "tokens to generate; 0: measure no decoding",
       Rules{.shows_default = true}},
  });
  add_window_flags(command, flags);
  command.add({
      {"--root", &flags.root, "DIR", "read a recorded machine's /sys below this folder",
       Rules{.is_folder = true}},
  });
  add_json_flag(command, flags.json);
  add_engine_flags(command, flags.engine);
  command.footer =
      "Measures each power rail while idle and under load in turns, and prints what the load adds. "
      "Rails overlap (a package includes its NPU and GPU): do not add them up.\n\n"
      "Examples:\n"
      "  tyto power -m model.gguf -p 512 -n 128\n"
      "  tyto power --json -- sleep 3";
  command.first = {"--model", "--n-prompt", "--n-gen", "--repetitions", "--idle",    "--settle",
                   "--load",  "--timeout",  "--json",  "--device",      "--context", "--threads"};
  command.run = [&command, &flags] {
    if (command.is_given("--root"))
      flags.sources = {.root = flags.root, .nvml = ""};  // which is a library of this machine
    if (flags.command.empty())
      settle_engine(command, flags.engine,
                    {.prompt_tokens = flags.prompt, .generated_tokens = flags.generate});
    power(flags);
  };
}

}  // namespace tyto
