#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <thread>

#include "base/error.h"
#include "bench/bench_comparison.h"
#include "bench/bench_output.h"
#include "bench/bench_peak.h"
#include "bench/bench_tests.h"
#include "bench/calibrate.h"
#include "cli/bench/bench_flags.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "evidence/ledger.h"
#include "power/energy_meter.h"
#include "shell/command_line.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

// Prints rows as they come and keeps them. JSON is printed when it is whole.
class RowSink {
 public:
  RowSink(const BenchFlags& flags, const ShownSettings& shown, const SigningKey* key)
      : origin_{{build_facts().commit, build_facts().number}, machine_facts()},
        key_(key),
        format_(format_of(flags)),
        keeps_(!flags.no_ledger),
        writer_(format_, origin_, shown, stdout_style()) {
    if (!flags.output_err.empty()) second_.emplace(bench_format(flags.output_err), origin_, shown);
  }

  // Receipts of its rows are signed as the rows are.
  BenchEngine opened(BenchEngine engine) const {
    engine.origin.key = key_;
    return engine;
  }

  void add(const BenchRow& row) {
    const std::string text = writer_.add(row);
    if (format_ == BenchFormat::json)
      json_ += text;
    else
      show(text);
    if (second_) print_to_stderr(second_->add(row));
    for (const std::string& reason : energy_reasons(row.energy)) energy_reasons_.insert(reason);
    ++rows_;
    refused_ += row.refused();
    keep(row);
  }

  // Also when a later test failed: what is finished is shown.
  void finish() {
    if (rows_ > 0) show(json_ + writer_.close());
    if (second_) print_to_stderr(second_->close());
    for (const std::string& reason : energy_reasons_) note("energy · " + reason);
  }

  void fail_if_refused() const {
    if (refused_ == 0) return;
    throw Error(ErrorCode::device, "bench",
                fmt::format("{} of {} rows refused: no device can have done what they say",
                            refused_, rows_));
  }

 private:
  static BenchFormat format_of(const BenchFlags& flags) {
    if (!flags.output.empty()) return bench_format(flags.output);
    return is_stdout_terminal() ? BenchFormat::table : BenchFormat::markdown;
  }

  void show(const std::string& text) const {
    format_ == BenchFormat::table ? print_coloured(text) : print(text);
  }

  void keep(const BenchRow& row) {
    if (!keeps_) return;
    try {
      append_record(ledger_path(), ledger_record(row, origin_), key_);
    } catch (const Error& error) {
      keeps_ = false;
      note(fmt::format("results are not kept: {}", error.what()));
    }
  }

  BenchOrigin origin_;
  const SigningKey* key_;
  BenchFormat format_;
  bool keeps_;
  BenchWriter writer_;
  std::optional<BenchWriter> second_;
  std::string json_;
  std::set<std::string> energy_reasons_;
  size_t rows_ = 0;
  size_t refused_ = 0;
};

void show_rows(BenchPair& bench, RowSink& sink) {
  settle_peak(bench.engine, bench.rows);
  settle_peak(bench.other, bench.others);
  if (const auto& peak = bench.rows.front().facts.peak)
    note(fmt::format("peak: {:.1f} GB/s, {:.0f} GFLOP/s ({})", peak->gb_s, peak->gflops,
                     peak->source));
  for (size_t i = 0; i < bench.rows.size(); ++i) {
    sink.add(bench.rows[i]);
    if (!bench.others.empty()) sink.add(bench.others[i]);
  }
  bench.rows.clear();
  bench.others.clear();
}

void run_work(const BenchFlags& flags, const std::vector<BenchWork>& work,
              const std::vector<BenchTest>& tests, const BenchOptions& options, RowSink& sink) {
  std::vector<std::string> comparisons;
  size_t done = 0;
  const auto run_tests = [&](BenchPair& bench) {
    for (const BenchTest& test : tests) {
      if (done > 0 && flags.delay > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(flags.delay));
      ++done;
      if (flags.progress)
        note(fmt::format("bench {}/{}: {} on {}", done, work.size() * tests.size(), test.name(),
                         bench.engine.facts.device));
      run_test(bench, test, options, comparisons);
      show_rows(bench, sink);
    }
  };
  for (const BenchWork& each : work) {
    BenchPair bench{sink.opened(open_bench_engine(each.first, options.progress)), {}, {}, {}};
    if (each.second) bench.other = sink.opened(open_bench_engine(*each.second, options.progress));
    run_tests(bench);
  }
  for (const std::string& line : comparisons) note(line);
}

// Which tests there are is its own business.
bool concerns_calibration(const Flag& flag) {
  constexpr std::string_view kNames[] = {"--calibration", "--repetitions", "--model",
                                         "--device",      "--threads",     "--fusion"};
  return !flag.rules.devices.empty() ||
         std::find(std::begin(kNames), std::end(kNames), flag.name()) != std::end(kNames);
}

void calibrate(const CommandLine& command, const BenchFlags& flags) {
  refuse_idle_flags(command, "--calibrate", concerns_calibration);
  const std::vector<uint32_t> threads = positive_counts(flags.threads, "-t", kMostThreads);
  if (threads.size() > 1)
    throw Error(ErrorCode::usage, "-t", "is one number together with --calibrate");
  CalibrationOrder order{.setup = bench_setup(flags.engine.options),
                         .file = flags.engine.automatic.calibration,
                         .rounds = flags.repetitions,
                         .progress = progress_bar(),
                         .note = [](const std::string& line) { note(line); }};
  order.setup.options.threads = threads.empty() ? 0 : threads.front();
  if (command.is_given("--device")) {
    order.devices = named_devices(flags.engine.options.device, "--device");
    refuse_doubles(order.devices, "--device");
  }
  std::vector<std::string> models = parse_names(flags.models, "-m");
  if (models.empty()) models = {""};  // the shipped one
  for (const std::string& model : models) {
    order.setup.options.model = model;
    const CalibrationResult result = calibrate(order);
    print_coloured(to_text(result.table, stdout_style()));
    note(fmt::format("kept in {} for --device auto", result.file.string()));
  }
}

void bench(const CommandLine& command, BenchFlags flags) {
  const auto key = signing_key(flags.sign);  // before any work
  settle_kv_type(flags);
  const std::vector<BenchTest> tests = wanted_tests(flags);
  check_required_phase(flags, tests);
  const std::vector<BenchWork> work = plan_work(command, flags, tests);
  const auto meter = energy_meter(flags.energy);
  const ShownSettings shown{
      .file = work.size() > 1 && parse_names(flags.models, "-m").size() > 1,
      .batch = flags.batch != BenchFlags{}.batch,
      .ubatch = !flags.ubatch.empty(),
      .kv_type = flags.engine.options.pipeline.forward.kv_type.has_value(),
      .fusion = flags.engine.options.pipeline.forward.fusion.has_value(),
      .peak = flags.peak,
      .sequences = flags.sequences != BenchFlags{}.sequences,
      .energy = flags.energy,
      .devices = !flags.ab.empty() || flags.engine.options.device.find(',') != std::string::npos,
      .widest_test = widest_name(flags, tests)};
  const BenchOptions options{.repetitions = flags.repetitions,
                             .warm_up = !flags.no_warmup,
                             .meter = meter.get(),
                             .progress = progress_bar()};
  RowSink sink(flags, shown, key.get());
  try {
    run_work(flags, work, tests, options, sink);
  } catch (const Error&) {
    sink.finish();
    throw;
  }
  sink.finish();
  sink.fail_if_refused();
}

}  // namespace

void define_bench(CommandLine& command) {
  BenchFlags& flags = command.values<BenchFlags>();
  add_bench_flags(command, flags);
  command.footer =
      "Names of flags and tests are those of llama-bench: pp512 is a prompt of 512 tokens, tg128 "
      "is "
      "128 generated tokens, \"@ d2048\" means after 2048 other tokens.\n\n"
      "N,... is a list; 128-1024*2 and 16-64+16 are ranges. Each row names the devices that did "
      "its "
      "work. The speed of a virtual NPU is modelled and marked so.\n\n"
      "Examples:\n  tyto bench -p 128,512 -n 64 -r 5\n"
      "  tyto bench -m model.gguf -p 0 -n 32 -d 0,512,1024 -o json\n"
      "  tyto bench -p 0 -n 0 -pg 128,64 --sequences 1,4,8\n"
      "  tyto bench --ab cpu,vnpu -p 64 -n 16\n"
      "  tyto bench -p 0 -n 32 --speculate oracle:0.7,lookup\n"
      "  tyto bench --calibrate -m model.gguf";
  command.first = {"--model",  "--n-prompt",  "--n-gen",     "--n-depth",  "--repetitions",
                   "--device", "--threads",   "--ab",        "--output",   "--sequences",
                   "--draft",  "--speculate", "--calibrate", "--no-ledger"};
  command.run = [&command, &flags] {
    if (!flags.ab.empty() && command.is_given("--device"))
      throw Error(ErrorCode::usage, "--device", "has no effect together with --ab");
    const bool has_both =
        !flags.engine.options.prefill_device.empty() && !flags.engine.decode_device.empty();
    if (has_both && (!flags.ab.empty() || command.is_given("--device")))
      throw Error(ErrorCode::usage, flags.ab.empty() ? "--device" : "--ab",
                  "has no effect together with --prefill-device and --decode-device");
    if (flags.no_ledger && command.is_given("--sign"))
      throw Error(ErrorCode::usage, "--sign", "has no effect together with --no-ledger");
    flags.calibrate ? calibrate(command, flags) : bench(command, flags);
  };
}

}  // namespace tyto
