// What `tyto plan --json` prints, for others to show.
#pragma once

#include <string>

namespace tyto {

// Every way to run the model on every machine that is modelled.
std::string plan_json(const std::string& model);

}  // namespace tyto
