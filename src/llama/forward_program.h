// The forward pass of a Llama-family model written down as one Program.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "program/program.h"

namespace tyto {

enum class Part : uint8_t {
  body,   // tokens -> "x", the residual stream after the last layer
  head,   // rows of "x" -> "logits"
  whole,  // both, for one token
};

struct ForwardShape {
  uint32_t tokens = 1;   // most rows per call
  uint32_t context = 0;  // positions in the KV cache
  DType kv_type = DType::f16;
  DType activations = DType::f32;  // between launches; the logits too
  uint32_t body_tokens = 0;        // head alone: rows of the "x" it gathers from
  uint32_t kv_group = 1;           // see LaunchShape
  bool from_start = false;         // every call begins at position 0: attention needs no cache
};

struct ForwardProgram {
  Program program;
  std::vector<TensorView> weights;  // [program.slots]; empty views for slots that are no weights
};

// Slots of the same name mean the same memory in every part. `rope_frequencies` must outlive the
// result (it is a weight like the others).
ForwardProgram forward_program(const Model& model, const std::vector<float>& rope_frequencies,
                               Part part, const ForwardShape& shape);

}  // namespace tyto
