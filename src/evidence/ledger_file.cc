#include "evidence/ledger_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "evidence/digest.h"

namespace tyto {
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
    const size_t begin = text.rfind('\n') + 1;  // of nothing found, 0
    const std::string_view line = text.substr(begin);
    if (const auto previous = previous_of(line)) return LastRecord{digest(line), *previous};
    text = text.substr(0, begin);
  }
  return std::nullopt;
}

// Where the chain stands: what the next record follows, and how many there are.
LedgerHead end_of_chain(const fs::path& path) {
  const MappedFile file(path);  // of which the end alone is touched, as a rule
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

void append_record(const fs::path& path, const nlohmann::ordered_json& record,
                   const SigningKey* key) {
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error) fail_input(path.parent_path().string(), "cannot be made: {}", error.message());
  const FileLock lock(path);
  const LedgerHead end = end_of_chain(path);
  const std::string line = chained_line(record, end.last, key);
  append_line(path, line);
  write_head(path, {end.rows + 1, digest(line)});
}

}  // namespace tyto
