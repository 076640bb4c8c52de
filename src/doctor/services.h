// How much memory systemd lets services lock.
#pragma once

#include <filesystem>

#include "doctor/facts.h"

namespace tyto {

// From unit files and the managers' own files below `root`: what a service would get that is
// started now, not what one that runs already has.
ServiceFacts read_services(const std::filesystem::path& root);

}  // namespace tyto
