// What decides the result of a run, as flags and a loaded engine have it.
#pragma once

#include <string>

#include "cli/verified.h"

namespace tyto {

class Engine;
struct EngineFlags;
struct ModelIdentity;

// With what `engine` has loaded by now.
Combination combination_of(Engine& engine, const EngineFlags& flags);

// What a receipt's line says more: how long it took to find out which model ran, when that was
// noticeable; and whether the combination is verified, when it is not.
std::string identity_clause(const ModelIdentity& identity);
std::string verified_clause(const Verification& verification, const EngineFlags& flags);

}  // namespace tyto
