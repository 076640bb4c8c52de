#include "bench/bench_run.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "base/spelling.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "engine/sampler.h"
#include "evidence/receipt_json.h"
#include "model/description.h"
#include "model/stores/stores.h"
#include "tensor/dtype.h"
#include "trace/profile.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kContextStep = 256;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

bool has_virtual_device(const Engine& engine) {
  for (const DeviceInfo& device : engine.devices())
    if (device.is_virtual) return true;
  return false;
}

[[noreturn]] void fail_room(const BenchSetup& setup, uint32_t room) {
  throw Error(
      ErrorCode::usage, setup.longest_test,
      fmt::format("needs {} positions, and there are {}", setup.positions, room),
      setup.options.pipeline.forward.context > 0 ? "give a larger -c" : "give shorter tests");
}

// As llama-bench, room for the longest test; an NPU's cache is as long as its kernels are made for.
uint32_t context_for(const BenchSetup& setup) {
  const uint32_t asked = setup.options.pipeline.forward.context;
  const bool is_host =
      device_entry(setup.options.prefill()).is_host && device_entry(setup.options.device).is_host;
  if (asked > 0 || !is_host) return asked;
  const uint32_t most =
      open_model(find_model(model_or_shipped(setup.options.model))).config.context;
  if (setup.positions > most) fail_room(setup, most);
  const uint64_t wanted = (setup.positions + kContextStep - 1) / kContextStep * kContextStep;
  return static_cast<uint32_t>(std::min<uint64_t>(wanted, most));
}

BenchFacts facts_of(const BenchSetup& setup, Engine& engine, const ReceiptContext& origin) {
  const Model& model = engine.model();
  const DeviceInfo device = engine.devices().front();
  const uint32_t context = engine.pipeline().context();
  const ModelDescription described = describe(model);
  BenchFacts facts;
  facts.model_path = model.path.string();
  facts.model_type =
      fmt::format("{} {} {}", model.config.architecture, described.size, described.type);
  facts.model_bytes = model.weight_bytes();
  facts.parameters = model.parameters();
  facts.batch = setup.batch;
  facts.ubatch = engine.pipeline().most_rows();
  facts.threads = engine.threads();
  facts.context = context;
  facts.layers = model.config.layers;
  facts.kv_type = info(engine.pipeline().forward().kv_type()).name;
  const std::string& prompts = setup.options.prefill();
  facts.device = (prompts == setup.options.device ? "" : prompts + "/") + setup.options.device;
  facts.on_host = engine.devices().size() == 1;
  facts.device_description = device.description;
  facts.fusion = name(engine.fusion());
  facts.weights_hash = origin.weights_hash;
  return facts;
}

// The tokens of a sequence from its position on.
std::span<const Token> next_tokens(const BenchEngine& bench, size_t sequence, uint32_t count) {
  return std::span(bench.tokens).subspan(sequence + bench.sequences[sequence]->position(), count);
}

// Brings the caches to `depth`. What they already hold is kept, except where a device has faster
// kernels for a prompt that begins at 0, or the window or state before `depth` is gone.
void fill(BenchEngine& bench, const BenchTest& test, const Progress& progress) {
  for (uint32_t s = 0; s < test.sequences; ++s) {
    Sequence& sequence = *bench.sequences[s];
    sequence.want_state(test.depth);
    if (sequence.position() > test.depth) sequence.rewind(sequence.last_cut(test.depth));
    if (sequence.position() == test.depth) continue;
    if (bench.engine->pipeline().has_fixed_rows()) sequence.rewind(0);
    bench.engine->pipeline().run(sequence, next_tokens(bench, s, test.depth - sequence.position()),
                                 progress);
  }
}

// The same number of tokens of each sequence, as many together as one pass takes; logits of each
// one's last.
void run_together(BenchEngine& bench, uint32_t sequences, uint32_t count) {
  Pipeline& pipeline = bench.engine->pipeline();
  const Side side = pipeline.side_for(count);
  std::vector<SequenceRows> batch;
  uint32_t rows = 0;
  const auto run = [&] {
    if (batch.empty()) return;
    const auto failures = pipeline.run(batch, [](size_t, uint32_t, const Logits&) {});
    if (!failures.empty()) throw failures.front().error;
    batch.clear();
    rows = 0;
  };
  for (uint32_t s = 0; s < sequences; ++s) {
    if (rows + count > pipeline.most_rows()) run();
    Sequence& sequence = *bench.sequences[s];
    if (pipeline.next_rows(sequence.position(), count, side) < count) {
      pipeline.run(sequence, next_tokens(bench, s, count));
      continue;
    }
    if (!pipeline.reserve(sequence, count))
      throw Error(ErrorCode::input, "bench", "there is no room in the KV cache",
                  "give more --kv-memory");
    batch.push_back({&sequence, next_tokens(bench, s, count), 1, nullptr, side});
    rows += count;
  }
  run();
}

void set_phase(BenchEngine& bench, Phase phase) {
  for (const auto& sequence : bench.sequences) sequence->phase = phase;
}

void run_prompts(BenchEngine& bench, const BenchTest& test) {
  set_phase(bench, Phase::prefill);
  for (uint32_t done = 0; done < test.prompt; done += bench.facts.batch)
    run_together(bench, test.sequences, std::min(bench.facts.batch, test.prompt - done));
  bench.engine->trace().token_chosen();
}

void run_steps(BenchEngine& bench, const BenchTest& test, uint32_t count) {
  set_phase(bench, Phase::decode);
  for (uint32_t i = 0; i < count; ++i) {
    run_together(bench, test.sequences, 1);
    bench.engine->trace().token_chosen();
  }
}

void rewind(BenchEngine& bench, const BenchTest& test) {
  fill(bench, test, {});
}

// A GPU that was idle takes a while to come to its clocks: with one run before, the first timed
// ones were up to four times too slow.
void warm_up(BenchEngine& bench, const BenchTest& test) {
  const auto is_real = [](const DeviceInfo& device) {
    return !device.shares_host_memory && !device.is_virtual;
  };
  const bool has_clocks = std::ranges::any_of(bench.engine->devices(), is_real);
  constexpr double kSeconds = 0.5;
  const auto start = std::chrono::steady_clock::now();
  do {
    if (test.prompt > 0) run_prompts(bench, test);
    if (test.generate > 0) run_steps(bench, test, 1);
    rewind(bench, test);
  } while (has_clocks && seconds_between(start, std::chrono::steady_clock::now()) < kSeconds);
}

// Used by all threads of this process.
double cpu_seconds() {
  timespec time;
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// A recording is how modelled time is known.
void start_recording(BenchEngine& bench, const BenchTest& test) {
  const size_t batches = (test.prompt + bench.facts.batch - 1) / bench.facts.batch;
  const size_t wanted = test.sequences * recorded_events(bench.engine->pipeline(), test.prompt,
                                                         test.generate + batches, Decoding::plain);
  if (wanted > kMostRecordedEvents)
    throw Error(ErrorCode::unsupported, test.name(),
                fmt::format("modelled time would take a recording of {} events", wanted),
                fmt::format("at most {}: give fewer tokens", kMostRecordedEvents));
  start_recording(bench.engine->trace(), wanted);
}

// The recording splits at the first token; a test without a prompt has no such split.
ModelledSeconds modelled_of(const Trace& trace, const Receipt& receipt, const BenchTest& test) {
  const ProfileRun run = collect_run(trace, receipt);
  if (run.lost > 0)
    throw Error(ErrorCode::device, test.name(),
                fmt::format("was run again {} times after device errors, and {} events did not fit "
                            "into the recording that modelled time is read from",
                            receipt.recoveries, run.lost),
                "--on-device-error fail stops at the first error");
  const ModelledSeconds split = *run.receipt.modelled;
  return test.prompt > 0 ? split : ModelledSeconds{0, split.prefill + split.decode};
}

BenchGuesser* guesser_of(const BenchEngine& bench, const BenchTest& test) {
  const auto found = std::ranges::find_if(
      bench.guessers, [&](const auto& each) { return each->name() == test.speculation; });
  TYTO_ASSERT(test.speculation.empty() == (found == bench.guessers.end()));
  return found == bench.guessers.end() ? nullptr : found->get();
}

// What the model has read when it decodes, and the token that it decodes first.
std::span<const Token> text_before(const BenchEngine& bench, const BenchTest& test) {
  return std::span(bench.tokens).first(test.depth + test.prompt + 1);
}

Receipt run_once(BenchEngine& bench, const BenchTest& test) {
  Engine& engine = *bench.engine;
  Trace& trace = engine.trace();
  const bool is_modelled = has_virtual_device(engine);
  rewind(bench, test);
  for (const auto& sequence : bench.sequences) sequence->handed_over = {};
  if (is_modelled) start_recording(bench, test);
  BenchGuesser* const guesser = guesser_of(bench, test);
  if (guesser != nullptr) guesser->begin(text_before(bench, test));
  const auto before = trace.snapshot();
  const uint32_t recoveries_before = engine.pipeline().recoveries();
  const auto start = Clock::now();
  if (test.prompt > 0) run_prompts(bench, test);
  const auto middle = Clock::now();
  const auto between = trace.snapshot();
  const auto resumed = Clock::now();
  std::optional<SpeculationCounters> guessed;
  if (guesser != nullptr) {
    set_phase(bench, Phase::decode);
    guessed = guesser->run(engine.pipeline(), *bench.sequences.front());
  } else {
    run_steps(bench, test, test.generate);
  }
  const auto end = Clock::now();
  trace.stop();
  const auto after = trace.snapshot();
  Receipt receipt;
  receipt.prompt_tokens = test.prompt * test.sequences;
  receipt.generated_tokens = test.generate * test.sequences;
  receipt.first_from_prefill = false;
  receipt.prefill_seconds = test.prompt > 0 ? seconds_between(start, middle) : 0;
  receipt.decode_seconds = test.generate > 0 ? seconds_between(resumed, end) : 0;
  // What ran together is counted once: the sequences' shares count a dispatch for each.
  receipt.devices = difference(after, before);
  receipt.phases = {difference(between, before), difference(after, between)};
  receipt.recoveries = engine.pipeline().recoveries() - recoveries_before;
  for (const auto& sequence : bench.sequences) {
    add_fallbacks(receipt, *sequence, trace);
    receipt.handed_over += sequence->handed_over;
  }
  receipt.kv_peak_bytes = engine.pipeline().kv_peak_bytes();
  receipt.speculation = guessed;
  if (has_virtual_device(receipt)) receipt.modelled = modelled_of(trace, receipt, test);
  return receipt;
}

double seconds_of(const Receipt& receipt) {
  return receipt.modelled ? receipt.modelled->prefill + receipt.modelled->decode
                          : receipt.prefill_seconds + receipt.decode_seconds;
}

Receipt sum(const std::vector<Receipt>& runs) {
  Receipt total;
  total.first_from_prefill = false;
  for (const Receipt& run : runs) add(total, run);
  return total;
}

// What two devices executed one after the other is the speed of neither.
void refuse_mixed_runs(const BenchEngine& bench, const std::vector<Receipt>& runs, Receipt& total) {
  const bool has_other = std::any_of(
      total.devices.begin(), total.devices.end(),
      [](const DeviceCounters& device) { return !device.is_host && device.has_executed(); });
  const std::string first = device_names(runs.front().devices);
  const auto differs = [&](const Receipt& run) { return device_names(run.devices) != first; };
  const bool took_over =
      bench.engine->pipeline().host_took_over() && total.recoveries > 0 && has_other;
  if (!took_over && std::none_of(runs.begin(), runs.end(), differs)) return;
  total.plausibility.verdict = Verdict::refused;
  total.plausibility.reasons.push_back("the cpu took over during the test, after a device failed");
}

// A row of one phase is not concerned by a requirement of the other.
void check_row(const Engine& engine, const BenchRow& row) {
  const std::optional<Phase> wanted = engine.requirement().phase;
  const bool concerned =
      !wanted || (*wanted == Phase::prefill ? row.test.prompt > 0 : row.test.generate > 0);
  if (concerned) engine.check_required(row.receipt.phases);
}

// Joules of a simulation are no device's.
void settle_energy(BenchRow& row) {
  for (RailEnergy& rail : row.energy.rails)
    if (row.modelled && rail.joules) {
      rail.joules.reset();
      rail.reason = "a virtual device took part: the energy is the simulation's";
    }
  Energy& energy = row.receipt.energy;
  row.energy_reason = energy.reason = "no --energy";
  if (row.energy.rails.empty()) return;
  row.energy_reason = energy.reason = row.energy.rails.front().reason;
  for (const RailEnergy& rail : row.energy.rails) {
    if (!rail.joules) continue;
    row.energy_reason.clear();
    energy = {.rail = rail.rail.name, .reason = "of prefill and decode together: in the row"};
    if (row.test.generate == 0) energy.prefill_joules = rail.joules;
    if (row.test.prompt == 0) energy.decode_joules = rail.joules;
    return;
  }
}

BenchRow make_row(const BenchEngine& bench, const BenchTest& test, const std::string& time,
                  const std::vector<Receipt>& runs, const EnergyWindow& energy) {
  const Engine& engine = *bench.engine;
  BenchRow row{.test = test, .facts = bench.facts, .time = time};
  row.receipt = sum(runs);
  row.modelled = row.receipt.modelled.has_value();
  for (const Receipt& run : runs) row.seconds.push_back(seconds_of(run));
  if (row.modelled)
    row.simulation_seconds = row.receipt.prefill_seconds + row.receipt.decode_seconds;
  check_row(engine, row);
  engine.complete(row.receipt);
  row.receipt.plausibility = judge(*std::min_element(runs.begin(), runs.end(),
                                                     [](const Receipt& a, const Receipt& b) {
                                                       return seconds_of(a) < seconds_of(b);
                                                     }),
                                   engine.limits());
  refuse_mixed_runs(bench, runs, row.receipt);
  row.energy = energy;
  settle_energy(row);
  ReceiptContext origin = bench.origin;
  origin.time = time;
  row.receipt_json = receipt_fields(row.receipt, origin);
  row.receipt_id = row.receipt_json.at("id").text();
  return row;
}

// What an earlier row's recovery was is that row's, unless it left this one to the cpu.
void prepare(BenchEngine& bench, const BenchTest& test, const BenchOptions& options) {
  if (!bench.engine->pipeline().host_took_over())
    for (const auto& sequence : bench.sequences) sequence->recoveries.clear();
  fill(bench, test, options.progress);
  if (!options.warm_up) return;
  if (options.progress)
    options.progress(fmt::format("{} on {}: warming up", test.name(), bench.facts.device), 0, 0);
  warm_up(bench, test);
}

// What guesses are held against, and what an oracle knows. Then a run that is not timed, from which
// it is known what calls take.
void record(BenchEngine& bench, const BenchTest& test, bool warms_up) {
  BenchGuesser* const guesser = guesser_of(bench, test);
  if (guesser == nullptr) return;
  rewind(bench, test);
  if (test.prompt > 0) run_prompts(bench, test);
  Pipeline& pipeline = bench.engine->pipeline();
  guesser->record(pipeline, *bench.sequences.front(), text_before(bench, test), test.generate);
  rewind(bench, test);
  if (!warms_up) return;
  if (test.prompt > 0) run_prompts(bench, test);
  guesser->begin(text_before(bench, test));
  guesser->run(pipeline, *bench.sequences.front());
  rewind(bench, test);
}

// Between runs: nothing is drawn while one is timed.
void show(const BenchOptions& options, const BenchEngine& bench, const BenchTest& test,
          uint32_t done) {
  if (options.progress)
    options.progress(fmt::format("{} on {}", test.name(), bench.facts.device), done,
                     options.repetitions);
}

}  // namespace

BenchEngine open_bench_engine(const BenchSetup& setup, const Progress& progress) {
  EngineOptions options = setup.options;
  options.pipeline.forward.context = context_for(setup);
  options.pipeline.forward.sequences = setup.sequences;
  if (setup.ubatch) options.pipeline.forward.prefill_chunk = *setup.ubatch;
  BenchEngine bench;
  bench.engine = std::make_unique<Engine>(options, progress);
  for (const DeviceInfo& device : bench.engine->devices())
    if (const FixedShapes fixed = fixed_shapes(device); setup.ubatch && !fixed.prompt_rows.empty())
      throw Error(ErrorCode::usage, "-ub",
                  fmt::format("has no effect with --device {}: its kernels take {} rows",
                              device.name, fmt::join(fixed.prompt_rows, ", ")),
                  "--prompt-rows chooses them");
  const uint32_t context = bench.engine->pipeline().context();
  if (setup.positions > context) fail_room(setup, context);
  bench.origin = setup.receipt_context(*bench.engine);
  bench.facts = facts_of(setup, *bench.engine, bench.origin);
  if (setup.measures_peak && bench.facts.on_host)
    bench.facts.peak = bench.engine->measure_cpu_peak();
  for (uint32_t s = 0; s < setup.sequences; ++s) {
    bench.sequences.push_back(std::make_unique<Sequence>(bench.engine->pipeline()));
    bench.sequences.back()->candidates = candidates_needed(SamplerOptions{}, false);
  }
  bench.tokens = made_up_tokens(context + setup.sequences, bench.engine->model().config.vocab);
  for (const SpeculationName& name : setup.speculations)
    bench.guessers.push_back(
        std::make_unique<BenchGuesser>(name, setup.most_guesses, *bench.engine, options, progress));
  return bench;
}

BenchRow measure(BenchEngine& bench, const BenchTest& test, const BenchOptions& options) {
  prepare(bench, test, options);
  const std::string time = utc_now();
  std::vector<Receipt> runs;
  if (options.meter != nullptr) options.meter->start();
  double busy = 0;  // the host's cores
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    show(options, bench, test, i);
    const double before = cpu_seconds();
    runs.push_back(run_once(bench, test));
    busy += cpu_seconds() - before;
  }
  const EnergyWindow energy = options.meter != nullptr ? options.meter->stop() : EnergyWindow{};
  show(options, bench, test, options.repetitions);
  BenchRow row = make_row(bench, test, time, runs, energy);
  row.cpu_seconds = busy;
  return row;
}

std::vector<BenchRow> measure_in_turns(std::span<const BenchTurn> turns,
                                       const BenchOptions& options) {
  for (const BenchTurn& turn : turns) {
    prepare(*turn.bench, turn.test, options);
    record(*turn.bench, turn.test, options.warm_up);
  }
  const std::string time = utc_now();
  std::vector<std::vector<Receipt>> runs(turns.size());
  for (uint32_t i = 0; i < options.repetitions; ++i) {
    show(options, *turns.front().bench, turns.front().test, i);
    for (size_t t = 0; t < turns.size(); ++t)
      runs[t].push_back(run_once(*turns[t].bench, turns[t].test));
  }
  show(options, *turns.front().bench, turns.front().test, options.repetitions);
  std::vector<BenchRow> rows;
  for (size_t t = 0; t < turns.size(); ++t)
    rows.push_back(make_row(*turns[t].bench, turns[t].test, time, runs[t], {}));
  return rows;
}

}  // namespace tyto
