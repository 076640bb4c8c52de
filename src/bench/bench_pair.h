// The engines that one combination of settings measures, and its tests.
#pragma once

#include <string>
#include <vector>

#include "bench/bench_run.h"

namespace tyto {

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
