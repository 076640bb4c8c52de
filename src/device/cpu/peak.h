// What the CPU can do at best, for shares of peak in a profile.
#pragma once

#include "base/thread_pool.h"
#include "trace/plausibility.h"

namespace tyto::cpu {

// Reads memory with all threads for some tens of milliseconds; the arithmetic peak is nominal, from
// the instruction set and the clock that the system reports.
DeviceLimits measure_peak(ThreadPool& pool);

}  // namespace tyto::cpu
