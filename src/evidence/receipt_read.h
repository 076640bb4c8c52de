// A receipt out of a file. What it claims is taken as it stands; receipt_check.h asks whether it
// can be.
#pragma once

#include <vector>

#include "base/json.h"
#include "trace/receipt.h"

namespace tyto {

// A field that is missing, of another type or out of range is an input Error.
Receipt receipt_from_json(const Json& json);

// The limits that its verdict rests on; none in files that are older than these.
std::vector<NamedLimits> stated_limits(const Json& receipt);

DeviceLimits limits_from_json(const Json& json);

}  // namespace tyto
