#include "plan/rates.h"

#include <algorithm>

#include "base/error.h"
#include "device/npu/driver_stack.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/store/kernel_store.h"
#include "plan/air_images.h"
#include "plan/what_if.h"

namespace tyto {
namespace {

// One row for each option that the planner knows (what_if.cc's order does not matter).
struct Way {
  PlanOption option;
  bool ImagesHere::* images;    // that it takes; null: Tyto cannot run it, whatever is there
  std::string_view flags;       // for `tyto run`
  std::string_view why_cannot;  // where it never can
};
constexpr Way kWays[] = {
    {{KernelSet::air_bf16, Fusion::op}, nullptr, "", "Tyto loads no images of IRON's operators"},
    {{KernelSet::air_bf16, Fusion::block}, &ImagesHere::bf16, "--device npu", ""},
    {{KernelSet::air_q4nx, Fusion::token},
     &ImagesHere::q4nx,
     "--device npu --fusion token --weights q4nx",
     ""},
    {{KernelSet::flm_q4, Fusion::token},
     nullptr,
     "",
     "Tyto cannot run FastFlowLM's kernels, which come with FastFlowLM alone"},
};

const Way& way(const PlanOption& option) {
  const auto* const found = std::ranges::find_if(kWays, [&](const Way& each) {
    return each.option.kernels == option.kernels && each.option.fusion == option.fusion;
  });
  TYTO_ASSERT(found != std::end(kWays));
  return *found;
}

// Tyto has not described every 4-bit decode that there are images of.
bool is_described(const PlanOption& option, const Config& config) {
  return option.kernels != KernelSet::air_q4nx ||
         std::ranges::any_of(q4nx_builds(), [&](const Q4nxBuild& build) {
           AirDims dims = air_dims(config, 0);
           dims.qkv_bias = build.dims.qkv_bias;
           dims.qk_norm = build.dims.qk_norm;
           return dims == build.dims;
         });
}

bool has_all(const NpuKernels& kernels, const AirModel& model, AirPhase phase) {
  return std::ranges::all_of(model.programs, [&](const AirProgram& program) {
    const uint32_t rows = phase == AirPhase::prompt ? kernels.prompt_rows.back() : 0;
    return program.phase != phase || !kernels.why_no_image(program.name, rows);
  });
}

}  // namespace

NpuHere npu_here(const std::filesystem::path& root) {
  NpuHere here;
  for (const PciNpu& npu : read_pci_npus(root)) {
    if (!here.machine.empty()) break;
    here.machine = machine_with(npu);
    here.found = fmt::format("PCI 1022:{:04x} revision {:02x}", npu.device, npu.revision);
  }
  return here;
}

ImagesHere images_here(const std::filesystem::path& store, const Config& config) try {
  const NpuKernels kernels = stored_kernels(store, StoredFor::real_npu, air_dims(config, 0));
  if (kernels.prompt_rows.empty()) return {};
  const AirModel model = air_model(air_dims(config, kernels.prompt_rows.back()));
  const bool has_prompt =
      has_all(kernels, model, AirPhase::prompt) && has_all(kernels, model, AirPhase::head);
  return {.bf16 = has_prompt && has_all(kernels, model, AirPhase::token),
          .q4nx = has_prompt && !kernels.windows.empty()};
} catch (const Error&) {
  return {};
}

void say_what_runs(PlanRow& row, const PlanOption& option, const Config& config,
                   const ImagesHere& images) {
  const Way& known = way(option);
  if (const std::string beyond = differences_from_llama(config); !beyond.empty()) {
    row.needs = "no images compute a model with " + beyond;
    return;
  }
  const bool is_public = has_public_images(option, config);
  if (known.images == nullptr) {
    row.needs = known.why_cannot;
  } else if (images.*known.images) {
    row.runs = Runs::yes;
    row.needs = "its images are imported";
  } else if (is_public && is_described(option, config)) {
    row.runs = Runs::with_images;
    row.needs =
        "build the images with MLIR-AIR and import them; `tyto compile --device npu` says how";
  } else if (is_public) {
    row.needs = "Tyto does not know how this model's images take their weights";
  }
  if (!is_public && row.runs != Runs::yes)
    row.needs += (row.needs.empty() ? "" : "; ") + std::string("no public images of this model");
  if (row.runs != Runs::no) row.flags = known.flags;
}

void say_what_fits(PlanRow& row, uint64_t most_pinned) {
  if (row.pinned_bytes <= most_pinned) return;
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  row.needs += fmt::format(
      "{}locks {:.2f} GB, and {:.2f} may be locked: `tyto doctor` says how to raise memlock",
      row.needs.empty() ? "" : "; ", gb(row.pinned_bytes), gb(most_pinned));
}

std::optional<size_t> best_row(std::span<const PlanRow> rows, std::span<const std::string> machines,
                               uint64_t most_pinned) {
  std::optional<size_t> best;
  for (size_t i = 0; i < rows.size(); ++i) {
    const PlanRow& row = rows[i];
    const bool is_there = std::ranges::find(machines, row.machine) != machines.end();
    if (!is_there || row.runs == Runs::no || !row.has_run_on_hardware) continue;
    if (row.pinned_bytes > most_pinned) continue;
    if (!best || row.decode_tok_s > rows[*best].decode_tok_s) best = i;
  }
  return best;
}

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
