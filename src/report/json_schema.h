// Names that the writer and the reader of a profile's JSON share.
#pragma once

#include <array>
#include <string_view>

namespace tyto {

constexpr std::string_view kProfileSchema = "tyto-profile-1";

constexpr std::array<std::string_view, 8> kEventKindNames = {
    "token", "run", "host", "upload", "submit", "wait", "download", "launch"};

constexpr std::array<std::string_view, 13> kEventColumns = {
    "kind",     "name",     "device", "dispatch",    "token", "position", "rows",
    "launches", "start_ns", "end_ns", "modelled_ns", "bytes", "flops"};

}  // namespace tyto
