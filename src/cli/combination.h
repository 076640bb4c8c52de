// What decides the result of a run, as flags and a loaded engine have it.
#pragma once

#include <span>
#include <string>

#include "evidence/verified.h"

namespace tyto {

class Engine;
struct DeviceInfo;
struct EngineFlags;
struct ModelIdentity;

// The parts that the devices decide. Devices other than the host's name their hardware; where there
// are none, the instruction set stands in the driver's place.
void add_devices(Combination& of, std::span<const DeviceInfo> devices, const EngineFlags& flags);

// With what `engine` has loaded by now.
Combination combination_of(Engine& engine, const EngineFlags& flags);

// What a receipt's line says more: how long it took to find out which model ran, when that was
// noticeable; and whether the combination is verified, when it is not.
std::string identity_clause(const ModelIdentity& identity);
std::string verified_clause(const Verification& verification, const EngineFlags& flags);

// What is said in any case: that a verification failed; that there was none once for each model and
// device, and never of the shipped model on the cpu. Empty: nothing.
std::string verified_sentence(const Verification& verification, const Combination& combination,
                              const Engine& engine, const EngineFlags& flags);

}  // namespace tyto
