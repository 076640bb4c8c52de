#include "engine/generate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "engine/host_ops.h"
#include "engine/receipt.h"
#include "engine/text_stream.h"
#include "trace/energy_report.h"

namespace tyto {
namespace {

// The sequence of a request, with what is known of its prompt; gives it all back in the end.
class PromptSequence {
 public:
  PromptSequence(const Generator& with, const Request& request)
      : sequence(with.pipeline), pipeline_(with.pipeline), prefixes_(with.prefixes) {
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

  // The windows in front of its whole pages, which are given back while the answer grows: another
  // request, or another answer, may begin like it.
  void keep_windows() {
    const KvWindow& window = pipeline_.kv_window();
    if (prefixes_ == nullptr || window.pool == nullptr) return;
    const uint32_t page = window.pool->page_positions();
    const uint32_t whole_pages = sequence.position() / page * page;
    prefixes_->keep(std::span(sequence.tokens()).first(whole_pages), sequence.share(whole_pages));
  }

  Sequence sequence;

 private:
  const Pipeline& pipeline_;
  PrefixCache* prefixes_;
};

// The answer as it is written, token by token.
class Writing {
 public:
  Writing(const Generator& with, Sampler& sampler, const Request& request, const OnText& on_text)
      : ops(with.trace),
        with_(with),
        sampler_(sampler),
        request_(request),
        on_text_(on_text),
        text_(with.tokenizer, request.stop, request.shown_special, request.continues_text) {
    if (request.speculation) tokens_ = request.prompt;
  }

  // Chooses from the logits of the last of `position` tokens; nothing where the answer ends.
  std::optional<Token> choose(const Logits& logits, uint32_t position) {
    const Token token = ops.timed(ops.sample, [&] { return sampler_.sample(logits); });
    ++answer.receipt.generated_tokens;
    chosen = with_.trace.token_chosen();
    if (answer.receipt.generated_tokens == 1) first = chosen;
    if (with_.tokenizer.is_eos(token) && !request_.ignore_eos) {
      answer.reason = StopReason::eos;
      return std::nullopt;
    }
    sampler_.accept(token);
    answer.tokens.push_back(token);
    if (request_.speculation) tokens_.push_back(token);
    const std::string piece = ops.timed(ops.detokenize, [&] { return text_.push(token); });
    if (!ops.timed(ops.output, [&] { return on_text_(piece); }))
      answer.reason = StopReason::cancelled;
    if (text_.stopped()) answer.reason = StopReason::stop_string;
    if (answer.reason != StopReason::max_tokens || left() == 0) return std::nullopt;
    if (position == with_.pipeline.context()) {
      answer.reason = StopReason::context_full;
      return std::nullopt;
    }
    return token;
  }

  void finish() {
    if (const std::string last = text_.finish();
        answer.reason != StopReason::cancelled && !last.empty())
      on_text_(last);
  }

  uint32_t left() const {  // tokens that the answer may still get
    return request_.max_tokens - std::min(request_.max_tokens, answer.receipt.generated_tokens);
  }
  std::span<const Token> tokens() const { return tokens_; }

  const HostOps ops;
  Answer answer;
  uint64_t first = 0, chosen = 0;  // when the first token was, and the last

 private:
  const Generator& with_;
  Sampler& sampler_;
  const Request& request_;
  const OnText& on_text_;
  TextStream text_;
  std::vector<Token> tokens_;  // the prompt and the answer, where somebody guesses what follows
};

// One token after the other.
void decode_plainly(const Generator& with, Sequence& sequence, Writing& writing,
                    std::optional<Token> token) {
  while (token) {
    const Logits logits = with.pipeline.run(sequence, {&*token, 1});
    token = writing.choose(logits, sequence.position());
  }
}

// Rows of logits that outlive the call they came from.
class KeptRows {
 public:
  void keep(uint32_t row, const Logits& logits) {
    if (row >= rows_.size()) rows_.resize(row + 1);
    Row& kept = rows_[row];
    kept.is_best = logits.are_candidates();
    if (kept.is_best) {
      kept.best.assign(logits.candidates().begin(), logits.candidates().end());
    } else {
      const std::span<const float> values = logits;
      kept.values.assign(values.begin(), values.end());
    }
  }
  Logits row(uint32_t row) const {
    const Row& kept = rows_[row];
    return kept.is_best ? Logits(std::span<const Candidate>(kept.best)) : Logits(kept.values);
  }

 private:
  struct Row {
    bool is_best = false;
    std::vector<Candidate> best = {};
    std::vector<float> values = {};
  };
  std::vector<Row> rows_;
};

// As decode_plainly, several tokens in one call where guesses of them come true.
class SpeculativeDecoding {
 public:
  SpeculativeDecoding(const Generator& with, Sequence& sequence, Writing& writing,
                      Speculation& speculation)
      : with_(with),
        sequence_(sequence),
        writing_(writing),
        speculation_(speculation),
        checks_(with.pipeline.most_checked() > 1),
        counters_(writing.answer.receipt.speculation.emplace()) {
    counters_.source = speculation.source;
    if (const auto why = why_no_guesses(with.pipeline, speculation))
      writing.answer.receipt.fallbacks.push_back(*why);
  }

  // What guesses has to read the prompt, too.
  void read_prompt() {
    if (!checks_) return;
    const uint64_t start = now_ns();
    writing_.ops.timed(writing_.ops.guess,
                       [&] { return speculation_.drafter(writing_.tokens(), 0); });
    counters_.drafting_seconds += seconds_between(start, now_ns());
  }

  void decode(std::optional<Token> token) {
    while (token) {
      const uint64_t start = now_ns();
      Round round = next_round();
      token = run(round);
      ++counters_.calls;
      counters_.drafted += round.drafted();
      counters_.accepted += round.accepted();
      counters_.drafting_seconds += round.drafting_seconds();
      speculation_.length.observe(round.drafted(), round.accepted(), now_ns() - start);
    }
  }

 private:
  // Whatever happens while tokens are chosen, the sequence keeps the rows they were chosen from.
  struct Settling {
    ~Settling() { sequence.rewind(begin + round.settled()); }
    Sequence& sequence;
    uint32_t begin;
    const Round& round;
  };

  Round next_round() {
    const uint32_t ahead = with_.pipeline.context() - sequence_.position();
    const GuessRoom room{.rows = checks_ ? std::min(with_.pipeline.most_checked(), ahead) : 1,
                         .tokens = writing_.left(),
                         .vocab = with_.pipeline.vocab()};
    Round round = writing_.ops.timed(writing_.ops.guess,
                                     [&] { return Round(&speculation_, writing_.tokens(), room); });
    const auto rows = static_cast<uint32_t>(round.tokens().size());
    // Where pages are short there is room for the token itself at best.
    if (rows > 1 && !with_.pipeline.reserve(sequence_, rows)) round.drop_guesses();
    return round;
  }

  // Nothing is chosen before the call has ended: a call that fails half-way has had no effect.
  std::optional<Token> run(Round& round) {
    const uint32_t begin = sequence_.position();
    std::optional<Token> next;
    if (round.drafted() == 0) {
      const Logits logits = with_.pipeline.run(sequence_, round.tokens());
      next = writing_.choose(logits, begin + 1);
      round.choose(next);
      return next;
    }
    with_.pipeline.run_rows(sequence_, round.tokens(),
                            [&](uint32_t row, const Logits& logits) { rows_.keep(row, logits); });
    const Settling settling{sequence_, begin, round};
    while (round.is_open()) {
      const uint32_t row = round.settled();
      next = writing_.choose(rows_.row(row), begin + row + 1);
      round.choose(next);
    }
    return next;
  }

  const Generator& with_;
  Sequence& sequence_;
  Writing& writing_;
  Speculation& speculation_;
  const bool checks_;  // as the receipt says, also after the host took over from a device
  SpeculationCounters& counters_;
  KeptRows rows_;
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

bool has_text(const Tokenizer& tokenizer, std::span<const Token> prompt) {
  return std::ranges::any_of(prompt, [&](Token token) { return !tokenizer.is_special(token); });
}

std::optional<std::string> why_no_guesses(const Pipeline& pipeline,
                                          const Speculation& speculation) {
  if (pipeline.most_checked() > 1) return std::nullopt;
  return fmt::format(
      "{} checks guesses one row at a time, which gains nothing: plain decoding instead of {}",
      pipeline.disagreeing_device(), printable_name(speculation.source));
}

uint32_t candidates_needed(const Request& request, const Sampler& sampler) {
  if (request.wants_all_logits) return 0;
  return candidates_needed(sampler.options(), request.constraint != nullptr);
}

Answer generate(const Generator& with, Sampler& sampler, const Request& request,
                const OnText& on_text, const Progress& progress) {
  PromptSequence prompt(with, request);
  Sequence& sequence = prompt.sequence;
  sequence.candidates = candidates_needed(request, sampler);
  if (request.energy != nullptr) request.energy->start();
  const uint64_t start = now_ns();
  Writing writing(with, sampler, request, on_text);
  Receipt& receipt = writing.answer.receipt;
  receipt.cached_tokens = sequence.position();
  receipt.prompt_tokens = static_cast<uint32_t>(request.prompt.size()) - receipt.cached_tokens;
  std::optional<SpeculativeDecoding> speculative;
  if (request.speculation) speculative.emplace(with, sequence, writing, *request.speculation);

  const std::span<const Token> rest = std::span(request.prompt).subspan(receipt.cached_tokens);
  const Logits logits = with.pipeline.run(sequence, rest, progress);
  prompt.keep_windows();
  writing.ops.timed(writing.ops.sample, [&] {
    sampler.constrain(nullptr);  // a conversation's last answer may have had one
    for (Token token : request.prompt) sampler.accept(token);
    sampler.constrain(request.constraint);
  });
  if (speculative) speculative->read_prompt();
  if (request.energy != nullptr) receipt.prefill_energy = request.energy->lap();
  sequence.phase = Phase::decode;
  const std::optional<Token> token = writing.choose(logits, sequence.position());
  if (speculative)
    speculative->decode(token);
  else
    decode_plainly(with, sequence, writing, token);
  receipt.prefill_seconds = seconds_between(start, writing.first);
  receipt.decode_seconds = seconds_between(writing.first, writing.chosen);
  if (request.energy != nullptr) receipt.decode_energy = request.energy->stop();
  writing.finish();
  add_execution(receipt, sequence, with.pipeline, with.trace);
  drop_simulated_energy(receipt);
  if (request.energy != nullptr) receipt.energy = energy_of(receipt);
  return std::move(writing.answer);
}

}  // namespace tyto
