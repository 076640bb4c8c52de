// The straight way: tokens in, text out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"
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
  EnergyMeter* energy = nullptr;  // when given, measures prefill and decode into the receipt
};

enum class StopReason : uint8_t { eos, stop_string, max_tokens, context_full, cancelled };
std::string_view name(StopReason reason);

struct Answer {
  std::vector<Token> tokens;  // without the one that ended it
  StopReason reason = StopReason::max_tokens;
  Receipt receipt;
};

// Gets each piece of text as it becomes complete; returns false to stop.
using OnText = std::function<bool(std::string_view)>;

// Continues `pipeline` from where it stands. The prompt's tokens go first, then the answer's.
Answer generate(const Tokenizer& tokenizer, Pipeline& pipeline, Sampler& sampler,
                const Request& request, Trace& trace, const OnText& on_text,
                const Progress& progress = {});

}  // namespace tyto
