#include "engine/recording.h"

#include <algorithm>

#include "base/error.h"
#include "device/device.h"
#include "engine/chunk_policy.h"
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

}  // namespace

size_t recorded_events(const Pipeline& pipeline, size_t prompt, size_t most_tokens,
                       Decoding decoding) {
  const size_t tokens = std::min<size_t>(most_tokens, pipeline.context());
  size_t events =
      pipeline.event_count(prompt, tokens) + kEventsOfPrompt + (tokens + 1) * kEventsPerToken;
  // A scheduler may cut the prompt into smaller passes.
  if (pipeline.passes_agree())
    events += prompt / ChunkPolicy::kLeastAlone * pipeline.event_count(1, 0);
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

}  // namespace tyto
