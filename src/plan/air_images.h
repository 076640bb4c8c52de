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

struct Product {  // of `k` values in and `n` out per row
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
  bool is_attention = false;   // of a prompt
  bool is_one_kernel = false;  // its own registry entry: nothing is stitched
};

// Of one layer, in order.
std::vector<PlannedImage> prefill_images(const Config& config, uint64_t rows);
std::vector<PlannedImage> decode_images(const Config& config);
PlannedImage head_image(const Config& config);

struct ImageTime {
  std::string name;
  double kernels_ms = 0;
  double overhead_ms = 0;  // of the call and its launches, on the device
  double host_ms = 0;      // around the call
  double run_ms() const { return kernels_ms + overhead_ms; }
};

ImageTime prefill_image_time(const PlannedImage& image, const Config& config, uint64_t rows,
                             Speed speed = {}, PlanHost host = PlanHost::published);
ImageTime decode_image_time(const PlannedImage& image, double gb_s, Speed speed = {},
                            PlanHost host = PlanHost::published);

}  // namespace tyto
