#include "evidence/receipt_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/spelling.h"
#include "evidence/receipt_json.h"
#include "evidence/seal.h"

namespace tyto {
namespace {

using State = Finding::State;

constexpr double kRounding = 1e-9;  // relative; numbers are written with all their digits

// One finding: that all is well, or everything that is not.
Finding finding(const std::string& about, const std::vector<std::string>& wrong,
                const std::string& well) {
  return {wrong.empty() ? State::holds : State::fails, about,
          wrong.empty() ? well : joined(wrong, "; ")};
}

Finding hash_finding(const Seal& seal) {
  if (seal.stated.empty()) return {State::fails, "hash", "there is none at the end of the receipt"};
  if (seal.is_whole()) return {State::holds, "hash", "matches the contents"};
  return {State::fails, "hash",
          fmt::format("the contents have {}, the receipt says {}", seal.computed, seal.stated)};
}

Finding signature_finding(const Seal& seal, const PublicKey* trusted) {
  if (trusted != nullptr) {
    const std::string why = distrust(seal, *trusted);
    if (!why.empty()) return {State::fails, "signature", "the receipt " + why};
    return {State::holds, "signature", "is the trusted key's"};
  }
  if (!seal.signature) return {State::open, "signature", "none"};
  if (!seal.signature->is_good) return {State::fails, "signature", "is not of these contents"};
  return {State::open, "signature",
          fmt::format("by {}; --trust checks whose key that is", seal.signature->key.text)};
}

void compare(std::vector<std::string>& wrong, const char* what, const std::optional<Json>& stated,
             std::optional<double> computed) {
  const auto text = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.10g}", *value) : std::string("none");
  };
  const std::optional<double> said = stated ? std::optional(stated->as_double()) : std::nullopt;
  const bool agrees = said.has_value() == computed.has_value() &&
                      (!said || std::fabs(*said - *computed) <= kRounding * std::fabs(*computed));
  if (!agrees) wrong.push_back(fmt::format("{}: says {}, is {}", what, text(said), text(computed)));
}

Finding counters_finding(const Json& json, const Receipt& receipt) {
  std::vector<std::string> wrong = contradictions(receipt);
  double submissions = 0, completions = 0;
  for (const DeviceCounters& device : receipt.devices) {
    submissions += static_cast<double>(device.submissions);
    completions += static_cast<double>(device.completions);
  }
  compare(wrong, "submissions", json.find("submissions"), submissions);
  compare(wrong, "completions", json.find("completions"), completions);
  compare(wrong, "dispatches_per_token", json.find("dispatches_per_token"),
          dispatches_per_token(receipt));
  if (const auto guessed = json.find("speculation"))
    compare(wrong, "calls_per_token", guessed->find("calls_per_token"), calls_per_token(receipt));
  const bool simulated = json.at("timing").at("clock").as_string() == "simulation";
  if (json.at("virtual").as_bool() != has_virtual_device(receipt) ||
      simulated != has_virtual_device(receipt))
    wrong.push_back("whether a virtual device took part is said both ways");
  return finding("counters", wrong, "agree with each other and with the times");
}

// A simulation, and what was refused, have no rates.
Finding rates_finding(const Json& json, const Receipt& receipt) {
  std::vector<std::string> wrong;
  const bool has_rates =
      !has_virtual_device(receipt) && receipt.plausibility.verdict != Verdict::refused;
  const auto rate = [&](uint32_t tokens, double value) {
    return has_rates && tokens > 0 ? std::optional(value) : std::nullopt;
  };
  const Json timing = json.at("timing");
  compare(wrong, "prefill_tok_s", timing.find("prefill_tok_s"),
          rate(receipt.prompt_tokens, prefill_tokens_per_second(receipt)));
  compare(wrong, "decode_tok_s", timing.find("decode_tok_s"),
          rate(decoded_tokens(receipt), decode_tokens_per_second(receipt)));
  return finding("rates", wrong,
                 has_rates ? "equal tokens ÷ seconds" : "there are none, as there should be");
}

void add_plausibility(std::vector<Finding>& findings, const Json& json, const Receipt& receipt) {
  const std::vector<NamedLimits> stated = stated_limits(json);
  const Plausibility again = judge_again(receipt, stated);
  const std::string wrong = contradiction(receipt.plausibility, again);
  if (!wrong.empty()) {
    findings.push_back({State::fails, "plausibility", wrong});
  } else if (receipt.plausibility.verdict == Verdict::refused) {
    findings.push_back({State::holds, "plausibility", "refused, and no speed is claimed"});
  }
  for (const std::string& line : again.checks)
    findings.push_back({State::holds, "plausibility", line});
  for (const std::string& line : again.unchecked)
    findings.push_back({State::open, "plausibility", line});
  for (const NamedLimits& of : stated)
    if (!published_limits(of.device, of.limits.source))
      findings.push_back(
          {State::open, "plausibility",
           fmt::format("no published limits for {}; the receipt's own were used", of.device)});
}

// All that its numbers say; what cannot be read is a finding, too.
void add_numbers(std::vector<Finding>& findings, const Json& json) {
  try {
    const Receipt receipt = receipt_from_json(json);
    findings.push_back(counters_finding(json, receipt));
    findings.push_back(rates_finding(json, receipt));
    add_plausibility(findings, json, receipt);
  } catch (const Error& error) {
    findings.push_back({State::fails, "contents", error.what()});
  }
}

}  // namespace

bool ReceiptCheck::holds() const {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& each) { return each.state == State::fails; });
}

ReceiptCheck check_receipt(std::string_view text, const std::string& name,
                           const PublicKey* trusted) {
  const Json json = Json::parse(text, name);
  const std::string schema = json.string_or("schema", "");
  if (schema != kReceiptSchema)
    throw Error(ErrorCode::input, name,
                schema.empty() ? "is not a receipt" : "has schema " + schema,
                fmt::format("this version checks {}, written by --receipt", kReceiptSchema));
  json.refuse_repeated_names();
  const Seal seal = read_seal(text);
  ReceiptCheck result{std::string(json.at("id").as_string()),
                      std::string(json.at("time").as_string()),
                      std::string(json.at("command").as_string()),
                      {hash_finding(seal), signature_finding(seal, trusted)}};
  add_numbers(result.findings, json);
  return result;
}

namespace {

struct NamedCounter {
  const char* name;
  uint64_t DeviceCounters::* value;
};
constexpr NamedCounter kCounters[] = {{"submissions", &DeviceCounters::submissions},
                                      {"completions", &DeviceCounters::completions},
                                      {"launches", &DeviceCounters::launches},
                                      {"ns of work", &DeviceCounters::busy_ns},
                                      {"ns of preparing", &DeviceCounters::preparing_ns},
                                      {"bytes", &DeviceCounters::bytes},
                                      {"FLOP", &DeviceCounters::flops},
                                      {"row sums", &DeviceCounters::row_sums}};

const DeviceCounters* find(const std::vector<DeviceCounters>& all, const std::string& device) {
  const auto found = std::find_if(
      all.begin(), all.end(), [&](const DeviceCounters& each) { return each.device == device; });
  return found == all.end() ? nullptr : &*found;
}

void compare_with_phases(const Receipt& receipt, std::vector<std::string>& out) {
  std::vector<DeviceCounters> sums = receipt.phases.prefill;
  add(sums, receipt.phases.decode);
  for (const DeviceCounters& device : receipt.devices) {
    const DeviceCounters* sum = find(sums, device.device);
    for (const auto& [name, value] : kCounters)
      if (const uint64_t parts = sum == nullptr ? 0 : sum->*value; device.*value != parts)
        out.push_back(fmt::format("{}: {} {} in all, but {} in prefill and decode together",
                                  device.device, device.*value, name, parts));
  }
  for (const DeviceCounters& sum : sums)
    if (find(receipt.devices, sum.device) == nullptr)
      out.push_back(fmt::format("{}: works in a phase, but is not among the devices", sum.device));
}

void compare_with_time(const DeviceCounters& device, Phase phase, double seconds,
                       std::vector<std::string>& out) {
  const double busy = static_cast<double>(device.busy_ns) * 1e-9;
  constexpr double kBusyRounding = 1e-6;
  if (!device.is_virtual && busy > seconds * (1 + 1e-9) + kBusyRounding)
    out.push_back(fmt::format("{}: busy for {:.6f} s in a {} of {:.6f} s", device.device, busy,
                              name(phase), seconds));
}

// A limit is looser where more would be possible: a larger rate, a shorter dispatch. 0 is unknown.
double tighter_rate(double stated, double published) {
  return stated > 0 ? std::min(stated, published) : published;
}

void tighten(NamedLimits& stated, const DeviceLimits& published, std::vector<std::string>& said) {
  DeviceLimits& limits = stated.limits;
  const auto say = [&](bool is_looser, double value, double bound, const char* unit) {
    if (is_looser)
      said.push_back(fmt::format("{}: the limit of {:.6g} {} is not believed, {:.6g} is published",
                                 stated.device, value, unit, bound));
  };
  say(limits.gb_s > published.gb_s, limits.gb_s, published.gb_s, "GB/s");
  say(limits.gflops > published.gflops, limits.gflops, published.gflops, "GFLOP/s");
  say(limits.dispatch_us > 0 && limits.dispatch_us < published.dispatch_us, limits.dispatch_us,
      published.dispatch_us, "us a dispatch");
  limits.gb_s = tighter_rate(limits.gb_s, published.gb_s);
  limits.gflops = tighter_rate(limits.gflops, published.gflops);
  limits.dispatch_us = std::max(limits.dispatch_us, published.dispatch_us);
}

// A call settles a token of its own, and each guess that it proves right.
void compare_with_tokens(const SpeculationCounters& guessed, uint64_t tokens,
                         std::vector<std::string>& out) {
  if (guessed.accepted > guessed.drafted)
    out.push_back(
        fmt::format("{} of {} drafted tokens were accepted", guessed.accepted, guessed.drafted));
  if (guessed.calls + guessed.accepted != tokens)
    out.push_back(fmt::format("{} calls and {} accepted tokens make {} tokens", guessed.calls,
                              guessed.accepted, tokens));
}

// What is left to the host is work of the host's.
void compare_with_host(const Receipt& receipt, std::vector<std::string>& out) {
  const bool did_host = std::any_of(
      receipt.devices.begin(), receipt.devices.end(),
      [](const DeviceCounters& device) { return device.is_host && device.has_executed(); });
  if (!receipt.on_host.empty() && !receipt.devices.empty() && !did_host)
    out.push_back(fmt::format("{} left to the host, which did nothing", receipt.on_host.front()));
}

}  // namespace

std::vector<std::string> contradictions(const Receipt& receipt) {
  std::vector<std::string> out;
  compare_with_phases(receipt, out);
  compare_with_host(receipt, out);
  if (receipt.speculation) compare_with_tokens(*receipt.speculation, decoded_tokens(receipt), out);
  for (const DeviceCounters& device : receipt.devices) {
    if (device.completions > device.submissions)
      out.push_back(fmt::format("{}: {} completions of {} submissions", device.device,
                                device.completions, device.submissions));
    if (must_be_virtual(device.device) && !device.is_virtual)
      out.push_back(device.device + ": is a virtual device, but the receipt does not say so");
  }
  for (const DeviceCounters& device : receipt.phases.prefill)
    compare_with_time(device, Phase::prefill, receipt.prefill_seconds, out);
  for (const DeviceCounters& device : receipt.phases.decode)
    compare_with_time(device, Phase::decode, receipt.decode_seconds, out);
  return out;
}

Plausibility judge_again(const Receipt& receipt, const std::vector<NamedLimits>& stated) {
  std::vector<NamedLimits> limits;
  std::vector<std::string> said;
  for (const DeviceCounters& device : receipt.devices) {
    const auto own = std::find_if(stated.begin(), stated.end(), [&](const NamedLimits& of) {
      return of.device == device.device;
    });
    NamedLimits of{device.device, own == stated.end() ? DeviceLimits{} : own->limits};
    const auto published = published_limits(device.device, of.limits.source);
    if (published) tighten(of, *published, said);
    if (published || own != stated.end()) limits.push_back(std::move(of));
  }
  Plausibility result = judge(receipt, limits);
  result.unchecked.insert(result.unchecked.end(), said.begin(), said.end());
  return result;
}

std::string contradiction(const Plausibility& stated, const Plausibility& again) {
  if (again.verdict == Verdict::refused && stated.verdict != Verdict::refused)
    return fmt::format("says {}, but {}", name(stated.verdict), joined(again.reasons, "; "));
  if (again.verdict == Verdict::unchecked && stated.verdict == Verdict::plausible)
    return fmt::format(
        "says plausible, but nothing could be compared: {}",
        again.unchecked.empty() ? "no limits are known" : joined(again.unchecked, "; "));
  return "";
}

namespace {

constexpr double kRowRounding =
    1e-6;  // relative, and of nanoseconds that were rounded to whole ones

bool agree(double a, double b, double room = 0) {
  return std::fabs(a - b) <= kRowRounding * std::max(std::fabs(a), std::fabs(b)) + room;
}

std::vector<double> numbers_of(const Json& json) {
  std::vector<double> result;
  json.for_each_element([&](size_t, const Json& each) { result.push_back(each.as_double()); });
  return result;
}

// Samples are the repetitions, whose times add up to the receipt's; the speed shown is their mean.
std::string speed_contradiction(const Json& row, const Receipt& receipt) {
  const std::string prefix = receipt.modelled ? "modelled_" : "";
  const std::vector<double> ns = numbers_of(row.at(prefix + "samples_ns"));
  const std::vector<double> speeds = numbers_of(row.at(prefix + "samples_ts"));
  const auto repetitions = static_cast<double>(ns.size());
  if (ns.empty() || speeds.size() != ns.size()) return "has no samples, or not of both kinds";
  const double tokens = (0.0 + receipt.prompt_tokens + receipt.generated_tokens) / repetitions;
  double total_ns = 0, mean = 0;
  for (size_t i = 0; i < ns.size(); ++i) {
    total_ns += ns[i];
    mean += speeds[i] / repetitions;
    // A time of a few ns, rounded, would make any speed of it a guess.
    const double speed = tokens * 1e9 / ns[i];
    if (!agree(speeds[i], speed, speed / ns[i]))
      return fmt::format("says {:.2f} t/s for {:.0f} tokens in {:.0f} ns", speeds[i], tokens,
                         ns[i]);
  }
  const double seconds = receipt.modelled ? receipt.modelled->prefill + receipt.modelled->decode
                                          : receipt.prefill_seconds + receipt.decode_seconds;
  if (!agree(total_ns * 1e-9, seconds, repetitions * 1e-9))
    return fmt::format("says {:.6f} s, and its receipt {:.6f} s", total_ns * 1e-9, seconds);
  const double shown = row.at(prefix + "avg_ts").as_double();
  if (!agree(shown, mean))
    return fmt::format("says {:.2f} t/s, and its samples {:.2f} t/s", shown, mean);
  return "";
}

}  // namespace

std::string row_contradiction(const Json& record, std::string_view line) {
  const std::string_view text = member_text(line, "receipt");
  const ReceiptCheck check = check_receipt(text, record.at("receipt").path());
  for (const Finding& each : check.findings)
    if (each.state == Finding::State::fails)
      return fmt::format("has a receipt that fails: {}: {}", each.about, each.text);
  const Json row = record.at("row");
  for (const std::string_view id : {record.at("id").as_string(), row.at("receipt_id").as_string()})
    if (id != check.id) return "has another receipt than its id says";
  if (row.find("refused")) return "";
  return speed_contradiction(row, receipt_from_json(Json::parse(text, "receipt")));
}

}  // namespace tyto
