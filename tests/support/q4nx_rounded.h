// A model with the weights that the single-dispatch decode would hold, for devices that hold others
// to be compared with it: 4 bits, scales and minima in bf16.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "model/model.h"
#include "tensor/float16.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace tyto::testing_support {

class Q4nxRounded {
 public:
  explicit Q4nxRounded(const Model& from) {
    model.config = from.config;
    model.weights = from.weights;
    Weights& weights = model.weights;
    const bool is_tied = weights.head.bytes.data() == weights.embedding.bytes.data();
    weights.head = rounded(weights.head);
    if (is_tied) weights.embedding = weights.head;
    for (LayerWeights& layer : weights.layers)
      for (TensorView* view :
           {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
        *view = rounded(*view);
  }

  Model model;  // its other weights are views of the one it was made from

 private:
  static Half in_bf16(Half value) {
    return std::bit_cast<Half>(f32_to_f16(bf16_to_f32(f32_to_bf16(to_f32(value)))));
  }

  TensorView rounded(const TensorView& view) {
    std::vector<float> values(view.values());
    dequantize(view.dtype, view.bytes, values);
    auto& bytes = storage_.emplace_back(
        std::make_unique<std::vector<std::byte>>(view.rows * row_bytes(DType::q4_1, view.cols)));
    quantize(DType::q4_1, values, *bytes);
    for (size_t at = 0; at < bytes->size(); at += sizeof(BlockQ4_1)) {
      BlockQ4_1 block;
      std::memcpy(&block, bytes->data() + at, sizeof block);
      block.d = in_bf16(block.d);
      block.m = in_bf16(block.m);
      std::memcpy(bytes->data() + at, &block, sizeof block);
    }
    return {DType::q4_1, view.rows, view.cols, *bytes};
  }

  std::vector<std::unique_ptr<std::vector<std::byte>>> storage_;
};

}  // namespace tyto::testing_support
