// tyto kernels describe: what Tyto believes about the images of a model.
#pragma once

#include <nlohmann/json.hpp>

#include "device/npu/formats/air_models.h"
#include "shell/command_line.h"

namespace tyto {

// The dimensions of images, by name.
nlohmann::ordered_json to_json(const AirDims& dims);

void define_kernels_describe(CommandLine& command);

}  // namespace tyto
