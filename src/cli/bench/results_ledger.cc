#include "cli/bench/results_ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace tyto {
namespace {

constexpr const char* kSchema = "tyto-result-1";
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr size_t kShownId = 8;

std::string speed_text(const Json& row) {
  if (row.find("refused")) return "refused";
  if (row.find("avg_ts")) return fmt::format("{:.2f} t/s", row.at("avg_ts").as_double());
  return fmt::format("{:.2f} t/s modelled", row.at("modelled_avg_ts").as_double());
}

LedgerEntry result_of(const Json& json, std::string_view line) {
  const Json row = json.at("row");
  LedgerEntry entry;
  entry.id = json.at("id").as_string();
  entry.date = json.at("date").as_string();
  entry.test = row.at("test").as_string();
  entry.model = std::filesystem::path(row.at("model_filename").as_string()).filename().string();
  entry.executed_on = row.at("executed_on").as_string();
  entry.speed = speed_text(row);
  entry.line = line;
  if (entry.id.empty()) json.fail("has no id");
  return entry;
}

void add_record(Ledger& ledger, std::string_view line, const std::string& name) {
  const Json json = Json::parse(line, name);
  if (json.at("schema").as_string() != kSchema) json.fail("is of another version");
  const std::string_view kind = json.at("kind").as_string();
  if (kind == "result") {
    ledger.entries.push_back(result_of(json, line));
    return;
  }
  if (kind != "supersede") json.fail("is no kind of record that is known");
  const Superseding superseding{.date = std::string(json.at("date").as_string()),
                                .why = std::string(json.at("why").as_string()),
                                .by = json.string_or("by", "")};
  const std::string_view id = json.at("supersedes").as_string();
  const size_t before = std::count_if(ledger.entries.begin(), ledger.entries.end(),
                                      [&](const LedgerEntry& entry) { return entry.id == id; });
  if (before == 0) json.fail("supersedes a result that is not in the ledger");
  for (LedgerEntry& entry : ledger.entries)
    if (entry.id == id) entry.superseded.push_back(superseding);
}

}  // namespace

std::filesystem::path ledger_path() {
  return state_folder() / "results.jsonl";
}

Ledger parse_ledger(std::string_view text) {
  Ledger ledger;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      add_record(ledger, line, fmt::format("line {}", number));
    } catch (const Error& error) {
      if (ledger.unreadable++ == 0) ledger.first_problem = error.what();
    }
  }
  return ledger;
}

Ledger read_ledger(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  return parse_ledger(read_text_file(path, kMostBytes));
}

const LedgerEntry& find_result(const Ledger& ledger, const std::string& prefix) {
  const LedgerEntry* found = nullptr;
  size_t matches = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    if (prefix.empty() || !entry.id.starts_with(prefix)) continue;
    if (entry.id == prefix) return entry;
    if (found == nullptr || found->id != entry.id) ++matches;
    found = &entry;
  }
  if (found == nullptr)
    throw Error(ErrorCode::input, prefix.empty() ? "ID" : prefix, "no result has this id",
                "`tyto results list --all` shows them");
  if (matches > 1)
    throw Error(ErrorCode::input, prefix, fmt::format("{} results begin with this", matches),
                "give more digits");
  return *found;
}

std::string superseded_mark(const LedgerEntry& entry) {
  if (entry.superseded.empty()) return "";
  const Superseding& last = entry.superseded.back();
  return fmt::format("superseded{}: {}",
                     last.by.empty() ? "" : " by " + last.by.substr(0, kShownId), last.why);
}

std::string result_line(const std::string& id, const std::string& date,
                        const nlohmann::ordered_json& fields) {
  nlohmann::ordered_json json = {
      {"schema", kSchema}, {"kind", "result"}, {"id", id}, {"date", date}};
  json.update(fields);
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

std::string supersede_line(const std::string& id, const Superseding& superseding) {
  nlohmann::ordered_json json = {
      {"schema", kSchema}, {"kind", "supersede"}, {"date", superseding.date},
      {"supersedes", id},  {"by", nullptr},       {"why", superseding.why}};
  if (!superseding.by.empty()) json["by"] = superseding.by;
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tyto
