#include "bench/bench_speculation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "engine/draft_model.h"
#include "engine/sampler.h"
#include "trace/trace.h"

namespace tyto {
namespace {

Sampler greedy() {
  return Sampler(SamplerOptions{.temperature = 0});
}

}  // namespace

void falsify_drafts(OracleScript& script, double acceptance) {
  const size_t count = script.tokens.size();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(1);
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  const auto wrong =
      static_cast<size_t>(std::lround((1 - acceptance) * static_cast<double>(count)));
  script.is_wrong.assign(count, false);
  for (size_t i = 0; i < wrong; ++i) script.is_wrong[order[i]] = true;
}

Drafter oracle_drafter(std::shared_ptr<const OracleScript> script) {
  return [script = std::move(script)](std::span<const Token> text, uint32_t most) {
    std::vector<Token> guesses;
    for (size_t i = text.size() - std::min(text.size(), script->begin);
         i < script->tokens.size() && guesses.size() < most; ++i) {
      const Token token = script->tokens[i];
      const auto other = static_cast<Token>((static_cast<uint32_t>(token) + 1) % script->vocab);
      guesses.push_back(script->is_wrong[i] ? other : token);
    }
    return guesses;
  };
}

BenchGuesser::BenchGuesser(const SpeculationName& name, uint32_t most, Engine& engine,
                           const EngineOptions& options, const Progress& progress)
    : name_(name) {
  if (engine.pipeline().most_checked() == 1)
    throw Error(ErrorCode::usage, "--speculate",
                fmt::format("{} checks drafted tokens one by one, which gains nothing",
                            engine.pipeline().disagreeing_device()),
                "measure it on the cpu");
  std::function<Drafter()> make_drafter = lookup_drafter;
  if (name.oracle) make_drafter = [this] { return oracle_drafter(script_); };
  if (!name.draft.empty()) {
    draft_ = open_draft(name.draft, engine, options, progress);
    make_drafter = [this] { return model_drafter(*draft_); };
  }
  speculator_.emplace(name.text, std::move(make_drafter), most);
}

void BenchGuesser::record(Pipeline& pipeline, Sequence& sequence, std::span<const Token> text,
                          uint32_t tokens) {
  TYTO_ASSERT(sequence.position() + 1 == text.size());
  Sampler sampler = greedy();
  *script_ = {.begin = text.size(), .vocab = pipeline.vocab()};
  Token token = text.back();
  while (script_->tokens.size() < tokens) {
    token = sampler.sample(pipeline.run(sequence, {&token, 1}));
    script_->tokens.push_back(token);
  }
  falsify_drafts(*script_, name_.oracle.value_or(1));
}

void BenchGuesser::begin(std::span<const Token> text) {
  speculation_ = speculator_->begin_request();
  text_.assign(text.begin(), text.end());
  speculation_->drafter(text_, 0);
}

Round BenchGuesser::next_round(Pipeline& pipeline, Sequence& sequence, uint32_t left) {
  const uint32_t ahead = pipeline.context() - sequence.position();
  Round round(speculation_.get(), text_,
              {.rows = std::min(pipeline.most_checked(), ahead),
               .tokens = left,
               .vocab = pipeline.vocab()});
  const auto rows = static_cast<uint32_t>(round.tokens().size());
  if (rows > 1 && !pipeline.reserve(sequence, rows)) round.drop_guesses();
  return round;
}

// A benchmark of other tokens than the model's would be one of another program.
void BenchGuesser::accept(Token token) {
  const size_t i = text_.size() - script_->begin;
  if (token != script_->tokens[i])
    throw Error(ErrorCode::device, "bench",
                fmt::format("with drafts of {} token {} is {}, and {} without", name(), i, token,
                            script_->tokens[i]));
  text_.push_back(token);
}

SpeculationCounters BenchGuesser::run(Pipeline& pipeline, Sequence& sequence) {
  Sampler sampler = greedy();
  SpeculationCounters counters{.source = name()};
  const size_t end = script_->begin + script_->tokens.size();
  while (text_.size() < end) {
    const uint64_t start = now_ns();
    const uint32_t begin = sequence.position();
    Round round = next_round(pipeline, sequence, static_cast<uint32_t>(end - text_.size()));
    pipeline.run_rows(sequence, round.tokens(), [&](uint32_t, const Logits& logits) {
      if (!round.is_open()) return;
      const Token token = sampler.sample(logits);
      accept(token);
      round.choose(text_.size() < end ? std::optional(token) : std::nullopt);
    });
    sequence.rewind(sequence.last_cut(begin + round.settled()));
    if (sequence.position() < begin + round.settled())
      pipeline.run(sequence,
                   std::span(text_).subspan(sequence.position(),
                                            begin + round.settled() - sequence.position()));
    ++counters.calls;
    counters.drafted += round.drafted();
    counters.accepted += round.accepted();
    counters.drafting_seconds += round.drafting_seconds();
    speculation_->length.observe(round.drafted(), round.accepted(), now_ns() - start);
  }
  return counters;
}

}  // namespace tyto
