#include "bench/bench_comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/json_value.h"
#include "bench/bench_tests.h"

namespace tyto {
namespace {

JsonValue ratio_json(const std::vector<double>& ratios) {
  const Statistics ratio = statistics(ratios);
  if (ratios.empty()) return nullptr;
  return {{"median", ratio.median}, {"min", ratio.least}, {"max", ratio.most}, {"all", ratios}};
}

JsonValue share_or_null(const SpeculationCounters& counted) {
  if (counted.drafted == 0) return nullptr;
  return static_cast<double>(counted.accepted) / static_cast<double>(counted.drafted);
}

std::string side(const std::string& device, bool modelled) {
  return device + (modelled ? " (modelled)" : "");
}

}  // namespace

JsonValue ab_json(const AbComparison& ab) {
  const Statistics ratio = statistics(ab.ratios);
  const bool any = !ab.ratios.empty();
  return {{"a", ab.a},
          {"b", ab.b},
          {"a_modelled", ab.a_modelled},
          {"b_modelled", ab.b_modelled},
          {"ratio_median", any ? JsonValue(ratio.median) : JsonValue(nullptr)},
          {"ratio_min", any ? JsonValue(ratio.least) : JsonValue(nullptr)},
          {"ratio_max", any ? JsonValue(ratio.most) : JsonValue(nullptr)},
          {"ratios", ab.ratios}};
}

JsonValue speculation_json(const BenchRow& row) {
  if (!row.receipt.speculation) return nullptr;
  const SpeculationCounters& counted = *row.receipt.speculation;
  return {{"source", counted.source},
          {"calls", counted.calls},
          {"drafted", counted.drafted},
          {"accepted", counted.accepted},
          {"accepted_share", share_or_null(counted)},
          {"calls_per_token", calls_per_token(row)},
          {"drafting_s", counted.drafting_seconds},
          {"of_plain", ratio_json(row.of_plain)}};
}

std::string ab_line(const BenchRow& row) {
  const AbComparison& ab = *row.ab;
  const std::string sides = side(ab.a, ab.a_modelled) + " / " + side(ab.b, ab.b_modelled);
  if (ab.ratios.empty()) return fmt::format("{}: {}: refused", row.test.name(), sides);
  const Statistics ratio = statistics(ab.ratios);
  std::string line = fmt::format("{}: {} = {:.4g} in the median of {} round{}, {:.4g} to {:.4g}",
                                 row.test.name(), sides, ratio.median, ab.ratios.size(),
                                 ab.ratios.size() == 1 ? "" : "s", ratio.least, ratio.most);
  if (ab.a_modelled != ab.b_modelled) line += "; compares a modelled with a measured speed";
  return line;
}

std::string speculation_line(const BenchRow& row) {
  const SpeculationCounters& counted = *row.receipt.speculation;
  const std::string guesses =
      fmt::format("{} of {} drafted tokens were accepted, {:.3g} calls per token", counted.accepted,
                  counted.drafted, calls_per_token(row));
  if (row.of_plain.empty()) return fmt::format("{}: refused; {}", row.test.name(), guesses);
  const Statistics ratio = statistics(row.of_plain);
  return fmt::format("{}: {:.4g} times plain in the median of {} round{}, {:.4g} to {:.4g}; {}",
                     row.test.name(), ratio.median, row.of_plain.size(),
                     row.of_plain.size() == 1 ? "" : "s", ratio.least, ratio.most, guesses);
}

namespace {

void compare_devices(BenchPair& bench, const BenchTest& test, const BenchOptions& options,
                     std::vector<std::string>& lines) {
  std::vector<BenchRow> rows = measure_in_turns(
      std::vector<BenchTurn>{{&bench.engine, test}, {&bench.other, test}}, options);
  const AbComparison ab{.a = bench.engine.facts.device,
                        .b = bench.other.facts.device,
                        .ratios = speed_ratios(rows[0], rows[1]),
                        .a_modelled = rows[0].modelled,
                        .b_modelled = rows[1].modelled};
  for (BenchRow& row : rows) row.ab = ab;
  lines.push_back(ab_line(rows[0]));
  bench.rows.push_back(std::move(rows[0]));
  bench.others.push_back(std::move(rows[1]));
}

// Without guesses and with those of each who guesses.
void compare_guesses(BenchPair& bench, const BenchTest& test, const BenchOptions& options,
                     std::vector<std::string>& lines) {
  std::vector<BenchTurn> turns = {{&bench.engine, test}};
  for (const auto& guesser : bench.engine.guessers) {
    turns.push_back({&bench.engine, test});
    turns.back().test.speculation = guesser->name();
  }
  std::vector<BenchRow> rows = measure_in_turns(turns, options);
  for (size_t i = 1; i < rows.size(); ++i) {
    rows[i].of_plain = speed_ratios(rows[i], rows.front());
    lines.push_back(speculation_line(rows[i]));
  }
  std::ranges::move(rows, std::back_inserter(bench.rows));
}

}  // namespace

void run_test(BenchPair& bench, const BenchTest& test, const BenchOptions& options,
              std::vector<std::string>& lines) {
  if (bench.other.engine != nullptr)
    compare_devices(bench, test, options, lines);
  else if (!bench.engine.guessers.empty() && can_speculate(test))
    compare_guesses(bench, test, options, lines);
  else
    bench.rows.push_back(measure(bench.engine, test, options));
}

}  // namespace tyto
