// What signals do to the program.
#pragma once

namespace tyto {

// SIGINT, SIGTERM and SIGHUP remove what is half written and then end the program as they would
// have; one that was ignored stays so. A SIGBUS from a file that is no longer there in full is one
// line and exit code 1. A closed pipe is a write error.
void handle_signals();

}  // namespace tyto
