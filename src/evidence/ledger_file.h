// The user's ledger on disk, and the head beside it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "evidence/ledger.h"

namespace tyto {

std::filesystem::path ledger_path();

// No file: no entries.
Ledger read_ledger(const std::filesystem::path& path, const PublicKey* trusted = nullptr);

// Adds a record to the end of the chain. Several processes may do so at a time. Half a line that a
// killed one left stays a line of its own, and the chain goes on after it. Where the end of the
// ledger is not what the head says, the record follows what the head says: appending mends nothing.
void append_record(const std::filesystem::path& path, const nlohmann::ordered_json& record,
                   const SigningKey* key = nullptr);

}  // namespace tyto
