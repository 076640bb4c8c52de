#include "evidence/verified.h"

#include <algorithm>
#include <filesystem>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"

namespace tyto {
namespace {

constexpr const char* kRecordSchema = "tyto-verified-1";
// Only the file's end is read: a run must not pay for years of verifying.
constexpr uint64_t kMostRecordBytes = 128 << 10;

std::filesystem::path verified_file() {
  return state_folder() / "verified.jsonl";
}

Combination combination_from(const Json& line) {
  const auto text = [&](const char* key) { return std::string(line.at(key).as_string()); };
  Combination result{.tyto = text("tyto"),
                     .weights = text("weights"),
                     .driver = text("driver"),
                     .hardware = line.string_or("hardware", ""),
                     .device = text("device"),
                     .fusion = text("fusion"),
                     .weight_form = text("weight_form"),
                     .kv_type = text("kv_type"),
                     .numerics = text("numerics"),
                     .images = {}};
  line.at("images").for_each_element(
      [&](size_t, const Json& image) { result.images.emplace_back(image.as_string()); });
  std::sort(result.images.begin(), result.images.end());
  return result;
}

bool covers(const Combination& verified, const Combination& running) {
  return verified.tyto == running.tyto && verified.weights == running.weights &&
         verified.driver == running.driver && verified.hardware == running.hardware &&
         verified.device == running.device && verified.fusion == running.fusion &&
         verified.weight_form == running.weight_form && verified.kv_type == running.kv_type &&
         verified.numerics == running.numerics &&
         std::includes(verified.images.begin(), verified.images.end(), running.images.begin(),
                       running.images.end());
}

}  // namespace

std::string_view name(Verified state) {
  constexpr std::string_view kNames[] = {"yes", "no", "failed"};
  return kNames[static_cast<size_t>(state)];
}

std::string record_line(const VerifiedRecord& record) {
  const Combination& of = record.combination;
  const JsonValue line = {{"schema", kRecordSchema},
                          {"time", record.time},
                          {"verdict", record.passed ? "pass" : "fail"},
                          {"against", record.against},
                          {"prompts", record.prompts},
                          {"tyto", of.tyto},
                          {"device", of.device},
                          {"fusion", of.fusion},
                          {"weight_form", of.weight_form},
                          {"kv_type", of.kv_type},
                          {"numerics", of.numerics},
                          {"driver", of.driver},
                          {"hardware", of.hardware},
                          {"weights", of.weights},
                          {"images", of.images}};
  return line.dump();
}

Verification look_up(std::string_view lines, const Combination& combination) {
  Verification result;
  size_t damaged = 0;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      const Json json = Json::parse(line, "verified.jsonl");
      const std::string verdict(json.at("verdict").as_string());
      if (json.at("schema").as_string() != kRecordSchema ||
          (verdict != "pass" && verdict != "fail"))
        json.fail("is of another version");
      if (!covers(combination_from(json), combination)) continue;
      result.time = json.at("time").as_string();
      result.state = verdict == "pass" ? Verified::yes : Verified::failed;
    } catch (const Error&) {
      ++damaged;
    }
  }
  if (damaged > 0)
    result.warning =
        fmt::format("{} damaged {} passed over", damaged, damaged == 1 ? "line was" : "lines were");
  return result;
}

Verification verification_of(const Combination& combination) {
  try {
    const std::filesystem::path path = verified_file();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return {};
    if (!std::filesystem::is_regular_file(path, ignored))
      fail_input(path.string(), "is not a file");
    Verification result = look_up(read_last_lines(path, kMostRecordBytes), combination);
    if (!result.warning.empty()) result.warning = path.string() + ": " + result.warning;
    return result;
  } catch (const Error& error) {
    return {.warning = error.what()};
  }
}

void remember(const VerifiedRecord& record) {
  append_line(verified_file(), record_line(record));
}

bool is_first_mention(const Combination& combination) {
  try {
    const std::filesystem::path path = state_folder() / "unverified.txt";
    const std::string line = combination.weights + " " + combination.device;
    std::error_code ignored;
    const std::string said = std::filesystem::exists(path, ignored)
                                 ? "\n" + read_last_lines(path, kMostRecordBytes)
                                 : "";
    if (said.find("\n" + line + "\n") != std::string::npos) return false;
    append_line(path, line);
  } catch (const Error&) {  // what cannot be kept is said again
  }
  return true;
}

}  // namespace tyto
