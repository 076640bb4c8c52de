// Written by tools/fit_cost_model.py; do not edit. data/npu-machines.json says which measurements
// each number comes from, docs/cost-model.md what it means.
#include "cost/cost_model.h"

namespace tyto {
namespace {

// clang-format off
constexpr CostParameters kParameters = {
    .fused_cast = {.floor_us = 467.629, .tflops = 12.8822, .c_bytes = 10.0, .c_gb_s = 61.0325, .step_us = 2.83318},
    .drain = {.floor_us = 90.4662, .tflops = 8.29191, .c_bytes = 2.0, .c_gb_s = 20.9487, .step_us = 1.62257},
    .direct = {.floor_us = 99.033, .tflops = 5.94454, .c_bytes = 2.0, .c_gb_s = 95.0952, .step_us = 1.83305},
    .gemv = {.floor_us = 79.6325, .gb_s = 32.5746},
    .add = {.floor_us = 91.0, .gb_s = 71.8},
    .rmsnorm = {.floor_us = 112.0, .gb_s = 71.8},
    .swiglu = {.floor_us = 80.0, .gb_s = 71.8},
    .rope = {.floor_us = 80.0, .gb_s = 71.8},
    .attention = {.floor_us = 606.384, .block64_us = 18.011, .position64_ns = 18.6291, .block128_us = 35.264, .position128_ns = 51.2288},
    .elf = {.call_us = 79.6325, .launch_us = 60.6813, .slowdown = 1.32358, .head_gb_s = 41.5056, .causal_skip = 0.370323},
    .fused = {.floor_us = 1128.06, .gb_s = 63.1174, .slope64_ns = 76.3399, .slope128_ns = 120.378, .slope256_ns = 99.7058},
    .flm = {.gb_s = 64.1507, .llama_layer_us = 193.783, .qwen_layer_us = 283.46, .llama_slope_ns = 38.4721, .qwen_slope_ns = 67.895, .prefill_layer_ms = 22.2193, .prefill_tflops = 7.44851, .attention_tflops = 3.95778},
    .op = {.dispatch_us = 370.0, .gb_s = 18.8211, .layer_us = 1759.97, .prefill_weight_gb_s = 4.82039, .prefill_tflops = 2.27751},
    .published_host = {.dispatch_us = 100.0, .write_gb_s = 16.4776, .layer_gb_s = 5.99186, .edge_gb_s = 1.88508, .prompt_ms = 10.0, .attention_gflops = 59.9186},
    .native_host = {.dispatch_us = 22.0, .write_gb_s = 16.4776, .layer_gb_s = 16.4776, .edge_gb_s = 16.4776, .prompt_ms = 1.0, .attention_gflops = 59.9186},
    .balanced_clock = 0.803317, .balanced_bandwidth = 0.697714,
    .error = {.matmul = 0.196559, .small_matmul = 0.274935, .bandwidth = 0.160443, .attention = 0.203286, .overhead = 0.380345, .repeat = 0.112053, .profile = 0.0939011, .q4nx_decode = 0.0739218, .flm_prefill = 0.134053, .flm_decode = 0.104139},
};

constexpr NpuMachine kMachines[] = {
    {.name = "strix", .clock = 1.0, .bandwidth = 1.0, .spread = 0.1, .noop_us = 50.0},
    {.name = "strix-halo", .clock = 1.11834, .bandwidth = 0.993052, .spread = 0.2, .noop_us = 56.0},
    {.name = "krackan", .clock = 1.11834, .bandwidth = 1.10625, .spread = 0.1, .noop_us = 63.0},
};
// clang-format on

}  // namespace

const CostParameters& cost_parameters() {
  return kParameters;
}

std::span<const NpuMachine> npu_machines() {
  return kMachines;
}

}  // namespace tyto
