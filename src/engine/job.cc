#include "engine/job.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "engine/recording.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, "");
}

std::string StopStrings::push(std::string_view text) {
  if (stopped_) return "";
  pending_ += text;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, pending_.find(stop));
  stopped_ = first != std::string::npos;
  const size_t shown = stopped_ ? first : pending_.size() - held_back();
  std::string out = pending_.substr(0, shown);
  pending_.erase(0, stopped_ ? pending_.size() : shown);
  return out;
}

std::string StopStrings::finish() {
  return std::exchange(pending_, "");
}

// Length of the longest tail that begins some stop string.
size_t StopStrings::held_back() const {
  size_t longest = 0;
  for (const std::string& stop : stops_)
    for (size_t n = std::min(stop.size() - 1, pending_.size()); n > longest; --n)
      if (pending_.ends_with(std::string_view(stop).substr(0, n))) longest = n;
  return longest;
}

namespace {

// The mean's direction; its length says nothing.
std::vector<float> normalised(const std::vector<double>& sums) {
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  const double length = std::sqrt(squares);
  std::vector<float> result;
  for (const double sum : sums) result.push_back(static_cast<float>(length > 0 ? sum / length : 0));
  return result;
}

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
      "{} checks drafted tokens one by one, which gains nothing: plain decoding instead of {}",
      pipeline.disagreeing_device(), printable_name(speculation.source));
}

uint32_t candidates_needed(const Request& request, const Sampler& sampler) {
  if (request.wants_all_logits) return 0;
  return candidates_needed(sampler.options(), request.constraint != nullptr);
}

Job::Job(Id number, const Generator& with, Request asked, std::unique_ptr<Sampler> own,
         Sampler* shared, OnToken on_token, OnDone on_done)
    : id_(number),
      with_(with),
      ops_(with.trace),
      request_(std::move(asked)),
      own_sampler_(std::move(own)),
      sampler_(own_sampler_ ? *own_sampler_ : *shared),
      text_(with.tokenizer, request_.stop, request_.shown_special, request_.continues_text),
      on_token_(std::move(on_token)),
      on_done_(std::move(on_done)),
      on_hidden_([this](uint32_t position, std::span<const float> hidden) {
        take_hidden(position, hidden);
      }),
      tokens_(request_.prompt),
      added_ns_(now_ns()) {}

void Job::admit() {
  sequence_ = std::make_unique<Sequence>(with_.pipeline);
  sequence_->candidates = candidates_needed(request_, sampler_);
  // An answer needs the last token's logits, anything else every position's that it has not seen.
  const auto most = wants_answer() ? static_cast<uint32_t>(tokens_.size() - 1) : seen_;
  uint32_t cached = 0;
  if (with_.prefixes != nullptr && most > 0) {
    KvTable known = with_.prefixes->find(tokens_, most);
    cached = known.length();
    sequence_->begin_with(std::span(tokens_).first(cached), std::move(known));
  }
  // The same prompt asks for its last token's logits again.
  if (wants_answer()) sequence_->want_state(static_cast<uint32_t>(request_.prompt.size()) - 1);
  side = with_.pipeline.side_for(left());
  waiting_left = SIZE_MAX;
  again_ = 0;
  if (!answer_.tokens.empty()) sequence_->phase = Phase::decode;
  if (begun_ns_ == 0) begin(cached);
}

// The first time that it runs: what it finds now others have computed, and what it finds after
// giving its pages back may be its own work.
void Job::begin(uint32_t cached) {
  if (request_.energy != nullptr) request_.energy->start();
  begun_ns_ = now_ns();
  receipt_.queue_seconds = seconds_between(added_ns_, begun_ns_);
  receipt_.cached_tokens = cached;
  receipt_.prompt_tokens = static_cast<uint32_t>(request_.prompt.size()) - cached;
  if (request_.is_recorded) with_.trace.begin_request();
  show_progress();
  if (!wants_answer()) return;
  ops_.timed(ops_.sample, [&] {
    sampler_.constrain(nullptr);  // a conversation's last answer may have had one
    for (Token token : request_.prompt) sampler_.accept(token);
    sampler_.constrain(request_.constraint);
  });
  if (!request_.speculation) return;
  receipt_.speculation.emplace().source = request_.speculation->source;
  if (const auto why = why_no_guesses(with_.pipeline, *request_.speculation))
    receipt_.fallbacks.push_back(*why);
}

void Job::put_back(Pages pages) {
  round_.reset();
  add_execution(receipt_, *sequence_, with_.pipeline, with_.trace);
  if (with_.prefixes != nullptr && pages == Pages::kept) {
    const std::vector<Token> held = sequence_->tokens();
    with_.prefixes->keep(held, sequence_->take_cache());
  }
  sequence_.reset();
}

SequenceRows Job::rows(uint32_t rows) {
  const bool is_last = rows == left();
  const uint32_t logits = wants_answer() ? (is_last ? 1 : 0) : rows;
  const bool embeds = request_.wanted == Wanted::embedding;
  return {.sequence = sequence_.get(),
          .tokens = std::span<const Token>(tokens_).subspan(sequence_->position(), rows),
          .logits = embeds ? 0 : logits,
          .on_hidden = embeds ? &on_hidden_ : nullptr,
          .side = decodes() ? Side::decode : side};
}

uint64_t Job::guess(SequenceRows& work, uint32_t most) try {
  Speculation* const speculation = request_.speculation.get();
  if (speculation == nullptr || most < 2 || with_.pipeline.most_checked() == 1) return 0;
  SpeculationCounters& counters = *receipt_.speculation;
  uint64_t reading_ns = 0;
  if (!drafter_has_read_) {
    const uint64_t start = now_ns();
    ops_.timed(ops_.guess, [&] { return speculation->drafter(tokens_, 0); });
    drafter_has_read_ = true;
    reading_ns = now_ns() - start;
    counters.drafting_seconds += seconds_between(start, now_ns());
  }
  const uint32_t ahead = with_.pipeline.context() - (static_cast<uint32_t>(tokens_.size()) - 1);
  const auto again = static_cast<uint32_t>(left()) - 1;
  const uint32_t beside = with_.pipeline.forward().most_rows() - again;
  const GuessRoom room{.rows = std::min({most, with_.pipeline.most_checked(), ahead, beside}),
                       .tokens = tokens_left(),
                       .vocab = with_.pipeline.vocab()};
  Round round = ops_.timed(ops_.guess, [&] { return Round(speculation, tokens_, room); });
  counters.drafting_seconds += round.drafting_seconds();
  const auto wanted = static_cast<uint32_t>(round.tokens().size());
  if (wanted == 1 || !with_.pipeline.reserve(*sequence_, again + wanted)) return reading_ns;
  round_ = std::move(round);
  rows_.assign(tokens_.end() - static_cast<std::ptrdiff_t>(left()), tokens_.end() - 1);
  rows_.insert(rows_.end(), round_->tokens().begin(), round_->tokens().end());
  work.tokens = rows_;
  work.logits = wanted;
  return reading_ns;
} catch (const Error& error) {  // the drafter's: the request goes on without it
  receipt_.fallbacks.push_back(
      fmt::format("{} drafts no more: {}", request_.speculation->source, error.what()));
  request_.speculation.reset();
  return 0;
}

void Job::begin_answer(uint64_t now) {
  first_ns_ = now;
  receipt_.prefill_seconds = seconds_between(begun_ns_, now);
  sequence_->phase = Phase::decode;
}

void Job::take(uint32_t position, const Logits& logits) try {
  if (wants_answer())
    choose(logits);
  else if (is_new(position))
    request_.on_logits(position, logits);
} catch (const Error& error) {  // thrown by its grammar, say: other requests go on
  fail(error);
}

void Job::choose(const Logits& logits) {
  if (first_ns_ == 0 && request_.energy != nullptr)
    receipt_.prefill_energy = request_.energy->lap();
  const Token token = ops_.timed(ops_.sample, [&] { return sampler_.sample(logits); });
  const bool is_new_call = first_ns_ > 0 && chosen_.empty();
  if (receipt_.speculation && is_new_call) ++receipt_.speculation->calls;
  const uint64_t now = now_ns();
  if (request_.is_recorded) ++unrecorded_;
  if (first_ns_ == 0) begin_answer(now);
  receipt_.decode_seconds = seconds_between(first_ns_, now);
  ++receipt_.generated_tokens;
  if (with_.tokenizer.is_eos(token) && !request_.ignore_eos)
    answer_.reason = StopReason::eos;
  else
    write(token, logits);
  is_finished_ = answer_.reason != StopReason::max_tokens || tokens_left() == 0;
  if (round_) round_->choose(is_finished_ ? std::nullopt : std::optional(token));
}

void Job::write(Token token, const Logits& logits) {
  sampler_.accept(token);
  answer_.tokens.push_back(token);
  const std::string piece = ops_.timed(ops_.detokenize, [&] { return text_.push(token); });
  const bool goes_on =
      ops_.timed(ops_.output, [&] { return on_token_({token, piece, logits, receipt_}); });
  if (!goes_on) answer_.reason = StopReason::cancelled;
  if (text_.stopped()) answer_.reason = StopReason::stop_string;
  const size_t held = tokens_.size() + chosen_.size();  // with the row it was chosen from
  if (answer_.reason == StopReason::max_tokens && held == with_.pipeline.context())
    answer_.reason = StopReason::context_full;
  chosen_.push_back(token);
}

// True once for each position, also where a pass was run again.
bool Job::is_new(uint32_t position) {
  if (position != seen_) return false;
  ++seen_;
  return true;
}

void Job::take_hidden(uint32_t position, std::span<const float> hidden) {
  if (!is_new(position)) return;
  hidden_sums_.resize(hidden.size());
  for (size_t i = 0; i < hidden.size(); ++i) hidden_sums_[i] += hidden[i];
}

// In a recording a token ends with the pass that it came from, which lies inside of it.
void Job::record_tokens() {
  for (; unrecorded_ > 0; --unrecorded_) {
    const uint64_t now = with_.trace.token_chosen();
    const bool is_first = receipt_.generated_tokens == unrecorded_;
    if (is_first) begin_answer(now);
    receipt_.decode_seconds = seconds_between(first_ns_, now);
  }
}

void Job::settle() {
  record_tokens();
  again_ = 0;
  if (round_) {
    receipt_.speculation->drafted += round_->drafted();
    receipt_.speculation->accepted += round_->accepted();
    // The cache of a request that failed may be empty.
    const auto kept = static_cast<uint32_t>(tokens_.size()) - 1 + round_->settled();
    // Rows in front of it that have to be run again are, with the next.
    if (sequence_->position() > kept) {
      sequence_->rewind(sequence_->last_cut(kept));
      again_ = kept - sequence_->position();
    }
    round_.reset();
  }
  if (error_) return;
  if (chosen_.size() == answer_.tokens.size()) show_progress();  // there was no answer before
  tokens_.insert(tokens_.end(), chosen_.begin(), chosen_.end());
  chosen_.clear();
  if (wants_answer() || left() > 0) return;
  receipt_.prefill_seconds = seconds_between(begun_ns_, now_ns());
  is_finished_ = true;
}

void Job::show_progress() const {
  if (!request_.progress || receipt_.prompt_tokens < 2) return;
  const uint32_t done =
      std::min(sequence_->position(), receipt_.cached_tokens + receipt_.prompt_tokens);
  constexpr std::array<std::string_view, 3> kWhat = {"reading the prompt", "reading the text",
                                                     "computing logits"};
  request_.progress(kWhat[static_cast<size_t>(request_.wanted)],
                    done - std::min(done, receipt_.cached_tokens), receipt_.prompt_tokens);
}

void Job::cancel() {
  answer_.reason = StopReason::cancelled;
  is_finished_ = true;
}

void Job::fail(const Error& error) {
  error_ = error;
  is_finished_ = true;
}

void Job::end() {
  if (request_.energy != nullptr && has_begun()) receipt_.decode_energy = request_.energy->stop();
  if (sequence_) put_back(wants_answer() ? Pages::kept : Pages::dropped);
  if (!has_begun()) receipt_.queue_seconds = seconds_between(added_ns_, now_ns());
  if (request_.energy != nullptr) {
    drop_simulated_energy(receipt_);
    receipt_.energy = energy_of(receipt_);
  }
  Outcome outcome{.answer = std::move(answer_), .error = std::move(error_)};
  outcome.answer.receipt = std::move(receipt_);
  if (!outcome.error && outcome.answer.reason != StopReason::cancelled) {
    if (request_.wanted == Wanted::embedding) outcome.embedding = normalised(hidden_sums_);
    if (wants_answer()) outcome.rest = text_.finish();
  }
  on_done_(id_, std::move(outcome));
}

}  // namespace tyto
