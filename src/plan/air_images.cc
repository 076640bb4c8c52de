#include "plan/air_images.h"

#include <algorithm>
#include <numeric>

#include "base/round_up.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/formats/q4nx.h"

namespace tyto {
namespace {

bool computes(const AirProgram& program, Role role) {
  return std::find(program.steps.begin(), program.steps.end(), role) != program.steps.end();
}

std::vector<Product> products_of(const AirProgram& program, const Config& c) {
  const uint64_t emb = c.emb, q = c.q_width(), kv = c.kv_width(), hidden = c.hidden;
  std::vector<Product> products;
  for (const Role role : program.steps) {
    if (role == Role::q) products.push_back({emb, q});
    if (role == Role::k || role == Role::v) products.push_back({emb, kv});
    if (role == Role::o) products.push_back({q, emb});
    // Qwen2.5's are built with the direct kind.
    if (role == Role::gate || role == Role::up) products.push_back({emb, hidden, c.qkv_bias});
    if (role == Role::down) products.push_back({hidden, emb});
    if (role == Role::lm_head)
      products.push_back({emb, air_head(air_dims(c, kPublishedRows)).all_rows()});
  }
  return products;
}

// bf16 values per row: additions move three widths, norms two, rotation and SwiGLU three.
uint64_t moved_by(const AirProgram& program, const Config& c) {
  const uint64_t emb = c.emb, q = c.q_width(), kv = c.kv_width();
  uint64_t moved = 0;
  for (const Role role : program.steps) {
    if (role == Role::attn_norm || role == Role::ffn_norm) moved += 2 * emb;
    if (role == (Role::q | Facet::norm)) moved += 2 * q;
    if (role == (Role::k | Facet::norm)) moved += 2 * kv;
    if (role == Role::q_rope) moved += 3 * q;
    if (role == Role::k_rope) moved += 3 * kv;
    if (role == Role::attn_residual || role == Role::ffn_residual) moved += 3 * emb;
    if (role == Role::swiglu) moved += 3 * uint64_t{c.hidden};
  }
  if (c.qkv_bias && computes(program, Role::q)) moved += 2 * (q + 2 * kv);
  return moved;
}

uint64_t values_of(const AirProgram& program, AirRole role) {
  uint64_t values = 0;
  for (const AirArgument& argument : program.arguments)
    if (argument.role == role) values += argument.cols;
  return values;
}

PlannedImage planned(const AirProgram& program, const Config& c) {
  PlannedImage image{.name = program.name,
                     .launches = program.launches,
                     .products = products_of(program, c),
                     .moved = moved_by(program, c),
                     .copied = values_of(program, AirRole::input),
                     .is_attention = computes(program, Role::attention),
                     .is_one_kernel = program.steps.size() == 1};
  // The published host clears the attention's result, and hands on what a cut feed-forward leaves.
  if (image.is_attention) image.copied += values_of(program, AirRole::output);
  const bool is_piece = !computes(program, Role::q) && !computes(program, Role::o);
  if (is_piece && !image.is_attention) image.returned = values_of(program, AirRole::output);
  return image;
}

std::vector<PlannedImage> images_of(const Config& c, uint64_t rows, AirPhase phase) {
  std::vector<PlannedImage> images;
  for (const AirProgram& program : air_model(air_dims(c, rows)).programs)
    if (program.phase == phase) images.push_back(planned(program, c));
  return images;
}

}  // namespace

AirDims air_dims(const Config& c, uint64_t rows) {
  return {c.layers,   c.emb,    c.heads, c.kv_heads,
          c.head_dim, c.hidden, c.vocab, static_cast<uint32_t>(rows),
          c.qkv_bias, c.qk_norm};
}

const HostLaw& host_law(PlanHost host) {
  const CostParameters& p = cost_parameters();
  return host == PlanHost::native ? p.native_host : p.published_host;
}

std::vector<PlannedImage> prefill_images(const Config& c, uint64_t rows) {
  return images_of(c, rows, AirPhase::prompt);
}

std::vector<PlannedImage> decode_images(const Config& c) {
  return images_of(c, kPublishedRows, AirPhase::token);
}

PlannedImage head_image(const Config& c) {
  return images_of(c, kPublishedRows, AirPhase::head).front();
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

namespace {

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

uint64_t head_bytes_bf16(const Config& c, uint64_t rows) {
  return air_head(air_dims(c, rows)).all_rows() * c.emb * 2;
}

// Bytes of the arguments of a prompt's images of which `is_counted`.
template <typename Counted>
uint64_t argument_bytes(const AirDims& dims, const Counted& is_counted) {
  uint64_t bytes = 0;
  for (const AirProgram& program : air_model(dims).programs)
    for (const AirArgument& argument : program.arguments)
      if (program.phase == AirPhase::prompt && is_counted(argument)) bytes += argument.bytes();
  return bytes;
}

uint64_t rope_table_bytes(const Config& c, uint64_t rows) {
  return argument_bytes(air_dims(c, rows), [](const AirArgument& argument) {
    return argument.layout == AirLayout::rope_per_head;
  });
}

// By the published host, which has rotation tables for each layer.
uint64_t bf16_prefill_pinned(const Config& c, uint64_t rows) {
  return 2 * layer_values(c) + head_bytes_bf16(c, rows) + c.layers * rope_table_bytes(c, rows) +
         prefill_scratch_bytes(c, rows);
}

uint64_t kv_bytes(const Config& c, uint64_t positions, uint64_t most_windowed) {
  uint64_t held = 0;  // positions of all layers
  for (uint32_t layer = 0; layer < c.layers; ++layer)
    if (c.attends(layer))
      held += c.is_windowed(layer) ? std::min(positions, most_windowed) : positions;
  return held * 2 * c.kv_width() * 2;
}

}  // namespace

uint64_t layer_values(const Config& c) {
  const uint64_t emb = c.emb;
  return c.layers * emb * (2 * (uint64_t{c.q_width()} + c.kv_width()) + 3 * uint64_t{c.hidden});
}

uint64_t kv_bytes(const Config& c, uint64_t positions) {
  return kv_bytes(c, positions, positions);
}

uint64_t attended_kv_bytes(const Config& c, uint64_t positions) {
  return kv_bytes(c, positions, c.window);
}

// The window, a page that may be taken back, and a pass of a page that begins and ends inside one.
uint64_t kept_kv_bytes(const Config& c, uint64_t positions) {
  constexpr uint64_t kPage = 256;
  return kv_bytes(c, positions, round_up(uint64_t{c.window}, kPage) + 3 * kPage);
}

uint64_t q4nx_weight_bytes(const Config& c) {
  constexpr uint32_t kAnyWindow = 2048;  // weights do not depend on it, nor on rows
  return q4nx_layout(q4nx_dims(c, kAnyWindow), kAnyWindow).weight_elements * 2;
}

// The published host: each of the prefill images has its own, and all layers share them.
uint64_t prefill_scratch_bytes(const Config& c, uint64_t rows) {
  return argument_bytes(air_dims(c, rows), [](const AirArgument& argument) {
    return argument.role != AirRole::weight;
  });
}

// Prefill wants weights as (in, out), decode as (out, in): both copies are pinned. MLIR-AIR fills
// one unused argument as large as a feed-forward matrix in every layer.
uint64_t bf16_block_pinned(const Config& c, uint64_t rows, PlanHost host) {
  if (host == PlanHost::native)
    return total_bytes(npu_memory(air_dims(c, rows), NpuWeights::bf16, Fusion::block, 0));
  return bf16_prefill_pinned(c, rows) + 2 * layer_values(c) +
         uint64_t{c.layers} * c.hidden * c.emb * 2;
}

uint64_t q4nx_token_pinned(const Config& c, uint64_t rows, uint64_t window, PlanHost host) {
  const AirDims dims = q4nx_dims(c, rows);
  const auto positions = static_cast<uint32_t>(window);
  if (host == PlanHost::native)
    return total_bytes(npu_memory(dims, NpuWeights::q4nx, Fusion::token, positions));
  const Q4nxLayout layout = q4nx_layout(dims, positions);
  return bf16_prefill_pinned(c, rows) +
         2 * (layout.weight_elements + layout.kv_elements + layout.norm_elements +
              layout.logits_offset + layout.logits_elements);
}

}  // namespace tyto
