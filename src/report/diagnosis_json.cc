#include <cmath>
#include <nlohmann/json.hpp>

#include "report/diagnosis.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json step_json(const StepError& step, double tolerance) {
  return {{"phase", std::string(name(step.phase))},
          {"layer", step.layer < 0 ? ordered_json(nullptr) : ordered_json(step.layer)},
          {"step", step.step},
          {"dispatch", step.dispatch},
          {"device", step.device},
          {"rows", step.rows},
          {"cosine", number(step.cosine)},
          {"worst_row_cosine", number(step.worst_row_cosine)},
          {"max_abs_error", number(step.max_abs_error)},
          {"max_abs_reference", number(step.max_abs_reference)},
          {"nmse", number(step.nmse)},
          {"finite", step.finite},
          {"within", !is_past(step, tolerance)}};
}

ordered_json residual_json(const Diagnosis& diagnosis, Phase phase) {
  ordered_json list = ordered_json::array();
  for (const std::optional<double>& cosine : residual_cosines(diagnosis, phase))
    list.push_back(cosine ? number(*cosine) : ordered_json(nullptr));
  return list;
}

}  // namespace

std::string diagnosis_json(const Diagnosis& diagnosis) {
  ordered_json steps = ordered_json::array(), hidden = ordered_json::array();
  for (const StepError& step : diagnosis.steps)
    steps.push_back(step_json(step, diagnosis.tolerance));
  for (const HiddenSteps& of : diagnosis.hidden)
    hidden.push_back({{"phase", std::string(name(of.phase))},
                      {"dispatch", of.dispatch},
                      {"device", of.device},
                      {"dispatches", of.dispatches},
                      {"steps", of.steps}});
  const StepError* first = first_past(diagnosis);
  ordered_json json = {
      {"schema", "tyto-diagnosis-1"},
      {"tyto", diagnosis.version},
      {"time", diagnosis.time},
      {"command", diagnosis.command},
      {"model", diagnosis.model},
      {"device", diagnosis.device},
      {"settings", diagnosis.settings},
      {"executed", diagnosis.executed},
      {"prompt", diagnosis.prompt},
      {"prompt_tokens", diagnosis.prompt_tokens},
      {"decode_tokens", diagnosis.decode_tokens},
      {"tolerance", diagnosis.tolerance},
      {"verdict", first == nullptr && diagnosis.problem.empty() ? "pass" : "fail"},
      {"problem",
       diagnosis.problem.empty() ? ordered_json(nullptr) : ordered_json(diagnosis.problem)},
      {"first_past_tolerance",
       first == nullptr ? ordered_json(nullptr) : step_json(*first, diagnosis.tolerance)},
      {"residual_cosine",
       {{"prefill", residual_json(diagnosis, Phase::prefill)},
        {"decode", residual_json(diagnosis, Phase::decode)}}},
      {"steps", std::move(steps)},
      {"hidden", std::move(hidden)},
      {"uncompared", diagnosis.uncompared}};
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace tyto
