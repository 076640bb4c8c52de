// The host's time for a token beside the virtual NPU: npu_host_time MODEL [THREADS [ROUNDS]]. Each
// form of decoding runs on a virtual NPU that computes, whose simulation streams the whole model
// through the caches that the host's steps then find cold, and on one that completes without any
// arithmetic, as a real NPU would leave the host. Printed is a JSON line per form and round:
// medians over tokens, in ms. Then the time to the first token with one number of prompt rows and
// with several, and what sampling alone takes from logits that are at hand.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/vnpu/machine/machine.h"
#include "engine/engine.h"
#include "engine/recording.h"
#include "report/summary.h"
#include "trace/profile.h"

namespace tyto {
namespace {

constexpr uint32_t kPrompt = 13, kTokens = 48;

struct Form {
  Fusion fusion;
  std::string_view name, weights;
};
constexpr Form kForms[] = {{Fusion::block, "block", "bf16"}, {Fusion::token, "token", "q4nx"}};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

Summary record(Engine& engine, uint32_t length, uint32_t tokens) {
  const SamplerOptions greedy{.temperature = 0};
  Sampler sampler(greedy);
  std::vector<Token> prompt(length);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<Token>(i + 1);
  start_recording(engine, prompt.size(), tokens);
  const Request request{.prompt = prompt, .max_tokens = tokens, .stop = {}, .ignore_eos = true};
  const Answer answer = generate(engine.generator_from_nothing(), sampler, request,
                                 [](std::string_view) { return true; });
  engine.trace().stop();
  Profile profile = profile_of(engine, greedy, PeakSource::unknown);
  profile.runs.push_back(collect_run(engine.trace(), answer.receipt));
  profile.names = engine.trace().names();
  return summarise(profile, profile.runs.front());
}

EngineOptions options_for(const std::string& model, unsigned threads) {
  EngineOptions options;
  options.model = model;
  options.device = "vnpu";
  options.threads = threads;
  return options;
}

void measure(const EngineOptions& options, const Form& form, bool computes, unsigned rounds) {
  vxrt::reset({.computes = computes});
  Engine engine(options);
  for (unsigned round = 0; round < rounds; ++round) {
    const Summary summary = record(engine, kPrompt, kTokens);
    std::vector<double> all, ops, copies, scheduling, rest;
    for (const TokenRow& token : summary.tokens) {
      const Attribution& wall = token.wall;
      all.push_back(wall.wall - wall.device);
      ops.push_back(wall.host);
      copies.push_back(wall.copies);
      scheduling.push_back(wall.scheduling);
      rest.push_back(wall.unattributed);
    }
    fmt::print(
        "{{\"fusion\": \"{}\", \"weights\": \"{}\", \"device_computes\": {}, \"threads\": {}, "
        "\"tokens\": {}, \"host_ms\": {:.4f}, \"host_ops_ms\": {:.4f}, \"copies_ms\": {:.4f}, "
        "\"scheduling_ms\": {:.4f}, \"unattributed_ms\": {:.4f}}}\n",
        form.name, form.weights, computes, engine.threads(), all.size(), median(all), median(ops),
        median(copies), median(scheduling), median(rest));
    std::fflush(stdout);
  }
}

// The device's part is modelled, the host's measured.
void measure_first_tokens(EngineOptions options) {
  vxrt::reset({.computes = false});
  for (const char* rows : {"2048", "256,512,2048"}) {
    options.settings = {{"prompt-rows", rows}};
    Engine engine(options);
    for (const uint32_t length : {13u, 300u, 600u, 1100u})
      fmt::print(
          "{{\"prompt_rows\": \"{}\", \"prompt_tokens\": {}, \"modelled_first_token_ms\": "
          "{:.1f}}}\n",
          rows, length, record(engine, length, 1).headline.ttft_ms);
  }
}

void measure_sampling(uint32_t vocab) {
  constexpr int kSamples = 200;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> values(vocab), room(vocab);
  std::vector<uint16_t> bits(vocab);
  for (size_t i = 0; i < vocab; ++i) {
    bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(random)) >> 16);
    values[i] = value_of_bf16(bits[i]);
  }
  for (const float temperature : {0.0f, 0.8f})
    for (const bool is_bf16 : {true, false}) {
      Sampler sampler(SamplerOptions{.temperature = temperature});
      std::vector<double> took;
      for (int i = 0; i < kSamples; ++i) {
        const uint64_t start = now_ns();
        sampler.sample(is_bf16 ? Logits(bits, room) : Logits(values));
        took.push_back(static_cast<double>(now_ns() - start) * 1e-6);
      }
      fmt::print(
          "{{\"sampling\": \"{}\", \"logits\": \"{}\", \"vocabulary\": {}, \"ms\": {:.4f}}}\n",
          temperature == 0 ? "greedy" : "default", is_bf16 ? "bf16" : "f32", vocab, median(took));
    }
}

void measure_all(const std::string& model, unsigned threads, unsigned rounds) {
  const auto measure_forms = [&](bool computes) {
    for (const Form& form : kForms) {
      EngineOptions options = options_for(model, threads);
      options.settings = {{"weights", std::string(form.weights)}};
      options.pipeline.forward.fusion = form.fusion;
      measure(options, form, computes, rounds);
    }
  };
  measure_forms(false);
  measure_first_tokens(options_for(model, threads));
  measure_sampling(open_model(model).config.vocab);
  measure_forms(true);  // slow: it simulates the whole model
}

}  // namespace
}  // namespace tyto

int main(int count, char** arguments) {
  if (count < 2 || count > 4) {
    fmt::print(stderr, "usage: npu_host_time MODEL [THREADS [ROUNDS]]\n");
    return 2;
  }
  const auto number = [&](int at, unsigned otherwise) {
    return count > at ? static_cast<unsigned>(std::strtoul(arguments[at], nullptr, 10)) : otherwise;
  };
  try {
    tyto::measure_all(arguments[1], number(2, 0), number(3, 3));
  } catch (const tyto::Error& error) {
    fmt::print(stderr, "npu_host_time: {}\n", error.what());
    return 1;
  }
  return 0;
}
