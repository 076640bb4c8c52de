#include "evidence/row_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "evidence/receipt_check.h"
#include "evidence/receipt_read.h"
#include "evidence/seal.h"

namespace tyto {
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
