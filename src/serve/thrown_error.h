// Exceptions of every kind as the one error type: on threads that many requests share, none may end
// more than the request that it came from.
#pragma once

#include <string>

#include "base/error.h"

namespace tyto {

// What is being thrown; to be called from a catch. What is no Error becomes a device's.
Error thrown_error(const std::string& where);

// Whether it may not happen again in a moment: the machine lacked something that others give back.
bool may_pass(const Error& error);

}  // namespace tyto
