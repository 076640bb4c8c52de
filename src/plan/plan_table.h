// What `tyto plan` shows: the rows of a plan, their tables and their JSON.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/rates.h"
#include "report/tables.h"

namespace tyto {

// What a plan is about.
struct PlanSubject {
  PlanRequest request;
  std::string host, profile;    // as the flags have them
  NpuHere here = {};            // what is on this machine
  bool is_elsewhere = false;    // the plan is for another machine, by name
  std::string model_flag = {};  // "-m FILE " where one was given, for commands to copy
  bool is_of_a_shape = false;   // there is no model to run
};

// Sets the config, the weights and the name: those of a public model's shape, or where `shape` is
// empty those of a model; empty: the shipped one.
void set_model(PlanRequest& request, const std::string& shape, const std::string& model);

struct WantedRows {
  std::string kernels = {};  // empty: all
  std::optional<Fusion> fusion = {};
  bool names_prompt_rows = false;  // then it is an Error where no row has such images
};
// Rows for the machine that the request names.
std::vector<PlanRow> npu_rows(const PlanRequest& request, const WantedRows& wanted,
                              const ImagesHere& images);
// Marks the best row and puts it first.
void recommend(std::vector<PlanRow>& rows, std::span<const std::string> machines,
               uint64_t most_pinned);

Table plan_table(const std::vector<PlanRow>& rows, const PlanSubject& subject);

// The same, and everything that the table leaves out.
std::string plan_json(const std::vector<PlanRow>& rows, const PlanRequest& request);

// What `tyto plan --json` prints for every way to run the model on every machine that is modelled.
std::string plan_json(const std::string& model);

struct DraftPlan {
  DraftSpeed draft;
  std::string kernels, fusion;      // for the large model
  bool has_acceptance = false;      // else rows are of several that it might be
  std::vector<DraftRow> rows = {};  // all of them
};

Table draft_table(const DraftPlan& plan, const PlanSubject& subject);
std::string draft_json(const DraftPlan& plan, const PlanRequest& request);

}  // namespace tyto
