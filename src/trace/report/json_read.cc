// Reading a profile back. The rows of the report are not read: they are worked out again.
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "trace/report/json_schema.h"
#include "trace/report/report.h"

namespace tyto {
namespace {

constexpr uint64_t kMost = uint64_t{1} << 62;
constexpr uint64_t kMostLayers = 4096;
constexpr uint64_t kMostU32 = 0xffffffff;

std::string text(const Json& json, std::string_view key) {
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

std::vector<std::string> texts(const Json& json) {
  return list<std::string>(json, [](const Json& j) { return std::string(j.as_string()); });
}

std::vector<double> numbers(const Json& json) {
  return list<double>(json, [](const Json& j) { return j.as_double(); });
}

DeviceLimits limits(const Json& json) {
  return {json.at("gb_s").as_double(), json.at("gflops").as_double(),
          json.at("dispatch_us").as_double(), text(json, "source")};
}

Facts facts(const Json& json) {
  Facts facts;
  ReceiptContext& origin = facts.origin;
  origin.version = text(json, "tyto");
  origin.time = text(json, "time");
  origin.command = text(json, "command");
  origin.model = text(json, "model");
  origin.model_format = text(json, "model_format");
  origin.weight_bytes = json.at("weight_bytes").as_uint(kMost);
  origin.weights_hash = text(json, "weights_hash");
  origin.weights_hash_form = text(json, "weights_hash_form");
  origin.identity_seconds = json.double_or("identity_seconds", 0);
  origin.identity_cached = json.bool_or("identity_cached", false);
  origin.fusion = text(json, "fusion");
  facts.model_name = text(json, "model_name");
  facts.layers = static_cast<uint32_t>(json.at("layers").as_uint(kMostLayers));
  facts.threads = u32(json, "threads");
  facts.context = u32(json, "context");
  facts.prefill_chunk = u32(json, "prefill_chunk");
  facts.kv_type = text(json, "kv_type");
  facts.sampling = text(json, "sampling");
  facts.devices = list<DeviceFacts>(json.at("devices"), [](const Json& device) {
    return DeviceFacts{text(device, "name"),        text(device, "tag"),
                       text(device, "description"), device.at("virtual").as_bool(),
                       device.at("host").as_bool(), limits(device.at("peak"))};
  });
  origin.limits = list<NamedLimits>(json.at("limits"), [](const Json& of) {
    return NamedLimits{text(of, "device"), limits(of.at("limits"))};
  });
  return facts;
}

std::vector<DeviceCounters> counters(const Json& json, const Facts& facts) {
  return list<DeviceCounters>(json, [&](const Json& device) {
    DeviceCounters result{.device = text(device, "name")};
    result.is_virtual = device.at("virtual").as_bool();
    for (const DeviceFacts& known : facts.devices)
      if (known.name == result.device) result.is_host = known.is_host;
    result.submissions = device.at("submissions").as_uint(kMost);
    result.completions = device.at("completions").as_uint(kMost);
    result.launches = device.at("launches").as_uint(kMost);
    result.busy_ns = device.at(result.is_virtual ? "modelled_busy_ns" : "busy_ns").as_uint(kMost);
    result.bytes = device.at("bytes").as_uint(kMost);
    result.flops = device.at("flops").as_uint(kMost);
    return result;
  });
}

std::optional<double> optional_number(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found ? std::optional<double>(found->as_double()) : std::nullopt;
}

Plausibility plausibility(const Json& json) {
  Plausibility result;
  const std::string_view verdict = json.at("verdict").as_string();
  for (const Verdict known : {Verdict::unchecked, Verdict::plausible, Verdict::refused})
    if (verdict == name(known)) result.verdict = known;
  if (verdict != name(result.verdict)) json.at("verdict").fail("is no verdict");
  result.reasons = texts(json.at("reasons"));
  result.checks = texts(json.at("checks"));
  result.unchecked = texts(json.at("unchecked"));
  return result;
}

Receipt receipt(const Json& json, const Facts& facts) {
  Receipt result;
  result.prompt_tokens = u32(json, "prompt_tokens");
  result.generated_tokens = u32(json, "generated_tokens");
  // Files of before caches were in pages have neither.
  if (json.find("cached_tokens")) result.cached_tokens = u32(json, "cached_tokens");
  if (const auto peak = json.find("kv_peak_bytes")) result.kv_peak_bytes = peak->as_uint(kMost);
  result.devices = counters(json.at("devices"), facts);
  result.phases = {counters(json.at("phases").at("prefill"), facts),
                   counters(json.at("phases").at("decode"), facts)};
  result.fallbacks = texts(json.at("fallbacks"));
  const Json timing = json.at("timing");
  const bool simulated = timing.at("clock").as_string() == "simulation";
  result.prefill_seconds = timing.at(simulated ? "simulation_prefill_s" : "prefill_s").as_double();
  result.decode_seconds = timing.at(simulated ? "simulation_decode_s" : "decode_s").as_double();
  if (timing.find("modelled_prefill_s"))
    result.modelled = ModelledSeconds{timing.at("modelled_prefill_s").as_double(),
                                      timing.at("modelled_decode_s").as_double()};
  const Json energy = json.at("energy");
  result.energy = {optional_number(energy, "prefill_joules"),
                   optional_number(energy, "decode_joules"), energy.string_or("rail", ""),
                   energy.string_or("reason", "")};
  result.plausibility = plausibility(json.at("plausibility"));
  result.loaded_code = list<LoadedCode>(json.at("hashes").at("images"), [](const Json& image) {
    return LoadedCode{text(image, "device"), text(image, "program"), text(image, "form"),
                      text(image, "hash")};
  });
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

ProfileRun profile_run(const Json& json, const Profile& profile) {
  ProfileRun run;
  run.lost = json.at("lost").as_uint(kMost);
  run.stopped = text(json, "stopped");
  run.simulated_seconds = json.at("simulated_s").as_double();
  run.receipt = receipt(json.at("receipt"), profile.facts);
  const size_t count = json.at("events").size();
  run.events =
      list<Event>(json.at("events"), [&](const Json& row) { return event(row, profile, count); });
  return run;
}

SweepRow sweep_row(const Json& json, const Facts& facts) {
  return {.prompt_tokens = u32(json, "prompt_tokens"),
          .generated_tokens = u32(json, "generated_tokens"),
          .prefill_s = numbers(json.at("prefill_s")),
          .tpot_ms = numbers(json.at("tpot_ms")),
          .receipt = receipt(json.at("receipt"), facts),
          .note = text(json, "note")};
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
  profile.sweep = list<SweepRow>(json.at("sweep"),
                                 [&](const Json& row) { return sweep_row(row, profile.facts); });
  if (profile.facts.devices.empty() || profile.names.empty()) json.fail("names no device or step");
  if (profile.facts.devices.size() > 256 || profile.names.size() > 0xffff)
    json.fail("names too many devices or steps");
  profile.runs =
      list<ProfileRun>(json.at("runs"), [&](const Json& run) { return profile_run(run, profile); });
  return profile;
}

}  // namespace tyto
