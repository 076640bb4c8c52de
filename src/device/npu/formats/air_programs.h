// The argument lists of MLIR-AIR's bf16 programs, a table each.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "device/npu/formats/air_abi.h"

namespace tyto {

enum class AirAttention : uint8_t {
  seq_first,    // q, k and v as the projections leave them
  heads_first,  // one head after the other: the host turns them
  temporal,     // seq_first where MLIR-AIR's "temporal" kernel takes the shape, else heads_first
};

// What differs from model to model beside the dimensions.
struct AirForm {
  std::span<const std::string_view> prompt_ffn, token_ffn;  // programs behind the attention
  // Products of a prompt that go through f32 in an argument of their own and are rounded by a
  // launch of their own. MLIR-AIR's registry of GEMMs decides it shape by shape.
  std::span<const Role> through_f32;
  AirAttention attention = AirAttention::seq_first;
  uint32_t head_rows = 16384;    // of the LM head in one launch
  uint32_t head_partitions = 0;  // launches; 0: as many as the vocabulary needs
  uint32_t width_step = 1;       // of a prompt's products into q, k, v and the residual stream
};

// Rows of the LM head in a launch, and launches.
struct AirHead {
  uint32_t rows = 0, partitions = 0;
  uint64_t all_rows() const { return uint64_t{rows} * partitions; }
};
AirHead air_head(const AirDims& dims, const AirForm& form);

bool is_air_program(std::string_view name);
AirPhase air_phase(std::string_view name);  // of such a program

// Whether or not a model of these dimensions has it; air_models.h knows that.
AirProgram described_program(std::string_view name, const AirDims& dims, const AirForm& form);

// What computes q, k and v, by the model's biases and norms.
std::string_view prompt_input_program(const AirDims& dims);
std::string_view token_input_program(const AirDims& dims);

}  // namespace tyto
