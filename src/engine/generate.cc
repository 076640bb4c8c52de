#include "engine/generate.h"

#include <array>
#include <chrono>

#include "base/error.h"
#include "engine/stop_strings.h"
#include "trace/energy_report.h"
#include "trace/span.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// What a recording calls the steps between the runs of the pipeline.
struct HostOps {
  explicit HostOps(Trace& recorder)
      : trace(recorder),
        sample(recorder.name({.label = "sample"})),
        detokenize(recorder.name({.label = "detokenize"})),
        output(recorder.name({.label = "output"})) {}

  template <typename Function>
  auto timed(uint16_t name, const Function& function) const {
    Span span(trace, EventKind::host, name);
    return function();
  }

  Trace& trace;
  uint16_t sample;
  uint16_t detokenize;
  uint16_t output;
};

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
  const HostOps ops(trace);
  const auto counters_before = trace.snapshot();
  if (request.energy != nullptr) request.energy->start();
  const auto start = Clock::now();
  Answer answer;
  Detokenizer detokenizer(tokenizer);
  StopStrings stops(request.stop);

  std::span<const float> logits = pipeline.run(request.prompt, progress);
  ops.timed(ops.sample, [&] {
    for (Token token : request.prompt) sampler.accept(token);
  });
  if (request.energy != nullptr) answer.receipt.prefill_energy = request.energy->lap();
  const auto counters_between = trace.snapshot();
  auto chosen = Clock::now();
  for (uint32_t produced = 0; produced < request.max_tokens; ++produced) {
    const Token token = ops.timed(ops.sample, [&] { return sampler.sample(logits); });
    ++answer.receipt.generated_tokens;
    trace.token_chosen();
    chosen = Clock::now();
    if (produced == 0) answer.receipt.prefill_seconds = seconds(start, chosen);
    if (tokenizer.is_eos(token) && !request.ignore_eos) {
      answer.reason = StopReason::eos;
      break;
    }
    sampler.accept(token);
    answer.tokens.push_back(token);
    const std::string text =
        ops.timed(ops.detokenize, [&] { return stops.push(detokenizer.push(token)); });
    if (!text.empty() && !ops.timed(ops.output, [&] { return on_text(text); }))
      answer.reason = StopReason::cancelled;
    if (stops.stopped()) answer.reason = StopReason::stop_string;
    if (answer.reason != StopReason::max_tokens) break;
    if (produced + 1 == request.max_tokens) break;
    if (pipeline.position() == pipeline.context()) {
      answer.reason = StopReason::context_full;
      break;
    }
    logits = pipeline.run({&token, 1});
  }
  answer.receipt.decode_seconds = seconds(start, chosen) - answer.receipt.prefill_seconds;
  if (request.energy != nullptr) answer.receipt.decode_energy = request.energy->stop();
  if (!stops.stopped() && answer.reason != StopReason::cancelled) {
    const std::string rest = stops.push(detokenizer.finish()) + stops.finish();
    if (!rest.empty()) on_text(rest);
  }
  answer.receipt.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  const auto counters_after = trace.snapshot();
  answer.receipt.devices = window(counters_before, counters_after);
  answer.receipt.phases = {window(counters_before, counters_between),
                           window(counters_between, counters_after)};
  answer.receipt.fallbacks = trace.fallbacks();
  drop_simulated_energy(answer.receipt);
  if (request.energy != nullptr) answer.receipt.energy = energy_of(answer.receipt);
  return answer;
}

}  // namespace tyto
