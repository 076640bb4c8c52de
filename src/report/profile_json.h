#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "trace/profile.h"

namespace tyto {

// Names that the writer and the reader of a profile's JSON share.

constexpr std::string_view kProfileSchema = "tyto-profile-1";

constexpr std::array<std::string_view, 8> kEventKindNames = {
    "token", "run", "host", "upload", "submit", "wait", "download", "launch"};

constexpr std::array<std::string_view, 13> kEventColumns = {
    "kind",     "name",     "device", "dispatch",    "token", "position", "rows",
    "launches", "start_ns", "end_ns", "modelled_ns", "bytes", "flops"};

// Whether what a profile's file records and what its receipts count are one story.

// Where the recording and the receipt of a run disagree, with both numbers; none: nowhere. Where
// events were lost the recording may hold less than was counted, but no more.
std::optional<std::string> disagreement(const ProfileRun& run, const Facts& facts);

// A sweep has no recording: its last repetition is the receipt's.
std::optional<std::string> disagreement(const SweepRow& row);

}  // namespace tyto
