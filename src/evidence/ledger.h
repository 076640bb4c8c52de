// The ledger of results: one JSON object per line, only ever appended to. A result is never
// changed; a later record may supersede it. Each record is sealed, and holds the hash of the record
// before it, so that a line that was changed, inserted, moved or removed shows.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_value.h"
#include "evidence/seal.h"

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
  size_t number = 0;                    // the line's, from 1
  bool is_chained = false;              // false: it is older than the chain
};

struct LedgerProblem {
  size_t line = 0;  // 0: of the ledger as a whole
  std::string what;
};

// What the last append left beside the ledger, so that lines missing at its end show, too.
struct LedgerHead {
  uint64_t rows = 0;  // records of the chain
  std::string last;   // the digest of the last one's line
};

struct Ledger {
  std::vector<LedgerEntry> entries;     // oldest first
  std::vector<LedgerProblem> problems;  // in the order of the lines
  size_t chained = 0;                   // records, superseding ones included
  size_t not_chained = 0;
};

// With a trusted key every record of the chain must be signed by it.
Ledger parse_ledger(std::string_view text, const std::optional<LedgerHead>& head,
                    const PublicKey* trusted = nullptr);

// The entry whose id begins with `prefix`; none or several are an input Error.
const LedgerEntry& find_result(const Ledger& ledger, const std::string& prefix);

std::string superseded_mark(const LedgerEntry& entry);  // "superseded by 1a2b3c4d: why"; or empty
std::string broken_mark(const Ledger& ledger, const LedgerEntry& entry);  // what is wrong; or empty
std::string to_text(const LedgerProblem& problem);                        // "line 7 was changed"

// Records, without their place in the chain. `fields` has at least `row`, as `tyto bench -o json`
// writes it, and its `receipt`.
JsonValue result_record(const std::string& id, const std::string& date, const JsonValue& fields);
JsonValue supersede_record(const std::string& id, const Superseding& superseding);

// A record as a line, without its end.
std::string chained_line(JsonValue record, const std::string& previous,
                         const SigningKey* key = nullptr);
// What a line says of the record before it; none where it is no record of the chain.
std::optional<std::string> previous_of(std::string_view line);

// The chain through the records of a ledger.

struct Link {
  size_t line = 0;
  std::string digest;    // the line's as it stands
  std::string previous;  // what it says of the record before it
  bool is_whole = true;  // its own hash is right
};

// What is wrong with the order and number of the links. `before` is the digest of all that stands
// in front of the first one, which is what its `previous` is.
std::vector<LedgerProblem> check_chain(std::vector<Link> links, const std::string& before);

// What is missing at the end, as far as the head can tell.
std::optional<LedgerProblem> check_end(const std::vector<Link>& links,
                                       const std::optional<LedgerHead>& head);

// The user's ledger on disk, and the head beside it.

std::filesystem::path ledger_path();

// No file: no entries.
Ledger read_ledger(const std::filesystem::path& path, const PublicKey* trusted = nullptr);

// Adds a record to the end of the chain. Several processes may do so at a time. Half a line that a
// killed one left stays a line of its own, and the chain goes on after it. Where the end of the
// ledger is not what the head says, the record follows what the head says: appending mends nothing.
void append_record(const std::filesystem::path& path, const JsonValue& record,
                   const SigningKey* key = nullptr);

// "[superseded ...]  [broken ...]"; empty: nothing is to be said of it.
std::string marks_of(const Ledger& ledger, const LedgerEntry& entry);
// "12 records, the chain is whole from 1a2b3c4d to 5e6f7a8b"
std::string whole_chain(const Ledger& ledger);
// What `tyto results list` and `tyto results check` print as JSON.
std::string list_json(const Ledger& ledger, bool has_superseded);
std::string check_json(const Ledger& ledger, const std::filesystem::path& path, bool is_trusted);

}  // namespace tyto
