#include "engine/embed.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "engine/receipt.h"
#include "trace/span.h"

namespace tyto {
namespace {

// Makes room for more tokens, or throws why there is none.
void take_room(Pipeline& pipeline, Sequence& sequence, size_t tokens) {
  if (pipeline.reserve(sequence, static_cast<uint32_t>(tokens))) return;
  const KvPool& pool = pipeline.kv_pool();
  const size_t all = sequence.position() + tokens;
  const uint32_t needed = pool.pages_for(static_cast<uint32_t>(all));
  if (needed > pool.capacity())
    throw Error(ErrorCode::input, "embedding",
                fmt::format("{} tokens take {} pages of {} positions, and there are {}", all,
                            needed, pool.page_positions(), pool.capacity()),
                "give more --kv-memory");
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

EmbeddingRun::EmbeddingRun(const Generator& with, std::vector<Token> tokens)
    : with_(with),
      tokens_(std::move(tokens)),
      side_(with.pipeline.side_for(tokens_.size())),
      sequence_(with.pipeline) {
  check_tokens(with.tokenizer, tokens_);
  with.pipeline.check_room(0, tokens_.size());
  take_room(with.pipeline, sequence_, tokens_.size());  // so that it is not given up half-way
}

void EmbeddingRun::run_pass(uint32_t most) {
  TYTO_ASSERT(left() > 0 && most > 0);
  const uint64_t start = now_ns();
  Pipeline& pipeline = with_.pipeline;
  const uint32_t rows = pipeline.next_rows(sequence_.position(), left(), side_);
  // A pass of fixed rows costs the same however few it uses.
  const uint32_t now = pipeline.has_fixed_rows() ? rows : std::min(rows, most);
  // A device that failed while others ran may have lost what was there.
  take_room(pipeline, sequence_, now);
  const OnHidden visit = [this](uint32_t position, std::span<const float> hidden) {
    add(position, hidden);
  };
  const Pipeline::Work work{&sequence_, std::span(tokens_).subspan(sequence_.position(), now), 0,
                            &visit, side_};
  const std::vector<Pipeline::Failure> failures = pipeline.run({&work, 1}, {});
  seconds_ += seconds_between(start, now_ns());
  if (!failures.empty()) throw failures.front().error;
}

// Once for each position, also where a pass was run again.
void EmbeddingRun::add(uint32_t position, std::span<const float> hidden) {
  if (position != added_) return;
  ++added_;
  sums_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) sums_[i] += hidden[i];
}

Embedding EmbeddingRun::result() const {
  TYTO_ASSERT(left() == 0 && added_ == tokens_.size());
  Embedding result{.values = normalised(sums_), .receipt = {}};
  result.receipt.prompt_tokens = sequence_.position();
  result.receipt.prefill_seconds = seconds_;
  add_execution(result.receipt, sequence_, with_.pipeline, with_.trace);
  return result;
}

Embedding embed(const Generator& with, std::span<const Token> tokens, const Progress& progress) {
  EmbeddingRun run(with, {tokens.begin(), tokens.end()});
  const auto show = [&] {
    if (progress) progress("reading the text", tokens.size() - run.left(), tokens.size());
  };
  for (show(); run.left() > 0; show()) run.run_pass();
  return run.result();
}

}  // namespace tyto
