// What each thread has allocated, in a test binary one of whose files includes count_allocations.h.
#pragma once

#include <cstdint>

namespace tyto::testing_support {

inline thread_local uint64_t allocations = 0;

}  // namespace tyto::testing_support
