#include "llama/prompt_passes.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "cost/cost_model.h"
#include "program/kernels.h"

namespace tyto {
namespace {

// The cheapest passes for rows behind others.
struct Cover {
  double ms = 0;
  uint32_t largest = 0;  // rows of the largest kernels among them
};

// What the host attends to does not depend on how later rows are cut, and neither does the order of
// the passes matter: only the kernels' own time is left to choose by.
Cover cheapest_cover(const std::vector<PromptKernels>& kernels, uint32_t rows) {
  uint32_t unit = 0;
  for (const PromptKernels& each : kernels) unit = std::gcd(unit, each.rows);
  std::vector<Cover> best((rows + unit - 1) / unit + 1);  // of the first so many units
  for (size_t i = 1; i < best.size(); ++i) {
    best[i].ms = std::numeric_limits<double>::infinity();
    for (const PromptKernels& each : kernels) {
      const Cover& before = best[i - std::min<size_t>(i, each.rows / unit)];
      const double ms = before.ms + each.later_ms;
      if (ms < best[i].ms) best[i] = {ms, std::max(each.rows, before.largest)};
    }
  }
  return best.back();
}

// Positions that rows [first, end) attend to, all together.
double positions_seen(double first, double end) {
  return (end * (end + 1) - first * (first + 1)) / 2;
}

}  // namespace

double modelled_ms(std::span<const Piece> pieces, uint32_t rows, const IsHosts& is_hosts) {
  double ms = 0;
  for (const Piece& piece : pieces) {
    if (is_hosts(piece)) continue;
    const Program& program = piece.program;
    double kernels_ms = 0;
    for (const Launch& launch : program.launches)
      kernels_ms += launch_ms(program, launch, call_of(rows));
    ms += elf_ms(static_cast<unsigned>(program.launches.size()), kernels_ms) +
          cost_parameters().native_host.dispatch_us / 1e3;
  }
  return ms;
}

double host_attention_ms(std::span<const Piece> pieces, const IsHosts& is_hosts) {
  const double flop_per_ms = cost_parameters().native_host.attention_gflops * 1e6;
  double ms = 0;
  for (const Piece& piece : pieces)
    for (const Launch& launch : piece.program.launches)
      if (launch.kernel == Kernel::attention && is_hosts(piece))
        ms += static_cast<double>(cost(piece.program, launch, call_of(1)).flops) / flop_per_ms;
  return ms;
}

uint32_t next_pass(const PassCosts& costs, uint32_t position, uint32_t rows) {
  TYTO_ASSERT(!costs.kernels.empty() && rows > 0);
  if (rows <= costs.kernels.front().rows) return rows;
  if (position > 0) return std::min(rows, cheapest_cover(costs.kernels, rows).largest);
  uint32_t chosen = 0;
  double least_ms = std::numeric_limits<double>::infinity();
  for (const PromptKernels& each : costs.kernels) {
    const uint32_t now = std::min(rows, each.rows);
    const double ms = each.first_ms + cheapest_cover(costs.kernels, rows - now).ms +
                      costs.attention_ms * positions_seen(now, rows);
    if (ms >= least_ms) continue;
    least_ms = ms;
    chosen = now;
  }
  return chosen;
}

}  // namespace tyto
