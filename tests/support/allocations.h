// What each thread has allocated, and which allocation fails, in a test binary one of whose files
// includes count_allocations.h.
#pragma once

#include <cstdint>

namespace tyto::testing_support {

inline thread_local uint64_t allocations = 0;

// The allocation of this thread that fails, counted from 0; none where it is negative.
inline thread_local int64_t failing = -1;

// Whether the allocation that is about to be made is that one.
inline bool fails_now() {
  return failing >= 0 && failing-- == 0;
}

}  // namespace tyto::testing_support
