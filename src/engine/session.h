// One conversation: keeps what the KV cache already holds, so that a new turn only runs what is
// new.
#pragma once

#include <vector>

#include "engine/generate.h"

namespace tyto {

class Session {
 public:
  Session(const Tokenizer& tokenizer, Pipeline& pipeline, Sampler& sampler, Trace& trace)
      : tokenizer_(tokenizer), pipeline_(pipeline), sampler_(sampler), trace_(trace) {}

  // `request.prompt` is the whole conversation so far. The longest prefix already in the cache is
  // kept, the rest forgotten.
  Answer ask(const Request& request, const OnText& on_text, const Progress& progress = {});

  void clear();  // forgets the conversation

 private:
  const Tokenizer& tokenizer_;
  Pipeline& pipeline_;
  Sampler& sampler_;
  Trace& trace_;
  std::vector<Token> cached_;  // [pipeline_.position()], the tokens behind the KV cache
};

}  // namespace tyto
