// power: what a load uses above idle, by putting it between idle windows.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/redaction.h"
#include "cli/auto_device.h"
#include "cli/commands.h"
#include "cli/energy_json.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "engine/sampler.h"
#include "power/energy_meter.h"
#include "report/tables.h"
#include "shell/child_process.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

struct PowerFlags {
  EngineFlags engine;
  std::vector<std::string> command;
  uint32_t prompt = 512;
  uint32_t generate = 128;
  double idle_seconds = 3;
  double settle_seconds = 1;
  double load_seconds = 5;
  uint32_t repetitions = 3;
  uint32_t timeout_seconds = 600;
  JsonFlag json;
  std::string root;
  PowerSources sources;
};

// Something to measure; gives back the tokens it made, 0 when it makes none.
struct Load {
  std::string name;
  std::function<uint64_t()> run;
  std::string executed_on = {};
};

struct MeasuredLoad {
  Load load;
  double tokens = 0;  // mean per trial
  std::vector<EnergyWindow> windows;
  std::vector<RailPower> rails;
};

void wait(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

MeasuredLoad measure(const Load& load, EnergyMeter& meter, const PowerFlags& flags) {
  MeasuredLoad result{.load = load, .windows = {}, .rails = {}};
  std::vector<EnergyWindow> idle;
  // Drawn before a window and not inside.
  const auto show = [&, bar = progress_bar()](const char* what) {
    if (bar)
      bar(fmt::format("{}: {}", load.name, what), idle.size() + result.windows.size(),
          2 * flags.repetitions + 1);
  };
  const auto rest = [&] {
    show("measuring idle");
    wait(flags.settle_seconds);  // sensors average, clocks come down slowly
    meter.lap();
    wait(flags.idle_seconds);
    idle.push_back(meter.lap());
  };
  meter.start();
  rest();
  for (uint32_t i = 0; i < flags.repetitions; ++i) {
    show("measuring the load");
    result.tokens += static_cast<double>(load.run()) / flags.repetitions;
    result.windows.push_back(meter.lap());
    rest();
  }
  meter.stop();
  result.rails = subtract_idle(idle, result.windows);
  return result;
}

// Prefill of `prompt` tokens or decode of `generate`, again and again until the time is over.
Load pipeline_load(Engine& engine, Sequence& sequence, const PowerFlags& flags, bool prefill) {
  const uint32_t count = prefill ? flags.prompt : flags.generate;
  std::mt19937 random(1);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % engine.model().config.vocab);
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
  Engine engine(engine_options(flags.engine), progress_bar());
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
    Load load = pipeline_load(engine, sequence, flags, prefill);
    results.push_back(measure(load, meter, flags));
    engine.check_required(sequence.executed);
    Receipt receipt;
    add_execution(receipt, sequence, engine.pipeline(), engine.trace());
    results.back().load.executed_on = execution_text(receipt);
  }
  return results;
}

MeasuredLoad measure_command(const PowerFlags& flags, EnergyMeter& meter) {
  const auto run = [&flags]() -> uint64_t {
    run_child(flags.command, std::chrono::seconds(flags.timeout_seconds));
    return 0;
  };
  return measure({redacted_command(flags.command, {}), run}, meter, flags);
}

ordered_json as_json(const Spread& spread) {
  return {{"mean", spread.mean},
          {"stddev", spread.deviation},
          {"min", spread.min},
          {"max", spread.max}};
}

ordered_json as_json(const RailPower& power, double tokens) {
  ordered_json row = rail_json(power.rail);
  row["reason"] = nullptr;
  if (!power.reason.empty()) {
    row["reason"] = power.reason;
    return row;
  }
  row["idle_watts"] = as_json(power.idle_watts);
  row["load_watts"] = as_json(power.load_watts);
  row["load_joules"] = as_json(power.load_joules);
  row["net_joules"] = as_json(power.net);
  row["net_joules_uncertainty"] = power.uncertainty;
  row["above_idle"] = power.above_idle();
  row["net_joules_per_trial"] = power.net_joules;
  row["j_per_token"] = nullptr;
  row["net_j_per_token"] = nullptr;
  if (tokens > 0) {
    row["j_per_token"] = power.load_joules.mean / tokens;
    row["net_j_per_token"] = power.net.mean / tokens;
  }
  return row;
}

std::string json_text(const std::vector<MeasuredLoad>& results, const PowerFlags& flags) {
  ordered_json loads = ordered_json::array();
  for (const MeasuredLoad& result : results) {
    ordered_json seconds = ordered_json::array();
    for (const EnergyWindow& window : result.windows) seconds.push_back(window.seconds);
    ordered_json rails = ordered_json::array();
    for (const RailPower& power : result.rails) rails.push_back(as_json(power, result.tokens));
    loads.push_back({{"load", result.load.name},
                     {"executed_on", result.load.executed_on},
                     {"tokens_per_trial", result.tokens},
                     {"seconds", std::move(seconds)},
                     {"rails", std::move(rails)}});
  }
  const ordered_json whole = {{"schema", "tyto-power/1"},
                              {"idle_seconds", flags.idle_seconds},
                              {"trials", flags.repetitions},
                              {"loads", std::move(loads)}};
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string plus_minus(double mean, double deviation) {
  return fmt::format("{:.2f} ± {:.2f}", mean, deviation);
}

Table power_table(const MeasuredLoad& result, const PowerFlags& flags) {
  double seconds = 0;
  for (const EnergyWindow& window : result.windows)
    seconds += window.seconds / static_cast<double>(result.windows.size());
  Table table{
      .id = "power",
      .title = fmt::format(
          "{}: {} x {:.1f} s between idle windows of {:.1f} s{}", result.load.name,
          flags.repetitions, seconds, flags.idle_seconds,
          result.load.executed_on.empty() ? "" : ", executed on " + result.load.executed_on),
      .columns = {{"rail", false}, {"idle W", true, 2}, {"load W", true, 1}, {"above idle J"}}};
  const bool has_tokens = result.tokens > 0;
  if (has_tokens) table.columns.push_back({"J/token"});
  table.columns.push_back({"", false});
  for (const RailPower& power : result.rails) {
    TableRow row{{power.rail.label()}};
    if (power.reason.empty())
      row.cells.insert(row.cells.end(),
                       {plus_minus(power.idle_watts.mean, power.idle_watts.deviation),
                        plus_minus(power.load_watts.mean, power.load_watts.deviation),
                        plus_minus(power.net.mean, power.uncertainty)});
    const bool is_told = power.reason.empty() && power.above_idle();
    if (is_told && has_tokens)
      row.cells.push_back(fmt::format("{:.3g}", power.net.mean / result.tokens));
    row.cells.resize(table.columns.size());
    if (!power.reason.empty())
      row.cells.back() = "n/a (" + power.reason + ")";
    else if (!is_told)
      row.cells.back() = "cannot be told from idle";
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Without a rail there is nothing to wait for; the reasons are the result.
void refuse_without_rails(const std::vector<RailReader>& readers, const JsonFlag& json) {
  const auto readable = [](const RailReader& reader) { return reader.unavailable.empty(); };
  if (std::any_of(readers.begin(), readers.end(), readable)) return;
  ordered_json rails = ordered_json::array();
  std::string text;
  for (const RailReader& reader : readers) {
    rails.push_back(rail_json(reader.rail));
    rails.back()["reason"] = reader.unavailable;
    text += fmt::format("{}: n/a ({})\n", reader.rail.label(), reader.unavailable);
  }
  const ordered_json whole = {{"schema", "tyto-power/1"}, {"rails", std::move(rails)}};
  if (!json.is_given() || !put_json(json, whole.dump(2) + "\n")) print_prose(text);
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
    results.push_back(measure_command(flags, meter));
  if (flags.json.is_given() && put_json(flags.json, json_text(results, flags))) return;
  for (const MeasuredLoad& result : results)
    print_coloured(to_text(power_table(result, flags), stdout_style()));
}

void add_window_flags(CommandLine& command, PowerFlags& flags) {
  const Rules window{.range = Range{0.01, 3600}, .shows_default = true};
  command.add({
      {"--idle", &flags.idle_seconds, "S", "seconds of each idle measurement", window},
      {"--settle", &flags.settle_seconds, "S", "seconds to wait before an idle measurement",
       window},
      {"--load", &flags.load_seconds, "S", "least seconds of a measurement of a model", window},
      {"-r,--repetitions", &flags.repetitions, "N", "times that the load is measured",
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
      settle_device(flags.engine,
                    {.prompt_tokens = flags.prompt, .generated_tokens = flags.generate});
    power(flags);
  };
}

}  // namespace tyto
