// What the processor of this machine does with a model, for `tyto plan`: measured in a few seconds.
#pragma once

#include <string>
#include <vector>

#include "plan/what_if.h"

namespace tyto {

// One row of a model that has weights, as its file has them. Of a shape, rows of the types that
// most people download.
std::vector<PlanRow> cpu_rows(const PlanRequest& request, const std::string& model);

}  // namespace tyto
