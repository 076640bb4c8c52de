#include "check/greedy.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "engine/receipt.h"
#include "llama/reference.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;
// Logits after these tokens, which follow those given before.
using Next = std::function<std::span<const float>(std::span<const Token>)>;

Continuation continue_greedily(const Tokenizer& tokenizer, const GreedyRequest& request,
                               AllLogits* all, const Next& next) {
  TYTO_ASSERT(!request.prompt.empty() && request.tokens > 0);
  Continuation result;
  result.prompt.assign(request.prompt.begin(), request.prompt.end());
  std::span<const float> logits = next(request.prompt);
  while (true) {
    if (all != nullptr) all->emplace_back(logits.begin(), logits.end());
    result.top.push_back(top_candidates(logits, request.candidates));
    const Token token = result.top.back().front().token;
    result.generated.push_back(token);
    if (tokenizer.is_eos(token) || result.generated.size() == request.tokens) return result;
    logits = next({&token, 1});
  }
}

}  // namespace

Continuation greedy(Pipeline& pipeline, const Tokenizer& tokenizer, const GreedyRequest& request,
                    Trace& trace, Receipt& receipt, AllLogits* logits, const Progress& progress) {
  Sequence sequence(pipeline);
  const auto start = Clock::now();
  auto first = start;
  uint32_t generated = 0;
  const auto show = [&] {
    if (progress) progress("the device computes", generated, request.tokens);
  };
  show();
  const Next next = [&](std::span<const Token> tokens) {
    const auto result = pipeline.run(sequence, tokens);
    if (sequence.phase == Phase::prefill) first = Clock::now();
    sequence.phase = Phase::decode;
    ++generated;
    show();
    return result;
  };
  Continuation result = continue_greedily(tokenizer, request, logits, next);
  generated = request.tokens;  // also where the text ended early
  show();
  receipt.prompt_tokens += static_cast<uint32_t>(request.prompt.size());
  receipt.generated_tokens += static_cast<uint32_t>(result.generated.size());
  receipt.prefill_seconds += std::chrono::duration<double>(first - start).count();
  receipt.decode_seconds += std::chrono::duration<double>(Clock::now() - first).count();
  add_execution(receipt, sequence, pipeline, trace);
  return result;
}

Continuation greedy_reference(const Model& model, const Tokenizer& tokenizer,
                              const GreedyRequest& request, AllLogits* logits,
                              const Progress& progress) {
  Reference reference(model);
  std::vector<float> last;
  const uint64_t total = request.prompt.size() + request.tokens - 1;
  uint64_t done = 0;
  const auto show = [&] {
    if (progress) progress("the reference computes", done, total);
  };
  show();
  const Next next = [&](std::span<const Token> tokens) {
    for (const Token token : tokens) {
      last = reference.forward(token);
      ++done;
      show();
    }
    return std::span<const float>(last);
  };
  Continuation result = continue_greedily(tokenizer, request, logits, next);
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
