#include "engine/embed.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/receipt.h"
#include "trace/span.h"

namespace tyto {
namespace {

// Before anything runs, so that a text is not given up half-way.
void take_room(Pipeline& pipeline, Sequence& sequence, size_t tokens) {
  const auto positions = static_cast<uint32_t>(tokens);
  const KvPool& pool = pipeline.kv_pool();
  const bool can_ever_fit = pool.pages_for(positions) <= pool.capacity();
  if (!pipeline.reserve(sequence, positions) && can_ever_fit)
    throw Error(
        ErrorCode::busy, "embedding",
        fmt::format("{} of {} pages of the KV cache are in use", pool.in_use(), pool.capacity()),
        "try again later");
}

std::vector<float> normalised(const std::vector<double>& sums) {
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  const double length = std::sqrt(squares);
  std::vector<float> result;
  for (const double sum : sums) result.push_back(static_cast<float>(length > 0 ? sum / length : 0));
  return result;
}

}  // namespace

Embedding embed(const Generator& with, std::span<const Token> tokens,
                const std::function<bool()>& goes_on, const Progress& progress) {
  check_tokens(with.tokenizer, tokens);
  Pipeline& pipeline = with.pipeline;
  pipeline.check_room(0, tokens.size());
  Sequence sequence(pipeline);
  take_room(pipeline, sequence, tokens.size());
  const uint64_t start = now_ns();
  std::vector<double> sums;
  const OnHidden add = [&](uint32_t, std::span<const float> hidden) {
    sums.resize(hidden.size());
    for (size_t i = 0; i < hidden.size(); ++i) sums[i] += hidden[i];
  };
  Embedding result;
  const bool is_whole = pipeline.run_hidden(sequence, tokens, add, progress, goes_on);
  if (is_whole) result.values = normalised(sums);
  result.receipt.prompt_tokens = sequence.position();
  result.receipt.prefill_seconds = static_cast<double>(now_ns() - start) * 1e-9;
  add_execution(result.receipt, sequence, pipeline, with.trace);
  return result;
}

}  // namespace tyto
