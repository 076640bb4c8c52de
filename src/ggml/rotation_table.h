// Cosines and sines of the positions of a graph's tokens, as a ggml ROPE operation describes them.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tyto::plugin {

// A row of head_dim values for each token: the cosines of half the head, then the sines.
class RotationTable {
 public:
  // The table for a ROPE operation that was offered. All layers of a graph ask for the same one, so
  // that it is computed once.
  std::span<const float> rows(const ggml_tensor* rope);

 private:
  std::vector<int32_t> key_;  // parameters, width and positions it was made for
  std::vector<float> factors_;
  std::vector<float> rows_;
};

}  // namespace tyto::plugin
