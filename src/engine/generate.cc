#include "engine/generate.h"

#include <array>
#include <cstdint>

#include "base/error.h"
#include "engine/receipt.h"
#include "engine/text_stream.h"
#include "trace/energy_report.h"
#include "trace/span.h"

namespace tyto {
namespace {

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

// The sequence of a request, with what is known of its prompt; gives it all back in the end.
class PromptSequence {
 public:
  PromptSequence(const Generator& with, const Request& request)
      : sequence(with.pipeline), prefixes_(with.prefixes) {
    check_prompt(with.tokenizer, with.pipeline.context(), request.prompt);
    if (prefixes_ == nullptr) return;
    const auto most = static_cast<uint32_t>(request.prompt.size() - 1);
    KvTable known = prefixes_->find(request.prompt, most);
    const uint32_t length = known.length();
    sequence.begin_with(std::span(request.prompt).first(length), std::move(known));
  }
  ~PromptSequence() {
    if (prefixes_ == nullptr) return;
    const std::vector<Token> tokens = sequence.tokens();
    prefixes_->keep(tokens, sequence.take_cache());
  }

  Sequence sequence;

 private:
  PrefixCache* prefixes_;
};

}  // namespace

std::string_view name(StopReason reason) {
  constexpr std::array<std::string_view, 5> kNames = {"end of turn", "stop string", "token limit",
                                                      "context full", "cancelled"};
  return kNames[static_cast<size_t>(reason)];
}

void check_tokens(const Tokenizer& tokenizer, std::span<const Token> tokens) {
  if (tokens.empty()) fail_input("prompt", "has no tokens");
  for (Token token : tokens)
    if (token < 0 || static_cast<size_t>(token) >= tokenizer.size())
      fail_input("prompt", "token {} is outside the vocabulary of {}", token, tokenizer.size());
}

void check_prompt(const Tokenizer& tokenizer, uint32_t context, std::span<const Token> prompt) {
  check_tokens(tokenizer, prompt);
  if (prompt.size() >= context)
    fail_input("prompt", "{} tokens leave no room for an answer in a context of {}", prompt.size(),
               context);
}

uint32_t candidates_needed(const Request& request, const Sampler& sampler) {
  if (request.wants_all_logits) return 0;
  return candidates_needed(sampler.options(), request.constraint != nullptr);
}

Answer generate(const Generator& with, Sampler& sampler, const Request& request,
                const OnText& on_text, const Progress& progress) {
  const HostOps ops(with.trace);
  PromptSequence prompt(with, request);
  Sequence& sequence = prompt.sequence;
  sequence.candidates = candidates_needed(request, sampler);
  if (request.energy != nullptr) request.energy->start();
  const uint64_t start = now_ns();
  Answer answer;
  Receipt& receipt = answer.receipt;
  TextStream text(with.tokenizer, request.stop, request.shown_special);
  receipt.cached_tokens = sequence.position();
  receipt.prompt_tokens = static_cast<uint32_t>(request.prompt.size()) - receipt.cached_tokens;

  const std::span<const Token> rest = std::span(request.prompt).subspan(receipt.cached_tokens);
  Logits logits = with.pipeline.run(sequence, rest, progress);
  ops.timed(ops.sample, [&] {
    sampler.constrain(nullptr);  // a conversation's last answer may have had one
    for (Token token : request.prompt) sampler.accept(token);
    sampler.constrain(request.constraint);
  });
  if (request.energy != nullptr) receipt.prefill_energy = request.energy->lap();
  sequence.phase = Phase::decode;
  uint64_t first = 0, chosen = 0;
  while (true) {
    const Token token = ops.timed(ops.sample, [&] { return sampler.sample(logits); });
    ++receipt.generated_tokens;
    chosen = with.trace.token_chosen();
    if (receipt.generated_tokens == 1) first = chosen;
    if (with.tokenizer.is_eos(token) && !request.ignore_eos) {
      answer.reason = StopReason::eos;
      break;
    }
    sampler.accept(token);
    answer.tokens.push_back(token);
    const std::string piece = ops.timed(ops.detokenize, [&] { return text.push(token); });
    if (!ops.timed(ops.output, [&] { return on_text(piece); }))
      answer.reason = StopReason::cancelled;
    if (text.stopped()) answer.reason = StopReason::stop_string;
    const bool goes_on = answer.reason == StopReason::max_tokens;
    if (!goes_on || receipt.generated_tokens >= request.max_tokens) break;
    if (sequence.position() == with.pipeline.context()) {
      answer.reason = StopReason::context_full;
      break;
    }
    logits = with.pipeline.run(sequence, {&token, 1});
  }
  receipt.prefill_seconds = seconds_between(start, first);
  receipt.decode_seconds = seconds_between(first, chosen);
  if (request.energy != nullptr) receipt.decode_energy = request.energy->stop();
  if (const std::string last = text.finish();
      answer.reason != StopReason::cancelled && !last.empty())
    on_text(last);
  add_execution(receipt, sequence, with.pipeline, with.trace);
  drop_simulated_energy(receipt);
  if (request.energy != nullptr) receipt.energy = energy_of(receipt);
  return answer;
}

}  // namespace tyto
