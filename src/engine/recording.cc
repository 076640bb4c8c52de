#include "engine/recording.h"

#include <algorithm>
#include <random>

#include "base/error.h"
#include "device/device.h"
#include "engine/generate.h"
#include "engine/scheduler.h"
#include "model/description.h"
#include "tensor/dtype.h"

namespace tyto {
namespace {

// Beside those of the pipeline: token, sample, detokenize, output; and the prompt's.
constexpr size_t kEventsPerToken = 4;
constexpr size_t kEventsOfPrompt = 16;
constexpr size_t kRunsRecorded = 2;  // a device that fails has everything run again

// The kind of a device of the table; another device is its own kind.
std::string tag_of(const std::string& device) {
  for (const DeviceEntry& entry : device_table())
    if (entry.name == device) return std::string(entry.kind);
  return device;
}

std::vector<DeviceFacts> device_facts(Engine& engine, PeakSource peak) {
  const std::vector<DeviceInfo> infos = engine.devices();
  std::vector<DeviceFacts> devices;
  for (const DeviceCounters& counters : engine.trace().snapshot()) {
    const auto info = std::find_if(infos.begin(), infos.end(), [&](const DeviceInfo& other) {
      return other.name == counters.device;
    });
    TYTO_ASSERT(info != infos.end());
    const bool measures = info->shares_host_memory && peak == PeakSource::measured;
    devices.push_back({.name = info->name,
                       .tag = tag_of(info->name),
                       .description = info->description,
                       .is_virtual = info->is_virtual,
                       .is_host = info->shares_host_memory && infos.size() > 1,
                       .peak = measures ? engine.measure_cpu_peak() : info->limits});
  }
  return devices;
}

std::string sampling_text(const SamplerOptions& options) {
  if (options.temperature <= 0) return "greedy";
  return fmt::format("temperature {}, top-k {}, top-p {}, seed {}", options.temperature,
                     options.top_k, options.top_p, options.seed);
}

void sweep_once(Engine& engine, uint32_t most_tokens, SweepRow& row) {
  Sampler sampler({.temperature = 0});
  const Request request{.prompt = made_up_tokens(row.prompt_tokens, engine.model().config.vocab),
                        .max_tokens = most_tokens,
                        .stop = {},
                        .ignore_eos = true};
  start_recording(engine, row.prompt_tokens, most_tokens);
  const Answer answer = generate(engine.generator_from_nothing(), sampler, request,
                                 [](std::string_view) { return true; });
  engine.trace().stop();
  engine.check_required(answer.receipt.phases);
  const ProfileRun run = collect_run(engine.trace(), answer.receipt);
  row.receipt = run.receipt;
  engine.complete(row.receipt);
  const Receipt& receipt = row.receipt;
  row.generated_tokens = receipt.generated_tokens;
  row.prefill_s.push_back(receipt.modelled ? receipt.modelled->prefill : receipt.prefill_seconds);
  const double decode = receipt.modelled ? receipt.modelled->decode : receipt.decode_seconds;
  if (receipt.generated_tokens > 1)
    row.tpot_ms.push_back(decode * 1e3 / (receipt.generated_tokens - 1));
}

}  // namespace

size_t recorded_events(const Pipeline& pipeline, size_t prompt, size_t most_tokens,
                       Decoding decoding) {
  const size_t tokens = std::min<size_t>(most_tokens, pipeline.context());
  size_t events =
      pipeline.event_count(prompt, tokens) + kEventsOfPrompt + (tokens + 1) * kEventsPerToken;
  // A scheduler may cut the prompt into smaller passes.
  const uint32_t least =
      pipeline.passes_agree() ? ChunkPolicy::kLeastAlone : ChunkPolicy::kFixedAlone;
  events += prompt / least * pipeline.event_count(1, 0);
  // A call with guesses runs as a prompt does; each may settle one token alone. The guessing, and
  // each guess's logits.
  if (decoding == Decoding::speculative)
    events += tokens * (pipeline.event_count(1, 0) + 1 + kMostGuesses);
  return events;
}

void start_recording(Engine& engine, size_t prompt, size_t most_tokens, Decoding decoding) {
  start_recording(engine.trace(),
                  recorded_events(engine.pipeline(), prompt, most_tokens, decoding));
}

void start_recording(Trace& trace, size_t events) {
  trace.start(std::min(events * kRunsRecorded, kMostRecordedEvents));
}

Profile profile_of(Engine& engine, const SamplerOptions& sampling, PeakSource peak) {
  const Model& model = engine.model();
  Profile profile;
  profile.facts.model_name = describe(model).name;
  profile.facts.layers = model.config.layers;
  profile.facts.threads = engine.threads();
  profile.facts.context = engine.pipeline().context();
  profile.facts.prefill_chunk = engine.pipeline().most_rows();
  profile.facts.kv_type = info(engine.pipeline().forward().kv_type()).name;
  profile.facts.sampling = sampling_text(sampling);
  profile.facts.devices = device_facts(engine, peak);
  profile.setup = engine.trace().setup_spans();
  profile.setup_seconds = engine.setup_seconds();
  return profile;
}

namespace {

// In the order in which the devices were asked for, whichever came first.
void add_in_order(std::vector<DeviceCounters>& sum, const std::vector<DeviceCounters>& more,
                  const std::vector<DeviceCounters>& devices) {
  std::vector<DeviceCounters> result;
  add(sum, more);
  for (const DeviceCounters& device : devices)
    for (const DeviceCounters& counted : sum)
      if (counted.device == device.device) {
        result.push_back(counted);
        result.back().pinned_bytes = device.pinned_bytes;
      }
  sum = std::move(result);
}

}  // namespace

std::vector<Token> made_up_tokens(uint32_t count, uint32_t vocab) {
  std::mt19937 random(1);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) token = static_cast<Token>(random() % vocab);
  return tokens;
}

SweepRow record_sweep_row(Engine& engine, uint32_t prompt_tokens, uint32_t most_tokens,
                          uint32_t repetitions) {
  SweepRow row{.prompt_tokens = prompt_tokens};
  const uint32_t room = engine.pipeline().context();
  if (uint64_t{prompt_tokens} + most_tokens > room) {
    row.note = fmt::format("{} and {} generated do not fit in {} positions", prompt_tokens,
                           most_tokens, room);
    return row;
  }
  const bool took_over_before = engine.pipeline().host_took_over();
  for (uint32_t i = 0; i < repetitions; ++i) sweep_once(engine, most_tokens, row);
  // What two devices executed one after the other is the speed of neither.
  if (engine.pipeline().host_took_over() && !took_over_before) {
    row.receipt.plausibility.verdict = Verdict::refused;
    row.receipt.plausibility.reasons.push_back("the cpu took over, after a device failed");
  }
  return row;
}

void add_execution(Receipt& receipt, const Sequence& sequence, const Pipeline& pipeline,
                   const Trace& trace) {
  const std::vector<DeviceCounters> devices = trace.snapshot();
  add_in_order(receipt.phases.prefill, sequence.executed.prefill, devices);
  add_in_order(receipt.phases.decode, sequence.executed.decode, devices);
  add_in_order(receipt.devices, sequence.executed.prefill, devices);
  add_in_order(receipt.devices, sequence.executed.decode, devices);
  add_fallbacks(receipt, sequence, trace);
  receipt.recoveries += static_cast<uint32_t>(sequence.recoveries.size());
  receipt.handed_over += sequence.handed_over;
  receipt.loaded_code = trace.loaded_code();
  receipt.kv_peak_bytes = std::max(receipt.kv_peak_bytes, pipeline.kv_peak_bytes());
}

void add_fallbacks(Receipt& receipt, const Sequence& sequence, const Trace& trace) {
  const auto add_once = [](std::vector<std::string>& lines, const std::string& line) {
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  };
  for (const std::string& line : trace.fallbacks()) add_once(receipt.fallbacks, line);
  for (const std::string& line : sequence.recoveries) add_once(receipt.fallbacks, line);
  for (const std::string& line : trace.on_host()) add_once(receipt.on_host, line);
}

}  // namespace tyto
