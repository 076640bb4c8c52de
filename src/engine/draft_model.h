// A small model that guesses what a large one will say.
#pragma once

#include <memory>

#include "base/progress.h"
#include "engine/engine.h"
#include "engine/speculation.h"

namespace tyto {

// Throws an input Error that names the first difference unless the two vocabularies are the same:
// as many tokens, the same text behind each, the same special ones.
void check_same_vocabulary(const Vocabulary& model, const Vocabulary& draft,
                           const std::string& draft_name);

// `draft` outlives the drafter, which gives its share of the caches back when it goes. Guesses are
// the draft model's most probable tokens. It keeps what it has read of the text, and forgets what
// of its own guesses did not come true.
Drafter model_drafter(Engine& draft);

// A model of the same vocabulary on the host's device, with the threads of `engine`, which waits
// while it guesses.
std::unique_ptr<Engine> open_draft(const std::string& model, const Engine& engine,
                                   const EngineOptions& options, const Progress& progress = {});

}  // namespace tyto
