#include "check/greedy.h"

#include <algorithm>

#include "base/error.h"
#include "llama/reference.h"

namespace tyto {
namespace {

// Candidates and, where they are wanted, all logits of a position; returns the best token.
Token add_position(Continuation& to, AllLogits* all, std::span<const float> logits,
                   uint32_t candidates) {
  if (all != nullptr) all->emplace_back(logits.begin(), logits.end());
  to.top.push_back(top_candidates(logits, candidates));
  to.generated.push_back(to.top.back().front().token);
  return to.generated.back();
}

}  // namespace

Continuation greedy(const Generator& with, const GreedyRequest& request, Receipt& receipt,
                    AllLogits* logits, const Progress& progress) {
  TYTO_ASSERT(request.tokens > 0);
  Continuation result;
  result.prompt.assign(request.prompt.begin(), request.prompt.end());
  const auto show = [&](uint64_t done) {
    if (progress) progress("the device computes", done, request.tokens);
  };
  show(0);
  Sampler best({.temperature = 0});
  const auto keep = [&](const ChosenToken& chosen) {
    const Token token = add_position(result, logits, chosen.logits, request.candidates);
    TYTO_ASSERT(token == chosen.token);
    show(result.generated.size());
    return !with.tokenizer.is_eos(token);
  };
  Request asked{.prompt = result.prompt, .max_tokens = request.tokens, .stop = {}};
  asked.ignore_eos = asked.wants_all_logits = true;  // an end-of-text token has candidates, too
  const Answer answer = generate_tokens(with, best, std::move(asked), keep);
  if (answer.reason == StopReason::context_full)
    with.pipeline.check_room(0, request.prompt.size() + request.tokens - 1);  // says so
  add(receipt, answer.receipt);
  show(request.tokens);  // also where the text ended early
  return result;
}

Continuation greedy_reference(const Model& model, const Tokenizer& tokenizer,
                              const GreedyRequest& request, AllLogits* logits,
                              const Progress& progress) {
  TYTO_ASSERT(!request.prompt.empty() && request.tokens > 0);
  Reference reference(model);
  Continuation result;
  result.prompt.assign(request.prompt.begin(), request.prompt.end());
  const uint64_t total = request.prompt.size() + request.tokens - 1;
  uint64_t done = 0;
  const auto show = [&] {
    if (progress) progress("the reference computes", done, total);
  };
  const auto next = [&](Token token) {
    show();
    ++done;
    return reference.forward(token);
  };
  std::vector<float> last;
  for (const Token token : request.prompt) last = next(token);
  while (true) {
    const Token token = add_position(result, logits, last, request.candidates);
    if (tokenizer.is_eos(token) || result.generated.size() == request.tokens) break;
    last = next(token);
  }
  done = total;  // also where the text ended early
  show();
  return result;
}

std::optional<std::string> why_not_executed(const std::string& prefill, const std::string& decode,
                                            const Receipt& receipt) {
  // Also where every dispatch completed: what one of them computed was refused.
  const std::string again =
      receipt.recoveries > 0 ? fmt::format(" and was run again after {} failure{}",
                                           receipt.recoveries, receipt.recoveries == 1 ? "" : "s")
                             : "";
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const bool is_prefill = phase == Phase::prefill;
    const std::string& device = is_prefill ? prefill : decode;
    const auto& executed = is_prefill ? receipt.phases.prefill : receipt.phases.decode;
    if (executed.empty() && !is_prefill) continue;  // one token was asked for
    const auto found = std::find_if(executed.begin(), executed.end(),
                                    [&](const DeviceCounters& d) { return d.device == device; });
    if (found == executed.end() || found->completions == 0)
      return fmt::format("{} completed no work in {}", device, name(phase));
    if (found->failed() > 0)
      return fmt::format("{} completed {} of {} submissions in {}{}", device, found->completions,
                         found->submissions, name(phase), again);
  }
  const std::string devices = prefill == decode ? decode : prefill + "/" + decode;
  if (!again.empty()) return fmt::format("{} completed every submission{}", devices, again);
  return std::nullopt;
}

}  // namespace tyto
