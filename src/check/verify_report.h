// The gate of `tyto verify`, and what it found as a table and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/progress.h"
#include "check/diagnose.h"
#include "check/transcript.h"
#include "evidence/verified.h"
#include "report/tables.h"
#include "trace/receipt.h"

namespace tyto {

class Engine;
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

struct VerifyOrder {
  GateOptions gate = {};
  std::string against = {};  // another engine's transcript; empty: the f32 reference
  bool compares = true;      // else only the device's own side is wanted
  bool full = false;         // all prompts, not two
  std::string prompt = {};   // beside the usual ones; empty: none
};
// All but combination and context, which are the caller's.
VerifyReport run_gate(Engine& engine, const VerifyOrder& order, const Progress& progress);
Transcript own_transcript(const VerifyReport& report, const Engine& engine);

bool has_passed(const VerifyReport& report);
Table verify_table(const VerifyReport& report, const Tokenizer& tokenizer);
std::string verdict_line(const VerifyReport& report);
inline constexpr FileKind kVerifyFile = {"a result of verify", "{\n  \"schema\": \"tyto-verify-"};
std::string verify_json(const VerifyReport& report, const Tokenizer& tokenizer);

}  // namespace tyto
