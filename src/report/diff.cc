// What got slower between two profiles, row by row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/spelling.h"
#include "report/report.h"
#include "report/tables.h"

namespace tyto {
namespace {

// A row's value in each run of a profile. Less is better.
struct Samples {
  std::string row;
  std::vector<double> values;
};

void add(std::vector<Samples>& rows, const std::string& row, double value) {
  auto known = std::find_if(rows.begin(), rows.end(),
                            [&](const Samples& other) { return other.row == row; });
  if (known == rows.end()) known = rows.insert(rows.end(), Samples{row, {}});
  known->values.push_back(value);
}

void add_phase(std::vector<Samples>& rows, const std::string& name, const PhaseSummary& phase) {
  for (const FlowRow& row : phase.flow.rows)
    if (row.tag != "-") add(rows, name + " " + row.label + " " + row.tag, row.total_ms);
  const double passes = name == "prefill" ? 1 : std::max(1u, phase.tokens);
  for (const OperatorRow& row : phase.operators)
    add(rows, name + " operator " + row.label, row.total / passes);
  add(rows, name + " device wait", phase.wall.device / passes);
  add(rows, name + " host ops", phase.wall.host / passes);
  add(rows, name + " copies", phase.wall.copies / passes);
  add(rows, name + " scheduling", phase.wall.scheduling / passes);
  add(rows, name + " unattributed", phase.wall.unattributed / passes);
}

std::vector<Samples> samples_of(const Profile& profile) {
  std::vector<Samples> rows;
  for (const ProfileRun& run : profile.runs) {
    const Summary summary = summarise(profile, run);
    add(rows, "TTFT", summary.headline.ttft_ms);
    if (summary.decode.tokens > 0) add(rows, "TPOT", summary.headline.tpot_ms);
    add_phase(rows, "prefill", summary.prefill);
    if (summary.decode.tokens > 0) add_phase(rows, "decode", summary.decode);
  }
  for (const SweepRow& row : profile.sweep) {
    for (const double seconds : row.prefill_s)
      add(rows, fmt::format("prefill of {}", row.prompt_tokens), seconds * 1e3);
    for (const double each : row.tpot_ms)
      add(rows, fmt::format("token after {}", row.prompt_tokens), each);
  }
  add(rows, "set-up", profile.setup_seconds * 1e3);
  return rows;
}

enum class Change : uint8_t { unknown, within_noise, faster, slower };

// Beyond noise: the two sets of runs do not overlap, and their means are further apart than twice
// the standard error of the difference. One run says nothing about noise.
Change compare(const std::vector<double>& before, const std::vector<double>& after) {
  if (before.size() < 2 || after.size() < 2) return Change::unknown;
  const Spread a = spread_of(before), b = spread_of(after);
  const double error = std::sqrt(a.deviation * a.deviation / static_cast<double>(before.size()) +
                                 b.deviation * b.deviation / static_cast<double>(after.size()));
  const bool overlap = a.min <= b.max && b.min <= a.max;
  if (overlap || std::abs(b.mean - a.mean) <= 2 * error) return Change::within_noise;
  return b.mean > a.mean ? Change::slower : Change::faster;
}

std::string text_of(Change change) {
  switch (change) {
    case Change::unknown:
      return "noise unknown";
    case Change::within_noise:
      return "within noise";
    case Change::faster:
      return "faster";
    case Change::slower:
      return "SLOWER";
  }
  return "";
}

std::string value_text(const std::vector<double>& values) {
  const Spread spread = spread_of(values);
  return milliseconds(spread.mean) +
         (values.size() > 1 ? " ± " + milliseconds(spread.deviation) : "");
}

struct Compared {
  TableRow row;
  Change change = Change::unknown;
  double difference = 0;
};

Compared compared(const std::string& row, const std::vector<double>& before,
                  const std::vector<double>& after) {
  const double a = spread_of(before).mean, b = spread_of(after).mean;
  const Change change = compare(before, after);
  return {{{row, value_text(before), value_text(after), fmt::format("{:+.4g}", b - a),
            a > 0 ? fmt::format("{:+.1f} %", 100 * (b - a) / a) : "", text_of(change)},
           change == Change::slower ? RowStyle::alarm : RowStyle::plain},
          change,
          b - a};
}

std::vector<Column> columns(const Profile& before, const Profile& after) {
  const auto side = [](const char* name, const Profile& profile) {
    return std::string(name) + (is_modelled(profile) ? " ms, modelled" : " ms");
  };
  return {{"row", false},
          {side("before", before), true},
          {side("after", after), true},
          {"change ms", true, 1},
          {"change", true},
          {"", false}};
}

void note_differences(Table& table, const Profile& before, const Profile& after) {
  const Facts &a = before.facts, &b = after.facts;
  const auto differs = [&](const char* what, const std::string& x, const std::string& y) {
    if (x != y) table.notes.push_back(fmt::format("Differs: {}: {} -> {}", what, x, y));
  };
  const auto devices = [](const Facts& facts) {
    return joined(facts.devices, ", ", [](const DeviceFacts& device) {
      return device.name + " (" + device.description + ")";
    });
  };
  const auto prompt = [](const Profile& profile) {
    return profile.runs.empty() ? std::string("none")
                                : std::to_string(profile.runs[0].receipt.prompt_tokens);
  };
  differs("weights", a.model_name + " " + a.origin.weights_hash,
          b.model_name + " " + b.origin.weights_hash);
  differs("devices", devices(a), devices(b));
  differs("fusion", a.origin.fusion, b.origin.fusion);
  differs("kv", a.kv_type, b.kv_type);
  differs("threads", std::to_string(a.threads), std::to_string(b.threads));
  differs("tyto", a.origin.version, b.origin.version);
  differs("prompt tokens", prompt(before), prompt(after));
  if (is_modelled(before) != is_modelled(after))
    table.notes.push_back("One side is modelled, the other measured: not a comparison of like.");
}

}  // namespace

std::vector<Table> diff_tables(const Profile& before, const Profile& after) {
  const std::vector<Samples> a = samples_of(before), b = samples_of(after);
  Table all{.id = "diff",
            .title = "Every row",
            .modelled = is_modelled(before) || is_modelled(after),
            .columns = columns(before, after)};
  std::vector<Compared> beyond_noise;
  for (const Samples& row : a) {
    const auto other =
        std::find_if(b.begin(), b.end(), [&](const Samples& s) { return s.row == row.row; });
    if (other == b.end()) {
      all.rows.push_back({{row.row, value_text(row.values), "", "", "", "only before"}});
      continue;
    }
    Compared pair = compared(row.row, row.values, other->values);
    if (pair.change == Change::slower || pair.change == Change::faster)
      beyond_noise.push_back(pair);
    all.rows.push_back(std::move(pair.row));
  }
  for (const Samples& row : b)
    if (std::none_of(a.begin(), a.end(), [&](const Samples& s) { return s.row == row.row; }))
      all.rows.push_back({{row.row, "", value_text(row.values), "", "", "only after"}});

  std::stable_sort(beyond_noise.begin(), beyond_noise.end(), [](const auto& x, const auto& y) {
    return std::abs(x.difference) > std::abs(y.difference);
  });
  Table changed{.id = "changed",
                .title = "Changed by more than noise",
                .modelled = all.modelled,
                .columns = all.columns};
  for (Compared& pair : beyond_noise) changed.rows.push_back(std::move(pair.row));
  if (changed.rows.empty()) changed.notes.push_back("Nothing.");
  const size_t runs = std::min(before.runs.size(), after.runs.size());
  changed.notes.push_back(
      runs < 2 ? "Noise is unknown: record both with -r 5 or more."
               : fmt::format("Noise from {} and {} runs: the runs of both do not overlap, and the "
                             "means differ by more than twice the standard error.",
                             before.runs.size(), after.runs.size()));
  note_differences(changed, before, after);
  return {changed, all};
}

}  // namespace tyto
