// Modelled time of XDNA2 kernels: a few laws, each fitted to published measurements. Nothing here
// is a measurement of this machine. docs/cost-model.md has the laws, the fit and its errors.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "program/program.h"
#include "trace/trace.h"

namespace tyto {

struct ByteLaw {  // floor + bytes / rate: GEMV and element-wise launches
  double floor_us, gb_s;
};

struct GemmLaw {    // floor + FLOP / rate + C bytes / rate + L2 steps
  double floor_us;  // a launch on its own; inside a larger image ElfLaw::launch_us takes its place
  double tflops;
  double
      c_bytes;  // moved per value of C: f32 out, f32 in and bf16 out with a cast launch, else bf16
  double c_gb_s;
  double step_us;  // one L2 block of K for one tile of the whole array
};

struct AttentionLaw {  // per head and 256 query rows: block + position * n, for head_dim 64 and 128
  double floor_us, block64_us, position64_ns, block128_us, position128_ns;
};

struct ElfLaw {  // launches stitched into one image
  double call_us, launch_us;
  double slowdown;     // prefill kernels inside an image, against the same kernels measured alone
  double head_gb_s;    // the LM head's GEMV, which streams faster than the layers'
  double causal_skip;  // share of attention left when masked blocks are skipped
};

struct FusedLaw {  // a whole token in one dispatch: floor + weights / rate + layers * slope *
                   // window
  double floor_us, gb_s, slope64_ns, slope128_ns, slope256_ns;
};

struct FlmLaw {  // FastFlowLM's tables; it has newer kernels for Llama than for Qwen
  double gb_s, llama_layer_us, qwen_layer_us, llama_slope_ns, qwen_slope_ns;
  double prefill_layer_ms, prefill_tflops, attention_tflops;
};

struct OpLaw {  // one dispatch per operator, as IRON does
  double dispatch_us, gb_s, layer_us, prefill_weight_gb_s, prefill_tflops;
};

struct HostLaw {
  double dispatch_us;       // around one submission, outside the device
  double write_gb_s;        // host to buffer
  double layer_gb_s;        // other handling of activations between images
  double edge_gb_s;         // embedding before and final norm after the layers
  double prompt_ms;         // tokenizing
  double attention_gflops;  // decode attention on the host
};

// 90th percentiles of |relative error| on rows that were not fitted: of parts of a pipeline, and of
// whole ones where several models' were published.
struct FitErrors {
  double matmul, small_matmul;  // products of 512 rows and more, and of fewer
  double bandwidth, attention;
  double overhead;  // dispatches and the host's own work, which differ most between machines
  double repeat;    // the same pipeline, measured twice
  double profile;   // another platform profile than performance
  double q4nx_decode, flm_prefill, flm_decode;
};

struct CostParameters {
  GemmLaw fused_cast, drain, direct;
  ByteLaw gemv, add, rmsnorm, swiglu, rope;
  AttentionLaw attention;
  ElfLaw elf;
  FusedLaw fused;
  FlmLaw flm;
  OpLaw op;
  HostLaw published_host;  // the Python that the published numbers were taken with
  HostLaw native_host;  // ours; its device-independent part is measured, not modelled, when it runs
  double balanced_clock, balanced_bandwidth;  // platform profile balanced against performance
  FitErrors error;
};

struct NpuMachine {
  std::string_view name;
  double clock, bandwidth;  // against Strix Point
  double spread;            // relative uncertainty of these factors
  double noop_us;           // the driver's own latency for an empty command
};

const CostParameters& cost_parameters();
std::span<const NpuMachine> npu_machines();
// Throws a usage Error that lists the names when there is no such machine.
const NpuMachine& npu_machine(std::string_view name);

// How much faster than where a law was measured.
struct Speed {
  double clock = 1;
  double bandwidth = 1;
};

enum class PlatformProfile : uint8_t { performance, balanced };
Speed relative_speed(const NpuMachine& machine, const NpuMachine& measured_on,
                     PlatformProfile profile = PlatformProfile::performance);

double byte_law_ms(const ByteLaw& law, double bytes, Speed speed = {});

struct GemmTile {
  uint32_t m, k_l2, n;  // per core, per L2 block, per core; the array is 8 x 4 cores
};
GemmTile gemm_tile(uint64_t k, uint64_t n, uint32_t tile_m);
double gemm_ms(const GemmLaw& law, const GemmTile& tile, uint64_t m, uint64_t k, uint64_t n,
               Speed speed = {});
// The fastest kind for this shape, as the public kernel registry chooses; without the launch floor.
double best_gemm_ms(uint64_t m, uint64_t k, uint64_t n, Speed speed = {});
// The direct kind, which images take for some products though it is not the fastest.
double direct_gemm_ms(uint64_t m, uint64_t k, uint64_t n, Speed speed = {});

// Prefill attention of `positions` queries on as many keys.
double attention_ms(uint64_t heads, uint64_t head_dim, uint64_t positions, Speed speed = {});

// `kernels_ms` holds the launches' own time without floors.
double elf_ms(unsigned launches, double kernels_ms);
double elf_overhead_ms(unsigned launches);

double fused_decode_ms(uint64_t weight_bytes, uint64_t layers, uint64_t head_dim, uint64_t window,
                       Speed speed = {});
// KV positions a decode image streams for `context` live ones: a build streams its whole window.
uint64_t kv_window(uint64_t context);

// Loading another design's configuration into the array, by the number of locks it uses.
double context_switch_ms(unsigned locks);

// Time of one launch on the array without floors.
double launch_ms(const Program& program, const Launch& launch, const Call& call, Speed speed = {});

// The launches inside a virtual device's dispatch, in a recording.

// A dispatch is modelled as one: its `total_ns` is shared out in proportion to what the cost model
// says of each launch, and what it says of the call itself is left. Times are relative to the begin
// of the dispatch. `names` as launch_names() gives them.
void record_modelled_launches(Trace& trace, const Program& program, std::span<const uint16_t> names,
                              const Call& call, uint8_t device, uint64_t total_ns);

}  // namespace tyto
