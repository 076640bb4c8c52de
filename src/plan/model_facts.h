// What a model is, as `tyto inspect` shows it.
#pragma once

#include <cstdint>

#include "base/json_value.h"
#include "model/description.h"
#include "model/model.h"
#include "report/tables.h"

namespace tyto {

// `positions` in the KV cache.
JsonValue model_json(const Model& model, uint64_t positions, bool has_tensors);
Table facts_table(const Model& model, uint64_t positions);
Table tensor_table(const Model& model);

// A model that Tyto does not run.
JsonValue model_json(const ModelSurvey& survey, bool has_tensors);
Table facts_table(const ModelSurvey& survey);
Table tensor_table(const ModelSurvey& survey);

}  // namespace tyto
