#include "check/gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace tyto {
namespace {

std::string place(uint32_t rank, uint32_t listed) {
  return rank > 0 ? fmt::format("rank {}", rank) : fmt::format("beyond the best {}", listed);
}

}  // namespace

uint32_t rank_of(Token token, std::span<const Candidate> candidates) {
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& c) { return c.token == token; });
  if (found == candidates.end()) return 0;
  const auto better = std::count_if(candidates.begin(), candidates.end(),
                                    [&](const Candidate& c) { return c.logit > found->logit; });
  return static_cast<uint32_t>(better) + 1;
}

GateResult compare_greedy(const Continuation& ours, const Continuation& theirs,
                          const GateOptions& options) {
  TYTO_ASSERT(ours.top.size() == ours.generated.size());
  TYTO_ASSERT(theirs.top.size() == theirs.generated.size());
  GateResult result;
  const size_t our_size = std::min<size_t>(ours.generated.size(), options.tokens);
  const size_t their_size = std::min<size_t>(theirs.generated.size(), options.tokens);
  const size_t both = std::min(our_size, their_size);
  for (size_t i = 0; i < both; ++i) {
    ++result.compared;
    result.ours = ours.generated[i];
    result.theirs = theirs.generated[i];
    if (result.ours == result.theirs) continue;
    result.divergence = static_cast<uint32_t>(i);
    result.rank_of_ours = rank_of(result.ours, theirs.top[i]);
    result.rank_of_theirs = rank_of(result.theirs, ours.top[i]);
    const auto is_near = [&](uint32_t rank) { return rank > 0 && rank <= options.k; };
    result.passed = is_near(result.rank_of_ours) && is_near(result.rank_of_theirs);
    if (!result.passed)
      result.reason = fmt::format(
          "at token {} the other side ranks our token {} and we rank theirs {}; both must be among "
          "the best {}",
          i, place(result.rank_of_ours, static_cast<uint32_t>(theirs.top[i].size())),
          place(result.rank_of_theirs, static_cast<uint32_t>(ours.top[i].size())), options.k);
    return result;
  }
  if (both == 0)
    result.reason = "there is nothing to compare";
  else if (our_size != their_size)
    result.reason = fmt::format(
        "{} ended after {} tokens, {} after {}", our_size < their_size ? "ours" : "theirs", both,
        our_size < their_size ? "theirs" : "ours", std::max(our_size, their_size));
  else
    result.passed = true;
  return result;
}

}  // namespace tyto
