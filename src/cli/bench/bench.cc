#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "base/error.h"
#include "cli/auto_device.h"
#include "cli/bench/bench_output.h"
#include "cli/bench/bench_run.h"
#include "cli/bench/bench_tests.h"
#include "cli/bench/calibrate.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/evidence_flags.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "trace/energy_meter.h"
#include "trace/energy_report.h"
#include "trace/evidence/ledger_file.h"

namespace tyto {
namespace {

struct BenchFlags {
  EngineFlags engine;  // its device is a list here
  std::vector<std::string> models;
  std::vector<std::string> prompt = {"512"};
  std::vector<std::string> generate = {"128"};
  std::vector<std::string> pairs;
  std::vector<std::string> depth = {"0"};
  std::vector<std::string> sequences = {"1"};
  std::vector<std::string> batch = {"2048"};
  std::vector<std::string> ubatch;
  std::vector<std::string> threads;
  std::string type_k, type_v;
  std::string ab;
  uint32_t repetitions = 5;
  double delay = 0;
  std::string output;  // empty: as suits who reads it
  std::string output_err;
  bool no_warmup = false;
  bool progress = false;
  bool energy = false;
  bool peak = false;
  bool no_ledger = false;
  bool calibrate = false;
  std::string sign;
};

// Prints rows as they come and keeps them. JSON is printed when it is whole.
class RowSink {
 public:
  RowSink(const BenchFlags& flags, const ShownSettings& shown, const SigningKey* key)
      : origin_{build_facts(), machine_facts()},
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
                fmt::format("{} of {} rows refused: what they measured cannot be said of a device",
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

void settle_kv_type(BenchFlags& flags) {
  if (flags.type_k.empty() && flags.type_v.empty()) return;
  const std::string k = flags.type_k.empty() ? "f16" : flags.type_k;
  const std::string v = flags.type_v.empty() ? "f16" : flags.type_v;
  if (k != v)
    throw Error(ErrorCode::usage, fmt::format("-ctk {} -ctv {}", k, v),
                "keys and values have one type here", "give both the same");
  if (k != "f16" && k != "q8_0" && k != "f32")
    throw Error(ErrorCode::usage, "-ctk " + k, "the KV cache is f16, q8_0 or f32");
  if (flags.engine.kv_type)
    throw Error(ErrorCode::usage, "--kv-type", "says the same as -ctk and -ctv",
                "give one of them");
  flags.engine.kv_type = k;
}

constexpr uint32_t kMostThreads = 1024;  // as everywhere
constexpr uint32_t kMostSequences = 1024;

std::vector<uint32_t> positive_counts(const std::vector<std::string>& texts,
                                      const std::string& flag, uint32_t most = UINT32_MAX) {
  const std::vector<uint32_t> counts = parse_counts(texts, flag);
  for (const uint32_t count : counts) {
    if (count == 0) throw Error(ErrorCode::usage, flag, "must be at least 1");
    if (count > most)
      throw Error(ErrorCode::usage, fmt::format("{} {}", flag, count),
                  fmt::format("must be at most {}", most));
  }
  return counts;
}

std::vector<BenchTest> wanted_tests(const BenchFlags& flags) {
  TestLists lists{.prompts = parse_counts(flags.prompt, "-p"),
                  .generates = parse_counts(flags.generate, "-n"),
                  .pairs = {},
                  .depths = parse_counts(flags.depth, "-d"),
                  .sequences = positive_counts(flags.sequences, "--sequences", kMostSequences)};
  for (const std::string& pair : flags.pairs) lists.pairs.push_back(parse_pair(pair, "-pg"));
  return bench_tests(lists);
}

std::vector<std::string> named_devices(const std::string& text, const std::string& flag) {
  const std::vector<std::string> names = parse_names({text}, flag);
  for (const std::string& name : names)
    if (name == kAutoDevice)
      throw Error(ErrorCode::usage, flag + " auto", "bench measures devices that are named",
                  "--calibrate measures those that auto chooses from");
  return names;
}

std::vector<std::string> wanted_devices(const BenchFlags& flags) {
  if (flags.ab.empty()) {
    const std::vector<std::string> devices = named_devices(flags.engine.device, "--device");
    const bool has_host = std::any_of(devices.begin(), devices.end(), [](const std::string& name) {
      return device_entry(name).is_host;
    });
    if (flags.peak && !has_host)
      throw Error(ErrorCode::usage, "--peak", "measures the cpu, which is not among the devices");
    return devices;
  }
  const std::vector<std::string> devices = named_devices(flags.ab, "--ab");
  if (devices.size() != 2)
    throw Error(ErrorCode::usage, "--ab " + flags.ab, "compares two devices", "like --ab cpu,vnpu");
  if (flags.energy)
    throw Error(ErrorCode::usage, "--energy", "cannot be had with --ab: a turn is too short");
  return devices;
}

// What every combination of batches and threads needs, for one model and device.
std::vector<BenchSetup> setups_of(const BenchFlags& flags, const std::string& model,
                                  const EngineFlags& engine, const std::vector<BenchTest>& tests) {
  BenchSetup setup{.flags = engine, .ubatch = {}, .longest_test = {}, .measures_peak = flags.peak};
  setup.flags.model.model = model;
  for (const BenchTest& test : tests) setup.sequences = std::max(setup.sequences, test.sequences);
  for (const BenchTest& test : tests)
    if (test.positions() > setup.positions) {
      setup.positions = test.positions();
      setup.longest_test = test.name();
    }
  std::vector<std::optional<uint32_t>> ubatches = {std::nullopt};
  if (!flags.ubatch.empty()) ubatches.clear();
  for (uint32_t n : positive_counts(flags.ubatch, "-ub")) ubatches.emplace_back(n);
  std::vector<uint32_t> threads = positive_counts(flags.threads, "-t", kMostThreads);
  if (threads.empty()) threads = {0};  // one per usable core
  std::vector<BenchSetup> setups;
  for (uint32_t batch : positive_counts(flags.batch, "-b"))
    for (const auto& ubatch : ubatches)
      for (uint32_t count : threads) {
        setup.batch = batch;
        setup.ubatch = ubatch;
        setup.flags.threads = count;
        setups.push_back(setup);
      }
  return setups;
}

// One engine to measure, or two to compare in turns.
struct Work {
  BenchSetup first;
  std::optional<BenchSetup> second;
};

std::vector<Work> plan_work(const BenchFlags& flags, const std::vector<BenchTest>& tests) {
  const std::vector<std::string> devices = wanted_devices(flags);
  std::vector<std::string> models = parse_names(flags.models, "-m");
  if (models.empty()) models = {""};  // the shipped one
  std::vector<Work> work;
  for (const std::string& model : models) {
    std::vector<std::vector<BenchSetup>> of_device;
    for (const std::string& device : devices)
      of_device.push_back(setups_of(flags, model, flags_for(device, devices, flags.engine), tests));
    if (flags.ab.empty()) {
      for (const auto& setups : of_device)
        for (const BenchSetup& setup : setups) work.push_back({setup, {}});
      continue;
    }
    for (size_t i = 0; i < of_device[0].size(); ++i)
      work.push_back({of_device[0][i], of_device[1][i]});
  }
  return work;
}

void compare(BenchEngine& a, BenchEngine& b, const BenchTest& test, const BenchOptions& options,
             RowSink& sink, std::vector<std::string>& lines) {
  const auto [row_a, row_b] = measure_in_turns(a, b, test, options);
  sink.add(row_a);
  sink.add(row_b);
  lines.push_back(ab_line(row_a));
}

void run_work(const BenchFlags& flags, const std::vector<Work>& work,
              const std::vector<BenchTest>& tests, const BenchOptions& options, RowSink& sink) {
  std::vector<std::string> comparisons;
  size_t done = 0;
  for (const Work& each : work) {
    BenchEngine engine = sink.opened(open_bench_engine(each.first, options.progress));
    BenchEngine other;
    if (const auto& peak = engine.facts.peak)
      note(fmt::format("peak: {:.1f} GB/s, {:.0f} GFLOP/s ({})", peak->gb_s, peak->gflops,
                       peak->source));
    if (each.second) other = sink.opened(open_bench_engine(*each.second, options.progress));
    for (const BenchTest& test : tests) {
      if (done > 0 && flags.delay > 0)
        std::this_thread::sleep_for(std::chrono::duration<double>(flags.delay));
      ++done;
      if (flags.progress)
        note(fmt::format("bench {}/{}: {} on {}", done, work.size() * tests.size(), test.name(),
                         engine.facts.device));
      if (each.second)
        compare(engine, other, test, options, sink, comparisons);
      else
        sink.add(measure(engine, test, options));
    }
  }
  for (const std::string& line : comparisons) note(line);
}

// A phase that no test has cannot have been done by the device.
void check_required_phase(const BenchFlags& flags, const std::vector<BenchTest>& tests) {
  const Requirement requirement = parse_requirement(flags.engine.require);
  if (!requirement.phase) return;
  const bool is_tested = std::any_of(tests.begin(), tests.end(), [&](const BenchTest& test) {
    return (*requirement.phase == Phase::prefill ? test.prompt : test.generate) > 0;
  });
  if (!is_tested)
    throw Error(ErrorCode::require, "--require " + to_text(requirement),
                fmt::format("no test has a {}", name(*requirement.phase)), "see -p, -n and -pg");
}

std::string widest_name(const std::vector<BenchTest>& tests) {
  std::string widest;
  for (const BenchTest& test : tests)
    if (test.name().size() > widest.size()) widest = test.name();
  return widest;
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
  CalibrationOrder order{.flags = flags.engine, .rounds = flags.repetitions};
  order.flags.threads = threads.empty() ? 0 : threads.front();
  if (command.is_given("--device")) {
    order.devices = named_devices(flags.engine.device, "--device");
    refuse_doubles(order.devices, "--device");
  }
  std::vector<std::string> models = parse_names(flags.models, "-m");
  if (models.empty()) models = {""};  // the shipped one
  for (const std::string& model : models) {
    order.flags.model.model = model;
    calibrate(order);
  }
}

void bench(BenchFlags flags) {
  const auto key = signing_key(flags.sign);  // before any work
  settle_kv_type(flags);
  const std::vector<BenchTest> tests = wanted_tests(flags);
  check_required_phase(flags, tests);
  const std::vector<Work> work = plan_work(flags, tests);
  const auto meter = energy_meter(flags.energy);
  const ShownSettings shown{
      .file = work.size() > 1 && parse_names(flags.models, "-m").size() > 1,
      .batch = flags.batch != BenchFlags{}.batch,
      .ubatch = !flags.ubatch.empty(),
      .kv_type = flags.engine.kv_type.has_value(),
      .fusion = flags.engine.fusion.has_value(),
      .peak = flags.peak,
      .sequences = flags.sequences != BenchFlags{}.sequences,
      .energy = flags.energy,
      .devices = !flags.ab.empty() || flags.engine.device.find(',') != std::string::npos,
      .widest_test = widest_name(tests)};
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

void add_test_flags(CommandLine& command, BenchFlags& flags) {
  command.add({
      {"-p,--n-prompt", &flags.prompt, "N,...", "prefill lengths; 0 for none (default: 512)"},
      {"-n,--n-gen", &flags.generate, "N,...", "decode lengths; 0 for none (default: 128)"},
      {"--pg", &flags.pairs, "PP,TG", "-pg: a prefill and a decode timed together; repeatable"},
      {"-d,--n-depth", &flags.depth, "N,...",
       "tokens in the KV cache before, not timed (default: 0)"},
      {"--sequences", &flags.sequences, "N,...",
       "sequences that run together, each with tokens of its own (default: 1)"},
      {"-b,--batch-size", &flags.batch, "N,...",
       "tokens given to the engine at once (default: 2048)"},
      {"--ubatch-size", &flags.ubatch, "N,...",
       "-ub: tokens per prefill dispatch (default: 256, on a GPU 2048)"},
      {"-r,--repetitions", &flags.repetitions, "N", "timed runs per row",
       Rules{.range = Range{1, 1000}, .shows_default = true}},
      {"--delay", &flags.delay, "S", "seconds to wait between rows",
       Rules{.range = Range{0, 3600}}},
      {"--no-warmup", &flags.no_warmup, "leave out the run before the timed ones"},
      {"--ab", &flags.ab, "DEV,DEV", "compare two devices in turns: a b a b ..."},
      {"--calibrate", &flags.calibrate,
       "measure every device of this machine in turns, for --device auto, and keep the figures"},
  });
}

void add_output_flags(CommandLine& command, BenchFlags& flags) {
  const OneOf formats{"table", "md", "csv", "json", "jsonl"};
  command.add({
      {"-o,--output", &flags.output, formats,
       "format on stdout (default: table on a terminal, else md)"},
      {"--output-err", &flags.output_err, formats, "-oe: format on stderr, too"},
      {"--progress", &flags.progress, "name each row on stderr before it is measured"},
      {"--peak", &flags.peak,
       "measure what memory and arithmetic can do first, and show each row's share"},
      {"--no-ledger", &flags.no_ledger, "do not keep the rows (see `tyto results`)"},
      sign_flag(flags.sign),
  });
}

// Where other commands take one model and one number of threads, this one takes lists.
void add_lists_of_engines(CommandLine& command, BenchFlags& flags) {
  add_engine_flags(command, flags.engine);
  for (const char* other : {"--model", "--threads", "--among"}) command.remove(other);
  Flag& calibration = command.flag("--calibration");
  calibration.meaning = "where --calibrate keeps the figures (default: in the cache folder)";
  calibration.rules.needs_one_of = {"--calibrate"};
  Flag& device = command.flag("--device");
  device.meaning = "where the work goes first; a list measures one after the other";
  device.value = "NAME,...";
  command.flag("--context").meaning =
      "positions to make room for (default: what the longest test needs)";
  command.add({{"-m,--model", &flags.models, "MODEL,...",
                "models (default: the shipped one); repeatable"}});
  const std::vector<Flag> rows = {
      {"-t,--threads", &flags.threads, "N,...", "CPU threads (default: one per usable core)"},
      {"--cache-type-k", &flags.type_k, "TYPE", "-ctk: type of the KV cache's keys"},
      {"--cache-type-v", &flags.type_v, "TYPE", "-ctv: and of its values; the same"},
  };
  command.add("Device", rows);
}

}  // namespace

void define_bench(CommandLine& command) {
  BenchFlags& flags = command.values<BenchFlags>();
  add_test_flags(command, flags);
  add_output_flags(command, flags);
  add_lists_of_engines(command, flags);
  add_energy_flag(command, flags.energy);
  command.footer =
      "Flags and tests as in llama-bench: pp512 is a prefill of 512 tokens, tg128 is 128 decoded "
      "tokens, \"@ d2048\" means after 2048 others. N,... is a list; 128-1024*2 and 16-64+16 are "
      "ranges. Each row names the devices that completed its work. A virtual NPU's speed is "
      "modelled, and says so.\n\n"
      "Examples:\n  tyto bench -m model.gguf -p 128,512 -n 64 -r 5\n"
      "  tyto bench -p 0 -n 32 -d 0,512,1024 -o json\n"
      "  tyto bench -p 0 -n 0 -pg 128,64 --sequences 1,4,8\n"
      "  tyto bench --ab cpu,vnpu -p 64 -n 16\n"
      "  tyto bench --calibrate -m model.gguf";
  command.run = [&command, &flags] {
    if (!flags.ab.empty() && command.is_given("--device"))
      throw Error(ErrorCode::usage, "--device", "has no effect together with --ab");
    const bool has_both =
        !flags.engine.prefill_device.empty() && !flags.engine.decode_device.empty();
    if (has_both && (!flags.ab.empty() || command.is_given("--device")))
      throw Error(ErrorCode::usage, flags.ab.empty() ? "--device" : "--ab",
                  "has no effect together with --prefill-device and --decode-device");
    if (flags.no_ledger && command.is_given("--sign"))
      throw Error(ErrorCode::usage, "--sign", "has no effect together with --no-ledger");
    flags.calibrate ? calibrate(command, flags) : bench(flags);
  };
}

}  // namespace tyto
