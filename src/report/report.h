// Every report of a profile. Each is a pure function; nothing here prints or opens a file.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "report/summary.h"
#include "report/tables.h"
#include "trace/profile.h"

namespace tyto {

// The report's sections, in order: what text_report and html_report lay out. A profile of a sweep
// has the scaling table instead.
std::vector<Table> report_tables(const Profile& profile);

std::string text_report(const Profile& profile, const TextStyle& style);
inline constexpr FileKind kProfilePage = {
    "a profile's page",
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"generator\" content=\"tyto profile\">"};
std::string html_report(const Profile& profile);  // one page, nothing loaded from elsewhere

// A decoded token's way through the network, or the prompt's where nothing was decoded: the page's
// drawing as an SVG file of its own.
std::string flow_picture(const Profile& profile);

// Chrome trace-event JSON, which ui.perfetto.dev and chrome://tracing read.
inline constexpr FileKind kPerfettoFile = {
    "a trace of Tyto's", "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"tyto\":"};
std::string perfetto_report(const Profile& profile, const ProfileRun& run);

// The profile itself and the rows of the report; docs/profile.md describes the schema.
inline constexpr FileKind kProfileFile = {"a profile", "{\"schema\":\"tyto-profile-"};
std::string json_report(const Profile& profile);
// Reads what json_report wrote. `name` is how errors call it.
Profile profile_from_json(const std::string& text, const std::string& name);

// What got slower from `before` to `after`, row by row, against the spread of their runs.
std::vector<Table> diff_tables(const Profile& before, const Profile& after);

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
