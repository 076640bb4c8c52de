"""The NPU cost model's parameters as src/cost/machine_parameters.cc has them; tools/fit_cost_model.py finds them."""

# Facts of the public fact sheets that no row of the calibration table carries: element-wise launches measured alone.
ELEMENTWISE_GB_S = 71.8
FLOORS_US = {"add": 91.0, "rmsnorm": 112.0, "swiglu": 80.0, "rope": 80.0}
SUBMIT_US = 22.0  # building and starting one run from native code


def number(value):
    text = f"{value:.6g}"
    return text if "." in text or "e" in text else text + ".0"


def fields(values):
    return ", ".join(f".{name} = {number(value)}" for name, value in values.items())


def cpp_text(p):
    lines = ["// Written by tools/fit_cost_model.py; do not edit. data/npu-machines.json says which measurements",
             "// each number comes from, docs/cost-model.md what it means.", '#include "cost/cost_model.h"', "",
             "namespace tyto {", "namespace {", "", "// clang-format off", "constexpr CostParameters kParameters = {"]
    for name, key in (("fused_cast", "gemm fused-cast"), ("drain", "gemm drain"), ("direct", "gemm direct"), ("gemv", "gemv")):
        lines.append(f"    .{name} = {{{fields(p[key])}}},")
    for name, floor in FLOORS_US.items():
        lines.append(f"    .{name} = {{{fields({'floor_us': floor, 'gb_s': ELEMENTWISE_GB_S})}}},")
    for name, key in (("attention", "attention"), ("elf", "elf"), ("fused", "fused"), ("flm", "flm"), ("op", "op")):
        lines.append(f"    .{name} = {{{fields(p[key])}}},")
    native = {"dispatch_us": SUBMIT_US, "write_gb_s": p["published host"]["write_gb_s"], "layer_gb_s": p["published host"]["write_gb_s"],
              "edge_gb_s": p["published host"]["write_gb_s"], "prompt_ms": 1.0,
              "attention_gflops": p["published host"]["attention_gflops"]}
    lines.append(f"    .published_host = {{{fields(p['published host'])}}},")
    lines.append(f"    .native_host = {{{fields(native)}}},")
    lines.append(f"    .balanced_clock = {number(p['balanced profile']['clock'])}, .balanced_bandwidth = {number(p['balanced profile']['bandwidth'])},")
    lines.append(f"    .error = {{{fields(p['rel_error_p90'])}}},")
    lines += ["};", "", "constexpr NpuMachine kMachines[] = {"]
    for name, values in p["machines"].items():
        lines.append(f'    {{.name = "{name}", {fields(values)}}},')
    lines += ["};", "// clang-format on", "", "}  // namespace", "", "const CostParameters& cost_parameters() {", "  return kParameters;", "}", "",
              "std::span<const NpuMachine> npu_machines() {", "  return kMachines;", "}", "", "}  // namespace tyto", ""]
    return "\n".join(lines)
