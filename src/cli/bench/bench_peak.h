// The last word on what the cpu can do at best, once the tests are done.
#pragma once

#include <span>

#include "cli/bench/bench_run.h"

namespace tyto {

// Measures the peak of the rows' engine once more and writes what counts into the engine's facts
// and the rows'. What a machine can do varies while others share it, so the better of before and
// after counts, and a row that reached more than both raises it; the source then says so. Nothing
// is done where no peak was measured before.
void settle_peak(BenchEngine& bench, std::span<BenchRow> rows);

}  // namespace tyto
