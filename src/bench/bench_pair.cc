#include "bench/bench_pair.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "bench/bench_comparison.h"
#include "bench/bench_tests.h"

namespace tyto {
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
