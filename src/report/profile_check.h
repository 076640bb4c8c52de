// Whether what a profile's file records and what its receipts count are one story.
#pragma once

#include <optional>
#include <string>

#include "trace/profile.h"

namespace tyto {

// Where the recording and the receipt of a run disagree, with both numbers; none: nowhere. Where
// events were lost the recording may hold less than was counted, but no more.
std::optional<std::string> disagreement(const ProfileRun& run, const Facts& facts);

// A sweep has no recording: its last repetition is the receipt's.
std::optional<std::string> disagreement(const SweepRow& row);

}  // namespace tyto
