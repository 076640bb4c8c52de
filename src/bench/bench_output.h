// A benchmark's rows as text: a table for people, Markdown, CSV, JSON or JSON lines. The first
// fields are llama-bench's, in its order and under its names, so that what reads its output reads
// ours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json_value.h"
#include "base/machine.h"
#include "bench/bench_run.h"
#include "report/tables.h"

namespace tyto {

enum class BenchFormat : uint8_t { table, markdown, csv, json, jsonl };
BenchFormat bench_format(const std::string& name);  // table, md, csv, json, jsonl

// Where a run of the benchmark happened; the same for all its rows.
struct BenchOrigin {
  struct Commit {  // that was built; empty and 0: unknown
    std::string commit;
    uint64_t number = 0;  // commits before it
  };
  Commit build;
  MachineFacts machine;
};

// Settings that have a column in the table only when they were given.
struct ShownSettings {
  bool file = false;
  bool batch = false;
  bool ubatch = false;
  bool kv_type = false;
  bool fusion = false;
  bool peak = false;
  bool sequences = false;  // with llama-batched-bench's columns
  bool energy = false;
  bool devices = false;          // several are measured
  std::string widest_test = {};  // among those that will be measured
};

// All fields of a row. A modelled row has no avg_ts: its numbers are in modelled_avg_ts and so on.
// A refused row has neither.
JsonValue row_fields(const BenchRow& row, const BenchOrigin& origin);

// Text for a row as it is finished. The first one comes with what stands above it, in JSON the
// bracket; `close` gives what ends the output.
class BenchWriter {
 public:
  // `style` is the table's, which is coloured already.
  BenchWriter(BenchFormat format, BenchOrigin origin, ShownSettings shown, TextStyle style = {})
      : format_(format), origin_(std::move(origin)), shown_(std::move(shown)), style_(style) {}
  std::string add(const BenchRow& row);
  std::string close() const;

 private:
  std::string add_to_table(const BenchRow& row);

  BenchFormat format_;
  BenchOrigin origin_;
  ShownSettings shown_;
  TextStyle style_;
  std::optional<TableText> table_;
  bool is_first_ = true;
};

// What the ledger keeps of a row.
JsonValue ledger_record(const BenchRow& row, const BenchOrigin& origin);

// One line: the test, and why its speed cannot be true.
std::string refusal_line(const BenchRow& row);

}  // namespace tyto
