#include <atomic>
#include <csignal>
#include <iostream>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "cli/combination.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt_cache.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/chat_text.h"
#include "text/grammar/constraint.h"

namespace tyto {
namespace {

struct ChatCommandFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  GrammarFlags grammar;
  ChatFlags chat;
  PromptCacheFlags prompt_cache;
};

// Ctrl-C stops the answer, not the program.
std::atomic<bool> interrupted = false;
struct Interrupted {};

void catch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = SA_RESTART;  // at the prompt the line being typed stays
  ::sigaction(SIGINT, &action, nullptr);
}

// The answer may stand on the same line of the terminal.
void note_below(const std::string& line) {
  note("");
  note(line);
}

class Conversation {
 public:
  Conversation(Engine& engine, const ChatCommandFlags& flags,
               std::shared_ptr<const Grammar> grammar)
      : engine_(engine),
        flags_(flags),
        template_(choose_chat_template(engine.tokenizer().vocabulary(), flags.chat.chat_template,
                                       engine.model().path.string())),
        sampler_(sampler_options(flags.sampling, engine.model())),
        grammar_(std::move(grammar)) {
    if (grammar_) tokens_ = std::make_shared<const TokenTrie>(engine.tokenizer());
    clear();
  }

  void clear() {
    messages_.clear();
    if (!flags_.chat.system.empty()) messages_.push_back({"system", flags_.chat.system});
  }

  uint32_t turns() const { return turns_; }
  const std::vector<Token>& last_tokens() const { return last_tokens_; }
  uint32_t failed() const { return failed_; }

  // One turn. An answer that was interrupted or failed stays out of the history only if it is
  // empty.
  void say(const std::string& text) {
    messages_.push_back({"user", text});
    ++turns_;
    std::string reply;
    try {
      answer(reply);
    } catch (const Interrupted&) {
    } catch (const Error& error) {
      if (error.code == ErrorCode::require) throw;
      ++failed_;
      note(fmt::format("tyto: {}{}", error.what(),
                       error.hint.empty() ? "" : " (" + error.hint + ")"));
    }
    print("\n");
    if (reply.empty())
      messages_.pop_back();
    else
      messages_.push_back({"assistant", reply});
  }

 private:
  void answer(std::string& reply) {
    interrupted = false;
    Request request{
        .prompt = encode_chat(engine_.tokenizer(), template_, messages_, {}, flags_.chat.special),
        .max_tokens = flags_.sampling.max_tokens,
        .stop = flags_.sampling.stop,
        .ignore_eos = flags_.sampling.ignore_eos};
    if (grammar_) request.constraint = std::make_shared<Constraint>(grammar_, tokens_);
    const bool hold =
        !flags_.engine.require.empty();  // until the receipt proves where it came from
    const auto show = [&](std::string_view text) {
      if (!hold) print(only_text(text));
      reply += text;
      return !interrupted.load();
    };
    const auto watch = [bar = progress_bar()](std::string_view what, uint64_t done,
                                              uint64_t total) {
      if (bar) bar(what, done, total);
      if (interrupted.load() && done < total) throw Interrupted();
    };
    last_tokens_ = request.prompt;
    const Answer result = generate(engine_.generator(), sampler_, request, show, watch);
    last_tokens_.insert(last_tokens_.end(), result.tokens.begin(), result.tokens.end());
    engine_.check_required(result.receipt.phases);
    if (hold) print(only_text(reply));
    const std::string verified = verified_once();
    note_below(fmt::format("[{}{}]", receipt_line(result.receipt), verified));
  }

  // Said with the first answer alone.
  std::string verified_once() {
    if (std::exchange(said_verified_, true)) return "";
    const Verification found = verification_of(combination_of(engine_, flags_.engine));
    if (!found.warning.empty()) note_below("tyto: " + found.warning);
    return identity_clause(engine_.identity()) + verified_clause(found, flags_.engine);
  }

  Engine& engine_;
  const ChatCommandFlags& flags_;
  ChatTemplate template_;
  Sampler sampler_;
  std::shared_ptr<const Grammar> grammar_;  // shared with the answers' constraints; null: none
  std::shared_ptr<const TokenTrie> tokens_;
  std::vector<ChatMessage> messages_;
  std::vector<Token> last_tokens_;  // of the last turn, its prompt and its answer
  bool said_verified_ = false;
  uint32_t turns_ = 0;
  uint32_t failed_ = 0;
};

void chat(const ChatCommandFlags& flags) {
  auto grammar = read_grammar(flags.grammar);  // before any work
  PromptCache prompt_cache(flags.prompt_cache);
  Engine engine(engine_options(flags.engine), progress_bar());
  prompt_cache.load(engine, flags.engine);
  Conversation conversation(engine, flags, std::move(grammar));
  catch_interrupts();
  note("/clear forgets the conversation, /exit or Ctrl-D leaves, Ctrl-C stops an answer.");
  for (std::string line; std::cerr << "> " << std::flush, std::getline(std::cin, line);) {
    if (line == "/exit") break;
    if (line == "/clear") {
      conversation.clear();
      note("cleared");
    } else if (line.starts_with('/')) {
      note("unknown command " + line + "; there are /clear and /exit");
    } else if (!line.empty()) {
      conversation.say(line);
    }
  }
  note("");
  prompt_cache.save(engine, conversation.last_tokens());
  if (conversation.failed() > 0)
    fail_input("chat", "{} of {} turns failed", conversation.failed(), conversation.turns());
}

}  // namespace

void define_chat(CommandLine& command) {
  ChatCommandFlags& flags = command.values<ChatCommandFlags>();
  add_chat_flags(command, flags.chat);
  add_engine_flags(command, flags.engine);
  add_sampling_flags(command, flags.sampling);
  add_grammar_flags(command, flags.grammar);
  add_prompt_cache_flags(command, flags.prompt_cache);
  command.footer =
      "Answers stream to stdout; prompts and receipts go to stderr, so input and output can be "
      "piped.\n\nExample:\n  tyto chat -m Qwen/Qwen2.5-0.5B-Instruct --system 'You are terse.'";
  command.run = [&flags] { chat(flags); };
}

}  // namespace tyto
