// GoogleTest prints an instruction set's loops by its name.
#pragma once

#include <ostream>

#include "device/cpu/inner_loops.h"

namespace tyto::cpu {

inline void PrintTo(const InnerLoops* loops, std::ostream* out) {
  *out << loops->name;
}

}  // namespace tyto::cpu
