#include "bench/cpu_rows.h"

#include <algorithm>

#include "bench/bench_comparison.h"
#include "bench/bench_run.h"
#include "bench/bench_tests.h"
#include "device/cpu/measured_peak.h"
#include "engine/engine.h"

namespace tyto {
namespace {

// What the processor of this machine does with a model is measured in a few seconds. A first,
// short run warms up and says how much can be run in about a second.
const BenchTest kFirst = {.prompt = 16, .generate = 2};
constexpr uint32_t kMostPrompt = 512, kMeasuredTokens = 32;
constexpr double kSeconds = 1;

uint32_t count_in(double seconds, const PhaseSpeed& speed, uint32_t least, uint32_t most) {
  const double count = speed.seconds > 0 ? seconds / speed.seconds * speed.tokens : most;
  return std::max(least, static_cast<uint32_t>(std::min<double>(count, most)));
}

// Short contexts have room for less.
BenchTest within(BenchTest test, uint32_t context) {
  test.generate = std::min(test.generate, context / 2);
  test.prompt = std::min(test.prompt, context - test.generate);
  return test;
}

PlanRow measured(const PlanRequest& request, BenchSetup setup, const Progress& progress,
                 const std::function<void()>& announce) {
  const uint32_t context = request.config.context;
  const BenchTest first = within(kFirst, context);
  const BenchTest longest = within(
      {.prompt = std::clamp(request.prompt_tokens, 1u, kMostPrompt), .generate = kMeasuredTokens},
      context);
  setup.positions = std::max(first.positions(), longest.positions());
  BenchEngine bench = open_bench_engine(setup, progress);
  announce();
  const BenchOptions once{.repetitions = 1, .warm_up = false};
  const BenchRow tried = measure(bench, first, once);
  BenchTest test = longest;
  test.prompt = count_in(kSeconds, phase_speed(tried, Phase::prefill), 1, longest.prompt);
  test.generate = count_in(kSeconds, phase_speed(tried, Phase::decode), 1, longest.generate);
  const BenchRow row = measure(bench, test, once);
  return measured_on_cpu(request, {.threads = row.facts.threads,
                                   .prompt_tokens = test.prompt,
                                   .generated_tokens = test.generate,
                                   .prefill_seconds = row.receipt.prefill_seconds,
                                   .decode_seconds = row.receipt.decode_seconds});
}

std::vector<PlanRow> estimated(const PlanRequest& request, const std::function<void()>& announce) {
  ThreadPool pool;
  const cpu::InnerLoops& loops = cpu::chosen_inner_loops("");
  announce();
  const cpu::MeasuredPeak peak = cpu::measure_peak(loops, pool);
  std::vector<PlanRow> rows;
  for (const DType type : {DType::q4_0, DType::bf16})
    rows.push_back(
        estimated_on_cpu(request, type,
                         {.threads = pool.threads(),
                          .read_gb_s = peak.read_gb_per_s,
                          .gflops = cpu::arithmetic_peak(peak, loops, type).gflop_per_s}));
  return rows;
}

}  // namespace

std::vector<PlanRow> cpu_rows(const PlanRequest& request, const BenchSetup& setup,
                              const Progress& progress, const std::function<void()>& announce) {
  return request.file ? std::vector{measured(request, setup, progress, announce)}
                      : estimated(request, announce);
}

}  // namespace tyto
