// How long the modelled device takes, beyond what one kernel does: whole images, the machine they
// run on, and what comes between runs.
#pragma once

#include <cstdint>

#include "cost/cost_model.h"
#include "device/vnpu/images/image.h"
#include "device/vnpu/machine/control.h"

namespace tyto::vxrt {

// The machine against what the laws were measured on.
Speed speed_of(const Hardware& hardware);

// One run of an instance: the fused decode and the integer GEMM by laws of their own, everything
// else as a stitched program.
double instance_ms(const Instance& instance, const Call& call, Speed speed);

// Making another context's image the one on the array.
double switch_ms(const Image& image);

constexpr double kMixedFormsSlowdown = 1.4;  // of a run that follows one of the other form
constexpr uint64_t kSuspendAfterNs = 5'000'000'000;
constexpr uint64_t kWakeNs = 150'000'000;

}  // namespace tyto::vxrt
