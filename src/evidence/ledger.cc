#include "evidence/ledger.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <unordered_map>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "evidence/receipt_check.h"
#include "evidence/seal.h"

namespace tyto {

namespace {

constexpr std::string_view kSchema = "tyto-result-2";
constexpr std::string_view kSchemaBeforeChain = "tyto-result-1";
constexpr size_t kShownId = 8;

// Ids are typed, and stand in messages.
void check_id(const Json& json) {
  const std::string_view id = json.as_string();
  const bool is_plain = std::all_of(id.begin(), id.end(), [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
  });
  if (id.empty() || id.size() > kDigestDigits || !is_plain) json.fail("is not an id");
}

std::string speed_text(const Json& row) {
  if (row.find("refused")) return "refused";
  if (row.find("avg_ts")) return fmt::format("{:.2f} t/s", row.at("avg_ts").as_double());
  return fmt::format("{:.2f} t/s modelled", row.at("modelled_avg_ts").as_double());
}

// Line by line, then the chain through them.
class LedgerReader {
 public:
  LedgerReader(std::string_view text, const PublicKey* trusted) : text_(text), trusted_(trusted) {}

  Ledger read(const std::optional<LedgerHead>& head) {
    std::string_view rest = text_;
    for (size_t number = 1; !rest.empty(); ++number) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) add_line(line, number);
    }
    std::vector<LedgerProblem>& problems = ledger_.problems;
    for (LedgerProblem& problem : check_chain(links_, before_)) problems.push_back(problem);
    std::stable_sort(
        problems.begin(), problems.end(),
        [](const LedgerProblem& a, const LedgerProblem& b) { return a.line < b.line; });
    if (const auto end = check_end(links_, head)) problems.push_back(*end);
    ledger_.chained = links_.size();
    return std::move(ledger_);
  }

 private:
  void add_line(std::string_view line, size_t number) {
    number_ = number;
    try {
      const Json json = Json::parse(line, fmt::format("line {}", number));
      json.refuse_repeated_names();
      const std::string_view schema = json.at("schema").as_string();
      const bool is_chained = schema == kSchema;
      if (is_chained)
        add_link(json, line);
      else if (schema != kSchemaBeforeChain)
        json.fail("is of another version");
      add_record(json, line, is_chained);
      if (!is_chained) note_older();
    } catch (const Error& error) {
      say(fmt::format("cannot be read ({})", error.what()));
    }
  }

  void add_link(const Json& json, std::string_view line) {
    if (links_.empty())
      before_ = digest(text_.substr(0, static_cast<size_t>(line.data() - text_.data())));
    const Seal seal = read_seal(line);
    links_.push_back({number_, digest(line), json.string_or("previous", ""), seal.is_whole()});
    if (!seal.is_whole())
      say(seal.stated.empty()
              ? "was changed: it has no hash at its end"
              : fmt::format("was changed: its contents have the hash {}, it says {}",
                            seal.computed.substr(0, 16), seal.stated.substr(0, 16)));
    const std::string why = trusted_ != nullptr ? distrust(seal, *trusted_)
                            : seal.signature && !seal.signature->is_good
                                ? "has a signature that is not of its contents"
                                : "";
    if (!why.empty()) say(why);
  }

  void add_record(const Json& json, std::string_view line, bool is_chained) {
    const std::string_view kind = json.at("kind").as_string();
    if (kind == "result") return add_result(json, line, is_chained);
    if (kind != "supersede") json.fail("is not a known kind of record");
    add_superseding(json);
  }

  void add_result(const Json& json, std::string_view line, bool is_chained) {
    const Json row = json.at("row");
    check_id(json.at("id"));
    const LedgerEntry entry{
        .id = std::string(json.at("id").as_string()),
        .date = std::string(json.at("date").as_string()),
        .test = std::string(row.at("test").as_string()),
        .model = std::filesystem::path(row.at("model_filename").as_string()).filename().string(),
        .executed_on = std::string(row.at("executed_on").as_string()),
        .speed = speed_text(row),
        .superseded = {},
        .line = std::string(line),
        .number = number_,
        .is_chained = is_chained};
    const auto [first, is_new] = lines_.emplace(entry.id, number_);
    if (!is_new) say(fmt::format("has the id of line {}", first->second));
    ledger_.entries.push_back(entry);
    if (!is_chained) return;
    const std::string wrong = row_contradiction(json, line);
    if (!wrong.empty()) say(wrong);
  }

  void add_superseding(const Json& json) {
    const Superseding superseding{.date = std::string(json.at("date").as_string()),
                                  .why = std::string(json.at("why").as_string()),
                                  .by = json.string_or("by", "")};
    const std::string_view id = json.at("supersedes").as_string();
    bool is_there = false;
    for (LedgerEntry& entry : ledger_.entries)
      if (entry.id == id) {
        entry.superseded.push_back(superseding);
        is_there = true;
      }
    if (!is_there) say("supersedes a result that is not in the ledger");
  }

  void note_older() {
    ++ledger_.not_chained;
    if (!links_.empty())
      say("has no hash, though records before it have: it was inserted, or an older Tyto wrote it");
  }

  void say(const std::string& what) { ledger_.problems.push_back({number_, what}); }

  std::string_view text_;
  const PublicKey* trusted_;
  Ledger ledger_;
  std::vector<Link> links_;
  std::string before_;                   // digest of what stands before the first of them
  std::map<std::string, size_t> lines_;  // where an id was first seen
  size_t number_ = 0;
};

}  // namespace

Ledger parse_ledger(std::string_view text, const std::optional<LedgerHead>& head,
                    const PublicKey* trusted) {
  return LedgerReader(text, trusted).read(head);
}

const LedgerEntry& find_result(const Ledger& ledger, const std::string& prefix) {
  std::vector<const LedgerEntry*> found, same;
  for (const LedgerEntry& entry : ledger.entries) {
    if (prefix.empty() || !entry.id.starts_with(prefix)) continue;
    found.push_back(&entry);
    if (entry.id == prefix) same.push_back(&entry);
  }
  if (!same.empty()) found = same;
  if (found.empty())
    throw Error(ErrorCode::input, prefix.empty() ? "ID" : prefix, "no result has this id",
                "`tyto results list --all` shows them");
  if (same.size() > 1)
    throw Error(ErrorCode::input, prefix, fmt::format("{} lines have this id", same.size()),
                "`tyto results check` says which");
  if (found.size() > 1)
    throw Error(ErrorCode::input, prefix, fmt::format("{} results begin with this", found.size()),
                "give more digits");
  return *found.front();
}

std::string superseded_mark(const LedgerEntry& entry) {
  if (entry.superseded.empty()) return "";
  const Superseding& last = entry.superseded.back();
  return fmt::format("superseded{}: {}",
                     last.by.empty() ? "" : " by " + last.by.substr(0, kShownId), last.why);
}

std::string broken_mark(const Ledger& ledger, const LedgerEntry& entry) {
  for (const LedgerProblem& problem : ledger.problems)
    if (problem.line == entry.number) return "BROKEN: " + problem.what;
  return entry.is_chained ? "" : "not chained";
}

std::string to_text(const LedgerProblem& problem) {
  return problem.line == 0 ? problem.what : fmt::format("line {} {}", problem.line, problem.what);
}

JsonValue result_record(const std::string& id, const std::string& date, const JsonValue& fields) {
  JsonValue json = {{"schema", kSchema}, {"kind", "result"}, {"id", id}, {"date", date}};
  json.update(fields);
  return json;
}

JsonValue supersede_record(const std::string& id, const Superseding& superseding) {
  JsonValue json = {{"schema", kSchema}, {"kind", "supersede"}, {"date", superseding.date},
                    {"supersedes", id},  {"by", nullptr},       {"why", superseding.why}};
  if (!superseding.by.empty()) json["by"] = superseding.by;
  return json;
}

std::string chained_line(JsonValue record, const std::string& previous, const SigningKey* key) {
  record["previous"] = previous;
  seal(record, key);
  return record.dump();
}

std::optional<std::string> previous_of(std::string_view line) {
  try {
    const Json json = Json::parse(line, "line");
    if (json.string_or("schema", "") != kSchema) return std::nullopt;
    return json.string_or("previous", "");
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::vector<LedgerProblem> check_chain(std::vector<Link> links, const std::string& before) {
  links.insert(links.begin(), Link{.line = 0, .digest = before, .previous = {}});
  std::unordered_map<std::string, size_t> with_digest;
  for (size_t i = 0; i < links.size(); ++i) with_digest.emplace(links[i].digest, i);
  std::vector<LedgerProblem> problems;
  for (size_t i = 1; i < links.size(); ++i) {
    const Link &link = links[i], &above = links[i - 1];
    // A line that was changed has another digest than the next one knows: said once is enough.
    if (link.previous == above.digest || !above.is_whole) continue;
    const auto found = with_digest.find(link.previous);
    if (found == with_digest.end()) {
      problems.push_back(
          {link.line, i == 1 ? "is not the first record: what stood before it is missing or changed"
                             : fmt::format("does not follow line {}: records between them are "
                                           "missing, or that line was replaced",
                                           above.line)});
    } else if (found->second >= i) {
      problems.push_back(
          {link.line, fmt::format("was moved: it follows line {}", links[found->second].line)});
    } else {
      const std::string really =
          found->second == 0
              ? fmt::format("line {} is the first record", link.line)
              : fmt::format("line {} follows line {}", link.line, links[found->second].line);
      for (size_t k = found->second + 1; k < i; ++k)
        problems.push_back({links[k].line, "was inserted or moved here: " + really});
    }
  }
  return problems;
}

std::optional<LedgerProblem> check_end(const std::vector<Link>& links,
                                       const std::optional<LedgerHead>& head) {
  if (!head) {
    if (links.empty()) return std::nullopt;
    return LedgerProblem{0,
                         "results.head is missing or cannot be read: whether records are missing "
                         "at the end cannot be told"};
  }
  const auto last = std::find_if(links.begin(), links.end(),
                                 [&](const Link& link) { return link.digest == head->last; });
  // A process that was killed between the two leaves a head that is one record behind.
  const auto place = static_cast<uint64_t>(last - links.begin()) + 1;
  if (last != links.end() && place == head->rows) return std::nullopt;
  // A last line that was changed is said to be, and is not missing.
  if (last == links.end() && links.size() == head->rows && !links.back().is_whole)
    return std::nullopt;
  return LedgerProblem{
      0,
      last == links.end()
          ? fmt::format("records are missing at the end: results.head counts {}, and the last of "
                        "them is not here",
                        head->rows)
          : fmt::format("results.head counts {} records, and the last of them is number {} here",
                        head->rows, place)};
}

namespace {

namespace fs = std::filesystem;

constexpr const char* kHeadSchema = "tyto-results-head-1";
constexpr uint64_t kMostBytes = uint64_t{1} << 30;
constexpr uint64_t kMostHeadBytes = 4096;
constexpr uint64_t kMostRows = uint64_t{1} << 40;

fs::path head_path(fs::path ledger) {
  return ledger.replace_extension(".head");
}

// None where it cannot be read, which checking says.
std::optional<LedgerHead> read_head(const fs::path& ledger) {
  std::error_code ignored;
  if (!fs::exists(head_path(ledger), ignored)) return std::nullopt;
  try {
    const Json json = Json::parse_file(head_path(ledger).string(), kMostHeadBytes);
    if (json.at("schema").as_string() != kHeadSchema) return std::nullopt;
    return LedgerHead{json.at("rows").as_uint(kMostRows), std::string(json.at("last").as_string())};
  } catch (const Error&) {
    return std::nullopt;
  }
}

void write_head(const fs::path& ledger, const LedgerHead& head) {
  AtomicFile file(head_path(ledger), Replace::own_state);
  file.write(fmt::format("{{\"schema\":\"{}\",\"rows\":{},\"last\":\"{}\"}}\n", kHeadSchema,
                         head.rows, head.last));
  file.commit();
}

struct LastRecord {
  std::string digest;
  std::string previous;
};

// Behind it there may be half a line, or what was never a record.
std::optional<LastRecord> last_record(std::string_view text) {
  while (!text.empty()) {
    if (text.back() == '\n') text.remove_suffix(1);
    const size_t begin = text.rfind('\n') + 1;  // 0 where none is found
    const std::string_view line = text.substr(begin);
    if (const auto previous = previous_of(line)) return LastRecord{digest(line), *previous};
    text = text.substr(0, begin);
  }
  return std::nullopt;
}

// Where the chain stands: what the next record follows, and how many there are.
LedgerHead end_of_chain(const fs::path& path) {
  const MappedFile file(path);  // as a rule only its end is touched
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  const std::optional<LedgerHead> head = read_head(path);
  const std::optional<LastRecord> last = last_record(text);
  if (!head && last) return {parse_ledger(text, {}).chained, last->digest};
  const bool ends_in_a_line = !text.empty() && !text.ends_with('\n');
  if (!head) return {0, digest(std::string(text) + (ends_in_a_line ? "\n" : ""))};
  // A process that was killed before it wrote the head: its record counts.
  if (last && last->digest != head->last && last->previous == head->last)
    return {head->rows + 1, last->digest};
  return *head;
}

}  // namespace

fs::path ledger_path() {
  return state_folder() / "results.jsonl";
}

Ledger read_ledger(const fs::path& path, const PublicKey* trusted) {
  std::error_code ignored;
  // The head first: what is appended in between is then more than it counts, not less.
  const std::optional<LedgerHead> head = read_head(path);
  const std::string text =
      fs::exists(path, ignored) ? read_text_file(path, kMostBytes) : std::string();
  return parse_ledger(text, head, trusted);
}

void append_record(const fs::path& path, const JsonValue& record, const SigningKey* key) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) fail_input(path.parent_path().string(), "cannot be made: {}", error.message());
  const FileLock lock(path);
  const LedgerHead end = end_of_chain(path);
  const std::string line = chained_line(record, end.last, key);
  append_line(path, line);
  write_head(path, {end.rows + 1, digest(line)});
}

namespace {

std::string in_brackets(const std::string& mark) {
  return mark.empty() ? "" : "[" + mark + "]";
}

}  // namespace

std::string marks_of(const Ledger& ledger, const LedgerEntry& entry) {
  const std::string first = in_brackets(superseded_mark(entry));
  const std::string second = in_brackets(broken_mark(ledger, entry));
  return first + (first.empty() || second.empty() ? "" : "  ") + second;
}

std::string list_json(const Ledger& ledger, bool has_superseded) {
  JsonValue rows = JsonValue::array();
  for (const LedgerEntry& entry : ledger.entries) {
    if (!superseded_mark(entry).empty() && !has_superseded) continue;
    rows.push_back({{"id", entry.id},
                    {"date", entry.date},
                    {"test", entry.test},
                    {"speed", entry.speed},
                    {"executed_on", entry.executed_on},
                    {"model", entry.model},
                    {"marks", marks_of(ledger, entry)}});
  }
  return rows.dump(2) + "\n";
}

std::string whole_chain(const Ledger& ledger) {
  std::string first, last;
  for (const LedgerEntry& entry : ledger.entries) {
    if (!entry.is_chained) continue;
    if (first.empty()) first = entry.id.substr(0, 8);
    last = entry.id.substr(0, 8);
  }
  if (ledger.chained == 0) return "no record is chained";
  return fmt::format("{}, the chain is whole from {} to {}", counted(ledger.chained, "record"),
                     first, last);
}

std::string check_json(const Ledger& ledger, const std::filesystem::path& path, bool is_trusted) {
  JsonValue problems = JsonValue::array();
  for (const LedgerProblem& problem : ledger.problems)
    problems.push_back({{"line", problem.line}, {"what", problem.what}});
  const bool is_whole = ledger.problems.empty();
  const JsonValue json = {{"file", path.string()},
                          {"is_whole", is_whole},
                          {"chained", ledger.chained},
                          {"without_hash", ledger.not_chained},
                          {"signed_by_trusted_key", is_whole && is_trusted},
                          {"problems", std::move(problems)}};
  return json.dump(2) + "\n";
}

}  // namespace tyto
