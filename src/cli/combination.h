// What decides the result of a run, as flags and a loaded engine have it.
#pragma once

#include <string>

#include "cli/verified.h"

namespace tyto {

class Engine;
struct EngineFlags;

// With what `engine` has loaded by now.
Combination combination_of(const Engine& engine, const EngineFlags& flags);

// What a receipt's line says more: nothing when the combination is verified.
std::string verified_clause(const Verification& verification, const EngineFlags& flags);

}  // namespace tyto
