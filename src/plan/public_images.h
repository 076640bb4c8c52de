// Of which models somebody offers NPU images.
#pragma once

#include "plan/what_if.h"

namespace tyto {

// Somebody offers images of the model, or what builds them.
bool has_public_images(const PlanOption& option, const Config& config);

}  // namespace tyto
