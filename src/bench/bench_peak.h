// The last word on what the cpu could do at best during a test.
#pragma once

#include <span>

#include "bench/bench_run.h"

namespace tyto {

// Measures the peak of the rows' engine once more and writes into the rows what counts for them.
// What a machine can do varies within seconds while others share it, so it is measured right before
// and right after each test, the better counts, and a row that reached more than both raises it;
// the source then says so. What is measured after a test is what was before the next one. Nothing
// is done where no peak was measured before.
void settle_peak(BenchEngine& bench, std::span<BenchRow> rows);

}  // namespace tyto
