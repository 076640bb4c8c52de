#include "plan/what_if.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/round_up.h"
#include "device/npu/formats/memory_plan.h"
#include "model/shapes.h"

namespace tyto {
namespace {

constexpr uint64_t kPrefillRows = 2048;  // what the public prefill images are built for
constexpr uint32_t kMostTokens = 1u << 20;
constexpr double kQ4Bytes = 0.625;  // 4 bits, and a bf16 scale and minimum per 32 weights

struct KernelSetName {
  KernelSet kernels;
  std::string_view name;
};
constexpr std::array<KernelSetName, 3> kKernelSets = {{
    {KernelSet::air_bf16, "air-bf16"},
    {KernelSet::air_q4nx, "air-q4nx"},
    {KernelSet::flm_q4, "flm-q4"},
}};
constexpr std::array<std::string_view, 3> kFusionNames = {"op", "block", "token"};

// Models the projects' public tables name kernels or runs for.
constexpr std::string_view kIronShapes[] = {"llama-3.2-1b"};
constexpr std::string_view kAirBf16Shapes[] = {"llama-3.2-1b", "llama-3.2-3b", "smollm2-1.7b",
                                               "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",
                                               "qwen3-0.6b",   "qwen3-1.7b",   "qwen3-4b"};
constexpr std::string_view kAirQ4nxShapes[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b",
                                               "qwen2.5-3b",   "qwen2.5-7b",   "qwen3-8b"};
constexpr std::string_view kFlmShapes[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b",
                                           "qwen2.5-3b",   "qwen3-0.6b",   "qwen3-1.7b",
                                           "qwen3-4b",     "qwen3-8b"};

// One phase's time by cause; the largest one is its bottleneck.
struct Parts {
  double matmul = 0, bandwidth = 0, attention = 0, dispatch = 0, host = 0;

  double total() const { return matmul + bandwidth + attention + dispatch + host; }
  std::string_view largest() const {
    const std::pair<double, std::string_view> parts[] = {{matmul, "matmul"},
                                                         {bandwidth, "weight bandwidth"},
                                                         {attention, "attention"},
                                                         {dispatch, "dispatch"},
                                                         {host, "host"}};
    return std::max_element(std::begin(parts), std::end(parts),
                            [](const auto& a, const auto& b) { return a.first < b.first; })
        ->second;
  }
};

struct Estimate {
  Parts prefill, decode;
  uint64_t dispatches = 1;
  uint64_t pinned_bytes = 0;
  uint32_t images = 0;  // of which a run each is held
  double set_error = 0;
};

struct Setting {
  const PlanRequest& request;
  const NpuMachine& machine;

  const Config& config() const { return request.config; }
  Speed speed(std::string_view measured_on) const {
    return relative_speed(machine, npu_machine(measured_on), request.profile);
  }
};

const HostLaw& host_law(PlanHost host) {
  const CostParameters& p = cost_parameters();
  return host == PlanHost::native ? p.native_host : p.published_host;
}

AirDims air_dims(const Config& c, uint64_t rows) {
  return {c.layers,   c.emb,    c.heads, c.kv_heads,
          c.head_dim, c.hidden, c.vocab, static_cast<uint32_t>(rows)};
}

// q4nx_layout takes matrices of whole groups of columns: others are padded to them.
AirDims q4nx_dims(const Config& c, uint64_t rows) {
  AirDims dims = air_dims(c, rows);
  const auto whole = [](uint32_t value, uint64_t multiple) {
    return static_cast<uint32_t>(round_up(value, multiple));
  };
  dims.emb = whole(dims.emb, kQ4nxGroupCols);
  dims.hidden = whole(dims.hidden, kQ4nxGroupCols);
  dims.head_dim =
      whole(dims.head_dim, kQ4nxGroupCols / std::gcd(uint64_t{dims.heads}, kQ4nxGroupCols));
  return dims;
}

uint64_t layer_values(const Config& c) {
  const uint64_t emb = c.emb;
  return emb * (2 * (uint64_t{c.q_width()} + c.kv_width()) + 3 * uint64_t{c.hidden});
}

uint64_t all_layer_values(const Config& c) {
  return c.layers * layer_values(c);
}

uint64_t head_bytes_bf16(const Config& c) {
  return round_up(c.vocab, kAirHeadRows) * c.emb * 2;
}

double gb_ms(double bytes, double gb_s, double factor = 1) {
  return bytes / (gb_s * factor) / 1e6;
}

// The images work on 2048 rows whatever the prompt's length; longer prompts need larger ones.
uint64_t prefill_rows(uint32_t prompt_tokens) {
  return round_up(prompt_tokens, prompt_tokens <= kPrefillRows ? kPrefillRows : 512);
}

// Bytes the published host copies into buffers per layer: x; Q, K, V and a cleared output; the
// attention's result and the residual.
double written_per_layer(const Config& c, uint64_t rows) {
  return 2.0 * static_cast<double>(rows) * (2.0 * c.emb + 3.0 * c.q_width() + 2.0 * c.kv_width());
}

// Bytes of the arguments of some images of which `is_counted`.
template <typename Counted>
uint64_t argument_bytes(std::initializer_list<std::string_view> programs, const AirDims& dims,
                        const Counted& is_counted) {
  uint64_t bytes = 0;
  for (std::string_view program : programs)
    for (const AirArgument& argument : air_program(program, dims).arguments)
      if (is_counted(argument)) bytes += argument.bytes();
  return bytes;
}

// Of the published host: each of the three prefill images has its own, and all layers share them.
uint64_t prefill_scratch_bytes(const Config& c, uint64_t rows) {
  return argument_bytes(
      {"rms_gemms_rope", "flash_attn", "o_ffn"}, air_dims(c, rows),
      [](const AirArgument& argument) { return argument.role != AirRole::weight; });
}

uint64_t rope_table_bytes(const Config& c, uint64_t rows) {
  return argument_bytes({"rms_gemms_rope"}, air_dims(c, rows), [](const AirArgument& argument) {
    return argument.layout == AirLayout::rope_per_head;
  });
}

uint64_t kv_bytes(const Config& c, uint64_t positions) {
  return positions * c.layers * 2 * c.kv_width() * 2;
}

// By the published host, which has rotation tables for each layer.
uint64_t bf16_prefill_pinned(const Config& c, uint64_t rows) {
  return 2 * all_layer_values(c) + head_bytes_bf16(c) + c.layers * rope_table_bytes(c, rows) +
         prefill_scratch_bytes(c, rows);
}

// 16 layers x 3 images and the LM head. `attention_share` < 1 when masked blocks are skipped;
// `resident`: activations stay in buffers between images.
Parts bf16_prefill(const Setting& s, double attention_share, bool resident) {
  const Config& c = s.config();
  const uint64_t rows = prefill_rows(s.request.prompt_tokens);
  const Speed speed = s.speed("strix");
  const HostLaw& host = host_law(s.request.host);
  const ImageTimes t = bf16_image_times(c, rows, speed, s.request.host);
  const double layers = c.layers;
  Parts parts;
  parts.matmul = layers * (t.rms_gemms_rope.run_ms + t.o_ffn.run_ms);
  parts.attention = layers * t.flash_attn.run_ms * attention_share;
  parts.bandwidth = t.lm_head.run_ms;
  parts.dispatch = (3 * layers + 1) * host.dispatch_us / 1e3 / speed.clock;
  const double kv = 4.0 * static_cast<double>(rows) * c.kv_width();
  const double written = written_per_layer(c, rows);
  double layer_ms = 0;
  if (s.request.host == PlanHost::native) {
    layer_ms = gb_ms(kv, host.layer_gb_s);
  } else if (!resident) {
    // Attention images for other head sizes want heads first, so the host transposes.
    const double width = 2.0 * c.q_width() + 2.0 * c.kv_width();
    const double turned = c.head_dim == 64 ? 0 : 4.0 * static_cast<double>(rows) * width;
    layer_ms = gb_ms(written, host.write_gb_s) + gb_ms(written + kv + turned, host.layer_gb_s);
  }
  const double edges = 4.0 * static_cast<double>(rows) * c.emb;
  parts.host = (host.prompt_ms + gb_ms(edges, host.edge_gb_s) + layers * layer_ms) / speed.clock;
  return parts;
}

double host_attention_ms(const Config& c, uint64_t context, const HostLaw& host) {
  return 4.0 * c.q_width() * static_cast<double>(context) / host.attention_gflops / 1e6;
}

Estimate air_block(const Setting& s) {
  const Config& c = s.config();
  const Speed speed = s.speed("strix");
  const HostLaw& host = host_law(s.request.host);
  const uint64_t rows = prefill_rows(s.request.prompt_tokens);
  const ImageTimes t = bf16_image_times(c, rows, speed, s.request.host);
  Estimate e;
  e.prefill = bf16_prefill(s, 1, false);
  e.dispatches = 2 * uint64_t{c.layers} + 1;
  e.decode.bandwidth = c.layers * (t.rms_gemv_rope.run_ms + t.o_gemv_ffn.run_ms) + t.lm_head.run_ms;
  e.decode.attention =
      c.layers * host_attention_ms(c, s.request.context_tokens, host) / speed.bandwidth;
  e.decode.dispatch = static_cast<double>(e.dispatches) * host.dispatch_us / 1e3 / speed.bandwidth;
  // Prefill wants weights as (in, out), decode as (out, in): both copies are pinned. MLIR-AIR fills
  // one unused argument as large as a feed-forward matrix in every layer.
  e.pinned_bytes =
      s.request.host == PlanHost::native
          ? total_bytes(npu_memory(air_dims(c, rows), NpuWeights::bf16, Fusion::block, 0))
          : bf16_prefill_pinned(c, rows) + 2 * all_layer_values(c) +
                uint64_t{c.layers} * c.hidden * c.emb * 2;
  e.images = 6;  // three for prompts, three for tokens
  e.set_error = cost_parameters().error.air_bf16;
  return e;
}

// Eleven dispatches per layer (Q, K, V, O, two RoPE, two norms, two adds, SwiGLU) and three more.
Estimate air_op(const Setting& s) {
  const Config& c = s.config();
  const OpLaw& law = cost_parameters().op;
  const Speed speed = s.speed("strix-halo");
  const HostLaw& host = host_law(s.request.host);
  const double values = static_cast<double>(all_layer_values(c));
  const double weights = 2 * (values + static_cast<double>(c.vocab) * c.emb);
  const bool native = s.request.host == PlanHost::native;
  Estimate e;
  e.dispatches = 11 * uint64_t{c.layers} + 3;
  // Without Python a dispatch still costs what an empty command does.
  const double dispatch_us = native ? s.machine.noop_us + host.dispatch_us : law.dispatch_us;
  e.decode.dispatch = static_cast<double>(e.dispatches) * dispatch_us / 1e3;
  e.decode.bandwidth = gb_ms(weights, law.gb_s, speed.bandwidth);
  e.decode.attention = c.layers * host_attention_ms(c, s.request.context_tokens, host);
  e.decode.host = native ? 0 : c.layers * law.layer_us / 1e3;
  const double tokens = std::max<uint32_t>(s.request.prompt_tokens, 256);
  e.prefill.dispatch = e.decode.dispatch;
  e.prefill.bandwidth = gb_ms(2 * values, law.prefill_weight_gb_s, speed.bandwidth);
  e.prefill.matmul = 2 * values * tokens / (law.prefill_tflops * speed.clock) / 1e9;
  e.pinned_bytes = static_cast<uint64_t>(weights) + prefill_scratch_bytes(c, kPrefillRows);
  e.set_error = cost_parameters().error.air_bf16_op;
  return e;
}

Estimate air_token(const Setting& s) {
  const Config& c = s.config();
  const Speed speed = s.speed("krackan");
  const HostLaw& host = cost_parameters().native_host;  // public decode numbers are from C++ too
  const uint64_t weights = q4nx_weight_bytes(c);
  const uint64_t window = kv_window(s.request.context_tokens);
  const uint64_t rows = prefill_rows(s.request.prompt_tokens);
  Estimate e;
  e.prefill = bf16_prefill(s, cost_parameters().elf.causal_skip, true);
  const double whole = fused_decode_ms(weights, c.layers, c.head_dim, window, speed);
  e.decode.bandwidth = fused_decode_ms(weights, c.layers, c.head_dim, 0, speed);
  e.decode.attention = whole - e.decode.bandwidth;
  e.decode.dispatch = host.dispatch_us / 1e3;
  const auto largest_window = static_cast<uint32_t>(std::max(kPrefillRows, window));
  const AirDims dims = q4nx_dims(c, rows);
  const Q4nxLayout layout = q4nx_layout(dims, largest_window);
  e.pinned_bytes =
      s.request.host == PlanHost::native
          ? total_bytes(npu_memory(dims, NpuWeights::q4nx, Fusion::token, largest_window))
          : bf16_prefill_pinned(c, rows) +
                2 * (layout.weight_elements + layout.kv_elements + layout.norm_elements +
                     layout.logits_offset + layout.logits_elements);
  e.images = 5;  // three for prompts, the head, one window of the decode
  e.set_error = cost_parameters().error.air_q4nx;
  return e;
}

Estimate flm_token(const Setting& s) {
  const Config& c = s.config();
  const FlmLaw& law = cost_parameters().flm;
  const Speed speed = s.speed("krackan");
  const bool llama = !c.architecture.starts_with("qwen");
  const double values = static_cast<double>(all_layer_values(c));
  const double weights = kQ4Bytes * (values + static_cast<double>(c.vocab) * c.emb);
  const double context = s.request.context_tokens, prompt = s.request.prompt_tokens;
  const double slope_ns =
      (llama ? law.llama_slope_ns : law.qwen_slope_ns) * std::sqrt(c.head_dim / 128.0);
  Estimate e;
  e.decode.bandwidth = gb_ms(weights, law.gb_s, speed.bandwidth);
  e.decode.dispatch = c.layers * (llama ? law.llama_layer_us : law.qwen_layer_us) / 1e3;
  e.decode.attention = c.layers * slope_ns * context / speed.clock / 1e6;
  e.prefill.bandwidth = c.layers * law.prefill_layer_ms / speed.bandwidth;
  e.prefill.matmul = 2 * values * prompt / (law.prefill_tflops * speed.clock) / 1e9;
  e.prefill.attention =
      2.0 * prompt * prompt * c.layers * c.q_width() / (law.attention_tflops * speed.clock) / 1e9;
  e.pinned_bytes = static_cast<uint64_t>(weights) +
                   kv_bytes(c, std::max(s.request.context_tokens, s.request.prompt_tokens));
  e.set_error = cost_parameters().error.flm_q4;
  return e;
}

// By dimensions, since files call the same model by many names.
bool listed(std::span<const std::string_view> names, const Config& config) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    const Config known = shape_by_name(name);
    return known.layers == config.layers && known.emb == config.emb &&
           known.hidden == config.hidden && known.heads == config.heads &&
           known.kv_heads == config.kv_heads && known.vocab == config.vocab;
  });
}

struct Planner {
  PlanOption option;
  Estimate (*estimate)(const Setting&);
  std::string_view measured_on;
  std::span<const std::string_view> published;  // shapes somebody offers images of
  std::string_view note;
};
const Planner kPlanners[] = {
    {{KernelSet::air_bf16, Fusion::op}, air_op, "strix-halo", kIronShapes, ""},
    {{KernelSet::air_bf16, Fusion::block}, air_block, "strix", kAirBf16Shapes, ""},
    {{KernelSet::air_q4nx, Fusion::token}, air_token, "krackan", kAirQ4nxShapes, ""},
    {{KernelSet::flm_q4, Fusion::token},
     flm_token,
     "krackan",
     kFlmShapes,
     "planning only; dispatches per token not published"},
};

const Planner& planner(const PlanOption& option) {
  for (const Planner& candidate : kPlanners)
    if (candidate.option.kernels == option.kernels && candidate.option.fusion == option.fusion)
      return candidate;
  throw Error(
      ErrorCode::usage, "kernels " + std::string(kernel_set_name(option.kernels)),
      fmt::format("cannot be dispatched per {}", kFusionNames[static_cast<size_t>(option.fusion)]),
      "air-bf16 runs per op or block, air-q4nx and flm-q4 per token");
}

std::string note_for(const Planner& planner, const PlanRequest& request) {
  std::string note(planner.note);
  const auto append = [&](std::string_view text) {
    note += (note.empty() ? "" : "; ") + std::string(text);
  };
  if (!listed(planner.published, request.config)) append("no public images");
  if (planner.option.kernels != KernelSet::flm_q4 && planner.option.fusion != Fusion::op &&
      request.prompt_tokens > kPrefillRows)
    append("no public prefill images above 2048 tokens");
  if (request.machine == "strix-halo" && planner.option.kernels != KernelSet::flm_q4 &&
      planner.measured_on != request.machine)
    append("these kernels were never published on this machine");
  return note;
}

void check_tokens(uint32_t tokens, const char* what) {
  if (tokens == 0 || tokens > kMostTokens)
    throw Error(ErrorCode::usage, what,
                fmt::format("is {}, it must be between 1 and {}", tokens, kMostTokens));
}

}  // namespace

const std::vector<PlanOption>& plan_options() {
  static const std::vector<PlanOption> options = [] {
    std::vector<PlanOption> all;
    for (const Planner& planner : kPlanners) all.push_back(planner.option);
    return all;
  }();
  return options;
}

std::string_view kernel_set_name(KernelSet kernels) {
  return kKernelSets[static_cast<size_t>(kernels)].name;
}

KernelSet kernel_set_by_name(std::string_view name) {
  for (const KernelSetName& set : kKernelSets)
    if (set.name == name) return set.kernels;
  throw Error(ErrorCode::usage, "kernels " + std::string(name), "do not exist",
              "the kernel sets are air-bf16, air-q4nx, flm-q4");
}

uint64_t q4nx_weight_bytes(const Config& c) {
  return q4nx_layout(q4nx_dims(c, kPrefillRows), kPrefillRows).weight_elements * 2;
}

ImageTimes bf16_image_times(const Config& c, uint64_t positions, Speed speed, PlanHost host) {
  const CostParameters& p = cost_parameters();
  const HostLaw& law = host_law(host);
  const uint64_t emb = c.emb, q = c.q_width(), kv = c.kv_width(), hidden = c.hidden;
  const double rows = static_cast<double>(positions);
  const auto values_ms = [&](uint64_t values) {
    return gb_ms(2 * rows * static_cast<double>(values), p.add.gb_s, speed.bandwidth);
  };
  const auto gemm = [&](uint64_t k, uint64_t n) { return best_gemm_ms(positions, k, n, speed); };
  const auto gemv = [&](uint64_t values, double gb_s) {
    return gb_ms(2 * static_cast<double>(values), gb_s, speed.bandwidth);
  };
  // `copied`: values per row that the published host writes before the call.
  const auto image = [&](std::string_view name, unsigned launches, double kernels,
                         uint64_t copied) {
    const double run = elf_ms(launches, kernels);
    const double copy = host == PlanHost::published
                            ? gb_ms(2 * rows * static_cast<double>(copied), law.write_gb_s)
                            : 0;
    return ImageTime{name, run, run + copy + law.dispatch_us / 1e3};
  };
  const unsigned extra = (c.qk_norm ? 2 : 0) + (c.qkv_bias ? 3 : 0);
  const uint64_t extra_values =
      (c.qk_norm ? 2 * (q + kv) : 0) + (c.qkv_bias ? 2 * (q + 2 * kv) : 0);
  const unsigned partitions = air_head_partitions(air_dims(c, positions));
  const double slow = p.elf.slowdown;
  return {
      image("rms_gemms_rope", 7 + extra,
            slow * (values_ms(2 * emb + 3 * q + 3 * kv + extra_values) + gemm(emb, q) +
                    2 * gemm(emb, kv)),
            emb),
      image("flash_attn", 1, slow * attention_ms(c.heads, c.head_dim, positions, speed),
            2 * q + 2 * kv),
      image("o_ffn", 12,
            slow * (values_ms(8 * emb + 3 * hidden) + gemm(q, emb) + 2 * gemm(emb, hidden) +
                    gemm(hidden, emb)),
            q + emb),
      image("rms_gemv_rope", 6 + extra, gemv(emb * (q + 2 * kv), p.gemv.gb_s), 0),
      image("o_gemv_ffn", 3, gemv(emb * (q + 3 * hidden), p.gemv.gb_s), 0),
      image("lm_head_gemv", partitions, gemv(head_bytes_bf16(c) / 2, p.elf.head_gb_s), 0),
  };
}

PlanRow what_if(const PlanRequest& request, const PlanOption& option) {
  check(request.config, request.shape);
  check_tokens(request.prompt_tokens, "prompt length");
  check_tokens(request.context_tokens, "context");
  const Planner& chosen = planner(option);
  const Setting setting{request, npu_machine(request.machine)};
  const Estimate e = chosen.estimate(setting);
  PlanRow row;
  row.machine = request.machine;
  row.shape = request.shape;
  row.kernels = kernel_set_name(option.kernels);
  row.fusion = kFusionNames[static_cast<size_t>(option.fusion)];
  row.prompt_tokens = request.prompt_tokens;
  row.context_tokens = request.context_tokens;
  row.ttft_ms = e.prefill.total();
  row.prefill_tok_s = request.prompt_tokens * 1e3 / row.ttft_ms;
  row.tpot_ms = e.decode.total();
  row.decode_tok_s = 1e3 / row.tpot_ms;
  row.dispatches_per_token = e.dispatches;
  row.pinned_bytes = e.pinned_bytes;
  row.images = e.images;
  const std::vector<ImageBytes> runs(e.images, {"", kAssumedRunBytes});
  row.heap_bytes = npu_heap(runs).bytes;
  row.bottleneck = fmt::format("prefill: {}, decode: {}", e.prefill.largest(), e.decode.largest());
  const bool elsewhere = chosen.measured_on != request.machine;
  row.rel_error_p90 = elsewhere ? std::hypot(e.set_error, setting.machine.spread) : e.set_error;
  row.note = note_for(chosen, request);
  return row;
}

}  // namespace tyto
