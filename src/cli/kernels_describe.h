// tyto kernels describe: what Tyto believes about the images of a model.
#pragma once

#include "cli/command_line.h"

namespace tyto {

void define_kernels_describe(CommandLine& command);

}  // namespace tyto
