// Reading a profile back. The rows of the report are not read: they are worked out again.
#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "base/json.h"
#include "evidence/receipt_read.h"
#include "evidence/recheck.h"
#include "evidence/seal.h"
#include "report/json_schema.h"
#include "report/profile_check.h"
#include "report/report.h"

namespace tyto {
namespace {

constexpr uint64_t kMost = uint64_t{1} << 62;
constexpr uint64_t kMostLayers = 4096;
constexpr uint64_t kMostU32 = 0xffffffff;

std::string string(const Json& json, std::string_view key) {
  return std::string(json.at(key).as_string());
}

uint32_t u32(const Json& json, std::string_view key) {
  return static_cast<uint32_t>(json.at(key).as_uint(kMostU32));
}

template <typename Item, typename Function>
std::vector<Item> list(const Json& json, const Function& item) {
  std::vector<Item> result;
  json.for_each_element([&](size_t, const Json& element) { result.push_back(item(element)); });
  return result;
}

// With the text of each element, as it stands in the file.
template <typename Item, typename Function>
std::vector<Item> list(const Json& json, std::string_view array, const Function& item) {
  std::vector<Item> result;
  const std::vector<std::string_view> texts = element_texts(array);
  json.for_each_element([&](size_t i, const Json& element) {
    if (i >= texts.size()) element.fail("is in a list with a name of two spellings");
    result.push_back(item(element, texts[i]));
  });
  return result;
}

std::vector<double> numbers(const Json& json) {
  return list<double>(json, [](const Json& j) { return j.as_double(); });
}

Facts facts(const Json& json) {
  Facts facts;
  ReceiptContext& origin = facts.origin;
  origin.version = string(json, "tyto");
  origin.time = string(json, "time");
  origin.command = string(json, "command");
  origin.model = string(json, "model");
  origin.model_format = string(json, "model_format");
  origin.model_size = json.string_or("model_size", "");
  origin.model_type = json.string_or("model_type", "");
  origin.weight_bytes = json.at("weight_bytes").as_uint(kMost);
  origin.weights_hash = string(json, "weights_hash");
  origin.weights_hash_form = string(json, "weights_hash_form");
  origin.identity_seconds = json.double_or("identity_seconds", 0);
  origin.identity_cached = json.bool_or("identity_cached", false);
  origin.fusion = string(json, "fusion");
  origin.device_choice = json.string_or("device_choice", "");
  facts.model_name = string(json, "model_name");
  facts.layers = static_cast<uint32_t>(json.at("layers").as_uint(kMostLayers));
  facts.threads = u32(json, "threads");
  facts.context = u32(json, "context");
  facts.prefill_chunk = u32(json, "prefill_chunk");
  facts.kv_type = string(json, "kv_type");
  facts.sampling = string(json, "sampling");
  facts.prompt = json.string_or("prompt", "");
  facts.devices = list<DeviceFacts>(json.at("devices"), [](const Json& device) {
    return DeviceFacts{string(device, "name"),        string(device, "tag"),
                       string(device, "description"), device.at("virtual").as_bool(),
                       device.at("host").as_bool(),   limits_from_json(device.at("peak"))};
  });
  origin.limits = list<NamedLimits>(json.at("limits"), [](const Json& of) {
    return NamedLimits{string(of, "device"), limits_from_json(of.at("limits"))};
  });
  return facts;
}

// Receipts from before they said it themselves: the profile knows who the host is.
void name_hosts(std::vector<DeviceCounters>& counters, const Facts& facts) {
  for (DeviceCounters& device : counters)
    for (const DeviceFacts& known : facts.devices)
      if (known.name == device.device) device.is_host |= known.is_host;
}

// What it says of itself is not believed: its hash, its sums and its verdict are worked out again.
// It is read from the very text that is hashed.
Receipt checked_receipt(const Json& owner, std::string_view owner_text, const Facts& facts) {
  const std::string_view text = member_text(owner_text, "receipt");
  const Json json = Json::parse(text, owner.at("receipt").path());
  json.refuse_repeated_names();
  const Seal seal = read_seal(text);
  if (!seal.stated.empty() && !seal.is_whole())
    json.fail(fmt::format("was changed: its contents have the hash {}, it says {}", seal.computed,
                          seal.stated));
  Receipt result = receipt_from_json(json);
  for (auto* counters : {&result.devices, &result.phases.prefill, &result.phases.decode})
    name_hosts(*counters, facts);
  const std::vector<std::string> wrong = contradictions(result);
  if (!wrong.empty()) json.fail(wrong.front());
  const Plausibility again = judge_again(result, facts.origin.limits);
  const std::string contradicts = contradiction(result.plausibility, again);
  if (!contradicts.empty()) json.at("plausibility").at("verdict").fail(contradicts);
  if (result.plausibility.verdict != Verdict::refused) result.plausibility = again;
  if (seal.stated.empty())
    result.plausibility.unchecked.push_back(
        "the receipt has no hash: whether it was changed cannot be told");
  return result;
}

// What the reports use as an index must be one. Dispatches and tokens count up by events.
Event event(const Json& row, const Profile& profile, size_t events) {
  std::array<uint64_t, kEventColumns.size()> v = {};
  row.for_each_element([&](size_t i, const Json& value) {
    if (i < v.size()) v[i] = value.as_uint(kMost);
  });
  Event e;
  e.kind = static_cast<EventKind>(v[0]);
  const bool fits = v[0] < kEventKindNames.size() &&
                    v[1] < std::max<size_t>(1, profile.names.size()) &&
                    v[2] < profile.facts.devices.size() && v[3] <= events && v[4] <= events &&
                    v[5] <= kMostU32 && v[6] <= kMostU32 && v[7] <= 0xffff && v[8] <= v[9];
  if (!fits || row.size() != v.size()) row.fail("is no event of this profile");
  e.name = static_cast<uint16_t>(v[1]);
  e.device = static_cast<uint8_t>(v[2]);
  e.dispatch = static_cast<uint32_t>(v[3]);
  e.token = static_cast<uint32_t>(v[4]);
  e.position = static_cast<uint32_t>(v[5]);
  e.rows = static_cast<uint32_t>(v[6]);
  e.launches = static_cast<uint16_t>(v[7]);
  e.start_ns = v[8];
  e.end_ns = v[9];
  e.modelled_ns = v[10];
  e.bytes = v[11];
  e.flops = v[12];
  return e;
}

EventName event_name_from(const Json& row) {
  std::array<Json, 4> field = {row, row, row, row};
  if (row.size() != field.size()) row.fail("is no name");
  row.for_each_element([&](size_t i, const Json& value) { field[i] = value; });
  const int64_t layer = field[1].as_int();
  const uint64_t op = field[3].as_uint(static_cast<uint64_t>(Operator::other));
  if (layer < -1 || layer >= static_cast<int64_t>(kMostLayers)) field[1].fail("is no layer");
  return {std::string(field[0].as_string()), layer < 0 ? kNoLayer : static_cast<uint16_t>(layer),
          std::string(field[2].as_string()), static_cast<Operator>(op)};
}

SetupSpan setup_span(const Json& row) {
  std::array<Json, 3> field = {row, row, row};
  if (row.size() != field.size()) row.fail("is no phase");
  row.for_each_element([&](size_t i, const Json& value) { field[i] = value; });
  SetupSpan span{std::string(field[0].as_string()), field[1].as_uint(kMost),
                 field[2].as_uint(kMost)};
  if (span.end_ns < span.start_ns) row.fail("ends before it begins");
  return span;
}

ProfileRun profile_run(const Json& json, std::string_view text, const Profile& profile) {
  ProfileRun run;
  run.lost = json.at("lost").as_uint(kMost);
  run.stopped = string(json, "stopped");
  run.answer = json.string_or("answer", "");
  run.simulated_seconds = json.at("simulated_s").as_double();
  run.receipt = checked_receipt(json, text, profile.facts);
  const size_t count = json.at("events").size();
  run.events =
      list<Event>(json.at("events"), [&](const Json& row) { return event(row, profile, count); });
  if (const auto wrong = disagreement(run, profile.facts)) json.fail(*wrong);
  if (run.lost > 0)
    run.receipt.plausibility.unchecked.push_back(fmt::format(
        "the recording lost {} events: what is left of it is not compared in full", run.lost));
  return run;
}

SweepRow sweep_row(const Json& json, std::string_view text, const Facts& facts) {
  SweepRow row{.prompt_tokens = u32(json, "prompt_tokens"),
               .generated_tokens = u32(json, "generated_tokens"),
               .prefill_s = numbers(json.at("prefill_s")),
               .tpot_ms = numbers(json.at("tpot_ms")),
               .receipt = checked_receipt(json, text, facts),
               .note = string(json, "note")};
  if (const auto wrong = disagreement(row)) json.fail(*wrong);
  return row;
}

}  // namespace

Profile profile_from_json(const std::string& source, const std::string& name) {
  const Json json = Json::parse(source, name);
  const std::string schema = json.string_or("schema", "");
  if (schema != kProfileSchema)
    throw Error(ErrorCode::input, name,
                schema.empty() ? "is not a profile" : "has schema " + schema,
                "this version reads " + std::string(kProfileSchema) + ", written by --json");
  Profile profile;
  profile.facts = facts(json.at("facts"));
  profile.setup_seconds = json.at("setup_s").as_double();
  profile.setup = list<SetupSpan>(json.at("setup"), setup_span);
  profile.names = list<EventName>(json.at("names"), event_name_from);
  profile.sweep = list<SweepRow>(
      json.at("sweep"), member_text(source, "sweep"),
      [&](const Json& row, std::string_view text) { return sweep_row(row, text, profile.facts); });
  if (profile.facts.devices.empty() || profile.names.empty()) json.fail("names no device or step");
  if (profile.facts.devices.size() > 256 || profile.names.size() > 0xffff)
    json.fail("names too many devices or steps");
  profile.runs = list<ProfileRun>(
      json.at("runs"), member_text(source, "runs"),
      [&](const Json& run, std::string_view text) { return profile_run(run, text, profile); });
  return profile;
}

}  // namespace tyto
