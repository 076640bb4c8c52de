// What the text and the page of a diagnosis share. Inside src/report only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "report/diagnosis.h"

namespace tyto {

// The steps of a layer that are visible in a phase, or in any, in the order of the forward pass.
std::vector<std::string> visible_steps(const Diagnosis& diagnosis, std::optional<Phase> phase);
const StepError* find_step(const Diagnosis& diagnosis, Phase phase, int32_t layer,
                           const std::string& step);
std::string distance_text(const StepError& step);  // 1 - cosine, short

}  // namespace tyto
