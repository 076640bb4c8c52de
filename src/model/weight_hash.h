// A cheap identity of the weights that were loaded, for receipts.
#pragma once

#include <string>

#include "model/model.h"

namespace tyto {

struct WeightHash {
  std::string hash;  // 32 hexadecimal digits
  std::string form;  // what was hashed, in words
};

// Reads the mapped files themselves, so it is of what runs and not of a name: each file's size, its
// beginning (the header) and pages at even distances to its end. A change elsewhere goes unseen.
WeightHash weight_hash(const Model& model);

}  // namespace tyto
