#include "plan/cpu_rows.h"

#include <algorithm>

#include "base/error.h"
#include "base/spelling.h"
#include "plan/air_images.h"

namespace tyto {
namespace {

uint64_t cache_bytes(const PlanRequest& request) {
  return kept_kv_bytes(request.config, std::max(request.prompt_tokens, request.context_tokens));
}

// Of all matrices, whatever their rows: a shape may have some that the type's blocks do not divide.
uint64_t bytes_of(DType type, uint64_t values) {
  return values * info(type).block_bytes / info(type).block_values;
}

PlanRow cpu_row(const PlanRequest& request, PlanKind kind, DType weights) {
  PlanRow row;
  row.kind = row.ttft_kind = kind;
  row.machine = kThisMachine;
  row.shape = request.shape;
  row.kernels = "cpu";
  row.weights = info(weights).name;
  row.runs = Runs::yes;
  row.flags = "--device cpu";
  row.has_run_on_hardware = true;
  row.prompt_tokens = request.prompt_tokens;
  row.context_tokens = request.context_tokens;
  return row;
}

void set_speeds(PlanRow& row, double prefill_tok_s, double tpot_ms) {
  row.prefill_tok_s = prefill_tok_s;
  row.ttft_ms = row.prompt_tokens * 1e3 / prefill_tok_s;
  row.tpot_ms = tpot_ms;
  row.decode_tok_s = 1e3 / tpot_ms;
}

}  // namespace

PlanRow measured_on_cpu(const PlanRequest& request, const CpuRun& run) {
  TYTO_ASSERT(request.file && run.prefill_seconds > 0 && run.decode_seconds > 0);
  PlanRow row = cpu_row(request, PlanKind::measured, request.file->type);
  set_speeds(row, run.prompt_tokens / run.prefill_seconds,
             run.decode_seconds * 1e3 / run.generated_tokens);
  const bool is_longer = request.prompt_tokens > run.prompt_tokens;
  if (is_longer) row.ttft_kind = PlanKind::estimated;
  row.memory_bytes = request.file->bytes + cache_bytes(request);
  row.note = fmt::format(
      "measured just now with {} on a {}-token prompt and {}{}", counted(run.threads, "thread"),
      run.prompt_tokens, counted(run.generated_tokens, "generated token"),
      is_longer
          ? fmt::format("; time to first token (~) is extrapolated to {}", request.prompt_tokens)
          : "");
  return row;
}

PlanRow estimated_on_cpu(const PlanRequest& request, DType weights, const CpuPeak& peak) {
  TYTO_ASSERT(peak.read_gb_s > 0 && peak.gflops > 0);
  const Config& c = request.config;
  PlanRow row = cpu_row(request, PlanKind::estimated, weights);
  const uint64_t values = layer_values(c), head = uint64_t{c.vocab} * c.emb;
  const uint64_t weight_bytes = bytes_of(weights, values + head);
  const double streamed =
      static_cast<double>(weight_bytes + attended_kv_bytes(c, request.context_tokens));
  const double flops_per_token = 2 * static_cast<double>(values);
  set_speeds(row, peak.gflops * 1e9 / flops_per_token, streamed / peak.read_gb_s / 1e6);
  row.memory_bytes = weight_bytes + cache_bytes(request);
  row.note = fmt::format(
      "at best, estimated from this machine's measured {:.1f} GB/s of memory and from its "
      "arithmetic, with {}; a shape has no weights to run",
      peak.read_gb_s, counted(peak.threads, "thread"));
  return row;
}

}  // namespace tyto
