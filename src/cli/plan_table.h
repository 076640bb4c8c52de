// The table that `tyto plan` prints.
#pragma once

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

Table plan_table(const std::vector<PlanRow>& rows, const PlanSubject& subject);

// The same, and everything that the table leaves out.
std::string plan_json(const std::vector<PlanRow>& rows, const PlanRequest& request);

}  // namespace tyto
