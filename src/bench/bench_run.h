// Running a benchmark's tests on an engine: what is timed, what is counted, and what a row holds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_value.h"
#include "base/progress.h"
#include "bench/bench_speculation.h"
#include "engine/engine.h"
#include "power/energy_meter.h"
#include "trace/receipt.h"

namespace tyto {

class Sequence;

// What an engine is opened with, and what its tests need.
struct BenchSetup {
  EngineOptions options;
  std::function<ReceiptContext(Engine&)> receipt_context;  // where receipts come from
  uint32_t batch = 2048;                                   // tokens given to the engine at once
  std::optional<uint32_t> ubatch;  // tokens per prefill dispatch; none: the engine's own
  uint64_t positions = 0;          // what the longest test needs
  uint32_t sequences = 1;          // at once, in the widest test
  std::string longest_test;
  bool measures_peak = false;  // for the CPU
  std::vector<SpeculationName> speculations = {};
  uint32_t most_guesses = 8;
};

// What a row says about where it ran.
struct BenchFacts {
  std::string model_path;
  std::string model_type;  // "llama 1.2B bf16"
  uint64_t model_bytes = 0;
  uint64_t parameters = 0;
  uint32_t batch = 0;
  uint32_t ubatch = 0;
  uint32_t threads = 0;
  uint32_t context = 0;
  uint32_t layers = 0;
  std::string kv_type;
  std::string device;  // as asked for
  bool on_host = false;
  std::string device_description;
  std::string fusion;
  std::string weights_hash;
  std::optional<DeviceLimits> peak = {};  // the CPU's; settle_peak() has the last word
};

struct BenchEngine {
  BenchFacts facts;
  ReceiptContext origin;
  std::unique_ptr<Engine> engine;
  std::vector<std::unique_ptr<Sequence>> sequences;  // on the engine
  // [context + sequences]: sequence s has token s + i at its position i, so that a filled cache
  // stays valid.
  std::vector<Token> tokens;
  std::vector<std::unique_ptr<BenchGuesser>> guessers = {};  // those of the tests that have one
};

// A comparison of two devices in turns; the same in both rows.
struct AbComparison {
  std::string a, b;            // as asked for
  std::vector<double> ratios;  // t/s of a by t/s of b, per round
  bool a_modelled = false;
  bool b_modelled = false;
};

struct BenchRow {
  BenchTest test = {};
  BenchFacts facts = {};
  std::string time = {};             // UTC, when the test began
  std::vector<double> seconds = {};  // per repetition, on the clock that `modelled` says
  // A virtual device took part: its dispatches last as modelled, and the host's part as measured.
  bool modelled = false;
  double cpu_seconds = 0;         // the host's cores', in all repetitions; 0: not taken
  double simulation_seconds = 0;  // wall time of all repetitions, of a modelled row
  Receipt receipt = {};           // for all repetitions together; the fastest one's speed is judged
  JsonValue receipt_json = {};
  std::string receipt_id = {};
  EnergyWindow energy = {};  // all repetitions'; no rails: not asked for
  std::string energy_reason = {};
  std::optional<AbComparison> ab = {};
  std::vector<double> of_plain = {};  // a test with guesses: its t/s by that without, per round

  std::vector<double> tokens_per_second() const;  // per repetition
  double all_tokens() const {
    return static_cast<double>(test.tokens()) * static_cast<double>(seconds.size());
  }
  bool refused() const { return receipt.plausibility.verdict == Verdict::refused; }
};

struct BenchOptions {
  uint32_t repetitions = 5;
  bool warm_up = true;
  EnergyMeter* meter = nullptr;  // none: energy is not measured
  Progress progress = {};
};

// Opens the model with room for the longest test. What the device cannot honour is a usage
// Error.
BenchEngine open_bench_engine(const BenchSetup& setup, const Progress& progress);

// Throws when the engine's --require is not satisfied.
BenchRow measure(BenchEngine& bench, const BenchTest& test, const BenchOptions& options);
// Tests in turns, a b c a b c ..., so that what drifts meets all of them. Energy is not measured: a
// turn is too short.
struct BenchTurn {
  BenchEngine* bench = nullptr;
  BenchTest test = {};
};
std::vector<BenchRow> measure_in_turns(std::span<const BenchTurn> turns,
                                       const BenchOptions& options);
// t/s of a row by t/s of another that was measured in turns with it; none where one is refused.
std::vector<double> speed_ratios(const BenchRow& row, const BenchRow& other);

// One repetition's in the mean, on the clock that the row says. No seconds where the row was
// refused or has no such phase.
struct PhaseSpeed {
  double seconds = 0;
  double tokens = 0;  // all sequences'
};
PhaseSpeed phase_speed(const BenchRow& row, Phase phase);

// Submissions per token of the row. The host's own steps beside another device are not dispatches.
double dispatches_per_token(const BenchRow& row);

// For a row with guesses.
double calls_per_token(const BenchRow& row);

// Declared bytes and arithmetic against the time between submission and completion; where a virtual
// device took part, that device's alone, in modelled time.
struct WorkRate {
  double bytes_per_token = 0;
  double flops_per_token = 0;
  double gb_per_s = 0;
  double gflop_per_s = 0;
};
WorkRate work_rate(const BenchRow& row);

}  // namespace tyto
