#include "engine/generate.h"

#include <array>
#include <chrono>

#include "base/error.h"
#include "engine/stop_strings.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_prompt(const Tokenizer& tokenizer, const Pipeline& pipeline, const Request& request) {
  if (request.prompt.empty()) fail_input("prompt", "has no tokens");
  for (Token token : request.prompt)
    if (token < 0 || static_cast<size_t>(token) >= tokenizer.size())
      fail_input("prompt", "token {} is outside the vocabulary of {}", token, tokenizer.size());
  const uint32_t room = pipeline.context() - pipeline.position();
  if (request.prompt.size() >= room)
    fail_input("prompt", "{} tokens leave no room for an answer in a context of {} ({} in use)",
               request.prompt.size(), pipeline.context(), pipeline.position());
}

}  // namespace

std::string_view name(StopReason reason) {
  constexpr std::array<std::string_view, 5> kNames = {"end of turn", "stop string", "token limit",
                                                      "context full", "cancelled"};
  return kNames[static_cast<size_t>(reason)];
}

Answer generate(const Tokenizer& tokenizer, Pipeline& pipeline, Sampler& sampler,
                const Request& request, Trace& trace, const OnText& on_text,
                const Progress& progress) {
  check_prompt(tokenizer, pipeline, request);
  const auto counters_before = trace.snapshot();
  const auto start = Clock::now();
  Answer answer;
  Detokenizer detokenizer(tokenizer);
  StopStrings stops(request.stop);

  std::span<const float> logits = pipeline.run(request.prompt, progress);
  for (Token token : request.prompt) sampler.accept(token);
  answer.receipt.prefill_seconds = seconds_since(start);

  const auto decode_start = Clock::now();
  for (uint32_t produced = 0; produced < request.max_tokens; ++produced) {
    const Token token = sampler.sample(logits);
    ++answer.receipt.generated_tokens;
    if (tokenizer.is_eos(token) && !request.ignore_eos) {
      answer.reason = StopReason::eos;
      break;
    }
    sampler.accept(token);
    answer.tokens.push_back(token);
    const std::string text = stops.push(detokenizer.push(token));
    if (!text.empty() && !on_text(text)) answer.reason = StopReason::cancelled;
    if (stops.stopped()) answer.reason = StopReason::stop_string;
    if (answer.reason != StopReason::max_tokens) break;
    if (produced + 1 == request.max_tokens) break;
    if (pipeline.position() == pipeline.context()) {
      answer.reason = StopReason::context_full;
      break;
    }
    logits = pipeline.run({&token, 1});
  }
  answer.receipt.decode_seconds = seconds_since(decode_start);
  if (!stops.stopped() && answer.reason != StopReason::cancelled) {
    const std::string rest = stops.push(detokenizer.finish()) + stops.finish();
    if (!rest.empty()) on_text(rest);
  }
  answer.receipt.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  answer.receipt.devices = window(counters_before, trace.snapshot());
  answer.receipt.fallbacks = trace.fallbacks();
  return answer;
}

}  // namespace tyto
