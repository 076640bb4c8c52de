// How to build kernels for the real NPU, with tools that are not Tyto's: commands, model by model.
#pragma once

#include <string>
#include <string_view>

#include "device/npu/formats/air_models.h"

namespace tyto {

// `weights` is bf16, q4nx, int8, or empty for the first two. Throws an unsupported Error for bf16
// and q4nx where MLIR-AIR builds no such kernels for these dimensions.
std::string build_advice(const AirDims& dims, std::string_view weights);

// The examples of MLIR-AIR, one line for each model.
std::string build_examples();

}  // namespace tyto
