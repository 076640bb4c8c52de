#include "cost/cost_model.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/spelling.h"
#include "program/kernels.h"

namespace tyto {
namespace {

constexpr unsigned kColumns = 8;
constexpr unsigned kRows = 4;

// The registry's direct products: 64 columns of C per core, 128 of K per L2 block while a row of
// blocks stays within what a DMA descriptor can step over.
constexpr uint32_t kDirectTileN = 64;
constexpr uint32_t kDirectBlockK = 128;
constexpr uint64_t kWidestBlock = uint64_t{1} << 21;

// A build of the fused decode exists for each of these; longer ones are built for their context.
constexpr uint64_t kSmallestWindow = 64;
constexpr uint64_t kWindowStep = 2048;

double ms_for_bytes(double bytes, double gb_s, double bandwidth) {
  return bytes / (gb_s * bandwidth) / 1e6;
}

double ms_for_flop(double flop, double tflops, double clock) {
  return flop / (tflops * clock) / 1e9;
}

uint64_t tiles(uint64_t size, uint64_t tile) {
  return (size + tile - 1) / tile;
}

// A law known at head_dim 64 and 128: linear between them, proportional outside.
double by_head_dim(double at64, double at128, uint64_t head_dim) {
  const double dim = static_cast<double>(head_dim);
  if (head_dim <= 64) return at64 * dim / 64;
  if (head_dim >= 128) return at128 * dim / 128;
  return at64 + (at128 - at64) * (dim - 64) / 64;
}

// Decode attention waits on cores rather than on bytes, so narrower heads are not cheaper than 64.
double fused_slope_ns(const FusedLaw& law, uint64_t head_dim) {
  const double dim = static_cast<double>(std::clamp<uint64_t>(head_dim, 64, 256));
  if (dim <= 128) return law.slope64_ns + (law.slope128_ns - law.slope64_ns) * (dim - 64) / 64;
  return law.slope128_ns + (law.slope256_ns - law.slope128_ns) * (dim - 128) / 128;
}

const ByteLaw& element_law(Kernel kernel) {
  const CostParameters& parameters = cost_parameters();
  if (kernel == Kernel::rmsnorm) return parameters.rmsnorm;
  if (kernel == Kernel::swiglu) return parameters.swiglu;
  if (kernel == Kernel::rope) return parameters.rope;
  return parameters.add;
}

}  // namespace

const NpuMachine& npu_machine(std::string_view name) {
  for (const NpuMachine& machine : npu_machines())
    if (machine.name == name) return machine;
  throw Error(ErrorCode::usage, "machine " + std::string(name), "is not modelled",
              "the machines are " + joined(npu_machines(), ", ", &NpuMachine::name));
}

Speed relative_speed(const NpuMachine& machine, const NpuMachine& measured_on,
                     PlatformProfile profile) {
  const CostParameters& parameters = cost_parameters();
  const bool balanced = profile == PlatformProfile::balanced;
  return {
      machine.clock / measured_on.clock * (balanced ? parameters.balanced_clock : 1),
      machine.bandwidth / measured_on.bandwidth * (balanced ? parameters.balanced_bandwidth : 1)};
}

double byte_law_ms(const ByteLaw& law, double bytes, Speed speed) {
  return law.floor_us / 1e3 + ms_for_bytes(bytes, law.gb_s, speed.bandwidth);
}

GemmTile gemm_tile(uint64_t k, uint64_t n, uint32_t tile_m) {
  uint32_t tile_n = 128;
  while (tile_n > 1 && n % (uint64_t{kRows} * tile_n) != 0) tile_n /= 2;
  // Wide outputs leave no room in a DMA step for deeper blocks of K.
  uint32_t k_l2 = n > 8192 ? 64 : 256;
  while (k_l2 > 32 && k % k_l2 != 0) k_l2 /= 2;
  return {tile_m, k_l2, tile_n};
}

double gemm_ms(const GemmLaw& law, const GemmTile& tile, uint64_t m, uint64_t k, uint64_t n,
               Speed speed) {
  const double values = static_cast<double>(m) * static_cast<double>(n);
  const double steps =
      static_cast<double>(tiles(m, uint64_t{tile.m} * kColumns)) *
      static_cast<double>(tiles(n, uint64_t{tile.n} * kRows) * tiles(k, tile.k_l2));
  return law.floor_us / 1e3 +
         ms_for_flop(2 * values * static_cast<double>(k), law.tflops, speed.clock) +
         ms_for_bytes(values * law.c_bytes, law.c_gb_s, speed.bandwidth) +
         steps * law.step_us / speed.clock / 1e3;
}

double direct_gemm_ms(uint64_t m, uint64_t k, uint64_t n, Speed speed) {
  const GemmLaw& law = cost_parameters().direct;
  GemmTile tile{64, kDirectBlockK, std::min(kDirectTileN, gemm_tile(k, n, 64).n)};
  while (tile.k_l2 > 32 && (k % tile.k_l2 != 0 || tile.k_l2 * n > kWidestBlock)) tile.k_l2 /= 2;
  return gemm_ms(law, tile, m, k, n, speed) - law.floor_us / 1e3;
}

double best_gemm_ms(uint64_t m, uint64_t k, uint64_t n, Speed speed) {
  const CostParameters& p = cost_parameters();
  const auto kernel_ms = [&](const GemmLaw& law, uint32_t tile_m) {
    return gemm_ms(law, gemm_tile(k, n, tile_m), m, k, n, speed) - law.floor_us / 1e3;
  };
  return std::min(
      {kernel_ms(p.fused_cast, 64), kernel_ms(p.drain, 32), direct_gemm_ms(m, k, n, speed)});
}

double attention_ms(uint64_t heads, uint64_t head_dim, uint64_t positions, Speed speed) {
  const AttentionLaw& law = cost_parameters().attention;
  const double n = static_cast<double>(positions);
  const double block_us = by_head_dim(law.block64_us, law.block128_us, head_dim);
  const double position_ns = by_head_dim(law.position64_ns, law.position128_ns, head_dim);
  const double blocks = static_cast<double>(heads) * n / 256;
  return law.floor_us / 1e3 + blocks * (block_us + position_ns * n / 1e3) / speed.clock / 1e3;
}

double elf_overhead_ms(unsigned launches) {
  const ElfLaw& law = cost_parameters().elf;
  return (law.call_us + launches * law.launch_us) / 1e3;
}

double elf_ms(unsigned launches, double kernels_ms) {
  return elf_overhead_ms(launches) + kernels_ms;
}

double fused_decode_ms(uint64_t weight_bytes, uint64_t layers, uint64_t head_dim, uint64_t window,
                       Speed speed) {
  const FusedLaw& law = cost_parameters().fused;
  const double positions = static_cast<double>(layers) * static_cast<double>(window);
  return law.floor_us / 1e3 +
         ms_for_bytes(static_cast<double>(weight_bytes), law.gb_s, speed.bandwidth) +
         positions * fused_slope_ns(law, head_dim) / speed.clock / 1e6;
}

uint64_t kv_window(uint64_t context) {
  if (context > kWindowStep) return tiles(context, kWindowStep) * kWindowStep;
  uint64_t window = kSmallestWindow;
  while (window < context) window *= 2;
  return window;
}

double context_switch_ms(unsigned locks) {
  return (25 + 7.2 * locks) / 1e3;
}

double launch_ms(const Program& program, const Launch& launch, const Call& call, Speed speed) {
  const CostParameters& p = cost_parameters();
  const Cost work = cost(program, launch, call);
  // No law for integer products has been fitted: those of bf16, on fewer bytes.
  const bool is_matmul = launch.kernel == Kernel::matmul || launch.kernel == Kernel::matmul_q8;
  if (is_matmul && call.rows > 1) {
    const Slot& weight = program.slots[launch.args[1].slot];
    return p.elf.slowdown * best_gemm_ms(call.rows, weight.cols, weight.rows, speed);
  }
  const double bytes = static_cast<double>(work.bytes);
  if (is_matmul) {
    const bool is_head = launch.role == Role::lm_head;
    return ms_for_bytes(bytes, is_head ? p.elf.head_gb_s : p.gemv.gb_s, speed.bandwidth);
  }
  if (launch.kernel == Kernel::cast) return 0;  // the GEMM laws hold the cast of their result
  if (launch.kernel == Kernel::prompt_attention)
    return p.elf.slowdown *
           attention_ms(launch.shape.heads, launch.shape.head_dim, call.rows, speed);
  if (launch.kernel == Kernel::attention) {
    if (call.rows > 1) {
      double ms = 0;
      for (const Segment& segment : call.segments())
        ms += attention_ms(launch.shape.heads, launch.shape.head_dim, segment.end(), speed) *
              segment.rows / static_cast<double>(segment.end());
      return p.elf.slowdown * ms;
    }
    return ms_for_flop(static_cast<double>(work.flops), p.published_host.attention_gflops / 1e3,
                       speed.clock);
  }
  const double slowdown = call.rows > 1 ? p.elf.slowdown : 1;
  return slowdown * ms_for_bytes(bytes, element_law(launch.kernel).gb_s, speed.bandwidth);
}

void record_modelled_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                              const Call& call, uint8_t device, uint64_t total_ns) {
  const ElfLaw& law = cost_parameters().elf;
  const auto weight_ms = [&](const Launch& launch) {
    return launch_ms(program, launch, call) + law.launch_us / 1e3;
  };
  double sum_ms = law.call_us / 1e3;
  for (const Launch& launch : program.launches) sum_ms += weight_ms(launch);
  const double scale = static_cast<double>(total_ns) / sum_ms;
  double at = law.call_us / 1e3 * scale;
  for (size_t i = 0; i < names.size(); ++i) {
    Event event = launch_event(trace, program, {i, 1}, names[i], call, device);
    event.start_ns = static_cast<uint64_t>(at);
    at += weight_ms(program.launches[i]) * scale;
    event.end_ns = static_cast<uint64_t>(at);
    event.modelled_ns = event.end_ns - event.start_ns;
    trace.push(event);
  }
}

}  // namespace tyto
