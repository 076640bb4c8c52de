#include "cli/bench/bench_flags.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/provenance.h"
#include "device/device.h"
#include "engine/speculation.h"
#include "shell/command_line.h"

namespace tyto {
namespace {

constexpr uint32_t kMostSequences = 1024;

void add_test_flags(CommandLine& command, BenchFlags& flags) {
  command.add({
      {"-p,--n-prompt", &flags.prompt, "N,...",
       "prompt lengths to measure; 0: none (default: 512)"},
      {"-n,--n-gen", &flags.generate, "N,...", "tokens to generate; 0: none (default: 128)"},
      {"--pg", &flags.pairs, "PP,TG", "-pg: time a prompt and a decode together; repeatable"},
      {"-d,--n-depth", &flags.depth, "N,...",
       "tokens in the KV cache before the timed ones (default: 0)"},
      {"--sequences", &flags.sequences, "N,...",
       "sequences that run at the same time (default: 1)"},
      {"-b,--batch-size", &flags.batch, "N,...", "tokens per call of the engine (default: 2048)"},
      {"--ubatch-size", &flags.ubatch, "N,...",
       "-ub: tokens per prefill dispatch (default: 256; 2048 on a GPU)"},
      {"-r,--repetitions", &flags.repetitions, "N", "times that each row is measured",
       Rules{.range = Range{1, 1000}, .shows_default = true}},
      {"--delay", &flags.delay, "S", "seconds to wait between rows",
       Rules{.range = Range{0, 3600}}},
      {"--no-warmup", &flags.no_warmup, "do not run once before measuring"},
      {"--ab", &flags.ab, "DEV,DEV", "compare two devices, measured in turns"},
      {"--calibrate", &flags.calibrate,
       "measure all devices here, so that --device auto can choose"},
  });
}

void add_output_flags(CommandLine& command, BenchFlags& flags) {
  const OneOf formats{"table", "md", "csv", "json", "jsonl"};
  command.add({
      {"-o,--output", &flags.output, formats,
       "output format (default: table on a terminal, else md)"},
      {"--output-err", &flags.output_err, formats, "-oe: print to stderr as well, in this format"},
      {"--progress", &flags.progress, "say on stderr which row is measured"},
      {"--peak", &flags.peak,
       "measure the machine's peak bandwidth and arithmetic, too, and show each row's share"},
      {"--no-ledger", &flags.no_ledger, "do not store the rows for `tyto results`"},
      sign_flag(flags.sign),
  });
}

void add_guess_flags(CommandLine& command, BenchFlags& flags) {
  command.add(
      "Speculation",
      {{"--speculate", &flags.speculate, "WHO,...",
        "measure speculative decoding, in turns with plain decoding: lookup, or oracle:A, whose "
        "drafts are accepted with probability A"},
       {"--draft", &flags.draft, "MODEL", "measure decoding with drafts of this small model"},
       {"--draft-max", &flags.draft_max, "N", "draft at most N tokens at once",
        Rules{.range = Range{1, kMostGuesses},
              .shows_default = true,
              .needs_one_of = {"--speculate", "--draft"}}}});
}

// Where other commands take one model and one number of threads, this one takes lists.
void add_lists_of_engines(CommandLine& command, BenchFlags& flags) {
  add_engine_flags(command, flags.engine);
  for (const char* other : {"--model", "--threads", "--among"}) command.remove(other);
  Flag& calibration = command.flag("--calibration");
  calibration.meaning = "file that --calibrate writes (default: in the cache folder)";
  calibration.rules.needs_one_of = {"--calibrate"};
  Flag& device = command.flag("--device");
  device.meaning = "devices to measure, one after the other";
  device.value = "NAME,...";
  command.flag("--context").meaning =
      "context length in tokens (default: what the longest test needs)";
  command.add({{"-m,--model", &flags.models, "MODEL,...",
                "models to measure (default: the shipped one); repeatable"}});
  const std::vector<Flag> rows = {
      {"-t,--threads", &flags.threads, "N,...", "CPU threads (default: one per usable core)"},
      {"--cache-type-k", &flags.type_k, "TYPE", "-ctk: type of the KV cache's keys"},
      {"--cache-type-v", &flags.type_v, "TYPE", "-ctv: type of its values, which must be the same"},
  };
  command.add("Device", rows);
}

}  // namespace

void add_bench_flags(CommandLine& command, BenchFlags& flags) {
  add_test_flags(command, flags);
  add_output_flags(command, flags);
  add_guess_flags(command, flags);
  add_lists_of_engines(command, flags);
  add_energy_flag(command, flags.energy);
}

BenchSetup bench_setup(EngineOptions options) {
  return {.options = std::move(options),
          .receipt_context = [](Engine& engine) { return receipt_context(engine); },
          .ubatch = {},
          .longest_test = {}};
}

void settle_kv_type(BenchFlags& flags) {
  if (flags.type_k.empty() && flags.type_v.empty()) return;
  const std::string k = flags.type_k.empty() ? "f16" : flags.type_k;
  const std::string v = flags.type_v.empty() ? "f16" : flags.type_v;
  if (k != v)
    throw Error(ErrorCode::usage, fmt::format("-ctk {} -ctv {}", k, v),
                "keys and values have one type here", "give both the same");
  if (k != "f16" && k != "q8_0" && k != "f32")
    throw Error(ErrorCode::usage, "-ctk " + k, "the KV cache is f16, q8_0 or f32");
  std::optional<DType>& kv_type = flags.engine.options.pipeline.forward.kv_type;
  if (kv_type)
    throw Error(ErrorCode::usage, "--kv-type", "says the same as -ctk and -ctv",
                "give one of them");
  kv_type = dtype_from_name(k);
}

std::vector<uint32_t> positive_counts(const std::vector<std::string>& texts,
                                      const std::string& flag, uint32_t most) {
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
    const std::vector<std::string> devices = named_devices(flags.engine.options.device, "--device");
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

std::vector<SpeculationName> wanted_speculations(const BenchFlags& flags,
                                                 const std::vector<BenchTest>& tests) {
  std::vector<SpeculationName> names;
  if (flags.speculate.empty() && flags.draft.empty()) return names;
  const std::string flag = flags.draft.empty() ? "--speculate" : "--draft";
  std::vector<std::string> texts;
  for (const std::string& text : parse_names(flags.speculate, "--speculate")) {
    names.push_back(parse_speculation(text));
    texts.push_back(names.back().text);
  }
  refuse_doubles(texts, "--speculate");
  if (!flags.draft.empty()) {
    const std::string file = std::filesystem::path(flags.draft).filename().string();
    names.push_back({.text = "draft " + file, .draft = flags.draft});
  }
  if (std::ranges::none_of(tests, can_speculate))
    throw Error(ErrorCode::usage, flag, "no test decodes one sequence", "give -n more than 0");
  for (const auto& [is_given, other] :
       {std::pair(!flags.ab.empty(), "--ab"), std::pair(flags.energy, "--energy")})
    if (is_given) throw Error(ErrorCode::usage, flag, fmt::format("cannot be had with {}", other));
  return names;
}

namespace {

// What every combination of batches and threads needs, for one model and device.
std::vector<BenchSetup> setups_of(const BenchFlags& flags, EngineOptions options,
                                  const std::string& model, const std::vector<BenchTest>& tests) {
  BenchSetup setup = bench_setup(std::move(options));
  setup.options.model = model;
  setup.measures_peak = flags.peak;
  setup.speculations = wanted_speculations(flags, tests);
  setup.most_guesses = flags.draft_max;
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
        setup.options.threads = count;
        setups.push_back(setup);
      }
  return setups;
}

}  // namespace

std::vector<BenchWork> plan_work(const CommandLine& command, const BenchFlags& flags,
                                 const std::vector<BenchTest>& tests) {
  const std::vector<std::string> devices = wanted_devices(flags);
  std::vector<std::string> models = parse_names(flags.models, "-m");
  if (models.empty()) models = {""};  // the shipped one
  std::vector<BenchWork> work;
  for (const std::string& model : models) {
    std::vector<EngineOptions> options;
    for (const std::string& device : devices)
      options.push_back(options_on(device, devices, flags.engine));
    check_engine_flags(command, options);
    std::vector<std::vector<BenchSetup>> of_device;
    for (EngineOptions& each : options)
      of_device.push_back(setups_of(flags, std::move(each), model, tests));
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

// A phase that no test has cannot have been done by the device.
void check_required_phase(const BenchFlags& flags, const std::vector<BenchTest>& tests) {
  const Requirement requirement = parse_requirement(flags.engine.options.require);
  if (!requirement.phase) return;
  const bool is_tested = std::any_of(tests.begin(), tests.end(), [&](const BenchTest& test) {
    return (*requirement.phase == Phase::prefill ? test.prompt : test.generate) > 0;
  });
  if (!is_tested)
    throw Error(ErrorCode::require, "--require " + to_text(requirement),
                fmt::format("no test has a {}", name(*requirement.phase)), "see -p, -n and -pg");
}

std::string widest_name(const BenchFlags& flags, std::vector<BenchTest> tests) {
  const size_t plain = tests.size();
  for (const SpeculationName& name : wanted_speculations(flags, tests))
    for (size_t i = 0; i < plain; ++i) {
      tests.push_back(tests[i]);
      tests.back().speculation = name.text;
    }
  std::string widest;
  for (const BenchTest& test : tests)
    if (test.name().size() > widest.size()) widest = test.name();
  return widest;
}

}  // namespace tyto
