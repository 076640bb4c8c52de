#include "serve/api/answer_numbers.h"

#include <cmath>

namespace tyto::api {
namespace {

constexpr const char* kSimulationClock = "simulation wall time";

uint32_t whole_prompt(const Receipt& receipt) {
  return receipt.prompt_tokens + receipt.cached_tokens;
}

int64_t nanoseconds(double seconds) {
  return std::llround(seconds * 1e9);
}

// null where nothing was counted.
ordered_json ratio(double of, double per) {
  return per > 0 ? ordered_json(of / per) : ordered_json(nullptr);
}

}  // namespace

ordered_json usage_json(std::span<const Choice> choices, uint32_t choices_per_prompt) {
  uint64_t prompt = 0, cached = 0, completion = 0;
  for (size_t i = 0; i < choices.size(); ++i) {
    const Receipt& receipt = choices[i].receipt;
    completion += receipt.generated_tokens;
    if (i % choices_per_prompt != 0) continue;
    prompt += whole_prompt(receipt);
    cached += receipt.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

ordered_json timings_json(const Receipt& receipt) {
  return timings_json(receipt, has_virtual_device(receipt));
}

ordered_json timings_json(const Receipt& receipt, bool is_simulated) {
  const double prompt_ms = receipt.prefill_seconds * 1e3;
  const double predicted_ms = receipt.decode_seconds * 1e3;
  if (is_simulated)
    return {{"cache_n", receipt.cached_tokens},
            {"prompt_n", receipt.prompt_tokens},
            {"predicted_n", receipt.generated_tokens},
            {"clock", kSimulationClock},
            {"modelled", false},
            {"simulation_prompt_ms", prompt_ms},
            {"simulation_predicted_ms", predicted_ms}};
  ordered_json json = {{"cache_n", receipt.cached_tokens},
                       {"prompt_n", receipt.prompt_tokens},
                       {"prompt_ms", prompt_ms},
                       {"predicted_n", receipt.generated_tokens},
                       {"predicted_ms", predicted_ms}};
  if (receipt.plausibility.verdict == Verdict::refused) return json;
  const double decoded = decoded_tokens(receipt);
  json["prompt_per_token_ms"] = ratio(prompt_ms, receipt.prompt_tokens);
  json["prompt_per_second"] = ratio(receipt.prompt_tokens, receipt.prefill_seconds);
  json["predicted_per_token_ms"] = ratio(predicted_ms, decoded);
  json["predicted_per_second"] = ratio(decoded, receipt.decode_seconds);
  return json;
}

void add_ollama_durations(ordered_json& json, const Receipt& receipt) {
  const int64_t prompt = nanoseconds(receipt.prefill_seconds);
  const int64_t eval = nanoseconds(receipt.decode_seconds);
  json["total_duration"] = prompt + eval;
  json["load_duration"] = 0;  // models are loaded before requests are taken
  json["prompt_eval_count"] = whole_prompt(receipt);
  json["prompt_eval_duration"] = prompt;
  json["eval_count"] = receipt.generated_tokens;
  json["eval_duration"] = eval;
  if (has_virtual_device(receipt)) json["clock"] = kSimulationClock;
}

}  // namespace tyto::api
