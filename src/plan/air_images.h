// How long each of MLIR-AIR's images of a model takes (device/npu/formats/air_models.h says which
// there are).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.h"
#include "device/npu/formats/air_models.h"
#include "model/config.h"

namespace tyto {

enum class PlanHost : uint8_t {
  published,  // the Python hosts behind the public numbers
  native,     // Tyto's: buffers shared between images, no Python
};

const HostLaw& host_law(PlanHost host);

struct Product {  // `k` values in and `n` out per row
  uint64_t k, n;
  bool is_direct = false;  // built with the direct kind, for its looser check, though it is slower
};

constexpr uint32_t kPublishedRows = 2048;  // what the public prefill images are built for

AirDims air_dims(const Config& config, uint64_t rows);

struct PlannedImage {
  std::string name;
  unsigned launches = 0;
  std::vector<Product> products;
  uint64_t moved = 0;   // bf16 values per row that launches other than products move
  uint64_t copied = 0;  // bf16 values per row that the published host writes for each call
  // And reads back, where it hands on a piece of a feed-forward that was cut.
  uint64_t returned = 0;
  bool is_attention = false;   // a prompt's attention
  bool is_one_kernel = false;  // its own registry entry: nothing is stitched
};

// One layer's images, in order.
std::vector<PlannedImage> prefill_images(const Config& config, uint64_t rows);
std::vector<PlannedImage> decode_images(const Config& config);
PlannedImage head_image(const Config& config);

struct ImageTime {
  std::string name;
  double kernels_ms = 0;
  double overhead_ms = 0;  // the call's and its launches', on the device
  double host_ms = 0;      // around the call
  double run_ms() const { return kernels_ms + overhead_ms; }
};

ImageTime prefill_image_time(const PlannedImage& image, const Config& config, uint64_t rows,
                             Speed speed = {}, PlanHost host = PlanHost::published);
ImageTime decode_image_time(const PlannedImage& image, double gb_s, Speed speed = {},
                            PlanHost host = PlanHost::published);

// Host memory that a kernel set locks for the device.

uint64_t layer_values(const Config& config);  // in all matrices of all layers
// Bytes of f16 caches: whole ones, as devices have them in one piece;
uint64_t kv_bytes(const Config& config, uint64_t positions);
// what a token reads, in layers with a window no more than that;
uint64_t attended_kv_bytes(const Config& config, uint64_t positions);
// and what is kept of one sequence where pages behind a window are given back (KvWindow).
uint64_t kept_kv_bytes(const Config& config, uint64_t positions);
uint64_t q4nx_weight_bytes(const Config& config);  // streamed per token by the fused decode

// What the published host allocates besides weights for images of `rows`.
uint64_t prefill_scratch_bytes(const Config& config, uint64_t rows);

uint64_t bf16_block_pinned(const Config& config, uint64_t rows, PlanHost host);
// `window`: the largest that the decode is built for.
uint64_t q4nx_token_pinned(const Config& config, uint64_t rows, uint64_t window, PlanHost host);

}  // namespace tyto
