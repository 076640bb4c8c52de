// Whether a receipt's file is as it was written, and whether it can be true.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "evidence/seal.h"
#include "trace/receipt.h"

namespace tyto {

struct Finding {
  enum class State : uint8_t { holds, open, fails };
  State state = State::holds;
  std::string about;  // "hash", "signature", "counters", ...
  std::string text;
};

struct ReceiptCheck {
  std::string id, time, command;  // as the receipt says
  std::vector<Finding> findings;

  bool holds() const;  // nothing fails; what is open may be
};

// `name` is how errors call the text. What is no receipt at all is an input Error. With a trusted
// key the receipt must be signed by it.
ReceiptCheck check_receipt(std::string_view text, const std::string& name,
                           const PublicKey* trusted = nullptr);

// What a receipt's own numbers say about it, whatever its words do.

// Where counters and times contradict each other, a sentence each; none: nowhere.
std::vector<std::string> contradictions(const Receipt& receipt);

// The verdict, computed again. Limits that are looser than what is published of a device are not
// believed: the published ones count, and a line of `unchecked` says so.
Plausibility judge_again(const Receipt& receipt, const std::vector<NamedLimits>& stated);

// Why a stated verdict cannot be; empty where it can.
std::string contradiction(const Plausibility& stated, const Plausibility& again);

// Whether a result's row says what its receipt counted.

// What contradicts the record; empty: nothing. `line` is the text that `record` was read from.
std::string row_contradiction(const Json& record, std::string_view line);

}  // namespace tyto
