// The forward pass of a Llama-family model written down as one Program.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model.h"
#include "program/program.h"

namespace tyto {

enum class Part : uint8_t {
  body,    // tokens -> the residual stream after the last layer
  head,    // rows of the residual stream -> logits, or the best of them
  whole,   // both, for rows that all go to the head
  hidden,  // rows of the residual stream -> what the head would see of them
};

// What a layer keeps of a sequence beside keys and values.
struct LayerState {
  Role role;
  uint32_t rows, cols;  // f32 values
};
std::vector<LayerState> layer_states(const Config& config, uint32_t layer);

struct ForwardShape {
  uint32_t rows = 1;     // most per call
  uint32_t context = 0;  // positions that one sequence's cache may hold
  DType kv_type = DType::f16;
  DType activations = DType::f32;  // between launches; the logits too
  uint32_t body_rows = 0;          // head alone: rows of the residual stream it gathers from
  uint32_t kv_page = 0;            // positions of a page, and how many pages there are;
  uint32_t kv_pages = 0;           // 0: a cache in one piece (see LaunchShape)
  uint32_t window_pages = 0;       // for layers with a window; 0: as many as for the others
  uint32_t kv_group = 1;
  uint32_t states = 0;      // that the slots of recurrent layers hold
  uint32_t candidates = 0;  // not 0: the number of a row's best logits to return instead of all
  bool from_start = false;  // every call begins at position 0: attention needs no cache
};

struct ForwardProgram {
  Program program;
  std::vector<TensorView> weights;  // [program.slots]; empty views for slots that are no weights
};

// Slots of the same kind, role and layer mean the same memory in every part. `rope_frequencies`
// must outlive the result (they are weights like the others).
ForwardProgram forward_program(const Model& model, const std::vector<float>& rope_frequencies,
                               Part part, const ForwardShape& shape);

}  // namespace tyto
