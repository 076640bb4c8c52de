// The ledger of results: one JSON object per line, only ever appended to. A result is never
// changed; a later record may supersede it.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tyto {

struct Superseding {
  std::string date;
  std::string why;
  std::string by;  // the result that counts instead; may be empty
};

struct LedgerEntry {
  std::string id;
  std::string date;
  std::string test;
  std::string model;
  std::string executed_on;
  std::string speed;                    // "123.45 t/s", "67.8 t/s modelled", "refused"
  std::vector<Superseding> superseded;  // oldest first; none: it stands
  std::string line;                     // as the ledger has it
};

struct Ledger {
  std::vector<LedgerEntry> entries;  // oldest first
  size_t unreadable = 0;             // lines that are no record of ours; they stay in the file
  std::string first_problem;         // "line 7: ..."
};

std::filesystem::path ledger_path();

Ledger parse_ledger(std::string_view text);
Ledger read_ledger(const std::filesystem::path& path);  // no file: no entries

// The entry whose id begins with `prefix`; none or several are an input Error.
const LedgerEntry& find_result(const Ledger& ledger, const std::string& prefix);

std::string superseded_mark(const LedgerEntry& entry);  // "superseded by 1a2b3c4d: why"; or empty

// Records as lines, without their end. `fields` has at least `row`, as `tyto bench -o json` writes
// it.
std::string result_line(const std::string& id, const std::string& date,
                        const nlohmann::ordered_json& fields);
std::string supersede_line(const std::string& id, const Superseding& superseding);

}  // namespace tyto
