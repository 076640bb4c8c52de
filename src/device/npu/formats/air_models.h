// Which bf16 programs MLIR-AIR builds for a model, as data: their names, argument lists and the
// steps of the forward pass each of them computes. Written from its builders' text (August 2026);
// no compiled image has been compared with it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/air_abi.h"

namespace tyto {

// The argument lists of MLIR-AIR's bf16 programs, a table each.

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
  uint32_t head_rows = 16384;    // the LM head's rows in one launch
  uint32_t head_partitions = 0;  // launches; 0: as many as the vocabulary needs
  uint32_t width_step = 1;       // a prompt's products into q, k, v and the residual stream
};

// Rows of the LM head in a launch, and launches.
struct AirHead {
  uint32_t rows = 0, partitions = 0;
  uint64_t all_rows() const { return uint64_t{rows} * partitions; }
};
AirHead air_head(const AirDims& dims, const AirForm& form);

bool is_air_program(std::string_view name);
AirPhase air_phase(std::string_view name);  // when such a program runs

// Whether or not a model of these dimensions has it; air_models.h knows that.
AirProgram described_program(std::string_view name, const AirDims& dims, const AirForm& form);

// What computes q, k and v, by the model's biases and norms.
std::string_view prompt_input_program(const AirDims& dims);
std::string_view token_input_program(const AirDims& dims);

struct KnownAirModel {
  std::string_view name;  // as in model/synth.h
  AirDims dims;           // with the prompt rows it is built for
  AirForm form;
};
std::span<const KnownAirModel> known_air_models();
// The model whose images these dimensions have; nothing where none is published. Neither layers nor
// prompt rows matter.
const KnownAirModel* known_air_model(const AirDims& dims);
// A value for AirDims::like; nothing for a name that is not in the table.
std::optional<uint32_t> images_like(std::string_view name);

// The form of the model which `dims.like` names, or which has these dimensions. For any other
// dimensions rules choose: such images have not been built.
AirForm air_form(const AirDims& dims);

AirHead air_head(const AirDims& dims);

// All programs of a model in the order of the pass: those of a prompt, of a token, and the head.
struct AirModel {
  std::vector<AirProgram> programs;
};
AirModel air_model(const AirDims& dims);

// Throws an unsupported Error for a program that this model has not, or for dimensions that no
// program can have.
AirProgram air_program(std::string_view name, const AirDims& dims);

}  // namespace tyto
