#include "plan/what_if.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/round_up.h"
#include "base/spelling.h"
#include "device/npu/formats/memory_plan.h"
#include "model/synth.h"
#include "plan/air_images.h"

namespace tyto {
namespace {

// Below this many tokens the public 4-bit hosts of Llama-3.2-3B and 3.1-8B run a prompt token by
// token through the decode, whose image streams 2048 positions.
constexpr uint32_t kReplayBelow = 96;
constexpr uint32_t kRowGranule = 64;
constexpr uint64_t kSmallRows = 512;  // GEMMs of fewer rows were never fitted
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

// One phase's time by cause; the largest one is its bottleneck.
struct Parts {
  double matmul = 0, bandwidth = 0, attention = 0, dispatch = 0, host = 0;

  double total() const { return matmul + bandwidth + attention + dispatch + host; }
  Parts times(double n) const {
    return {n * matmul, n * bandwidth, n * attention, n * dispatch, n * host};
  }
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

struct PartErrors {
  double matmul, bandwidth, attention, overhead;
  double repeat = 0;
};

PartErrors same_error(double error) {
  return {error, error, error, error};
}

// Parts lean the same way, since one machine and one version were measured: their errors are added.
double relative_error(const Parts& parts, const PartErrors& errors) {
  const double of_parts =
      (parts.matmul * errors.matmul + parts.bandwidth * errors.bandwidth +
       parts.attention * errors.attention + (parts.dispatch + parts.host) * errors.overhead) /
      parts.total();
  return std::hypot(of_parts, errors.repeat);
}

PartErrors prefill_errors(uint64_t rows) {
  const FitErrors& e = cost_parameters().error;
  return {rows < kSmallRows ? e.small_matmul : e.matmul, e.bandwidth, e.attention, e.overhead,
          e.repeat};
}

// The host does attention for a token.
PartErrors decode_errors() {
  const FitErrors& e = cost_parameters().error;
  return {e.matmul, e.bandwidth, e.overhead, e.overhead, e.repeat};
}

struct Estimate {
  Parts prefill, decode;
  PartErrors prefill_errors, decode_errors;
  uint64_t dispatches = 1;
  uint64_t pinned_bytes = 0;
  uint32_t images = 0;       // each with a run that is held
  uint64_t prompt_rows = 0;  // that the prompt's images have; 0 where they have no fixed number
};

struct Setting {
  const PlanRequest& request;
  const NpuMachine& machine;

  const Config& config() const { return request.config; }
  Speed speed(std::string_view measured_on) const {
    return relative_speed(machine, npu_machine(measured_on), request.profile);
  }
};

double gb_ms(double bytes, double gb_s, double factor = 1) {
  return bytes / (gb_s * factor) / 1e6;
}

// The smallest images that hold the prompt; beyond the largest, ones that would have to be built.
uint64_t image_rows(const PlanRequest& request) {
  uint64_t rows = 0;
  for (const uint32_t built : request.prompt_rows)
    if (built >= request.prompt_tokens && (rows == 0 || built < rows)) rows = built;
  return rows != 0 ? rows : round_up(request.prompt_tokens, kSmallRows);
}

uint64_t largest_image_rows(const PlanRequest& request) {
  return std::max<uint64_t>(image_rows(request), *std::ranges::max_element(request.prompt_rows));
}

// How a kernel set's prompt runs: what the attention's images do with masked blocks, and whether
// activations stay in buffers between images. Pieces of a feed-forward go through the host anyway.
struct PrefillForm {
  bool skips_masked = false;
  bool is_resident = false;
};

// Milliseconds per layer that the host spends between images.
double prefill_host_ms(const Setting& s, const std::vector<PlannedImage>& images, uint64_t rows,
                       const PrefillForm& form) {
  const Config& c = s.config();
  const HostLaw& host = host_law(s.request.host);
  const auto bytes = [&](double values) { return 2 * static_cast<double>(rows) * values; };
  const double kv = bytes(2.0 * c.kv_width());
  // Attention images for other head sizes want heads first, so the host transposes.
  const bool is_turned = c.head_dim != 64 && !form.skips_masked;
  const double turned = is_turned ? 2 * bytes(2.0 * c.q_width() + 2.0 * c.kv_width()) : 0;
  if (s.request.host == PlanHost::native) return gb_ms(kv + turned, host.layer_gb_s);
  double handed_on = 0, written = 0;
  for (const PlannedImage& image : images) {
    const bool is_piece = image.returned > 0;
    (is_piece ? handed_on : written) += bytes(static_cast<double>(image.copied + image.returned));
  }
  const double handling = form.is_resident ? gb_ms(turned, host.layer_gb_s)
                                           : gb_ms(written, host.write_gb_s) +
                                                 gb_ms(written + kv + turned, host.layer_gb_s);
  return handling + gb_ms(handed_on, host.write_gb_s);
}

Parts bf16_prefill(const Setting& s, uint64_t rows, const PrefillForm& form) {
  const Config& c = s.config();
  const Speed speed = s.speed("strix");
  const HostLaw& host = host_law(s.request.host);
  const std::vector<PlannedImage> images = prefill_images(c, rows);
  const double layers = c.layers;
  const ElfLaw& elf = cost_parameters().elf;
  Parts parts;
  double overhead = 0;
  for (const PlannedImage& image : images) {
    const ImageTime time = prefill_image_time(image, c, rows, speed);
    overhead += time.overhead_ms;
    if (image.is_attention)
      parts.attention = layers * time.kernels_ms * (form.skips_masked ? elf.causal_skip : 1);
    else
      parts.matmul += layers * time.kernels_ms;
  }
  const ImageTime head = decode_image_time(head_image(c), elf.head_gb_s, speed);
  parts.bandwidth = head.kernels_ms;
  const double calls = layers * static_cast<double>(images.size()) + 1;
  parts.dispatch =
      layers * overhead + head.overhead_ms + calls * host.dispatch_us / 1e3 / speed.clock;
  const double edges = 4.0 * static_cast<double>(rows) * c.emb;
  parts.host = (host.prompt_ms + gb_ms(edges, host.edge_gb_s) +
                layers * prefill_host_ms(s, images, rows, form)) /
               speed.clock;
  return parts;
}

double host_attention_ms(const Config& c, uint64_t context, const HostLaw& host) {
  return 4.0 * c.q_width() * static_cast<double>(context) / host.attention_gflops / 1e6;
}

Estimate air_block(const Setting& s) {
  const Config& c = s.config();
  const Speed speed = s.speed("strix");
  const CostParameters& p = cost_parameters();
  const HostLaw& host = host_law(s.request.host);
  const std::vector<PlannedImage> images = decode_images(c);
  Estimate e;
  e.prompt_rows = image_rows(s.request);
  e.prefill = bf16_prefill(s, e.prompt_rows, {});
  e.prefill_errors = prefill_errors(e.prompt_rows);
  e.decode_errors = decode_errors();
  e.dispatches = images.size() * c.layers + 1;
  const ImageTime head = decode_image_time(head_image(c), p.elf.head_gb_s, speed);
  e.decode.bandwidth = head.kernels_ms;
  e.decode.dispatch = head.overhead_ms +
                      static_cast<double>(e.dispatches) * host.dispatch_us / 1e3 / speed.bandwidth;
  uint64_t left = layer_values(c) / c.layers;  // weights that no image takes
  for (const PlannedImage& image : images) {
    const ImageTime time = decode_image_time(image, p.gemv.gb_s, speed);
    e.decode.bandwidth += c.layers * time.kernels_ms;
    e.decode.dispatch += c.layers * time.overhead_ms;
    for (const Product& product : image.products) left -= product.k * product.n;
  }
  // The host multiplies those, and is bound by the same memory.
  e.decode.bandwidth +=
      gb_ms(2.0 * static_cast<double>(left) * c.layers, p.gemv.gb_s, speed.bandwidth);
  e.decode.attention =
      c.layers * host_attention_ms(c, s.request.context_tokens, host) / speed.bandwidth;
  const uint64_t rows = largest_image_rows(s.request);
  e.pinned_bytes = bf16_block_pinned(c, rows, s.request.host);
  e.images = static_cast<uint32_t>(prefill_images(c, rows).size() + decode_images(c).size() + 1);
  return e;
}

// Eleven dispatches per layer (Q, K, V, O, two RoPE, two norms, two adds, SwiGLU) and three more.
Estimate air_op(const Setting& s) {
  const Config& c = s.config();
  const OpLaw& law = cost_parameters().op;
  const Speed speed = s.speed("strix-halo");
  const HostLaw& host = host_law(s.request.host);
  const double values = static_cast<double>(layer_values(c));
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
  e.pinned_bytes = static_cast<uint64_t>(weights) + prefill_scratch_bytes(c, kPublishedRows);
  e.prefill_errors = e.decode_errors = same_error(cost_parameters().error.overhead);
  return e;
}

bool is_wide_llama(const Config& c) {
  return c.head_dim == 128 && !c.qk_norm && !c.qkv_bias;
}

// Images that skip masked blocks exist for heads of 64 values and, in Llama's examples, for 128:
// with three queries a key head, or up to four and 1024 rows.
bool skips_masked_blocks(const Config& c, uint64_t rows) {
  if (c.head_dim == 64) return true;
  const uint32_t group = c.heads / c.kv_heads;
  return is_wide_llama(c) && (group == 3 || (group <= 4 && rows <= 1024));
}

bool is_replayed(const PlanRequest& request) {
  return request.host == PlanHost::published && request.prompt_tokens < kReplayBelow &&
         is_wide_llama(request.config);
}

Parts fused_token(const Setting& s, uint64_t window) {
  const Config& c = s.config();
  const Speed speed = s.speed("krackan");
  const uint64_t weights = q4nx_weight_bytes(c);
  const double whole = fused_decode_ms(weights, c.layers, c.head_dim, window, speed);
  Parts parts;
  parts.bandwidth = fused_decode_ms(weights, c.layers, c.head_dim, 0, speed);
  parts.attention = whole - parts.bandwidth;
  // Public decode numbers are from C++, too.
  parts.dispatch = cost_parameters().native_host.dispatch_us / 1e3;
  return parts;
}

Estimate air_token(const Setting& s) {
  const Config& c = s.config();
  const uint64_t needed = kv_window(s.request.context_tokens);
  const uint64_t window =
      s.request.decode_elf ? std::max<uint64_t>(kPublishedRows, needed) : needed;
  Estimate e;
  e.decode = fused_token(s, window);
  e.decode_errors = same_error(cost_parameters().error.q4nx_decode);
  if (is_replayed(s.request)) {
    e.prompt_rows = 1;
    e.prefill = fused_token(s, kPublishedRows).times(s.request.prompt_tokens);
    e.prefill_errors = e.decode_errors;
  } else {
    e.prompt_rows = image_rows(s.request);
    e.prefill =
        bf16_prefill(s, e.prompt_rows,
                     {.skips_masked = skips_masked_blocks(c, e.prompt_rows), .is_resident = true});
    e.prefill_errors = prefill_errors(e.prompt_rows);
  }
  const uint64_t rows = largest_image_rows(s.request);
  e.pinned_bytes =
      q4nx_token_pinned(c, rows, std::max<uint64_t>(kPublishedRows, window), s.request.host);
  // A prompt's, the head, one window of the decode.
  e.images = static_cast<uint32_t>(prefill_images(c, rows).size() + 2);
  return e;
}

Estimate flm_token(const Setting& s) {
  const Config& c = s.config();
  const FlmLaw& law = cost_parameters().flm;
  const Speed speed = s.speed("krackan");
  const bool llama = !c.architecture.starts_with("qwen");
  const double values = static_cast<double>(layer_values(c));
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
  e.prefill_errors = same_error(cost_parameters().error.flm_prefill);
  e.decode_errors = same_error(cost_parameters().error.flm_decode);
  return e;
}

struct Planner {
  PlanOption option;
  std::string_view weights;
  Estimate (*estimate)(const Setting&);
  std::string_view measured_on;
  std::string_view note;
};
const Planner kPlanners[] = {
    {{KernelSet::air_bf16, Fusion::op}, "bf16", air_op, "strix-halo", ""},
    {{KernelSet::air_bf16, Fusion::block}, "bf16", air_block, "strix", ""},
    {{KernelSet::air_q4nx, Fusion::token}, "4 bits", air_token, "krackan", ""},
    {{KernelSet::flm_q4, Fusion::token},
     "4 bits",
     flm_token,
     "krackan",
     "dispatches per token not published"},
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

std::string note_for(const Planner& planner, const PlanRequest& request, const Estimate& estimate) {
  std::string note(planner.note);
  const auto append = [&](std::string_view text) {
    note += (note.empty() ? "" : "; ") + std::string(text);
  };
  if (estimate.prompt_rows > kPublishedRows) append("no public prefill images above 2048 tokens");
  if (estimate.prompt_rows > 1 && estimate.prompt_rows < kPublishedRows)
    append("public prefill images have 2048 rows");
  if (estimate.prompt_rows == 1)
    append("its host runs prompts below 96 tokens through the decode, one by one");
  if (request.decode_elf && planner.option.kernels == KernelSet::air_q4nx)
    append("its ELF reads a cache of 2048 positions or more for every token");
  if (request.machine == "strix-halo" && planner.option.kernels != KernelSet::flm_q4 &&
      planner.measured_on != request.machine)
    append("these kernels were never published on this machine");
  return note;
}

void check_prompt_rows(const std::vector<uint32_t>& rows) {
  if (rows.empty()) throw Error(ErrorCode::usage, "prompt rows", "are not given", "like 256,2048");
  for (const uint32_t built : rows)
    if (built == 0 || built % kRowGranule != 0)
      throw Error(ErrorCode::usage, "prompt rows",
                  fmt::format("are {}, images have a multiple of {} rows", built, kRowGranule));
}

void check_tokens(uint32_t tokens, const char* what) {
  if (tokens == 0 || tokens > kMostTokens)
    throw Error(ErrorCode::usage, what,
                fmt::format("is {}, it must be between 1 and {}", tokens, kMostTokens));
}

// One phase's error, where the phase is modelled.
double error_p90(const Setting& setting, const Planner& planner, const Parts& parts,
                 const PartErrors& errors) {
  const PlanRequest& request = setting.request;
  const double machine = planner.measured_on != request.machine ? setting.machine.spread : 0;
  const bool is_balanced = request.profile == PlatformProfile::balanced;
  const double profile = is_balanced ? cost_parameters().error.profile : 0;
  return std::hypot(relative_error(parts, errors), machine, profile);
}

// By MLIR-AIR's own host, whose images have 2048 rows.
double published_ttft_ms(PlanRequest request, const Planner& planner) {
  request.prompt_rows = {kPublishedRows};
  request.host = PlanHost::published;
  return planner.estimate({request, npu_machine(request.machine)}).prefill.total();
}

}  // namespace

std::string_view name(PlanKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"measured", "estimated", "modelled"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view name(Runs runs) {
  constexpr std::array<std::string_view, 3> kNames = {"yes", "with images", "no"};
  return kNames[static_cast<size_t>(runs)];
}

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
              "the kernel sets are air-bf16, air-q4nx, flm-q4; cpu is the processor's own");
}

void check(const PlanRequest& request) {
  check(request.config, request.shape);
  check_tokens(request.prompt_tokens, "prompt length");
  check_tokens(request.context_tokens, "context");
  check_prompt_rows(request.prompt_rows);
}

PassTime later_pass(const PlanRequest& request, const PlanOption& option, uint32_t tokens) {
  check(request);
  const Planner& chosen = planner(option);
  PlanRequest pass = request;
  pass.prompt_tokens = tokens;
  const Setting setting{pass, npu_machine(request.machine)};
  const uint64_t rows = image_rows(pass);
  const bool is_resident = option.kernels == KernelSet::air_q4nx;
  Parts parts = bf16_prefill(setting, rows, {.is_resident = is_resident});
  const double per_row =
      host_attention_ms(pass.config, request.context_tokens, host_law(request.host));
  parts.attention = pass.config.layers * tokens * per_row / setting.speed("strix").bandwidth;
  PartErrors errors = prefill_errors(rows);
  errors.attention = errors.overhead;
  return {parts.total(), error_p90(setting, chosen, parts, errors), rows};
}

PlanRow what_if(const PlanRequest& request, const PlanOption& option) {
  check(request);
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
  row.weights = chosen.weights;
  row.memory_bytes = row.pinned_bytes = e.pinned_bytes;
  row.images = e.images;
  const std::vector<ImageBytes> runs(e.images, {"", kAssumedRunBytes});
  row.heap_bytes = npu_heap(runs).bytes;
  row.bottleneck = fmt::format("prefill: {}, decode: {}", e.prefill.largest(), e.decode.largest());
  row.ttft_error_p90 = error_p90(setting, chosen, e.prefill, e.prefill_errors);
  row.tpot_error_p90 = error_p90(setting, chosen, e.decode, e.decode_errors);
  row.rel_error_p90 = std::max(row.ttft_error_p90, row.tpot_error_p90);
  row.prompt_rows = e.prompt_rows;
  row.published_ttft_ms = e.prompt_rows == 0 ? 0 : published_ttft_ms(request, chosen);
  row.note = note_for(chosen, request, e);
  return row;
}

namespace {

// Models the projects' public tables name kernels or runs for.
constexpr std::string_view kIronShapes[] = {"llama-3.2-1b"};
constexpr std::string_view kAirBf16Shapes[] = {"llama-3.2-1b", "llama-3.2-3b", "smollm2-1.7b",
                                               "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",
                                               "qwen3-0.6b",   "qwen3-1.7b",   "qwen3-4b"};
constexpr std::string_view kAirQ4nxShapes[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b",
                                               "qwen2.5-3b",   "qwen2.5-7b",   "qwen3-4b",
                                               "qwen3-8b"};
constexpr std::string_view kFlmShapes[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b",
                                           "qwen2.5-3b",   "qwen3-0.6b",   "qwen3-1.7b",
                                           "qwen3-4b",     "qwen3-8b"};

// By dimensions, since files call the same model by many names.
bool listed(std::span<const std::string_view> names, const Config& config) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    const Config known = shape_by_name(name);
    return known.layers == config.layers && known.emb == config.emb &&
           known.hidden == config.hidden && known.heads == config.heads &&
           known.kv_heads == config.kv_heads && known.vocab == config.vocab;
  });
}

std::span<const std::string_view> public_shapes(const PlanOption& option) {
  switch (option.kernels) {
    case KernelSet::air_bf16:
      return option.fusion == Fusion::op ? std::span<const std::string_view>(kIronShapes)
                                         : std::span<const std::string_view>(kAirBf16Shapes);
    case KernelSet::air_q4nx:
      return kAirQ4nxShapes;
    case KernelSet::flm_q4:
      return kFlmShapes;
  }
  return {};
}

}  // namespace

bool has_public_images(const PlanOption& option, const Config& config) {
  return listed(public_shapes(option), config);
}

namespace {

uint64_t cache_bytes(const PlanRequest& request) {
  return kept_kv_bytes(request.config, std::max(request.prompt_tokens, request.context_tokens)) +
         2 * state_bytes(request.config);
}

// All matrices' bytes, whatever their rows: a shape may have some that the type's blocks do not
// divide.
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

namespace {

// What checking takes. The decode's image stops at the first guess that was wrong, so it is called
// once per token that comes out: with no guess wrong that is once per guess and once more.
struct Check {
  double ms = 0, error = 0;
  uint64_t image_rows = 0;
};

struct Plain {
  double tpot_ms = 0, error = 0;
};

DraftRow draft_row(CheckBy way, double acceptance, uint32_t guesses, const Plain& plain,
                   const DraftSpeed& draft, const Check& check) {
  DraftRow row{.way = way, .acceptance = acceptance, .guesses = guesses};
  row.tokens_per_round = tokens_per_round(acceptance, guesses);
  row.draft_ms = guesses * draft.tpot_ms;
  row.check_ms = way == CheckBy::tokens ? row.tokens_per_round * plain.tpot_ms : check.ms;
  row.round_ms = row.draft_ms + row.check_ms;
  row.decode_tok_s = row.tokens_per_round * 1e3 / row.round_ms;
  row.plain_tok_s = 1e3 / plain.tpot_ms;
  row.ratio = row.decode_tok_s / row.plain_tok_s;
  const double checked_share = row.check_ms / row.round_ms;
  const double check_error = way == CheckBy::tokens ? plain.error : check.error;
  row.error_p90 = checked_share * check_error;
  // A decode that is slower than thought is so with and without guesses.
  row.ratio_error_p90 = way == CheckBy::tokens ? (1 - checked_share) * plain.error
                                               : std::hypot(plain.error, row.error_p90);
  row.break_even_check_ms = row.tokens_per_round * plain.tpot_ms - row.draft_ms;
  row.image_rows = check.image_rows;
  return row;
}

void check_acceptance(double acceptance) {
  if (!(acceptance >= 0 && acceptance <= 1))
    throw Error(ErrorCode::usage, "acceptance",
                fmt::format("is {}, it must be between 0 and 1", acceptance));
}

}  // namespace

std::string_view name(CheckBy way) {
  constexpr std::array<std::string_view, 2> kNames = {"token by token", "prompt images"};
  return kNames[static_cast<size_t>(way)];
}

double tokens_per_round(double acceptance, uint32_t guesses) {
  double tokens = 1, all_true = 1;
  for (uint32_t i = 0; i < guesses; ++i) tokens += all_true *= acceptance;
  return tokens;
}

std::vector<DraftRow> draft_rows(const PlanRequest& request, const PlanOption& option,
                                 const DraftSpeed& draft, std::span<const double> acceptances) {
  const bool has_images = option.kernels == KernelSet::air_q4nx ||
                          (option.kernels == KernelSet::air_bf16 && option.fusion == Fusion::block);
  if (!has_images)
    throw Error(ErrorCode::usage, "kernels " + std::string(kernel_set_name(option.kernels)),
                "are not planned with a draft model",
                "air-q4nx and, per block, air-bf16 are what Tyto can run");
  TYTO_ASSERT(draft.tpot_ms > 0);
  const PlanRow row = what_if(request, option);
  const Plain plain{row.tpot_ms, row.tpot_error_p90};
  std::vector<DraftRow> rows;
  for (const double acceptance : acceptances) {
    check_acceptance(acceptance);
    for (const CheckBy way : {CheckBy::tokens, CheckBy::prompt_images})
      for (uint32_t guesses = 1; guesses <= kMostPlannedGuesses; ++guesses) {
        Check check;
        if (way == CheckBy::prompt_images) {
          const PassTime pass = later_pass(request, option, guesses + 1);
          check = {pass.ms, pass.error_p90, pass.rows};
        }
        rows.push_back(draft_row(way, acceptance, guesses, plain, draft, check));
      }
  }
  return rows;
}

std::vector<DraftRow> best_drafts(std::span<const DraftRow> rows) {
  std::vector<DraftRow> best;
  for (const DraftRow& row : rows) {
    const bool is_of_last =
        !best.empty() && best.back().way == row.way && best.back().acceptance == row.acceptance;
    if (!is_of_last)
      best.push_back(row);
    else if (row.decode_tok_s > best.back().decode_tok_s)
      best.back() = row;
  }
  return best;
}

}  // namespace tyto
