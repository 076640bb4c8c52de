#include "doctor/doctor_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "base/counted.h"
#include "base/human_bytes.h"
#include "base/joined.h"

namespace tyto {
namespace {

bool has(const std::vector<std::string>& list, std::string_view wanted) {
  return std::find(list.begin(), list.end(), wanted) != list.end();
}

Check processor(const SystemFacts& facts) {
  constexpr std::array<std::pair<const char*, const char*>, 4> kExtensions = {
      {{"avx2", "AVX2"}, {"avx512f", "AVX-512"}, {"avx512_vnni", "VNNI"}, {"avx512_bf16", "BF16"}}};
  const CpuFacts& cpu = facts.cpu;
  std::vector<std::string> present, absent;
  for (const auto& [flag, name] : kExtensions)
    (has(cpu.flags, flag) ? present : absent).push_back(name);
  if (has(cpu.flags, "avx_vnni") && !has(present, "VNNI")) present.push_back("VNNI");
  const std::string detail = fmt::format(
      "{}, {}; {}", cpu.model.empty() ? "unknown model" : cpu.model, counted(cpu.threads, "thread"),
      present.empty() ? "no vector extension Tyto uses" : joined(present));
  const bool fast = has(cpu.flags, "avx2") && has(cpu.flags, "fma") && has(cpu.flags, "f16c");
  if (fast) return {"processor", CheckState::ok, detail, ""};
  return {"processor", CheckState::warn, detail,
          "without AVX2, FMA and F16C the CPU is many times slower; in a virtual machine, pass the "
          "host's processor through"};
}

Check memory(const SystemFacts& facts) {
  constexpr uint64_t kLittle = uint64_t{2} << 30;
  const MemoryFacts& memory = facts.memory;
  const std::string detail = fmt::format("{}, {} available", human_bytes(memory.total_bytes),
                                         human_bytes(memory.available_bytes));
  if (memory.available_bytes >= kLittle) return {"memory", CheckState::ok, detail, ""};
  return {"memory", CheckState::warn, detail,
          "end other programs: weights that are paged out are read from disk for every token"};
}

Check energy(const SystemFacts& facts) {
  std::vector<std::string> readable, forbidden;
  for (const EnergyRailFacts& rail : facts.rails) {
    if (rail.reason.empty()) readable.push_back(rail.label);
    if (rail.reason.starts_with("permission denied")) forbidden.push_back(rail.label);
  }
  if (!forbidden.empty())
    return {"energy", CheckState::warn,
            fmt::format("{} may not be read{}", joined(forbidden),
                        readable.empty() ? "" : "; " + joined(readable) + " may"),
            "sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj (until the next boot)"};
  if (!readable.empty()) return {"energy", CheckState::ok, joined(readable), ""};
  return {"energy", CheckState::skipped, "no power rail here: --energy will say n/a", ""};
}

Check vulkan(const SystemFacts& facts) {
  const VulkanFacts& vulkan = facts.vulkan;
  const char* install = "install the loader and a driver (Debian: libvulkan1 mesa-vulkan-drivers)";
  const bool software_only = std::all_of(
      vulkan.devices.begin(), vulkan.devices.end(),
      [](const std::string& device) { return device.find("(software") != std::string::npos; });
  if (!vulkan.devices.empty() && software_only && !vulkan.render_nodes.empty())
    return {"Vulkan", CheckState::warn, "a GPU, but only " + joined(vulkan.devices), install};
  if (!vulkan.devices.empty()) return {"Vulkan", CheckState::ok, joined(vulkan.devices), ""};
  if (vulkan.render_nodes.empty())
    return {"Vulkan", CheckState::skipped, "no GPU: there is no /dev/dri/renderD*", ""};
  if (vulkan.loader.empty())
    return {"Vulkan", CheckState::warn, "a GPU, but no libvulkan.so.1", install};
  if (vulkan.drivers.empty())
    return {"Vulkan", CheckState::warn, "a loader, but no driver in /usr/share/vulkan/icd.d",
            install};
  if (!vulkan.enumerated)
    return {"Vulkan", CheckState::ok, counted(vulkan.drivers.size(), "driver") + ", not asked", ""};
  return {"Vulkan", CheckState::warn,
          vulkan.error.empty() ? "its drivers list no device" : vulkan.loader + ": " + vulkan.error,
          "`vulkaninfo --summary` says more; a GPU may also need the groups render and video"};
}

Check kernel_images(const SystemFacts& facts) {
  const KernelCacheFacts& cache = facts.kernel_cache;
  if (!cache.problems.empty())
    return {"kernel images", CheckState::fail,
            cache.problems.front() + (cache.problems.size() > 1
                                          ? fmt::format(" (and {} more)", cache.problems.size() - 1)
                                          : ""),
            "`tyto kernels check` shows all; import the build folder again, or `tyto kernels rm`"};
  if (cache.images > 0)
    return {"kernel images", CheckState::ok, fmt::format("{} in {}", cache.images, cache.folder),
            ""};
  if (usable_npu(facts) == nullptr)
    return {"kernel images", CheckState::skipped, "none, and no NPU to run them", ""};
  return {"kernel images", CheckState::warn, "none in " + cache.folder,
          "compile them with MLIR-AIR, then `tyto kernels import DIR` (docs/kernels.md)"};
}

Check model(const SystemFacts& facts) {
  const ModelFacts& model = facts.model;
  if (model.name.empty()) return {"model", CheckState::skipped, "none was named", ""};
  if (!model.error.empty())
    return {"model", model.named ? CheckState::fail : CheckState::warn, model.error,
            model.hint.empty() ? "give a GGUF file or a checkpoint folder with -m" : model.hint};
  const std::string detail =
      fmt::format("{}: {}, {}", model.name, model.format, human_bytes(model.weight_bytes));
  if (model.weight_bytes <= facts.memory.available_bytes)
    return {"model", CheckState::ok, detail, ""};
  return {"model", CheckState::warn,
          fmt::format("{}, more than the {} available", detail,
                      human_bytes(facts.memory.available_bytes)),
          "use a smaller quantisation: `tyto quantize --type q4_k_m`"};
}

std::vector<Check> calibration_checks(const SystemFacts& facts) {
  if (!facts.calibration) return {};
  const char* measure = "tyto bench --calibrate -m MODEL";
  const CalibrationFacts& calibration = *facts.calibration;
  if (!calibration.problem.empty())
    return {{"calibration", CheckState::warn, calibration.problem + ", so it is ignored", measure}};
  if (!calibration.measured.empty())
    return {{"calibration", CheckState::ok, calibration.measured, ""}};
  return {{"calibration", CheckState::skipped,
           fmt::format("--device auto goes by modelled speed until `{}`", measure), ""}};
}

// The row has the device's name already.
std::string without_name(const DeviceProbe& probe) {
  const std::string begins = probe.name + ": ";
  return probe.open_error.starts_with(begins) ? probe.open_error.substr(begins.size())
                                              : probe.open_error;
}

Check dispatch(const DeviceProbe& probe) {
  if (!probe.open_error.empty())
    return {probe.name, CheckState::skipped, "not usable: " + without_name(probe), ""};
  if (!probe.untried.empty())
    return {probe.name, CheckState::skipped, "opens, and was not tried out: " + probe.untried, ""};
  if (!probe.dispatch_error.empty())
    return {probe.name, CheckState::fail, probe.dispatch_error,
            "run with --device cpu until this is repaired"};
  const bool right = probe.worst_error <= probe.allowed_error;
  const std::string detail =
      fmt::format("computes {}: {} off by {:.1g}, {:.1g} allowed; {}", right ? "right" : "WRONG",
                  probe.computed, probe.worst_error, probe.allowed_error, probe.description);
  if (right) return {probe.name, CheckState::ok, detail, ""};
  return {probe.name, CheckState::fail, detail,
          fmt::format("do not use --device {}; update its driver and firmware, then try again",
                      probe.name)};
}

std::vector<Check> device_checks(const DeviceProbe& probe) {
  std::vector<Check> checks = {dispatch(probe)};
  if (checks[0].state != CheckState::ok || probe.gb_per_s <= 0) return checks;
  Check speed{probe.name + " speed", CheckState::ok,
              fmt::format("{}{:.1f} GB/s from memory", probe.is_virtual ? "modelled: " : "",
                          probe.gb_per_s),
              ""};
  if (probe.gb_per_s < probe.expected_least || probe.gb_per_s > probe.expected_most) {
    speed.state = CheckState::warn;
    speed.detail +=
        fmt::format(", expected {:.0f} to {:.0f}", probe.expected_least, probe.expected_most);
    speed.fix = probe.is_virtual ? "the cost model is off: please report it"
                                 : "see that nothing else runs and the power profile is not a "
                                   "saving one, then try again";
  }
  checks.push_back(speed);
  return checks;
}

}  // namespace

std::string_view to_string(CheckState state) {
  constexpr std::array<std::string_view, 4> kNames = {"ok", "skipped", "warn", "fail"};
  return kNames[static_cast<size_t>(state)];
}

std::vector<Check> examine(const SystemFacts& facts) {
  std::vector<Check> checks = {processor(facts), memory(facts)};
  const auto add = [&checks](std::vector<Check> more) {
    std::move(more.begin(), more.end(), std::back_inserter(checks));
  };
  add(examine_npu(facts));
  add({energy(facts), vulkan(facts), kernel_images(facts), model(facts)});
  for (const DeviceProbe& probe : facts.devices) add(device_checks(probe));
  add(calibration_checks(facts));
  return checks;
}

CheckState worst(const std::vector<Check>& checks) {
  CheckState state = CheckState::ok;
  for (const Check& check : checks)
    if (check.state != CheckState::skipped) state = std::max(state, check.state);
  return state;
}

const Check* first_to_repair(const std::vector<Check>& checks) {
  const CheckState state = worst(checks);
  if (state < CheckState::warn) return nullptr;
  const auto found = std::find_if(checks.begin(), checks.end(),
                                  [&](const Check& check) { return check.state == state; });
  return &*found;
}

}  // namespace tyto
