#include "evidence/receipt_json.h"

#include <nlohmann/json.hpp>

#include "base/hash.h"
#include "evidence/seal.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

ordered_json optional_number(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

ordered_json device_json(const DeviceCounters& device) {
  ordered_json json = {{"name", device.device},
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

ordered_json devices_json(const std::vector<DeviceCounters>& devices) {
  ordered_json list = ordered_json::array();
  for (const DeviceCounters& device : devices) list.push_back(device_json(device));
  return list;
}

ordered_json energy_json(const Energy& energy) {
  const bool read = energy.prefill_joules || energy.decode_joules;
  return {{"prefill_joules", optional_number(energy.prefill_joules)},
          {"decode_joules", optional_number(energy.decode_joules)},
          {"rail", read ? ordered_json(energy.rail) : ordered_json(nullptr)},
          {"reason", read ? ordered_json(nullptr) : ordered_json(energy.reason)}};
}

ordered_json handed_over_json(const Receipt& receipt) {
  const HandOvers& handed = receipt.handed_over;
  return {{"times", handed.times},
          {"positions", handed.positions},
          {"bytes", handed.bytes},
          {has_virtual_device(receipt) ? "simulation_ns" : "ns", handed.ns}};
}

ordered_json speculation_json(const Receipt& receipt) {
  const SpeculationCounters& counted = *receipt.speculation;
  return {{"source", counted.source},
          {"calls", counted.calls},
          {"drafted", counted.drafted},
          {"accepted", counted.accepted},
          {"calls_per_token", optional_number(calls_per_token(receipt))},
          {"drafting_s", counted.drafting_seconds}};
}

// Rates that were refused are not in the file at all.
ordered_json timing_json(const Receipt& receipt) {
  const bool simulated = has_virtual_device(receipt);
  ordered_json timing = {
      {"clock", simulated ? "simulation" : "wall"},
      {simulated ? "simulation_prefill_s" : "prefill_s", receipt.prefill_seconds},
      {simulated ? "simulation_decode_s" : "decode_s", receipt.decode_seconds}};
  if (receipt.queue_seconds > 0) timing["queue_s"] = receipt.queue_seconds;
  if (receipt.modelled) {
    timing["modelled_prefill_s"] = receipt.modelled->prefill;
    timing["modelled_decode_s"] = receipt.modelled->decode;
  }
  if (simulated || receipt.plausibility.verdict == Verdict::refused) return timing;
  timing["prefill_tok_s"] = receipt.prompt_tokens > 0
                                ? ordered_json(prefill_tokens_per_second(receipt))
                                : ordered_json(nullptr);
  timing["decode_tok_s"] = decoded_tokens(receipt) > 0
                               ? ordered_json(decode_tokens_per_second(receipt))
                               : ordered_json(nullptr);
  return timing;
}

// What the verdict rests on, so that anybody can work it out again.
ordered_json plausibility_json(const Plausibility& plausibility,
                               const std::vector<NamedLimits>& limits) {
  ordered_json bounds = ordered_json::array();
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

ordered_json hashes_json(const Receipt& receipt, const ReceiptContext& context) {
  ordered_json images = ordered_json::array();
  for (const LoadedCode& code : receipt.loaded_code)
    images.push_back({{"device", code.device},
                      {"program", code.program},
                      {"form", code.form},
                      {"hash", code.hash}});
  return {{"weights", context.weights_hash},
          {"weights_form", context.weights_hash_form},
          {"images", images}};
}

ordered_json adapters_json(const std::vector<AdapterFacts>& adapters) {
  ordered_json list = ordered_json::array();
  for (const AdapterFacts& adapter : adapters)
    list.push_back({{"path", adapter.path}, {"hash", adapter.hash}, {"scale", adapter.scale}});
  return list;
}

ordered_json verified_json(const ReceiptContext& context) {
  if (context.verified.empty()) return nullptr;
  ordered_json json = {{"state", context.verified}, {"time", nullptr}};
  if (!context.verified_time.empty()) json["time"] = context.verified_time;
  return json;
}

}  // namespace

ordered_json receipt_fields(const Receipt& receipt, const ReceiptContext& context) {
  uint64_t submissions = 0, completions = 0;
  for (const DeviceCounters& device : receipt.devices) {
    submissions += device.submissions;
    completions += device.completions;
  }
  ordered_json json = {{"schema", kReceiptSchema},
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
  const std::string text = json.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  json["id"] = to_hex(hash_bytes(std::as_bytes(std::span(text)))).substr(0, 16);
  seal(json, context.key);
  return json;
}

std::string receipt_json(const Receipt& receipt, const ReceiptContext& context) {
  return receipt_fields(receipt, context)
             .dump(2, ' ', false, ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace tyto
