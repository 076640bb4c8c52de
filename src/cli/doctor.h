// What `tyto doctor --json` says of this machine, for the server.
#pragma once

#include <string>

namespace tyto {

// Takes seconds and prints nothing.
std::string doctor_json();

}  // namespace tyto
