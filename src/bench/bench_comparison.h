// The tests of one combination of settings, and rows that were measured in turns, held against each
// other.
#pragma once

#include <string>
#include <vector>

#include "base/json_value.h"
#include "bench/bench_run.h"

namespace tyto {

JsonValue ab_json(const AbComparison& ab);
// All repetitions'; null: a test without guesses.
JsonValue speculation_json(const BenchRow& row);

// "tg16: cpu / vnpu (modelled) = 0.51 in the median of 5 rounds, 0.49 to 0.52"
std::string ab_line(const BenchRow& row);

// "tg64 spec lookup: 1.31 times plain in the median of 5 rounds, 1.28 to 1.33; 80 of 120 guesses
// came true, 0.62 calls per token"
std::string speculation_line(const BenchRow& row);

// One combination's engines and the rows that are not shown yet.
struct BenchPair {
  BenchEngine engine;
  BenchEngine other;             // with --ab
  std::vector<BenchRow> rows;    // measured on the engine
  std::vector<BenchRow> others;  // measured on the other device
};

// Adds the test's rows: in turns on two devices, in turns without guesses and with those of each
// drafter, or plain. `lines` gets what a comparison says.
void run_test(BenchPair& bench, const BenchTest& test, const BenchOptions& options,
              std::vector<std::string>& lines);

}  // namespace tyto
