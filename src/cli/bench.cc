#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/energy_json.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "trace/energy_report.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct BenchFlags {
  EngineFlags engine;
  std::vector<uint32_t> prompt = {512};
  std::vector<uint32_t> generate = {128};
  uint32_t repetitions = 5;
  std::string output = "md";
  bool energy = false;
};

// One row: `prompt` tokens of prefill, or `generate` single-token steps.
struct Test {
  uint32_t prompt = 0;
  uint32_t generate = 0;
  std::string name() const {
    return prompt > 0 ? fmt::format("pp{}", prompt) : fmt::format("tg{}", generate);
  }
  uint32_t tokens() const { return prompt + generate; }
};

struct Row {
  Test test;
  std::vector<double> samples_ts;  // tokens per second
  std::vector<DeviceCounters> executed;
  double mean = 0;
  double deviation = 0;
  EnergyWindow energy;  // of all repetitions; no rails: not asked for

  double all_tokens() const { return static_cast<double>(test.tokens() * samples_ts.size()); }
};

std::vector<Token> random_tokens(uint32_t count, uint32_t vocab) {
  std::mt19937 random(1);  // speed does not depend on which tokens these are
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocab);
  return tokens;
}

double run_once(Pipeline& pipeline, const Test& test, uint32_t vocab) {
  const auto tokens = random_tokens(test.tokens(), vocab);
  pipeline.rewind(0);
  const auto start = std::chrono::steady_clock::now();
  if (test.prompt > 0)
    pipeline.run(tokens);
  else
    for (const Token& token : tokens) pipeline.run({&token, 1});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return test.tokens() / seconds;
}

// A row has one phase: a requirement of the other does not concern it.
void check_row(const Engine& engine, const Row& row) {
  const bool prefill = row.test.prompt > 0;
  const std::optional<Phase> wanted = engine.requirement().phase;
  if (wanted && *wanted != (prefill ? Phase::prefill : Phase::decode)) return;
  engine.check_required(prefill ? PhaseCounters{.prefill = row.executed, .decode = {}}
                                : PhaseCounters{.prefill = {}, .decode = row.executed});
}

Row measure(Engine& engine, const Test& test, uint32_t repetitions, EnergyMeter* meter) {
  Row row{.test = test, .samples_ts = {}, .executed = {}, .energy = {}};
  const uint32_t vocab = engine.model().config.vocab;
  const Test warm_up{std::min(test.prompt, 32u), std::min(test.generate, 4u)};
  run_once(engine.pipeline(), warm_up, vocab);
  const auto before = engine.trace().snapshot();
  if (meter != nullptr) meter->start();
  for (uint32_t i = 0; i < repetitions; ++i)
    row.samples_ts.push_back(run_once(engine.pipeline(), test, vocab));
  if (meter != nullptr) row.energy = meter->stop();
  row.executed = window(before, engine.trace().snapshot());
  check_row(engine, row);
  const auto count = static_cast<double>(row.samples_ts.size());
  for (double sample : row.samples_ts) row.mean += sample / count;
  for (double sample : row.samples_ts)
    row.deviation += (sample - row.mean) * (sample - row.mean) / std::max(1.0, count - 1);
  row.deviation = std::sqrt(row.deviation);
  return row;
}

double gigabytes_per_second(const Row& row) {
  double bytes = 0, seconds = 0;
  for (const DeviceCounters& device : row.executed) {
    bytes += static_cast<double>(device.bytes);
    seconds += static_cast<double>(device.busy_ns) * 1e-9;
  }
  return seconds > 0 ? bytes * 1e-9 / seconds : 0;
}

ordered_json as_json(const Row& row, const Model& model, unsigned threads) {
  ordered_json json = {{"model_filename", model.path.string()},
                       {"model_size", model.weight_bytes()},
                       {"n_threads", threads},
                       {"n_prompt", row.test.prompt},
                       {"n_gen", row.test.generate},
                       {"test", row.test.name()},
                       {"executed_on", device_names(row.executed)},
                       {"gb_per_s", gigabytes_per_second(row)},
                       {"avg_ts", row.mean},
                       {"stddev_ts", row.deviation},
                       {"samples_ts", row.samples_ts}};
  if (!row.energy.rails.empty()) json["energy"] = energy_json(row.energy, row.all_tokens());
  return json;
}

std::string markdown(const std::vector<Row>& rows, const Model& model) {
  const bool energy = !rows.empty() && !rows[0].energy.rails.empty();
  std::string out = fmt::format(
      "| model | size | test | executed on | GB/s | t/s |{}\n|---|---:|---|---|---:|---:|{}\n",
      energy ? " energy, idle included |" : "", energy ? "---|" : "");
  for (const Row& row : rows)
    out += fmt::format("| {} | {} | {} | {} | {:.1f} | {:.2f} ± {:.2f} |{}\n",
                       model.path.filename().string(), human_bytes(model.weight_bytes()),
                       row.test.name(), device_names(row.executed), gigabytes_per_second(row),
                       row.mean, row.deviation,
                       energy ? " " + energy_cell(row.energy, row.all_tokens()) + " |" : "");
  return out;
}

void bench(const BenchFlags& flags) {
  Engine engine(engine_options(flags.engine), progress_bar());
  for (const DeviceInfo& device : engine.devices())
    if (device.is_virtual)
      throw Error(ErrorCode::usage, "--device " + device.name,
                  "bench measures, and this device's time is modelled",
                  "`tyto plan` prints modelled speeds");
  std::vector<Test> tests;
  for (uint32_t n : flags.prompt)
    if (n > 0) tests.push_back({n, 0});
  for (uint32_t n : flags.generate)
    if (n > 0) tests.push_back({0, n});
  const auto meter = energy_meter(flags.energy);
  std::vector<Row> rows;
  for (const Test& test : tests)
    rows.push_back(measure(engine, test, flags.repetitions, meter.get()));
  std::set<std::string> reasons;
  for (const Row& row : rows)
    for (const std::string& reason : energy_reasons(row.energy)) reasons.insert(reason);
  for (const std::string& reason : reasons) note("energy · " + reason);
  if (flags.output == "md") return print(markdown(rows, engine.model()));
  ordered_json list = ordered_json::array();
  for (const Row& row : rows) list.push_back(as_json(row, engine.model(), engine.threads()));
  print(list.dump(2) + "\n");
}

}  // namespace

void define_bench(CLI::App& command) {
  auto flags = std::make_shared<BenchFlags>();
  command
      .add_option("-p,--n-prompt", flags->prompt, "prefill lengths, comma separated; 0 for none")
      ->type_name("N,...")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("-n,--n-gen", flags->generate, "decode lengths, comma separated; 0 for none")
      ->type_name("N,...")
      ->delimiter(',')
      ->capture_default_str();
  command.add_option("-r,--repetitions", flags->repetitions, "timed runs per row")
      ->type_name("N")
      ->check(CLI::Range(1u, 1000u))
      ->capture_default_str();
  command.add_option("-o,--output", flags->output, "format")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str();
  add_engine_flags(command, flags->engine);
  add_energy_flag(command, flags->energy);
  command.footer(
      "Row names as in llama-bench: pp512 is a prefill of 512 tokens, tg128 is 128 decoded "
      "tokens.\n"
      "Each row runs once to warm up, and names the devices that completed its work.\n\n"
      "Example:\n  tyto bench -m model.gguf -p 128,512 -n 64 -r 5");
  command.callback([flags] { bench(*flags); });
}

}  // namespace tyto
