// Another program, run to its end.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tyto {

// Starts the command and waits for it; what it writes to stdout goes to our stderr, so that ours
// stays what we print. An Error when it cannot be started, fails, or is not done in time (it is
// then killed).
void run_child(const std::vector<std::string>& command, std::chrono::seconds timeout);

}  // namespace tyto
