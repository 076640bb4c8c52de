#include "evidence/receipt_json.h"

#include <algorithm>

#include "base/hash.h"
#include "base/json_value.h"
#include "evidence/seal.h"

namespace tyto {
namespace {

JsonValue optional_number(const std::optional<double>& value) {
  return value ? JsonValue(*value) : JsonValue(nullptr);
}

JsonValue text_or_null(const std::string& text) {
  return text.empty() ? JsonValue(nullptr) : JsonValue(text);
}

JsonValue device_json(const DeviceCounters& device) {
  JsonValue json = {{"name", device.device},
                    {"virtual", device.is_virtual},
                    {"host", device.is_host},
                    {"submissions", device.submissions},
                    {"completions", device.completions},
                    {"launches", device.launches},
                    {device.is_virtual ? "modelled_busy_ns" : "busy_ns", device.busy_ns},
                    {"bytes", device.bytes},
                    {"flops", device.flops},
                    {"row_sums", device.row_sums}};
  if (device.preparing_ns > 0) json["preparing_ns"] = device.preparing_ns;
  return json;
}

JsonValue devices_json(const std::vector<DeviceCounters>& devices) {
  JsonValue list = JsonValue::array();
  for (const DeviceCounters& device : devices) list.push_back(device_json(device));
  return list;
}

JsonValue energy_json(const Energy& energy) {
  const bool read = energy.prefill_joules || energy.decode_joules;
  return {{"prefill_joules", optional_number(energy.prefill_joules)},
          {"decode_joules", optional_number(energy.decode_joules)},
          {"rail", read ? JsonValue(energy.rail) : JsonValue(nullptr)},
          {"reason", read ? JsonValue(nullptr) : JsonValue(energy.reason)}};
}

JsonValue handed_over_json(const Receipt& receipt) {
  const HandOvers& handed = receipt.handed_over;
  return {{"times", handed.times},
          {"positions", handed.positions},
          {"bytes", handed.bytes},
          {has_virtual_device(receipt) ? "simulation_ns" : "ns", handed.ns}};
}

JsonValue speculation_json(const Receipt& receipt) {
  const SpeculationCounters& counted = *receipt.speculation;
  return {{"source", counted.source},
          {"calls", counted.calls},
          {"drafted", counted.drafted},
          {"accepted", counted.accepted},
          {"calls_per_token", optional_number(calls_per_token(receipt))},
          {"drafting_s", counted.drafting_seconds}};
}

// Rates that were refused are not in the file at all.
JsonValue timing_json(const Receipt& receipt) {
  const bool simulated = has_virtual_device(receipt);
  JsonValue timing = {{"clock", simulated ? "simulation" : "wall"},
                      {simulated ? "simulation_prefill_s" : "prefill_s", receipt.prefill_seconds},
                      {simulated ? "simulation_decode_s" : "decode_s", receipt.decode_seconds}};
  if (receipt.queue_seconds > 0) timing["queue_s"] = receipt.queue_seconds;
  if (receipt.modelled) {
    timing["modelled_prefill_s"] = receipt.modelled->prefill;
    timing["modelled_decode_s"] = receipt.modelled->decode;
  }
  if (simulated || receipt.plausibility.verdict == Verdict::refused) return timing;
  timing["prefill_tok_s"] = receipt.prompt_tokens > 0
                                ? JsonValue(prefill_tokens_per_second(receipt))
                                : JsonValue(nullptr);
  timing["decode_tok_s"] = decoded_tokens(receipt) > 0
                               ? JsonValue(decode_tokens_per_second(receipt))
                               : JsonValue(nullptr);
  return timing;
}

// What the verdict rests on, so that it can be computed again from the receipt alone.
JsonValue plausibility_json(const Plausibility& plausibility,
                            const std::vector<NamedLimits>& limits) {
  JsonValue bounds = JsonValue::array();
  for (const NamedLimits& of : limits)
    bounds.push_back({{"device", of.device},
                      {"gb_s", of.limits.gb_s},
                      {"gflops", of.limits.gflops},
                      {"dispatch_us", of.limits.dispatch_us},
                      {"source", of.limits.source}});
  return {{"verdict", std::string(name(plausibility.verdict))},
          {"reasons", plausibility.reasons},
          {"checks", plausibility.checks},
          {"unchecked", plausibility.unchecked},
          {"limits", bounds}};
}

JsonValue hashes_json(const Receipt& receipt, const ReceiptContext& context) {
  JsonValue images = JsonValue::array();
  for (const LoadedCode& code : receipt.loaded_code)
    images.push_back({{"device", code.device},
                      {"program", code.program},
                      {"form", code.form},
                      {"hash", code.hash}});
  return {{"weights", context.weights_hash},
          {"weights_form", context.weights_hash_form},
          {"images", images}};
}

JsonValue adapters_json(const std::vector<AdapterFacts>& adapters) {
  JsonValue list = JsonValue::array();
  for (const AdapterFacts& adapter : adapters)
    list.push_back({{"path", adapter.path}, {"hash", adapter.hash}, {"scale", adapter.scale}});
  return list;
}

JsonValue verified_json(const ReceiptContext& context) {
  if (context.verified.empty()) return nullptr;
  JsonValue json = {{"state", context.verified}, {"time", nullptr}};
  if (!context.verified_time.empty()) json["time"] = context.verified_time;
  return json;
}

}  // namespace

JsonValue receipt_fields(const Receipt& receipt, const ReceiptContext& context) {
  uint64_t submissions = 0, completions = 0;
  for (const DeviceCounters& device : receipt.devices) {
    submissions += device.submissions;
    completions += device.completions;
  }
  JsonValue json = {{"schema", kReceiptSchema},
                    {"tyto", context.version},
                    {"time", context.time},
                    {"command", context.command},
                    {"model",
                     {{"path", context.model},
                      {"format", context.model_format},
                      {"size", context.model_size},
                      {"type", context.model_type},
                      {"weight_bytes", context.weight_bytes},
                      {"identity_seconds", context.identity_seconds},
                      {"identity_cached", context.identity_cached}}},
                    {"fusion", context.fusion},
                    {"device_choice", text_or_null(context.device_choice)},
                    {"prompt_tokens", receipt.prompt_tokens},
                    {"cached_tokens", receipt.cached_tokens},
                    {"generated_tokens", receipt.generated_tokens},
                    {"decoded_tokens", decoded_tokens(receipt)},
                    {"kv_peak_bytes", receipt.kv_peak_bytes},
                    {"devices", devices_json(receipt.devices)},
                    {"phases",
                     {{"prefill", devices_json(receipt.phases.prefill)},
                      {"decode", devices_json(receipt.phases.decode)}}},
                    {"submissions", submissions},
                    {"completions", completions},
                    {"recoveries", receipt.recoveries},
                    {"dispatches_per_token", optional_number(dispatches_per_token(receipt))},
                    {"fallbacks", receipt.fallbacks},
                    {"on_host", receipt.on_host},
                    {"virtual", has_virtual_device(receipt)},
                    {"timing", timing_json(receipt)},
                    {"energy", energy_json(receipt.energy)},
                    {"plausibility", plausibility_json(receipt.plausibility, context.limits)},
                    {"hashes", hashes_json(receipt, context)},
                    {"verified", verified_json(context)}};
  if (!context.adapters.empty()) json["model"]["adapters"] = adapters_json(context.adapters);
  if (receipt.handed_over.times > 0) json["kv_handed_over"] = handed_over_json(receipt);
  if (receipt.speculation) json["speculation"] = speculation_json(receipt);
  const std::string text = json.dump();
  json["id"] = to_hex(hash_bytes(std::as_bytes(std::span(text)))).substr(0, 16);
  seal(json, context.key);
  return json;
}

std::string receipt_json(const Receipt& receipt, const ReceiptContext& context) {
  return receipt_fields(receipt, context).dump(2) + "\n";
}

namespace {

constexpr uint64_t kMostCount = uint64_t{1} << 62;
constexpr uint64_t kMostCount32 = 0xffffffff;
constexpr double kMostSeconds = 1e9;
constexpr size_t kLongestName = 64;

std::string text(const Json& json, std::string_view key) {
  return std::string(json.at(key).as_string());
}

// It goes into messages and tables.
std::string device_name(const Json& json) {
  const std::string name(json.as_string());
  const bool is_plain =
      std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (name.empty() || name.size() > kLongestName || !is_plain) json.fail("is not a device's name");
  return name;
}

uint32_t count_of(const Json& json, std::string_view key) {
  return static_cast<uint32_t>(json.at(key).as_uint(kMostCount32));
}

double seconds(const Json& json, std::string_view key) {
  const double value = json.at(key).as_double();
  if (!(value >= 0 && value <= kMostSeconds)) json.at(key).fail("is not a number of seconds");
  return value;
}

std::vector<std::string> texts(const Json& json) {
  std::vector<std::string> result;
  json.for_each_element([&](size_t, const Json& each) { result.emplace_back(each.as_string()); });
  return result;
}

std::vector<DeviceCounters> counters(const Json& json) {
  std::vector<DeviceCounters> result;
  json.for_each_element([&](size_t, const Json& device) {
    DeviceCounters one{.device = device_name(device.at("name"))};
    one.is_virtual = device.at("virtual").as_bool();
    one.is_host = device.bool_or("host", false);
    one.submissions = device.at("submissions").as_uint(kMostCount);
    one.completions = device.at("completions").as_uint(kMostCount);
    one.launches = device.at("launches").as_uint(kMostCount);
    one.busy_ns = device.at(one.is_virtual ? "modelled_busy_ns" : "busy_ns").as_uint(kMostCount);
    one.bytes = device.at("bytes").as_uint(kMostCount);
    one.flops = device.at("flops").as_uint(kMostCount);
    if (const auto sums = device.find("row_sums")) one.row_sums = sums->as_uint(kMostCount);
    if (const auto ns = device.find("preparing_ns")) one.preparing_ns = ns->as_uint(kMostCount);
    for (const DeviceCounters& other : result)
      if (other.device == one.device) device.fail("is there twice");
    result.push_back(std::move(one));
  });
  return result;
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
  if (verdict != name(result.verdict)) json.at("verdict").fail("is not a verdict");
  result.reasons = texts(json.at("reasons"));
  result.checks = texts(json.at("checks"));
  result.unchecked = texts(json.at("unchecked"));
  return result;
}

void read_timing(Receipt& receipt, const Json& timing) {
  const bool simulated = timing.at("clock").as_string() == "simulation";
  receipt.prefill_seconds = seconds(timing, simulated ? "simulation_prefill_s" : "prefill_s");
  receipt.decode_seconds = seconds(timing, simulated ? "simulation_decode_s" : "decode_s");
  if (timing.find("queue_s")) receipt.queue_seconds = seconds(timing, "queue_s");
  if (timing.find("modelled_prefill_s"))
    receipt.modelled = ModelledSeconds{seconds(timing, "modelled_prefill_s"),
                                       seconds(timing, "modelled_decode_s")};
}

uint64_t handed_over_ns(const Json& json) {
  return json.at(json.find("ns") ? "ns" : "simulation_ns").as_uint(kMostCount);
}

SpeculationCounters speculation(const Json& json) {
  return {.source = text(json, "source"),
          .calls = json.at("calls").as_uint(kMostCount32),
          .drafted = json.at("drafted").as_uint(kMostCount),
          .accepted = json.at("accepted").as_uint(kMostCount32),
          .drafting_seconds = seconds(json, "drafting_s")};
}

void read_tokens(Receipt& receipt, const Json& json) {
  receipt.prompt_tokens = count_of(json, "prompt_tokens");
  receipt.generated_tokens = count_of(json, "generated_tokens");
  // Files of before caches were in pages have neither.
  if (json.find("cached_tokens")) receipt.cached_tokens = count_of(json, "cached_tokens");
  if (const auto peak = json.find("kv_peak_bytes"))
    receipt.kv_peak_bytes = peak->as_uint(kMostCount);
  if (const auto decoded = json.find("decoded_tokens")) {
    receipt.first_from_prefill = decoded->as_uint(kMostCount32) != receipt.generated_tokens;
    if (decoded->as_uint(kMostCount32) != decoded_tokens(receipt))
      decoded->fail("is neither all of the generated tokens nor all but the first");
  }
}

}  // namespace

DeviceLimits limits_from_json(const Json& json) {
  return {json.at("gb_s").as_double(), json.at("gflops").as_double(),
          json.at("dispatch_us").as_double(), text(json, "source")};
}

std::vector<NamedLimits> stated_limits(const Json& receipt) {
  std::vector<NamedLimits> result;
  if (const auto limits = receipt.at("plausibility").find("limits"))
    limits->for_each_element([&](size_t, const Json& of) {
      result.push_back({device_name(of.at("device")), limits_from_json(of)});
    });
  return result;
}

Receipt receipt_from_json(const Json& json) {
  Receipt result;
  read_tokens(result, json);
  result.devices = counters(json.at("devices"));
  result.phases = {counters(json.at("phases").at("prefill")),
                   counters(json.at("phases").at("decode"))};
  result.fallbacks = texts(json.at("fallbacks"));
  // Receipts of earlier versions call it fallbacks, too.
  if (const auto on_host = json.find("on_host")) result.on_host = texts(*on_host);
  if (json.find("recoveries")) result.recoveries = count_of(json, "recoveries");
  if (const auto handed = json.find("kv_handed_over"))
    result.handed_over = {.times = handed->at("times").as_uint(kMostCount),
                          .positions = handed->at("positions").as_uint(kMostCount),
                          .bytes = handed->at("bytes").as_uint(kMostCount),
                          .ns = handed_over_ns(*handed)};
  if (const auto guessed = json.find("speculation")) result.speculation = speculation(*guessed);
  read_timing(result, json.at("timing"));
  const Json energy = json.at("energy");
  result.energy = {optional_number(energy, "prefill_joules"),
                   optional_number(energy, "decode_joules"), energy.string_or("rail", ""),
                   energy.string_or("reason", "")};
  result.plausibility = plausibility(json.at("plausibility"));
  json.at("hashes").at("images").for_each_element([&](size_t, const Json& image) {
    result.loaded_code.push_back(
        {text(image, "device"), text(image, "program"), text(image, "form"), text(image, "hash")});
  });
  return result;
}

}  // namespace tyto
