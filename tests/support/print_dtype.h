// GoogleTest prints a type by its name. Every file of a binary whose checks print types includes
// this: the linker keeps one printer of each.
#pragma once

#include <ostream>

#include "tensor/dtype.h"

namespace tyto {

inline void PrintTo(DType type, std::ostream* out) {
  *out << info(type).name;
}

}  // namespace tyto
