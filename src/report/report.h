// Every report of a profile. Each is a pure function; nothing here prints or opens a file.
#pragma once

#include <string>
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

}  // namespace tyto
