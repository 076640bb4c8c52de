// A dialogue with a model: what is said goes through the engine, and answers are shown as they
// come.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/answer_text.h"
#include "cli/flags.h"
#include "cli/prompt_cache.h"
#include "engine/generate.h"
#include "shell/terminal.h"
#include "text/chat_template.h"
#include "text/dialogue.h"

namespace tyto {

class Engine;
class TokenTrie;

// What may be changed while the conversation goes on.
struct ChatSettings {
  SamplingFlags sampling;
  bool context_shift = false;
  bool verbose = false;
};

struct ChatCommandFlags {
  EngineChoice engine;
  std::shared_ptr<const Grammar> grammar;
  ChatFlags chat;
  ChatSettings settings;
  SpeculationFlags speculation;
  PromptCacheFlags prompt_cache;
};

// From now on Ctrl-C stops an answer, and not the program.
void catch_interrupts();
// To be called before something is typed: what comes after it is meant for the answer.
void forget_interrupts();

// A note, which may have several lines.
void tell(std::string_view text, Ink ink = Ink::plain);
void tell(const Error& error);

class Conversation {
 public:
  // `flags` may change, and outlive it.
  Conversation(Engine& engine, const ChatCommandFlags& flags);

  // One turn. What was said is not kept if there is no answer: it was interrupted before its first
  // word, or failed.
  void say(const std::string& text);
  void answer_again();  // to what was said last
  std::string undo();   // the last exchange; what the user said in it
  void clear();         // the system message stays
  void replace(Dialogue dialogue);
  void set_system(const std::string& text);
  // What the settings are now counts from the next answer on. A usage Error, and nothing is
  // changed, where they cannot be.
  void use_settings();

  const Dialogue& dialogue() const { return dialogue_; }
  const SamplerOptions& sampling() const { return sampling_; }  // in force
  std::string greeting() const;  // who is there: "owlet (11M, bf16) on cpu · context 2048 · /help"
  std::string statistics() const;  // the last answer's and all answers', in lines

  // What the last answer followed, and its own; some of them are in the caches.
  const std::vector<Token>& last_tokens() const { return last_tokens_; }

  uint32_t turns() const { return turns_; }
  uint32_t failed() const { return failed_; }

 private:
  bool take_turn();
  void answer(AnswerPrinter& printer);
  Answer generate_part(Request request, AnswerText& text, AnswerPrinter& printer);
  void end_text(AnswerText& text, AnswerPrinter& printer);
  std::optional<std::vector<Token>> fitting_prompt(std::span<const Token> answered);
  bool may_drop() const;
  [[noreturn]] void fail_full() const;
  ChatText rendered() const;
  std::vector<Token> encoded() const;
  uint32_t context() const;
  void report(const Answer& part);
  void report_end(const Answer& last, const Constraint* constraint);
  void report_verification();
  void tell_of_idle_system();

  Engine& engine_;
  const ChatCommandFlags& flags_;
  ChatTemplate template_;
  std::shared_ptr<const TokenTrie> tokens_;
  OpenSpeculation speculation_;
  SamplerOptions sampling_;
  Sampler sampler_;
  Dialogue dialogue_;
  std::string reply_;      // as far as it has come
  size_t first_seen_ = 0;  // index of an exchange; those before it were dropped from the context
  bool has_said_verified_ = false;
  bool has_told_of_idle_system_ = false;
  std::set<std::string> said_troubles_;  // in this conversation
  uint32_t turns_ = 0;
  uint32_t failed_ = 0;

  struct Totals {
    uint32_t answers = 0;
    uint64_t prompt_tokens = 0;
    uint64_t generated_tokens = 0;
    uint64_t decoded_tokens = 0;
    double decode_seconds = 0;
    bool has_virtual_device = false;
  };
  std::string last_receipt_;
  std::vector<Token> last_tokens_;
  Totals totals_;
};

}  // namespace tyto
