#include "evidence/receipt_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/joined.h"
#include "base/json.h"
#include "evidence/receipt_json.h"
#include "evidence/receipt_read.h"
#include "evidence/recheck.h"
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
          fmt::format("by {}; --trust says whose that is", seal.signature->key.text)};
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

// Of a simulation, and of what was refused, there is no rate to be had.
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

}  // namespace tyto
