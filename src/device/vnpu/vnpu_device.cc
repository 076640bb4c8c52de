#include "device/vnpu/vnpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/round_up.h"
#include "cost/cost_model.h"
#include "device/npu/npu_device.h"
#include "device/npu/store/kernel_store.h"
#include "device/vnpu/images/air_images.h"
#include "device/vnpu/images/image.h"
#include "device/vnpu/machine/control.h"

namespace tyto {
namespace {

constexpr uint32_t kRowStep = 64;  // prefill kernels work on multiples of it
constexpr uint32_t kUsualRows[] = {256, 512, 2048};
constexpr uint32_t kLargestWindow = 2048;  // the published builds'
constexpr uint32_t kSmallestWindow = 64;
constexpr uint32_t kGemmStep = 64;       // K of an int8 GEMM is a multiple of it
constexpr uint32_t kGemmRows = 32;       // tokens of one dispatch
constexpr uint32_t kGemmOutputs = 2048;  // outputs of one dispatch

// Those that were asked for, or the usual ones; none longer than the context.
std::vector<uint32_t> rows_for(const ModelDims& model, std::span<const uint32_t> asked) {
  std::set<uint32_t> rows;
  if (model.context == 0) return {};  // no model: a program brings its own
  for (const uint32_t each : asked.empty() ? std::span<const uint32_t>(kUsualRows) : asked)
    rows.insert(static_cast<uint32_t>(round_up(std::min(model.context, each), kRowStep)));
  return {rows.begin(), rows.end()};
}

NpuImage elf_image(const AirDims& dims, vxrt::Image image) {
  NpuImage result;
  image.dims = dims;
  result.bytes = vxrt::serialise(image);
  result.hash = hash_bytes(result.bytes);
  result.kernel = "main:" + image.instances.front().name;
  return result;
}

NpuImage fused_image(const AirDims& dims, uint32_t window) {
  NpuImage result;
  result.form = ImageKind::xclbin;
  const uint64_t reach = vxrt::hardware().limits.slot_span_bytes;
  vxrt::Image image = vxrt::fused_decode_image(dims, window, reach);
  image.dims = dims;
  result.bytes = vxrt::serialise(image);
  result.hash = hash_bytes(result.bytes);
  result.kernel = "MLIR_AIE";
  result.length = window;
  result.reference_length = window - 1;
  result.words = vxrt::decode_words(dims, window, result.length);
  result.reference_words = vxrt::decode_words(dims, window, result.reference_length);
  return result;
}

NpuImage fused_elf_image(const AirDims& dims, uint32_t positions) {
  const uint64_t reach = vxrt::hardware().limits.slot_span_bytes;
  NpuImage result = elf_image(dims, vxrt::fused_decode_elf_image(dims, positions, reach));
  const std::string text = decode_parameters_text(q4nx_layout(dims, positions, reach));
  result.parameters = read_decode_parameters(text, "params.txt of the virtual NPU");
  return result;
}

// One slot per length of a dot product and number of tokens.
std::vector<GemmSlot> gemm_slots_for(const std::vector<std::pair<uint64_t, uint64_t>>& lengths) {
  std::vector<GemmSlot> slots;
  for (const auto& [k, tokens] : lengths) {
    const auto padded = static_cast<uint32_t>(round_up(k, kGemmStep));
    const uint32_t rows = tokens == 0 ? kGemmRows : static_cast<uint32_t>(tokens);
    const bool is_there = std::any_of(slots.begin(), slots.end(), [&](const GemmSlot& slot) {
      return slot.k == padded && slot.m_tile == rows;
    });
    if (padded > 0 && !is_there)
      slots.push_back({fmt::format("gemm_i8_k{}_m{}", padded, rows), padded, rows, kGemmOutputs,
                       vxrt::kColumns});
  }
  return slots;
}

NpuImage gemm_image(const GemmSlot& slot) {
  NpuImage result;
  result.form = ImageKind::xclbin;
  result.bytes =
      vxrt::serialise(vxrt::gemm_i8_image(slot.k, slot.n_tile, slot.m_tile, slot.columns));
  result.hash = hash_bytes(result.bytes);
  result.kernel = "MLIR_AIE";
  result.words = vxrt::gemm_i8_words(slot.k, slot.n_tile, slot.m_tile);
  return result;
}

// Scratch is an argument too: it may be another program's next input.
std::vector<std::byte> compile(std::span<const Program> programs) {
  std::vector<vxrt::Image> images;
  for (const Program& program : programs)
    images.push_back(vxrt::make_image(fmt::format("program_{}", images.size()), program,
                                      vxrt::Scratch::is_argument));
  return vxrt::serialise(vxrt::combined(images));
}

// The most there is on a machine: its memory's rate, its cores' block-emulated
// multiply-accumulates, the driver's own latency of an empty command.
DeviceLimits limits_of(const std::string& machine) {
  return {.gb_s = published_limits("vnpu", machine)->gb_s,
          .gflops = 29.5e3,
          .dispatch_us = npu_machine(machine).noop_us,
          .source = machine + ": memory bus, 8 x 4 cores at 1.8 GHz, empty command"};
}

// Images that `tyto compile` has stored, and those that are not there made on the spot.
NpuKernels vnpu_kernels(const AirDims& dims, float eps, const std::vector<GemmSlot>& slots) {
  const NpuKernels stored = stored_kernels(default_kernel_store(), StoredFor::virtual_npu, dims);
  NpuKernels kernels;
  kernels.dims = dims;
  kernels.gemm_slots = slots;
  kernels.why_no_image = [](std::string_view, uint32_t) { return std::nullopt; };
  kernels.image = [dims, stored, eps, slots](std::string_view program, uint32_t window) {
    if (program == kInt8Gemm) return gemm_image(slots.at(window));
    if (!stored.is_recorded(program, window)) return virtual_image(dims, program, window, eps);
    if (const auto problem = stored.why_no_image(program, window))
      throw Error(ErrorCode::device, "vnpu", *problem,
                  "`tyto kernels check` names it; compile again");
    return stored.image(program, window);
  };
  return kernels;
}

}  // namespace

std::vector<uint32_t> decode_windows(uint32_t context) {
  std::vector<uint32_t> windows = {kSmallestWindow};
  while (windows.back() < context && windows.back() < kLargestWindow)
    windows.push_back(windows.back() * 2);
  return windows;
}

NpuImage virtual_image(AirDims dims, std::string_view program, uint32_t window, float eps) {
  if (program == kFusedDecode) return fused_image(dims, window);
  if (program == kFusedDecodeElf) return fused_elf_image(dims, window);
  if (window > 0) dims.seq = window;
  return elf_image(dims, vxrt::air_image(dims, program, eps));
}

std::unique_ptr<Device> open_vnpu_device(const DeviceEnv& env) {
  const NpuSettings settings = npu_settings(env);
  vxrt::Hardware hardware = vxrt::hardware();
  const auto numerics = settings.block_float ? cpu::Numerics::bfp16 : cpu::Numerics::bf16;
  if (hardware.machine != settings.machine || hardware.numerics != numerics) {
    hardware.machine = settings.machine;
    hardware.numerics = numerics;
    vxrt::reset(hardware);
  }
  vxrt::set_hostile(settings.hostile);
  if (!settings.fault.empty()) vxrt::inject(vxrt::parse_fault(settings.fault));
  const std::vector<uint32_t> rows = rows_for(env.model, settings.prompt_rows);
  AirDims wanted = air_dims(env.model, rows.empty() ? 0 : rows.back());
  wanted.like = settings.images_like;
  const uint64_t lengths[] = {wanted.emb, wanted.q_dim(), wanted.hidden};
  auto gemms = settings.gemm_lengths;
  if (gemms.empty())
    for (const uint64_t k : lengths) gemms.emplace_back(k, 0);
  NpuKernels kernels = vnpu_kernels(wanted, env.model.norm_eps, gemm_slots_for(gemms));
  kernels.prompt_rows = rows;
  kernels.info = {
      .name = "vnpu",
      .description = fmt::format("virtual XDNA2 NPU ({}), 8 x 4 cores", settings.machine),
      .machine = settings.machine,
      .is_virtual = true,
      .limits = limits_of(settings.machine)};
  if (env.model.layers > 0) kernels.windows = decode_windows(env.model.context);
  if (settings.decode == DecodeForm::elf && !kernels.windows.empty())
    kernels.decode_elf = kernels.windows.back();
  describe_shapes(env, kernels);
  kernels.compile = compile;
  kernels.longest_wait = std::chrono::milliseconds::max();  // the host computes in its place
  kernels.modelled_ns = vxrt::busy_ns;
  kernels.weight_buffer_bytes = hardware.limits.slot_span_bytes;
  kernels.pinned_limit = hardware.limits.memlock_bytes;
  kernels.heap_limit = hardware.limits.heap_bytes;
  // No lock: this process alone has the device, and another one has a device of its own.
  return on_vxrt::open_npu(env, std::move(kernels));
}

}  // namespace tyto
