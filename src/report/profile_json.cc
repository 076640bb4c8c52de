#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/json_value.h"
#include "base/redaction.h"
#include "evidence/receipt_check.h"
#include "evidence/receipt_json.h"
#include "evidence/seal.h"
#include "report/report.h"

namespace tyto {

// Reading a profile back. The rows of the report are not read: they are worked out again.

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

// Earlier versions wrote secrets that this one hides: readers of their profiles are not shown them.
Facts facts(const Json& json) {
  Facts facts;
  ReceiptContext& origin = facts.origin;
  origin.version = string(json, "tyto");
  origin.time = string(json, "time");
  origin.command = redacted_command_text(string(json, "command"));
  origin.model = redacted(string(json, "model"));
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
  facts.prompt = redacted(json.string_or("prompt", ""));
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
  if (!fits || row.size() != v.size()) row.fail("is not an event of this profile");
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
  if (row.size() != field.size()) row.fail("is not a name");
  row.for_each_element([&](size_t i, const Json& value) { field[i] = value; });
  const int64_t layer = field[1].as_int();
  const uint64_t op = field[3].as_uint(static_cast<uint64_t>(Operator::recurrence));
  if (layer < -1 || layer >= static_cast<int64_t>(kMostLayers)) field[1].fail("is not a layer");
  return {std::string(field[0].as_string()), layer < 0 ? kNoLayer : static_cast<uint16_t>(layer),
          std::string(field[2].as_string()), static_cast<Operator>(op)};
}

SetupSpan setup_span(const Json& row) {
  std::array<Json, 3> field = {row, row, row};
  if (row.size() != field.size()) row.fail("is not a phase");
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
  run.answer = redacted(json.string_or("answer", ""));
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

// The profile and the rows of its report as JSON. docs/profile.md is the schema's description.

namespace {

std::string text_of(const JsonValue& json) {
  return json.dump();
}

JsonValue limits_json(const DeviceLimits& limits) {
  return {{"gb_s", limits.gb_s},
          {"gflops", limits.gflops},
          {"dispatch_us", limits.dispatch_us},
          {"source", limits.source}};
}

JsonValue facts_json(const Facts& facts) {
  const ReceiptContext& origin = facts.origin;
  JsonValue devices = JsonValue::array(), limits = JsonValue::array();
  for (const DeviceFacts& device : facts.devices)
    devices.push_back({{"name", device.name},
                       {"tag", device.tag},
                       {"description", device.description},
                       {"virtual", device.is_virtual},
                       {"host", device.is_host},
                       {"peak", limits_json(device.peak)}});
  for (const NamedLimits& of : origin.limits)
    limits.push_back({{"device", of.device}, {"limits", limits_json(of.limits)}});
  return {{"tyto", origin.version},
          {"time", origin.time},
          {"command", origin.command},
          {"model", origin.model},
          {"model_name", facts.model_name},
          {"model_format", origin.model_format},
          {"model_size", origin.model_size},
          {"model_type", origin.model_type},
          {"weight_bytes", origin.weight_bytes},
          {"weights_hash", origin.weights_hash},
          {"weights_hash_form", origin.weights_hash_form},
          {"identity_seconds", origin.identity_seconds},
          {"identity_cached", origin.identity_cached},
          {"layers", facts.layers},
          {"fusion", origin.fusion},
          {"device_choice", origin.device_choice},
          {"threads", facts.threads},
          {"context", facts.context},
          {"prefill_chunk", facts.prefill_chunk},
          {"kv_type", facts.kv_type},
          {"sampling", facts.sampling},
          {"prompt", facts.prompt},
          {"devices", devices},
          {"limits", limits}};
}

JsonValue stat_json(const Stat& stat) {
  return {{"count", stat.count}, {"total", stat.total}, {"avg", stat.avg}, {"min", stat.min},
          {"p50", stat.p50},     {"p95", stat.p95},     {"max", stat.max}};
}

JsonValue wall_json(const Attribution& wall) {
  return {{"wall", wall.wall},
          {"device_wait", wall.device},
          {"host_ops", wall.host},
          {"copies", wall.copies},
          {"scheduling", wall.scheduling},
          {"unattributed", wall.unattributed},
          {"dispatches", wall.dispatches}};
}

JsonValue flow_json(const Flow& flow) {
  JsonValue rows = JsonValue::array();
  for (const FlowRow& row : flow.rows)
    rows.push_back({{"step", row.label},
                    {"where", row.tag},
                    {"modelled", row.modelled},
                    {"in_layer", row.in_layer},
                    {"ms", row.ms},
                    {"total_ms", row.total_ms},
                    {"share", row.share},
                    {"write_ms", row.write_ms},
                    {"run_ms", row.run_ms},
                    {"read_ms", row.read_ms},
                    {"launches", row.launches}});
  return {{"layers", flow.layers},
          {"layer_ms", flow.layer_ms},
          {"total_ms", flow.total_ms},
          {"rows", rows}};
}

JsonValue phase_json(const PhaseSummary& phase) {
  JsonValue calls = JsonValue::array(), host = JsonValue::array(), operators = JsonValue::array();
  for (const CallRow& row : phase.calls)
    calls.push_back({{"program", row.program},
                     {"where", row.tag},
                     {"modelled", row.modelled},
                     {"run_ms", stat_json(row.run)},
                     {"write_ms", stat_json(row.write)},
                     {"read_ms", stat_json(row.read)},
                     {"launches", row.launches},
                     {"bytes_written", row.bytes_written},
                     {"bytes_read", row.bytes_read},
                     {"gb_s", row.gb_s},
                     {"gflops", row.gflops},
                     {"share_of_peak_gb_s", row.peak_bandwidth_share},
                     {"share_of_peak_gflops", row.peak_flops_share}});
  for (const HostRow& row : phase.host)
    host.push_back({{"operation", row.label}, {"ms", stat_json(row.time)}});
  for (const OperatorRow& row : phase.operators)
    operators.push_back({{"operator", row.label},
                         {"modelled", row.modelled},
                         {"launches", row.calls},
                         {"total_ms", row.total},
                         {"avg_ms", row.avg},
                         {"share", row.share},
                         {"gb_s", row.gb_s},
                         {"gflops", row.gflops}});
  return {{"tokens", phase.tokens},
          {"flow", flow_json(phase.flow)},
          {"wall", wall_json(phase.wall)},
          {"calls", calls},
          {"host", host},
          {"operators", operators},
          {"histogram_ms", kHistogramEdgesMs},
          {"histogram", phase.histogram}};
}

JsonValue report_json(const Profile& profile, const ProfileRun& run) {
  const Summary summary = summarise(profile, run);
  const Headline& headline = summary.headline;
  JsonValue layers = JsonValue::array(), tokens = JsonValue::array(), setup = JsonValue::array();
  for (const LayerRow& row : summary.layers)
    layers.push_back({{"layer", row.layer},
                      {"prefill_ms", row.prefill_ms},
                      {"decode_ms", stat_json(row.decode)}});
  for (const TokenRow& row : summary.tokens)
    tokens.push_back(
        {{"token", row.token}, {"context", row.context}, {"wall", wall_json(row.wall)}});
  for (const SetupRow& row : summary.setup)
    setup.push_back({{"phase", row.phase}, {"seconds", row.seconds}, {"count", row.count}});
  JsonValue head = {{"modelled", summary.modelled},
                    {"prompt_tokens", headline.prompt_tokens},
                    {"generated_tokens", headline.generated_tokens},
                    {"setup_s", headline.setup_s}};
  if (run.receipt.plausibility.verdict == Verdict::refused) {
    head["refused"] = run.receipt.plausibility.reasons;
  } else {
    head["ttft_ms"] = headline.ttft_ms;
    head["tpot_ms"] = headline.tpot_ms;
    head["prefill_tok_s"] = headline.prefill_tok_s;
    head["decode_tok_s"] = headline.decode_tok_s;
  }
  const Trend& trend = summary.trend;
  return {{"modelled", summary.modelled},
          {"headline", head},
          {"prefill", phase_json(summary.prefill)},
          {"decode", phase_json(summary.decode)},
          {"layers", layers},
          {"tokens", tokens},
          {"trend",
           {{"first", trend.first},
            {"middle", trend.middle},
            {"last", trend.last},
            {"min", trend.min},
            {"max", trend.max},
            {"avg", trend.avg},
            {"drift_percent", trend.drift_percent},
            {"slope_us_per_position", trend.slope_us_per_position},
            {"slope_error_us", trend.slope_error_us}}},
          {"setup", setup}};
}

JsonValue sweep_json(const Profile& profile) {
  JsonValue rows = JsonValue::array();
  for (const SweepRow& row : profile.sweep)
    rows.push_back({{"prompt_tokens", row.prompt_tokens},
                    {"generated_tokens", row.generated_tokens},
                    {"modelled", has_virtual_device(row.receipt)},
                    {"prefill_s", row.prefill_s},
                    {"tpot_ms", row.tpot_ms},
                    {"note", row.note},
                    {"receipt", receipt_fields(row.receipt, profile.facts.origin)}});
  return rows;
}

// One event to a line, as an array in the order of kEventColumns.
void append_events(std::string& out, const std::vector<Event>& events) {
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& e = events[i];
    fmt::format_to(std::back_inserter(out), "{}\n[{},{},{},{},{},{},{},{},{},{},{},{},{}]",
                   i == 0 ? "" : ",", static_cast<int>(e.kind), e.name, e.device, e.dispatch,
                   e.token, e.position, e.rows, e.launches, e.start_ns, e.end_ns, e.modelled_ns,
                   e.bytes, e.flops);
  }
}

std::string run_json(const Profile& profile, const ProfileRun& run) {
  const JsonValue head = {{"lost", run.lost},
                          {"stopped", run.stopped},
                          {"answer", run.answer},
                          {"simulated_s", run.simulated_seconds},
                          {"receipt", receipt_fields(run.receipt, profile.facts.origin)}};
  std::string out = text_of(head);
  out.pop_back();
  out += ",\n\"events\":[";
  append_events(out, run.events);
  return out + "]}";
}

}  // namespace

std::string json_report(const Profile& profile) {
  JsonValue setup = JsonValue::array(), names = JsonValue::array();
  const uint64_t begin = setup_begin(profile);
  for (const SetupSpan& span : profile.setup)
    setup.push_back({span.phase, span.start_ns - begin, span.end_ns - begin});
  for (const EventName& name : profile.names)
    names.push_back({name.label, name.layer == kNoLayer ? -1 : static_cast<int>(name.layer),
                     name.block, static_cast<int>(name.op)});
  std::string out = "{\"schema\":\"" + std::string(kProfileSchema) + "\"";
  const auto add = [&](const char* key, const std::string& value) {
    out += fmt::format(",\n\"{}\":{}", key, value);
  };
  add("facts", text_of(facts_json(profile.facts)));
  if (!profile.runs.empty()) add("report", text_of(report_json(profile, typical_run(profile))));
  add("sweep", text_of(sweep_json(profile)));
  add("setup_s", text_of(profile.setup_seconds));
  add("setup", text_of(setup));
  add("names", text_of(names));
  add("event_kinds", text_of(kEventKindNames));
  add("event_columns", text_of(kEventColumns));
  std::string runs = "[";
  for (const ProfileRun& run : profile.runs)
    runs += (runs.size() == 1 ? "\n" : ",\n") + run_json(profile, run);
  add("runs", runs + "]");
  return out + "}\n";
}

namespace {

// What the events of a phase say that a device did.
struct Recorded {
  uint64_t dispatches = 0;
  uint64_t completions = 0;  // 0: a file from before recordings had them
  uint64_t bytes = 0;
  uint64_t flops = 0;
  uint64_t modelled_ns = 0;
};

Recorded recorded(const ProfileRun& run, const Facts& facts, const std::string& device,
                  Phase phase) {
  Recorded sum;
  for (const Event& event : run.events) {
    const bool is_dispatch = event.kind == EventKind::submit || event.kind == EventKind::wait;
    if (!is_dispatch || (event.token == 0) != (phase == Phase::prefill)) continue;
    if (facts.devices[event.device].name != device) continue;
    if (event.kind == EventKind::wait) {
      sum.completions += event.launches;
      sum.modelled_ns += event.modelled_ns;
      continue;
    }
    ++sum.dispatches;
    sum.bytes += event.bytes;
    sum.flops += event.flops;
  }
  return sum;
}

class Comparison {
 public:
  Comparison(const ProfileRun& run, const Facts& facts)
      : run_(run), facts_(facts), receipt_(run.receipt), is_whole_(run.lost == 0) {}

  std::optional<std::string> result() {
    for (const DeviceFacts& device : facts_.devices) {
      compare(device.name, Phase::prefill, receipt_.phases.prefill);
      compare(device.name, Phase::decode, receipt_.phases.decode);
    }
    compare_tokens();
    if (is_whole_) compare_times();
    return found_;
  }

 private:
  void compare(const std::string& device, Phase phase, const std::vector<DeviceCounters>& counted) {
    const auto entry =
        std::find_if(counted.begin(), counted.end(),
                     [&](const DeviceCounters& each) { return each.device == device; });
    const DeviceCounters counters = entry == counted.end() ? DeviceCounters{} : *entry;
    const Recorded sum = recorded(run_, facts_, device, phase);
    const std::string where = fmt::format("{} {}", device, name(phase));
    compare(where, "bytes", sum.bytes, counters.bytes);
    compare(where, "FLOP", sum.flops, counters.flops);
    if (sum.completions > 0 || sum.dispatches == 0)
      compare(where, "completed submissions", sum.completions, counters.completions);
    else if (sum.dispatches > counters.completions)
      say(where, "dispatches", sum.dispatches, counters.completions);
    if (counters.is_virtual) compare(where, "modelled ns", sum.modelled_ns, counters.busy_ns);
  }

  void compare(const std::string& where, const char* what, uint64_t events, uint64_t counted) {
    if (is_whole_ ? events != counted : events > counted) say(where, what, events, counted);
  }

  void compare_tokens() {
    uint64_t prompt = 0, generated = 0;
    for (const Event& event : run_.events) {
      if (event.kind == EventKind::run && event.token == 0) prompt += event.rows;
      if (event.kind == EventKind::token) ++generated;
    }
    compare("prompt", "tokens", prompt, receipt_.prompt_tokens);
    compare("answer", "tokens", generated, receipt_.generated_tokens);
  }

  // A simulation's own seconds are no device's speed; its modelled ones come from the events.
  void compare_times() {
    const ModelledSeconds events = recorded_seconds(run_.events);
    const ModelledSeconds stated = receipt_.modelled.value_or(
        ModelledSeconds{receipt_.prefill_seconds, receipt_.decode_seconds});
    if (has_virtual_device(receipt_) && !receipt_.modelled) return;
    // A measured prefill also has what comes before the pipeline's first run.
    const double before = receipt_.modelled ? 0 : token_seconds() - events.prefill;
    compare_seconds(Phase::prefill, events.prefill, events.prefill + before, stated.prefill);
    compare_seconds(Phase::decode, events.decode, events.decode, stated.decode);
  }

  double token_seconds() const {  // the prompt's, from the request on
    for (const Event& event : run_.events)
      if (event.kind == EventKind::token && event.token == 0)
        return static_cast<double>(event.end_ns - event.start_ns) * 1e-9;
    return 0;
  }

  // The recording and the receipt read the clock one after the other in older files.
  void compare_seconds(Phase phase, double least, double most, double stated) {
    const double room = receipt_.modelled ? 1e-9 : 1e-3 + 0.01 * most;
    if (found_ || (stated >= least - room && stated <= most + room)) return;
    found_ = fmt::format("{}: {:.6f} s by the recording, {:.6f} s by the receipt", name(phase),
                         stated < least ? least : most, stated);
  }

  void say(const std::string& where, const char* what, uint64_t events, uint64_t counted) {
    if (!found_)
      found_ = fmt::format("{}: {} {} in the recording, {} in the receipt", where, events, what,
                           counted);
  }

  const ProfileRun& run_;
  const Facts& facts_;
  const Receipt& receipt_;
  bool is_whole_;
  std::optional<std::string> found_;
};

}  // namespace

std::optional<std::string> disagreement(const ProfileRun& run, const Facts& facts) {
  for (const DeviceCounters& counted : run.receipt.devices)
    if (std::none_of(facts.devices.begin(), facts.devices.end(),
                     [&](const DeviceFacts& known) { return known.name == counted.device; }))
      return fmt::format("{}: is not a device of this profile", counted.device);
  return Comparison(run, facts).result();
}

std::optional<std::string> disagreement(const SweepRow& row) {
  const Receipt& receipt = row.receipt;
  const double prefill = receipt.modelled ? receipt.modelled->prefill : receipt.prefill_seconds;
  const double decode = receipt.modelled ? receipt.modelled->decode : receipt.decode_seconds;
  const double decoded = decoded_tokens(receipt);
  const auto differs = [](const std::vector<double>& samples, double stated) {
    return !samples.empty() && std::fabs(samples.back() - stated) > 1e-9 * std::fabs(stated);
  };
  if (differs(row.prefill_s, prefill))
    return fmt::format("prefill: {:.6f} s in the row, {:.6f} s in its receipt",
                       row.prefill_s.back(), prefill);
  const double tpot_ms = decoded > 0 ? decode * 1e3 / decoded : 0;
  if (differs(row.tpot_ms, tpot_ms))
    return fmt::format("decode: {:.6f} ms a token in the row, {:.6f} ms in its receipt",
                       row.tpot_ms.back(), tpot_ms);
  return std::nullopt;
}

// The recording as Chrome trace events, for ui.perfetto.dev. One process for the host, one per
// device with its queue, programs and launches as tracks.

namespace {

constexpr int kHost = 1;
constexpr int kFirstDevice = 2;
enum HostTrack { kHostThread = 1, kSetup = 2 };
enum DeviceTrack { kQueue = 1, kPrograms = 2, kLaunches = 3 };

std::string quoted(const std::string& text) {
  return JsonValue(text).dump();
}

// The format counts microseconds; written from integers so that slices that touch stay so.
std::string microseconds(uint64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

class Writer {
 public:
  void track(int process, int thread, const std::string& process_name, const std::string& name) {
    if (named_.emplace(process, process_name).second)
      event(fmt::format(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":{}}})", process,
                        quoted(process_name)));
    event(fmt::format(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}})",
                      process, thread, quoted(name)));
    event(fmt::format(
        R"("ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}})",
        process, thread, thread));
  }

  void slice(int process, int thread, const std::string& name, const char* category,
             uint64_t start_ns, uint64_t end_ns, const std::string& args) {
    event(fmt::format(
        R"("ph":"X","name":{},"cat":"{}","ts":{},"dur":{},"pid":{},"tid":{},"args":{{{}}})",
        quoted(name), category, microseconds(start_ns), microseconds(end_ns - start_ns), process,
        thread, args));
  }

  void counter(const char* name, const char* unit, uint64_t at_ns, uint64_t value) {
    event(fmt::format(R"("ph":"C","name":"{}","ts":{},"pid":{},"args":{{"{}":{}}})", name,
                      microseconds(at_ns), kHost, unit, value));
  }

  std::string take(const std::string& other) {
    return "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + other + ",\n\"traceEvents\":[" + out_ +
           "\n]}\n";
  }

 private:
  void event(const std::string& fields) { out_ += (out_.empty() ? "\n{" : ",\n{") + fields + "}"; }

  std::string out_;
  std::map<int, std::string> named_;
};

std::string full_name(const EventName& name) {
  return name.layer == kNoLayer ? name.label : fmt::format("L{:02}.{}", name.layer, name.label);
}

std::string work_args(const Event& event) {
  return fmt::format(R"("token":{},"dispatch":{},"rows":{},"position":{},"bytes":{},"flops":{})",
                     event.token, event.dispatch, event.rows, event.position, event.bytes,
                     event.flops);
}

void write_tracks(Writer& writer, const Profile& profile) {
  writer.track(kHost, kHostThread, "host", "engine thread");
  writer.track(kHost, kSetup, "host", "set-up");
  for (size_t i = 0; i < profile.facts.devices.size(); ++i) {
    const DeviceFacts& device = profile.facts.devices[i];
    const std::string name = device.name + (device.is_virtual ? " (modelled)" : "");
    const int process = kFirstDevice + static_cast<int>(i);
    writer.track(process, kQueue, name, "queue");
    writer.track(process, kPrograms, name, "programs");
    writer.track(process, kLaunches, name, "launches");
  }
}

class RunWriter {
 public:
  RunWriter(Writer& writer, const Profile& profile, uint64_t offset_ns)
      : writer_(writer), profile_(profile), offset_(offset_ns) {}

  void add(const Event& event) {
    const uint64_t start = event.start_ns + offset_, end = event.end_ns + offset_;
    const EventName& name = profile_.names[event.name];
    const auto on_host = [&](const std::string& label, const std::string& args) {
      const bool waits_for_virtual = event.kind == EventKind::wait && is_virtual(event);
      writer_.slice(kHost, kHostThread, label, waits_for_virtual ? "modelled" : "measured", start,
                    end, args);
    };
    switch (event.kind) {
      case EventKind::token:
        return on_host(
            event.token == 0 ? "prefill and first token" : fmt::format("token {}", event.token),
            fmt::format(R"("token":{})", event.token));
      case EventKind::run:
        on_host(fmt::format("run of {} token{}", event.rows, event.rows == 1 ? "" : "s"),
                fmt::format(R"("position":{},"rows":{})", event.position, event.rows));
        return writer_.counter("KV length", "positions", end,
                               uint64_t{event.position} + event.rows);
      case EventKind::host:
        return on_host(name.label, fmt::format(R"("token":{})", event.token));
      case EventKind::launch:
        return writer_.slice(process(event), kLaunches, full_name(name), category(event), start,
                             end, work_args(event));
      case EventKind::submit:
        submitted_ = event;
        return on_host("submit " + full_name(name), work_args(event));
      case EventKind::wait:
        on_host("wait " + full_name(name), work_args(event));
        if (submitted_.dispatch != event.dispatch) return;
        submitted_.modelled_ns = event.modelled_ns;
        for (const DeviceTrack track : {kQueue, kPrograms})
          writer_.slice(
              process(event), track,
              track == kQueue ? fmt::format("dispatch {}", event.dispatch) : full_name(name),
              category(event), submitted_.start_ns + offset_, end,
              work_args(submitted_) + fmt::format(R"(,"launches":{})", submitted_.launches));
        return;
      case EventKind::upload:
        return on_host("write " + full_name(name), work_args(event));
      case EventKind::download:
        return on_host("read " + full_name(name), work_args(event));
    }
  }

 private:
  bool is_virtual(const Event& event) const {
    return profile_.facts.devices[event.device].is_virtual;
  }
  const char* category(const Event& event) const {
    return is_virtual(event) ? "modelled" : "measured";
  }
  static int process(const Event& event) { return kFirstDevice + event.device; }

  Writer& writer_;
  const Profile& profile_;
  uint64_t offset_;
  Event submitted_;
};

}  // namespace

std::string perfetto_report(const Profile& profile, const ProfileRun& run) {
  Writer writer;
  write_tracks(writer, profile);
  uint64_t request_ns = 0;  // where the request begins: right after the set-up
  const uint64_t begin = setup_begin(profile);
  for (const SetupSpan& span : profile.setup) {
    writer.slice(kHost, kSetup, span.phase, "measured", span.start_ns - begin, span.end_ns - begin,
                 "");
    request_ns = std::max(request_ns, span.end_ns - begin);
  }
  RunWriter events(writer, profile, request_ns);
  for (const Event& event : run.events) events.add(event);
  const JsonValue other = {
      {"tyto", profile.facts.origin.version},
      {"model", profile.facts.model_name},
      {"time", profile.facts.origin.time},
      {"command", profile.facts.origin.command},
      {"events_lost", run.lost},
      {"clock", is_modelled(profile)
                    ? "modelled: a virtual device's time is the cost model's, the host's measured"
                    : "measured"}};
  return writer.take(other.dump());
}

}  // namespace tyto
