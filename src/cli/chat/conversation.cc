#include "cli/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "cli/combination.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "text/chat_text.h"
#include "text/grammar/constraint.h"

namespace tyto {
namespace {

std::atomic<bool> interrupted = false;
struct Interrupted {};

constexpr const char* kWaysOut =
    "/clear forgets the conversation, /undo takes back its last exchange, and /set context-shift "
    "on drops the oldest ones";
constexpr const char* kLargerContext = "a larger one is made with --context";

}  // namespace

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESTART;  // what is read from a pipe meanwhile stays
  ::sigaction(SIGINT, &action, nullptr);
}

void forget_interrupts() {
  interrupted = false;
}

void tell(std::string_view text) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    note(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

void tell(const Error& error) {
  tell(fmt::format("tyto: {}{}", error.what(), error.hint.empty() ? "" : " (" + error.hint + ")"));
}

Conversation::Conversation(Engine& engine, const ChatCommandFlags& flags,
                           std::shared_ptr<const Grammar> grammar)
    : engine_(engine),
      flags_(flags),
      template_(choose_chat_template(engine.tokenizer().vocabulary(), flags.chat.chat_template,
                                     engine.model().path.string())),
      grammar_(std::move(grammar)),
      speculation_(flags.speculation, engine, flags.engine),
      sampling_(sampler_options(flags.settings.sampling, engine.model())),
      sampler_(sampling_),
      dialogue_{flags.chat.system, {}} {
  if (grammar_) tokens_ = std::make_shared<const TokenTrie>(engine.tokenizer());
}

void Conversation::say(const std::string& text) {
  dialogue_.exchanges.push_back({text, ""});
  if (!take_turn()) dialogue_.exchanges.pop_back();
}

void Conversation::answer_again() {
  std::string& answer = dialogue_.exchanges.back().assistant;
  const std::string earlier = std::exchange(answer, "");
  sampling_.seed = std::random_device()();
  sampler_ = Sampler(sampling_);
  if (!take_turn()) answer = earlier;
}

std::string Conversation::undo() {
  const std::string text = dialogue_.exchanges.back().user;
  dialogue_.exchanges.pop_back();
  first_seen_ = 0;
  return text;
}

void Conversation::clear() {
  replace({dialogue_.system, {}});
}

void Conversation::replace(Dialogue dialogue) {
  dialogue_ = std::move(dialogue);
  first_seen_ = 0;
  said_fallbacks_.clear();
  last_receipt_.clear();
  totals_ = {};
}

void Conversation::set_system(const std::string& text) {
  dialogue_.system = text;
}

void Conversation::use_settings() {
  const SamplingFlags& flags = flags_.settings.sampling;
  if (grammar_ && flags.ignore_eos)
    throw Error(ErrorCode::usage, "ignore-eos", "excludes --grammar and --json-schema");
  sampling_ = sampler_options(flags, engine_.model());
  sampler_ = Sampler(sampling_);
}

// False where no word came.
bool Conversation::take_turn() {
  ++turns_;
  reply_.clear();
  try {
    answer();
  } catch (const Interrupted&) {
    if (reply_.empty()) tell("Stopped before the answer began, which leaves all as it was.");
  } catch (const Error& error) {
    if (error.code == ErrorCode::require) throw;
    ++failed_;
    tell(error);
  }
  print("\n");
  dialogue_.exchanges.back().assistant = reply_;
  return !reply_.empty();
}

uint32_t Conversation::context() const {
  return engine_.pipeline().context();
}

std::vector<Token> Conversation::encoded() const {
  return encode_chat(engine_.tokenizer(), template_, messages_of(dialogue_, first_seen_), {},
                     flags_.chat.special);
}

bool Conversation::may_drop() const {
  return flags_.settings.context_shift && first_seen_ + 1 < dialogue_.exchanges.size();
}

void Conversation::fail_full() const {
  const bool is_helpless =
      flags_.settings.context_shift || first_seen_ + 1 == dialogue_.exchanges.size();
  throw Error(ErrorCode::input, "conversation",
              fmt::format("{} tokens leave no room for an answer in a context of {}",
                          encoded().size(), context()),
              is_helpless ? std::string("say it in fewer words; ") + kLargerContext : kWaysOut);
}

// With the beginning of an answer behind it; nothing where that leaves no room. Where exchanges may
// be dropped there is room for a longer answer, too, lest every turn drops one.
std::optional<std::vector<Token>> Conversation::fitting_prompt(std::span<const Token> answered) {
  const uint32_t wanted = std::clamp(flags_.settings.sampling.max_tokens, 1u, context() / 4 + 1);
  const size_t first_before = first_seen_;
  std::vector<Token> prompt;
  const auto leaves = [&](size_t room) { return prompt.size() + room <= context(); };
  for (;; ++first_seen_) {
    prompt = encoded();
    prompt.insert(prompt.end(), answered.begin(), answered.end());
    if (leaves(wanted) || !may_drop()) break;
  }
  if (!leaves(1)) {
    first_seen_ = first_before;
    return std::nullopt;
  }
  if (const size_t dropped = first_seen_ - first_before; dropped > 0)
    tell(fmt::format("The context of {} tokens is full: the oldest {} dropped from it.", context(),
                     dropped == 1 ? "exchange was" : fmt::format("{} exchanges were", dropped)));
  return prompt;
}

Answer Conversation::generate_part(const Request& request) {
  const bool hold = !flags_.engine.require.empty();  // until the receipt proves where it came from
  std::string held;
  const auto show = [&](std::string_view text) {
    if (hold)
      held += only_text(text);
    else
      print(only_text(text));
    reply_ += text;
    return !interrupted.load();
  };
  const auto watch = [bar = progress_bar()](std::string_view what, uint64_t done, uint64_t total) {
    const bool stops = interrupted.load() && done < total;
    if (bar) bar(what, stops ? total : done, total);  // a full bar goes away
    if (stops) throw Interrupted();
  };
  last_tokens_ = request.prompt;
  Answer part = generate(engine_.generator(), sampler_, request, show, watch);
  last_tokens_.insert(last_tokens_.end(), part.tokens.begin(), part.tokens.end());
  engine_.check_required(part.receipt.phases);
  engine_.complete(part.receipt);
  print(held);
  return part;
}

void Conversation::answer() {
  const SamplingFlags& sampling = flags_.settings.sampling;
  std::vector<Token> answered;
  std::optional<std::vector<Token>> prompt = fitting_prompt(answered);
  if (!prompt) fail_full();
  Request request{.prompt = {},
                  .max_tokens = sampling.max_tokens,
                  .stop = sampling.stop,
                  .ignore_eos = sampling.ignore_eos};
  if (grammar_) request.constraint = std::make_shared<Constraint>(grammar_, tokens_);
  StopReason reason = StopReason::context_full;
  // In several parts where exchanges are dropped to go on.
  while (prompt && reason == StopReason::context_full) {
    request.prompt = std::move(*prompt);
    request.speculation = speculation_.begin_request();
    request.max_tokens = sampling.max_tokens - static_cast<uint32_t>(answered.size());
    const Answer part = generate_part(request);
    if (answered.empty()) ++totals_.answers;
    answered.insert(answered.end(), part.tokens.begin(), part.tokens.end());
    report(part.receipt);
    reason = part.reason;
    prompt.reset();
    if (reason == StopReason::context_full && may_drop()) prompt = fitting_prompt(answered);
  }
  report_end(reason);
}

void Conversation::report(const Receipt& receipt) {
  last_receipt_ = receipt_line(receipt);
  totals_.prompt_tokens += receipt.prompt_tokens;
  totals_.generated_tokens += receipt.generated_tokens;
  totals_.decoded_tokens += decoded_tokens(receipt);
  totals_.decode_seconds += receipt.decode_seconds;
  totals_.has_virtual_device = totals_.has_virtual_device || has_virtual_device(receipt);
  note("");  // the answer may stand on the same line of the terminal
  tell("[" + (flags_.settings.verbose ? last_receipt_ : short_receipt_line(receipt)) + "]");
  for (const std::string& fallback : receipt.fallbacks)
    if (said_fallbacks_.insert(fallback).second && !flags_.settings.verbose)
      tell("fallback: " + fallback);
  report_verification();
}

void Conversation::report_end(StopReason reason) const {
  if (reason == StopReason::max_tokens)
    tell(fmt::format("The answer ends at the limit of {} tokens; /set tokens N changes it.",
                     flags_.settings.sampling.max_tokens));
  if (reason == StopReason::context_full)
    tell(fmt::format("The answer ends because the context of {} tokens is full: {}.", context(),
                     flags_.settings.context_shift ? kLargerContext : kWaysOut));
}

// Said with the first answer alone.
void Conversation::report_verification() {
  if (std::exchange(has_said_verified_, true)) return;
  const Verification found = verification_of(combination_of(engine_, flags_.engine));
  if (!found.warning.empty()) tell("tyto: " + found.warning);
  std::string clauses = identity_clause(engine_.identity()) + verified_clause(found, flags_.engine);
  constexpr std::string_view kSeparator = " · ";
  if (clauses.starts_with(kSeparator)) clauses.erase(0, kSeparator.size());
  if (!clauses.empty()) tell("[" + clauses + "]");
}

std::string Conversation::statistics() const {
  const size_t exchanges = dialogue_.exchanges.size();
  std::string text;
  if (!last_receipt_.empty()) text += fmt::format("last answer: {}\n", last_receipt_);
  text +=
      fmt::format("conversation: {}, {} prompt tokens run, {} tokens generated",
                  totals_.answers == 1 ? "1 answer" : fmt::format("{} answers", totals_.answers),
                  totals_.prompt_tokens, totals_.generated_tokens);
  if (totals_.decode_seconds > 0 && !totals_.has_virtual_device)
    text += fmt::format(", {:.1f} tok/s",
                        static_cast<double>(totals_.decoded_tokens) / totals_.decode_seconds);
  text +=
      fmt::format("\ncontext: {} of {} tokens", exchanges == 0 ? 0 : encoded().size(), context());
  if (first_seen_ > 0)
    text += fmt::format(", the last {} of {} exchanges", exchanges - first_seen_, exchanges);
  if (sampling_.temperature > 0) text += fmt::format("\nseed: {}", sampling_.seed);
  return text;
}

}  // namespace tyto
