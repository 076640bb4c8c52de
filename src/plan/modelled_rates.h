// How fast a device should be with a model, where nobody measured it.
#pragma once

#include "device/device.h"
#include "model/description.h"
#include "plan/device_choice.h"

namespace tyto {

// By the cost model where its laws are the device's own, else by what memory and arithmetic allow
// at best: nobody reaches that, but devices miss it alike. Unknown where neither is known.
DeviceRates modelled_rates(const DeviceInfo& device, const ModelDescription& model,
                           const Workload& work, Fusion fusion);

// The same of a device whose memory and arithmetic were measured just now.
DeviceRates estimated_rates(const std::string& device, const DeviceLimits& measured,
                            const ModelDescription& model, const Workload& work);

}  // namespace tyto
