#include "cli/chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/utf8.h"
#include "check/combination.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "model/description.h"
#include "shell/terminal.h"
#include "text/chat_template.h"
#include "text/grammar/constraint.h"

namespace tyto {
namespace {

std::atomic<bool> interrupted = false;
struct Interrupted {};

constexpr const char* kWaysOut =
    "/clear forgets the conversation, /undo takes back its last exchange, and /set context-shift "
    "on drops the oldest ones";
constexpr const char* kLargerContext = "a larger one is made with --context";

std::string tokens_text(uint64_t count) {
  return count == 1 ? "1 token" : fmt::format("{} tokens", count);
}

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

void tell(std::string_view text, Ink ink) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    note(text.substr(begin, end - begin), ink);
    begin = end + 1;
  }
}

void tell(const Error& error) {
  tell(fmt::format("tyto: {}{}", error.what(), error.hint.empty() ? "" : " (" + error.hint + ")"));
}

Conversation::Conversation(Engine& engine, const ChatCommandFlags& flags)
    : engine_(engine),
      flags_(flags),
      template_(choose_chat_template(engine.tokenizer().vocabulary(), flags.chat.chat_template,
                                     engine.model().path.string())),
      speculation_(flags.speculation, engine, flags.engine.options),
      sampling_(sampler_options(flags.settings.sampling, engine.model())),
      sampler_(sampling_),
      dialogue_{flags.chat.system, {}} {
  if (flags.grammar) tokens_ = std::make_shared<const TokenTrie>(engine.tokenizer());
  tell_of_idle_system();
}

std::string Conversation::greeting() const {
  const ModelDescription model = describe(engine_.model());
  const std::string type = model.type.empty() ? "" : ", " + model.type;
  return fmt::format("{} ({}{}) on {} · context {} · /help", model.name, model.size, type,
                     device_names(flags_.engine.options), context());
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
  said_troubles_.clear();
  last_receipt_.clear();
  totals_ = {};
}

void Conversation::set_system(const std::string& text) {
  dialogue_.system = text;
  tell_of_idle_system();
}

void Conversation::tell_of_idle_system() {
  if (dialogue_.system.empty() || has_told_of_idle_system_) return;
  const std::string why = why_system_is_idle(engine_.tokenizer(), template_);
  if (why.empty()) return;
  tell(why);
  has_told_of_idle_system_ = true;
}

void Conversation::use_settings() {
  const SamplingFlags& flags = flags_.settings.sampling;
  if (flags_.grammar && flags.ignore_eos)
    throw Error(ErrorCode::usage, "ignore-eos", "excludes --grammar and --json-schema");
  sampling_ = sampler_options(flags, engine_.model());
  sampler_ = Sampler(sampling_);
}

// False where no word came.
bool Conversation::take_turn() {
  const QuietTerminal quiet;
  ++turns_;
  reply_.clear();
  AnswerPrinter printer;
  try {
    answer(printer);
  } catch (const Interrupted&) {
    printer.end();
    if (reply_.empty()) tell("Stopped before the answer began; the conversation is unchanged.");
  } catch (const Error& error) {
    if (error.code == ErrorCode::require) throw;
    printer.end();
    ++failed_;
    tell(error);
  }
  end_answer_on_terminal();
  dialogue_.exchanges.back().assistant = reply_;
  return !reply_.empty();
}

uint32_t Conversation::context() const {
  return engine_.pipeline().context();
}

ChatText Conversation::rendered() const {
  return render_chat(engine_.tokenizer(), template_, messages_of(dialogue_, first_seen_), {},
                     flags_.chat.special);
}

std::vector<Token> Conversation::encoded() const {
  return encode_chat(engine_.tokenizer(), rendered());
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

Answer Conversation::generate_part(Request request, AnswerText& text, AnswerPrinter& printer) {
  const bool hold =
      !flags_.engine.options.require.empty();  // until the receipt proves where it came from
  std::string held;
  const auto show = [&](std::string_view written) {
    const AnswerText::Piece piece = text.push(written);
    if (hold)
      held += piece.shown;
    else
      printer.show(piece.shown);
    reply_ += piece.answer;
    return !interrupted.load();
  };
  request.progress = [bar = progress_bar()](std::string_view what, uint64_t done, uint64_t total) {
    const bool stops = interrupted.load() && done < total;
    if (bar) bar(what, stops ? total : done, total);  // a full bar goes away
    if (stops) throw Interrupted();
  };
  last_tokens_ = request.prompt;
  Answer part = generate(engine_.generator(), sampler_, std::move(request), show);
  last_tokens_.insert(last_tokens_.end(), part.tokens.begin(), part.tokens.end());
  engine_.check_required(part.receipt.phases);
  engine_.complete(part.receipt);
  printer.show(held);
  return part;
}

void Conversation::answer(AnswerPrinter& printer) {
  const SamplingFlags& sampling = flags_.settings.sampling;
  std::vector<Token> answered;
  std::optional<std::vector<Token>> prompt = fitting_prompt(answered);
  if (!prompt) fail_full();
  Request request{.prompt = {},
                  .max_tokens = sampling.max_tokens,
                  .stop = sampling.stop,
                  .ignore_eos = sampling.ignore_eos};
  const Tokenizer& tokenizer = engine_.tokenizer();
  const std::string chat = rendered().text;
  AnswerText text(tokenizer, chat, false);
  request.shown_special = special_thought_markers(tokenizer);
  if (flags_.grammar)
    request.constraint = std::make_shared<Constraint>(
        flags_.grammar, tokens_, AnswerPlace{.thoughts = thoughts_ahead(tokenizer, chat)});
  // In several parts where exchanges are dropped to go on.
  while (true) {
    request.prompt = std::move(*prompt);
    request.continues_text = !answered.empty();
    request.speculation = speculation_.begin_request();
    request.max_tokens = sampling.max_tokens - static_cast<uint32_t>(answered.size());
    const Answer part = generate_part(request, text, printer);
    if (answered.empty()) ++totals_.answers;
    answered.insert(answered.end(), part.tokens.begin(), part.tokens.end());
    prompt.reset();
    const bool drops = part.reason == StopReason::context_full && may_drop();
    if (drops) {
      printer.pause();
      report(part);
      prompt = fitting_prompt(answered);
    }
    if (prompt) continue;
    end_text(text, printer);
    if (!drops) report(part);
    return report_end(part, request.constraint.get());
  }
}

void Conversation::end_text(AnswerText& text, AnswerPrinter& printer) {
  const AnswerText::Piece rest = text.finish();
  printer.show(rest.shown);
  printer.end();
  reply_ += rest.answer;
}

void Conversation::report(const Answer& part) {
  const Receipt& receipt = part.receipt;
  const bool is_stopped = part.reason == StopReason::cancelled;
  last_receipt_ = receipt_line(receipt);
  totals_.prompt_tokens += receipt.prompt_tokens;
  totals_.generated_tokens += receipt.generated_tokens;
  totals_.decoded_tokens += decoded_tokens(receipt);
  totals_.decode_seconds += receipt.decode_seconds;
  totals_.has_virtual_device = totals_.has_virtual_device || has_virtual_device(receipt);
  end_answer_on_terminal();
  const bool is_verbose = flags_.settings.verbose;
  tell(
      (is_verbose ? last_receipt_ : short_receipt_line(receipt)) + (is_stopped ? " · stopped" : ""),
      Ink::dim);
  for (const std::string& line : trouble_lines(receipt))
    if (said_troubles_.insert(line).second && !is_verbose) tell(line);
  report_verification();
}

void Conversation::report_end(const Answer& last, const Constraint* constraint) {
  const std::string cut = cut_off_text(
      last.reason, flags_.settings.sampling.max_tokens, context(),
      {"/set tokens changes it", flags_.settings.context_shift ? kLargerContext : kWaysOut});
  if (!cut.empty()) tell(cut);
  if (!cut.empty() && constraint != nullptr && !constraint->is_complete()) {
    ++failed_;
    tell("tyto: the answer does not match the grammar or schema");
  }
  if (reply_.empty()) tell("No answer came; the conversation is unchanged.");
}

// Said with the first answer alone.
void Conversation::report_verification() {
  if (std::exchange(has_said_verified_, true)) return;
  const Combination combination = combination_of(engine_, flags_.engine.options, progress_bar());
  const Verification found = verification_of(combination);
  if (!found.warning.empty()) tell("tyto: " + found.warning);
  if (!flags_.settings.verbose) {
    const std::string sentence =
        verified_sentence(found, combination, engine_, flags_.engine.options);
    if (!sentence.empty()) tell(sentence);
    return;
  }
  std::string clauses =
      identity_clause(engine_.identity()) + verified_clause(found, flags_.engine.options);
  constexpr std::string_view kSeparator = " · ";
  if (clauses.starts_with(kSeparator)) clauses.erase(0, kSeparator.size());
  if (!clauses.empty()) tell(clauses, Ink::dim);
}

std::string Conversation::statistics() const {
  const size_t exchanges = dialogue_.exchanges.size();
  std::string text;
  if (!last_receipt_.empty()) text += fmt::format("last answer: {}\n", last_receipt_);
  text +=
      fmt::format("conversation: {}, {} of prompts run, {} generated",
                  totals_.answers == 1 ? "1 answer" : fmt::format("{} answers", totals_.answers),
                  tokens_text(totals_.prompt_tokens), tokens_text(totals_.generated_tokens));
  if (totals_.decode_seconds > 0 && !totals_.has_virtual_device)
    text += fmt::format(", {:.1f} tok/s",
                        static_cast<double>(totals_.decoded_tokens) / totals_.decode_seconds);
  const size_t taken = exchanges == 0 ? 0 : encoded().size();
  text += fmt::format("\ncontext: {} of {} tokens", std::min<size_t>(taken, context()), context());
  if (taken > context()) text += ", which is full";
  if (first_seen_ > 0)
    text += fmt::format(", the last {} of {} exchanges", exchanges - first_seen_, exchanges);
  if (sampling_.temperature > 0) text += fmt::format("\nseed: {}", sampling_.seed);
  return text;
}

}  // namespace tyto
