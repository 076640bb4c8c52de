// Whether a receipt's file is as it was written, and whether it can be true.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "evidence/signing_key.h"

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

}  // namespace tyto
