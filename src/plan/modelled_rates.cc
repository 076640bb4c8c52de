#include "plan/modelled_rates.h"

#include <algorithm>

#include "plan/pinned_bytes.h"
#include "plan/what_if.h"

namespace tyto {
namespace {

constexpr uint32_t kMostPlanned = 1u << 20;  // that what_if() takes
constexpr uint32_t kImageRows = 64;          // and what prompt images have

uint32_t planned(uint32_t tokens) {
  return std::clamp(tokens, 1u, kMostPlanned);
}

uint32_t context_of(const Workload& work) {
  return planned(work.prompt_tokens + work.generated_tokens / 2);
}

DeviceRates by_cost_model(const DeviceInfo& device, const ModelDescription& model,
                          const Workload& work, Fusion fusion) {
  PlanRequest request{.config = model.config,
                      .shape = model.config.name,
                      .machine = device.machine,
                      .prompt_tokens = planned(work.prompt_tokens),
                      .context_tokens = context_of(work),
                      .host = PlanHost::native};
  const auto fits = [](uint32_t rows) { return rows > 0 && rows % kImageRows == 0; };
  const std::vector<uint32_t> rows = fixed_shapes(device).prompt_rows;
  if (!rows.empty() && std::ranges::all_of(rows, fits)) request.prompt_rows = rows;
  const KernelSet kernels = fusion == Fusion::token ? KernelSet::air_q4nx : KernelSet::air_bf16;
  const PlanRow row = what_if(request, {kernels, fusion});
  return {.name = device.name,
          .kind = PlanKind::modelled,
          .prefill = {{request.prompt_tokens, row.prefill_tok_s}},
          .decode = {{request.context_tokens, row.decode_tok_s}},
          .kv_gb_s = cost_parameters().native_host.write_gb_s};
}

// A prompt reads the weights once, a token reads them and the cache.
DeviceRates within(const DeviceLimits& limits, const std::string& device,
                   const ModelDescription& model, const Workload& work) {
  if (limits.gb_s <= 0 || limits.gflops <= 0) return {.name = device};
  const uint32_t prompt = planned(work.prompt_tokens), context = context_of(work);
  const double weights = static_cast<double>(model.weight_bytes),
               cache = static_cast<double>(attended_kv_bytes(model.config, context)),
               flops = 2.0 * static_cast<double>(layer_values(model.config)) * prompt;
  const double prefill = std::max(flops / limits.gflops, weights / limits.gb_s) / 1e9;
  return {.name = device,
          .kind = PlanKind::modelled,
          .prefill = {{prompt, prompt / prefill}},
          .decode = {{context, limits.gb_s * 1e9 / (weights + cache)}}};
}

}  // namespace

DeviceRates modelled_rates(const DeviceInfo& device, const ModelDescription& model,
                           const Workload& work, Fusion fusion) {
  if (!device.machine.empty()) return by_cost_model(device, model, work, fusion);
  DeviceRates rates = within(device.limits, device.name, model, work);
  if (!device.shares_host_memory) rates.kv_gb_s = cost_parameters().native_host.write_gb_s;
  return rates;
}

DeviceRates estimated_rates(const std::string& device, const DeviceLimits& measured,
                            const ModelDescription& model, const Workload& work) {
  DeviceRates rates = within(measured, device, model, work);
  rates.kind = PlanKind::estimated;
  return rates;
}

}  // namespace tyto
