// A device's results against the reference's, layer by layer and step by step: the numbers, and the
// reports made of them. Nothing here prints or opens a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "report/tables.h"
#include "trace/receipt.h"

namespace tyto {

// One step of one layer, all rows of a phase together.
struct StepError {
  Phase phase = Phase::prefill;
  int32_t layer = -1;  // -1: outside of the layers
  std::string step;    // "q_rope"
  std::string dispatch;
  std::string device;
  uint32_t rows = 0;
  double cosine = 1;
  double worst_row_cosine = 1;  // the lowest of a single position
  double max_abs_error = 0;
  double max_abs_reference = 0;
  double nmse = 0;
  bool finite = true;
};

// Steps that happened inside a dispatch and left nothing to see.
struct HiddenSteps {
  Phase phase = Phase::prefill;
  std::string dispatch;  // without its layer
  std::string device;
  uint32_t dispatches = 1;  // alike
  std::vector<std::string> steps;
};

struct Diagnosis {
  std::string model, device, settings, prompt, executed, version, time, command;
  bool is_virtual = false;
  uint32_t layers = 0;
  uint32_t prompt_tokens = 0;
  uint32_t decode_tokens = 0;
  double tolerance = 0.999;           // least cosine
  std::vector<StepError> steps = {};  // in the order they ran
  std::vector<HiddenSteps> hidden = {};
  std::vector<std::string> uncompared = {};  // visible, but the reference has no such step
  std::string problem = {};  // why the run is worth nothing or was cut short; empty: none
};

bool is_past(const StepError& step, double tolerance);
// The first step that ran past the tolerance; nothing when all are within.
const StepError* first_past(const Diagnosis& diagnosis);
// "L03.q_rope in prefill"
std::string name(const StepError& step);
// Cosine of the residual stream behind each layer; none where it was hidden.
std::vector<std::optional<double>> residual_cosines(const Diagnosis& diagnosis, Phase phase);

std::string diagnosis_verdict(const Diagnosis& diagnosis);
std::vector<Table> diagnosis_tables(const Diagnosis& diagnosis);
inline constexpr FileKind kDiagnosisPage = {
    "a diagnosis's page",
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"generator\" content=\"tyto diagnose\">"};
std::string diagnosis_html(const Diagnosis& diagnosis);  // one page, nothing loaded from elsewhere
inline constexpr FileKind kDiagnosisFile = {"a diagnosis", "{\n  \"schema\": \"tyto-diagnosis-"};
std::string diagnosis_json(const Diagnosis& diagnosis);  // docs/verify.md describes it

// What the text and the page of a diagnosis share. Inside src/report only.

// The steps of a layer that are visible in a phase, or in any, in the order of the forward pass.
std::vector<std::string> visible_steps(const Diagnosis& diagnosis, std::optional<Phase> phase);
const StepError* find_step(const Diagnosis& diagnosis, Phase phase, int32_t layer,
                           const std::string& step);
std::string distance_text(const StepError& step);  // 1 - cosine, short

}  // namespace tyto
