// What a receipt's own numbers say about it, whatever its words do.
#pragma once

#include <string>
#include <vector>

#include "trace/receipt.h"

namespace tyto {

// Where counters and times contradict each other, a sentence each; none: nowhere.
std::vector<std::string> contradictions(const Receipt& receipt);

// The verdict, worked out anew. Limits that are looser than what is published of a device are not
// believed: the published ones count, and a line of `unchecked` says so.
Plausibility judge_again(const Receipt& receipt, const std::vector<NamedLimits>& stated);

// Why a stated verdict cannot be; empty where it can.
std::string contradiction(const Plausibility& stated, const Plausibility& again);

}  // namespace tyto
