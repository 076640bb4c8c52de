#include "evidence/receipt_read.h"

#include <algorithm>

namespace tyto {
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
  if (name.empty() || name.size() > kLongestName || !is_plain) json.fail("is no device's name");
  return name;
}

uint32_t count_of(const Json& json, std::string_view key) {
  return static_cast<uint32_t>(json.at(key).as_uint(kMostCount32));
}

double seconds(const Json& json, std::string_view key) {
  const double value = json.at(key).as_double();
  if (!(value >= 0 && value <= kMostSeconds)) json.at(key).fail("is no number of seconds");
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
  if (verdict != name(result.verdict)) json.at("verdict").fail("is no verdict");
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
