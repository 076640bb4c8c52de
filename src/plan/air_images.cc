#include "plan/air_images.h"

#include <algorithm>

namespace tyto {
namespace {

enum class PromptFfn : uint8_t { one_image, down_apart, gate_and_up_together, all_apart };

// Models that differ from Llama-3.2-1B in how MLIR-AIR cuts their images, by dimensions. A
// feed-forward is cut where its launches do not fit into one image; a head's partition is as many
// rows as its kernel's DMA can repeat.
struct KnownForm {
  uint32_t emb, hidden, vocab;
  PromptFfn prompt_ffn;
  uint32_t head_partitions, head_rows;
};
constexpr KnownForm kKnownForms[] = {
    {2048, 8192, 49152, PromptFfn::one_image, 8, 16384},   // SmolLM2-1.7B, whatever its vocabulary
    {1024, 3072, 151936, PromptFfn::one_image, 19, 8192},  // Qwen3-0.6B
    {2048, 6144, 151936, PromptFfn::one_image, 19, 8192},  // Qwen3-1.7B
    {2560, 9728, 151936, PromptFfn::all_apart, 19, 8192},  // Qwen3-4B
    {4096, 12288, 151936, PromptFfn::all_apart, 10, 16384},           // Qwen3-8B
    {896, 4864, 151936, PromptFfn::down_apart, 19, 8192},             // Qwen2.5-0.5B
    {1536, 8960, 151936, PromptFfn::gate_and_up_together, 19, 8192},  // Qwen2.5-1.5B
    {2048, 11008, 151936, PromptFfn::all_apart, 19, 8192},            // Qwen2.5-3B
    {3584, 18944, 152064, PromptFfn::all_apart, 10, 16384},           // Qwen2.5-7B
};
constexpr uint32_t kHeadRows = 16384;

KnownForm form_of(const Config& c) {
  for (const KnownForm& form : kKnownForms)
    if (form.emb == c.emb && form.hidden == c.hidden && form.vocab == c.vocab) return form;
  return {c.emb,    c.hidden, c.vocab, PromptFfn::one_image, (c.vocab + kHeadRows - 1) / kHeadRows,
          kHeadRows};
}

// The cascade of the fused O and feed-forward has four rows of cores, 512 values of K each step.
bool has_fused_decode_ffn(const Config& c) {
  return c.emb < 2560 && c.hidden % 512 == 0;
}

// From here on a product takes a launch of its own for the cast of its result.
constexpr double kCastFrom = 4e9;

unsigned launches_of(const std::vector<Product>& products, uint64_t rows, unsigned others) {
  unsigned launches = others;
  for (const Product& product : products) {
    const double work = static_cast<double>(rows) * static_cast<double>(product.k * product.n);
    launches += !product.is_direct && work >= kCastFrom ? 2 : 1;
  }
  return launches;
}

struct Extras {  // of QK norm and of biases, before rotation
  unsigned launches = 0;
  uint64_t moved = 0;
};

Extras extras_of(const Config& c) {
  const uint64_t q = c.q_width(), kv = c.kv_width();
  Extras extras;
  if (c.qk_norm) extras = {2, 2 * (q + kv)};
  if (c.qkv_bias) extras = {extras.launches + 3, extras.moved + 2 * (q + 2 * kv)};
  return extras;
}

std::string_view input_name(const Config& c, bool decodes) {
  if (c.qk_norm) return decodes ? "rms_qkv_qknorm_rope_gemv" : "rms_qkv_qknorm_rope";
  if (c.qkv_bias) return decodes ? "rms_qkv_bias_rope_gemv" : "rms_qkv_bias_rope";
  return decodes ? "rms_gemv_rope" : "rms_gemms_rope";
}

}  // namespace

const HostLaw& host_law(PlanHost host) {
  const CostParameters& p = cost_parameters();
  return host == PlanHost::native ? p.native_host : p.published_host;
}

std::vector<PlannedImage> prefill_images(const Config& c, uint64_t rows) {
  const uint64_t emb = c.emb, q = c.q_width(), kv = c.kv_width(), hidden = c.hidden;
  std::vector<PlannedImage> images;
  const auto add = [&](std::string_view name, unsigned others, const std::vector<Product>& products,
                       uint64_t moved, uint64_t copied) -> PlannedImage& {
    return images.emplace_back(PlannedImage{.name = name,
                                            .launches = launches_of(products, rows, others),
                                            .products = products,
                                            .moved = moved,
                                            .copied = copied,
                                            .is_one_kernel = others + products.size() == 1});
  };
  const Extras extras = extras_of(c);
  const Product o{q, emb}, gate{emb, hidden, c.qkv_bias}, down{hidden, emb};
  add(input_name(c, false), 3 + extras.launches, {{emb, q}, {emb, kv}, {emb, kv}},
      2 * emb + 3 * q + 3 * kv + extras.moved, emb);
  add("flash_attn", 1, {}, 0, 2 * q + 2 * kv).is_attention = true;

  // Additions move three widths of the residual stream, norms two, SwiGLU three of its own.
  const PromptFfn ffn = form_of(c).prompt_ffn;
  if (ffn == PromptFfn::one_image) {
    add("o_ffn", 4, {o, gate, gate, down}, 8 * emb + 3 * hidden, q + emb);
    return images;
  }
  if (ffn == PromptFfn::down_apart) {
    add("o_ffn_head", 3, {o, gate, gate}, 5 * emb + 3 * hidden, q + emb);
  } else {
    add("o_res_norm", 2, {o}, 5 * emb, q + emb);
    if (ffn == PromptFfn::gate_and_up_together) {
      add("gate_up", 0, {gate, gate}, 0, emb).returned = 2 * hidden;
    } else {
      add("gate", 0, {gate}, 0, emb).returned = hidden;
      add("up", 0, {gate}, 0, emb).returned = hidden;
    }
    add("swiglu", 1, {}, 3 * hidden, 2 * hidden).returned = hidden;
  }
  add("down_add", 1, {down}, 3 * emb, hidden + emb).returned = emb;
  return images;
}

std::vector<PlannedImage> decode_images(const Config& c) {
  const uint64_t emb = c.emb, q = c.q_width(), kv = c.kv_width(), hidden = c.hidden;
  std::vector<PlannedImage> images = {
      {input_name(c, true), 6 + extras_of(c).launches, {{emb, q}, {emb, kv}, {emb, kv}}}};
  if (has_fused_decode_ffn(c)) {
    images.push_back({"o_gemv_ffn", 3, {{q, emb}, {emb, hidden}, {emb, hidden}, {hidden, emb}}});
  } else {
    images.push_back({"o_gemv", 1, {{q, emb}}});
    images.push_back({"gate_gemv", 1, {{emb, hidden}}});
    images.push_back({"up_gemv", 1, {{emb, hidden}}});
    images.push_back({"down_gemv", 1, {{hidden, emb}}});
  }
  return images;
}

PlannedImage head_image(const Config& c) {
  const KnownForm form = form_of(c);
  return {"lm_head_gemv",
          form.head_partitions,
          {{c.emb, uint64_t{form.head_partitions} * form.head_rows}}};
}

ImageTime prefill_image_time(const PlannedImage& image, const Config& c, uint64_t rows, Speed speed,
                             PlanHost host) {
  const CostParameters& p = cost_parameters();
  const HostLaw& law = host_law(host);
  const auto bytes = [&](uint64_t values) {
    return 2 * static_cast<double>(rows) * static_cast<double>(values);
  };
  double kernels = bytes(image.moved) / (p.add.gb_s * speed.bandwidth) / 1e6;
  if (image.is_attention) kernels += attention_ms(c.heads, c.head_dim, rows, speed);
  for (const Product& product : image.products)
    kernels += product.is_direct ? direct_gemm_ms(rows, product.k, product.n, speed)
                                 : best_gemm_ms(rows, product.k, product.n, speed);
  // Attention is one kernel, too, but was measured in an image and is as much slower there.
  const bool is_slowed = !image.is_one_kernel || image.is_attention;
  ImageTime time{image.name, kernels * (is_slowed ? p.elf.slowdown : 1),
                 elf_overhead_ms(image.launches)};
  time.host_ms = law.dispatch_us / 1e3;
  if (host == PlanHost::published) time.host_ms += bytes(image.copied) / law.write_gb_s / 1e6;
  return time;
}

ImageTime decode_image_time(const PlannedImage& image, double gb_s, Speed speed, PlanHost host) {
  double bytes = 0;
  for (const Product& product : image.products)
    bytes += 2 * static_cast<double>(product.k * product.n);
  return {image.name, bytes / (gb_s * speed.bandwidth) / 1e6, elf_overhead_ms(image.launches),
          host_law(host).dispatch_us / 1e3};
}

}  // namespace tyto
