// The chain through the records of a ledger.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evidence/ledger.h"

namespace tyto {

struct Link {
  size_t line = 0;
  std::string digest;    // of the line as it stands
  std::string previous;  // what it says of the record before it
  bool is_whole = true;  // its own hash is right
};

// What is wrong with the order and number of the links. `before` is the digest of all that stands
// in front of the first one, which is what its `previous` is.
std::vector<LedgerProblem> check_chain(std::vector<Link> links, const std::string& before);

// What is missing at the end, as far as the head can tell.
std::optional<LedgerProblem> check_end(const std::vector<Link>& links,
                                       const std::optional<LedgerHead>& head);

}  // namespace tyto
