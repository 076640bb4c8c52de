#include "bench/calibrate.h"

#include <algorithm>
#include <chrono>

#include "base/atomic_file.h"
#include "base/error.h"
#include "bench/bench_output.h"
#include "bench/bench_tests.h"
#include "device/cpu/measured_peak.h"
#include "device/device.h"
#include "engine/engine.h"
#include "model/description.h"
#include "model/stores/stores.h"
#include "plan/auto_device.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPrompts[] = {16, 128, 512};
constexpr uint32_t kDepths[] = {16, 512, 2048};
constexpr uint32_t kDecoded = 8;
// What would last longer is left out, by the shorter test before it: figures go on from there.
constexpr double kLongestSeconds = 5;
constexpr uint32_t kMostCopied = 256;  // positions of the KV cache

// A device, and what is known of it so far.
struct OpenDevice {
  BenchEngine bench;
  CalibratedDevice figures;
  double prefill_seconds_per_token = 0;  // on the clock on the wall, simulations too
};

bool is_of_host(const BenchEngine& bench) {
  return bench.engine->devices().front().shares_host_memory;
}

std::vector<BenchTest> tests_within(uint32_t context) {
  std::vector<BenchTest> tests;
  for (const uint32_t prompt : kPrompts) tests.push_back({.prompt = prompt});
  for (const uint32_t depth : kDepths) tests.push_back({.generate = kDecoded, .depth = depth});
  std::erase_if(tests, [&](const BenchTest& test) { return test.positions() > context; });
  return tests;
}

OpenDevice opened(const std::string& name, const std::vector<std::string>& names,
                  const CalibrationOrder& order, uint32_t context) {
  BenchSetup setup = order.setup;
  setup.options = options_for(name, names, setup.options);
  // Other devices have the cache that their kernels are made for.
  if (device_entry(name).is_host)
    for (const BenchTest& test : tests_within(context))
      setup.positions = std::max(setup.positions, test.positions());
  OpenDevice measured{.bench = open_bench_engine(setup, order.progress), .figures = {}};
  const DeviceInfo device = measured.bench.engine->devices().front();
  measured.figures = {.name = device.name,
                      .description = device.description,
                      .driver = device.driver,
                      .settings = settings_text(setup.options),
                      .is_modelled = device.is_virtual};
  return measured;
}

// Devices that were named must open; of the others those that do are measured.
std::vector<OpenDevice> open_all(const CalibrationOrder& order, uint32_t context) {
  std::vector<std::string> names = order.devices;
  for (const DeviceEntry& entry : device_table())
    if (order.devices.empty() && !entry.is_virtual) names.emplace_back(entry.name);
  std::vector<OpenDevice> devices;
  for (const std::string& name : names) try {
      devices.push_back(opened(name, names, order, context));
    } catch (const Error& error) {
      if (!order.devices.empty() || error.code == ErrorCode::usage) throw;
      order.note(fmt::format("{} is left out: {}", name, error.what()));
    }
  return devices;
}

double wall_seconds(const BenchRow& row) {
  return row.modelled ? row.simulation_seconds : row.seconds.front();
}

bool is_short_enough(const OpenDevice& device, const BenchTest& test) {
  const double tokens = test.prompt + test.depth;
  return device.prefill_seconds_per_token * tokens <= kLongestSeconds &&
         test.positions() <= device.bench.engine->pipeline().context();
}

// In turns, so that what drifts on the machine meets all of them.
void measure_in_rounds(std::vector<OpenDevice>& devices, const BenchTest& test, uint32_t rounds,
                       const Progress& progress) {
  std::vector<std::vector<double>> rates(devices.size());
  for (uint32_t round = 0; round < rounds; ++round)
    for (size_t d = 0; d < devices.size(); ++d) {
      if (round == 0 ? !is_short_enough(devices[d], test) : rates[d].empty()) continue;
      const BenchRow row = measure(devices[d].bench, test,
                                   {.repetitions = 1, .warm_up = round == 0, .progress = progress});
      if (row.refused()) throw Error(ErrorCode::device, devices[d].figures.name, refusal_line(row));
      rates[d].push_back(row.tokens_per_second().front());
      if (test.prompt > 0) devices[d].prefill_seconds_per_token = wall_seconds(row) / test.prompt;
    }
  for (size_t d = 0; d < devices.size(); ++d) {
    if (rates[d].empty()) continue;
    CalibratedDevice& figures = devices[d].figures;
    const double median = statistics(rates[d]).median;
    if (test.prompt > 0)
      figures.prefill.push_back({test.prompt, median});
    else
      figures.decode.push_back({test.depth, median});
  }
}

// Keys and values from the device into the host's memory and back, the faster of two times. Of a
// simulation nothing is known.
double kv_gb_s(BenchEngine& bench) {
  if (is_of_host(bench) || bench.engine->devices().front().is_virtual) return 0;
  Pipeline& pipeline = bench.engine->pipeline();
  const KvShape& kv = pipeline.forward().kv();
  const uint32_t positions = std::min(kv.page, kMostCopied);
  std::vector<std::byte> copy(kv.page_bytes / kv.page * positions);
  double best = 0;
  for (int i = 0; i < 3; ++i) {  // the first one warms up
    const auto start = Clock::now();
    pipeline.read_page(0, {0, positions}, copy);
    pipeline.write_page(0, {0, positions}, copy);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (seconds > 0) best = std::max(best, 2 * static_cast<double>(copy.size()) / seconds / 1e9);
  }
  return best;
}

Table table_of(const std::vector<OpenDevice>& devices) {
  Table table{
      .id = "calibration", .title = "", .columns = {{"device", false}, {"test", false}, {"t/s"}}};
  const auto add = [&](const CalibratedDevice& device, const BenchTest& test, double rate) {
    table.rows.push_back({{device.name, test.name(),
                           fmt::format("{:.1f}{}", rate, device.is_modelled ? " modelled" : "")}});
  };
  for (const OpenDevice& each : devices) {
    for (const RatePoint& point : each.figures.prefill)
      add(each.figures, {.prompt = point.tokens}, point.tokens_per_second);
    for (const RatePoint& point : each.figures.decode)
      add(each.figures, {.generate = kDecoded, .depth = point.tokens}, point.tokens_per_second);
    if (each.figures.kv_gb_s > 0)
      table.rows.push_back({{each.figures.name, "KV to the host and back",
                             fmt::format("{:.1f} GB/s", each.figures.kv_gb_s)}});
  }
  return table;
}

// What is there already, to be added to.
Calibration kept_calibration(const CalibrationHere& here, bool is_named) {
  if (here.calibration) return *here.calibration;
  if (is_named && !here.why_ignored.empty())
    throw Error(ErrorCode::usage, "--calibration", here.why_ignored,
                "name another file, or remove it");
  return {.machine = this_machine()};
}

// Nothing is read from a named file that is not there yet.
CalibrationHere file_here(const std::string& named) {
  std::error_code ignored;
  if (named.empty())
    std::filesystem::create_directories(default_calibration().parent_path(), ignored);
  else if (!std::filesystem::exists(named, ignored) || std::filesystem::is_empty(named, ignored))
    return {.path = named};
  return calibration_here(named);
}

}  // namespace

CalibrationResult calibrate(const CalibrationOrder& order) {
  const bool is_named = !order.file.empty();
  const CalibrationHere here = file_here(order.file);
  Calibration calibration = kept_calibration(here, is_named);
  AtomicFile file(here.path, is_named ? Replace::same_kind_read : Replace::own_state,
                  kCalibrationFile);  // before any work
  if (!here.why_ignored.empty()) order.note(here.why_ignored + ": replaced");
  const ModelDescription model =
      describe_model(find_model(model_or_shipped(order.setup.options.model)));
  std::vector<OpenDevice> devices = open_all(order, model.config.context);
  for (const BenchTest& test : tests_within(model.config.context))
    measure_in_rounds(devices, test, order.rounds, order.progress);
  CalibratedModel measured{.name = devices.front().bench.facts.model_type,
                           .type = model.main_type,
                           .weight_bytes = model.weight_bytes,
                           .time = utc_now()};
  for (OpenDevice& each : devices) {
    each.figures.kv_gb_s = kv_gb_s(each.bench);
    measured.devices.push_back(each.figures);
  }
  add(calibration, std::move(measured));
  file.write(calibration_json(calibration));
  file.commit();
  return {table_of(devices), here.path};
}

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
