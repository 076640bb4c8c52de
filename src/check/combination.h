// What decides the result of a run, as its options and a loaded engine have it, and where a receipt
// says that it comes from.
#pragma once

#include <span>
#include <string>

#include "base/progress.h"
#include "evidence/verified.h"
#include "trace/receipt.h"

namespace tyto {

class Engine;
struct DeviceInfo;
struct EngineOptions;
struct ModelIdentity;

// The parts that the devices decide. Devices other than the host's name their hardware; where there
// are none, the instruction set stands in the driver's place.
void add_devices(Combination& of, std::span<const DeviceInfo> devices,
                 const EngineOptions& options);

// With what `engine` has loaded by now.
Combination combination_of(Engine& engine, const EngineOptions& options,
                           const Progress& progress = {});

// Hashes the model, unless that was done before. `command` as a shell takes it.
ReceiptContext receipt_context(Engine& engine, const std::string& command,
                               const Progress& progress = {});

// What a receipt's line says more: how long it took to find out which model ran, when that was
// noticeable; and whether the combination is verified, when it is not.
std::string identity_clause(const ModelIdentity& identity);
std::string verified_clause(const Verification& verification, const EngineOptions& options);

// What is said in any case: that a verification failed; that there was none once for each model and
// device, and never of the shipped model on the cpu. Empty: nothing.
std::string verified_sentence(const Verification& verification, const Combination& combination,
                              const Engine& engine, const EngineOptions& options);

}  // namespace tyto
