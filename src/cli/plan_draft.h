// `tyto plan --draft`: a small model on the processor that guesses for the one on the NPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/plan_table.h"
#include "plan/what_if.h"

namespace tyto {

struct CommandLine;

struct PlanDraftFlags {
  std::string model;  // a file or a name
  std::string shape;  // instead of one
  std::optional<double> ms;
  std::optional<double> acceptance;

  bool is_asked() const { return !model.empty() || !shape.empty(); }
};
void add_plan_draft_flags(CommandLine& command, PlanDraftFlags& flags);

struct DraftPlan {
  DraftSpeed draft;
  std::string kernels, fusion;      // the large model's
  bool has_acceptance = false;      // else rows are of several that it might be
  std::vector<DraftRow> rows = {};  // all of them
};
// Throws a usage Error where the two models have vocabularies of different sizes, or the draft's
// speed may not be measured and is not given.
DraftPlan draft_plan(const PlanRequest& request, const PlanOption& option,
                     const PlanDraftFlags& flags, bool may_measure);

Table draft_table(const DraftPlan& plan, const PlanSubject& subject);
std::string draft_json(const DraftPlan& plan, const PlanRequest& request);

}  // namespace tyto
