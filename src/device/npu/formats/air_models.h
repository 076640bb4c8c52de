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

#include "device/npu/formats/air_programs.h"

namespace tyto {

struct KnownAirModel {
  std::string_view name;  // as in model/shapes.h
  AirDims dims;           // with the prompt rows it is built for
  AirForm form;
};
std::span<const KnownAirModel> known_air_models();
// The model whose images these dimensions have; nothing where none is published. Neither layers nor
// prompt rows matter.
const KnownAirModel* known_air_model(const AirDims& dims);
// A value for AirDims::like; nothing for a name that is not in the table.
std::optional<uint32_t> images_like(std::string_view name);

// That of the model which `dims.like` names, or which has these dimensions. For any other
// dimensions rules choose: nobody has built those images.
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
