// What `tyto verify` found, as a table and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "check/diagnose.h"
#include "evidence/verified.h"
#include "report/tables.h"
#include "trace/receipt.h"

namespace tyto {

class Tokenizer;

struct VerifiedPrompt {
  Continuation ours = {};
  Continuation theirs = {};
  GateResult gate = {};
  std::optional<double> worst_cosine = {};  // the compared logits', where both sides' are at hand
};

struct VerifyReport {
  GateOptions gate = {};
  std::string against = {};  // "the f32 reference", "transformers 5.0 (FILE)"
  std::vector<VerifiedPrompt> prompts = {};
  std::string problem = {};  // why it failed whatever the tokens say: the device did not execute
  Receipt receipt = {};
  ReceiptContext context = {};
  Combination combination = {};
  bool remembered = false;
};

bool has_passed(const VerifyReport& report);
Table verify_table(const VerifyReport& report, const Tokenizer& tokenizer);
std::string verdict_line(const VerifyReport& report);
inline constexpr FileKind kVerifyFile = {"a result of verify", "{\n  \"schema\": \"tyto-verify-"};
std::string verify_json(const VerifyReport& report, const Tokenizer& tokenizer);

}  // namespace tyto
