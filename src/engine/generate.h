// The straight way: tokens in, text out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
#include "engine/prefix_cache.h"
#include "engine/speculation.h"
#include "llama/pipeline.h"
#include "text/sampler.h"
#include "text/tokenizer.h"
#include "trace/receipt.h"

namespace tyto {

struct Request {
  std::vector<Token> prompt;  // not empty
  uint32_t max_tokens = 256;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::vector<Token> shown_special = {};  // that become text, such as a tool's marker
  bool continues_text = false;  // the prompt's; a chat template's prompt has ended its own
  std::shared_ptr<Constraint> constraint = {};    // of this answer alone; shared with its sampler
  std::shared_ptr<Speculation> speculation = {};  // of this answer alone; null: none is wanted
  EnergyMeter* energy = nullptr;  // when given, measures prefill and decode into the receipt
  bool wants_all_logits = false;  // by whoever gets the tokens, not by their sampler
  bool is_recorded = false;       // by the scheduler: its tokens go into the trace's recording
};

// Throws an input Error unless there are tokens, all of the vocabulary.
void check_tokens(const Tokenizer& tokenizer, std::span<const Token> tokens);
// The same, and unless the prompt leaves room for an answer.
void check_prompt(const Tokenizer& tokenizer, uint32_t context, std::span<const Token> prompt);

// Whether a prompt that no template made has a text for the answer to continue: not only BOS.
bool has_text(const Tokenizer& tokenizer, std::span<const Token> prompt);

// How many of the best logits of each row a request can do with (Sequence::candidates).
uint32_t candidates_needed(const Request& request, const Sampler& sampler);

// Why guesses cannot be checked together on the pipeline's devices; nothing where they can.
std::optional<std::string> why_no_guesses(const Pipeline& pipeline, const Speculation& speculation);

enum class StopReason : uint8_t { eos, stop_string, max_tokens, context_full, cancelled };
std::string_view name(StopReason reason);

struct Answer {
  std::vector<Token> tokens;  // without the one that ended it
  StopReason reason = StopReason::max_tokens;
  Receipt receipt;
};

// Gets after each token the text that became complete, which may be none; returns false to stop.
using OnText = std::function<bool(std::string_view)>;

// What generate works with; all outlive the call.
struct Generator {
  const Tokenizer& tokenizer;
  Pipeline& pipeline;
  Trace& trace;
  PrefixCache* prefixes = nullptr;  // when given, what it knows of the prompt is not run again
};

// One request by itself, start to end. (Many at once: engine/scheduler.h.)
Answer generate(const Generator& with, Sampler& sampler, const Request& request,
                const OnText& on_text, const Progress& progress = {});

}  // namespace tyto
