#include "check/verify_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_value.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "evidence/receipt_json.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

constexpr size_t kShownPrompt = 32;

// A token as text on one line. What a terminal could take for a command, and halves of characters,
// are shown as bytes.
std::string shown(const Tokenizer& tokenizer, Token token) {
  std::string out = "\"";
  for (const char c : tokenizer.token_bytes(token)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      out += "\\n";
    else if (byte < 0x20 || byte >= 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + "\"";
}

// The table cuts it where a terminal has no room for it.
std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string shortened(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte >= 0x7f ? '?' : c;
    if (out.size() == kShownPrompt) return out + "…";
  }
  return out;
}

std::string rank_text(uint32_t rank, size_t listed) {
  return rank > 0 ? std::to_string(rank) : fmt::format("> {}", listed);
}

std::optional<double> worst_cosine(const VerifyReport& report) {
  std::optional<double> worst;
  for (const VerifiedPrompt& prompt : report.prompts)
    if (prompt.worst_cosine) worst = std::min(worst.value_or(1.0), *prompt.worst_cosine);
  return worst;
}

JsonValue prompt_json(const VerifiedPrompt& prompt, const Tokenizer& tokenizer) {
  const GateResult& gate = prompt.gate;
  JsonValue json = {{"text", redacted(prompt.ours.text)},
                    {"prompt_tokens", prompt.ours.prompt.size()},
                    {"passed", gate.passed},
                    {"compared", gate.compared},
                    {"divergence", nullptr},
                    {"worst_logit_cosine", nullptr},
                    {"reason", nullptr},
                    {"ours", prompt.ours.generated},
                    {"theirs", prompt.theirs.generated}};
  if (prompt.worst_cosine) json["worst_logit_cosine"] = *prompt.worst_cosine;
  if (!gate.passed) json["reason"] = gate.reason;
  if (!gate.divergence) return json;
  const auto side = [&](Token token, uint32_t rank) {
    JsonValue result = {
        {"token", token}, {"text", tokenizer.token_bytes(token)}, {"rank_on_other_side", nullptr}};
    if (rank > 0) result["rank_on_other_side"] = rank;
    return result;
  };
  json["divergence"] = {{"position", *gate.divergence},
                        {"ours", side(gate.ours, gate.rank_of_ours)},
                        {"theirs", side(gate.theirs, gate.rank_of_theirs)}};
  return json;
}

// Who did the work, without rates: the prompts are several requests, and none was timed by itself.
JsonValue executed_json(const VerifyReport& report) {
  const JsonValue whole = receipt_fields(report.receipt, report.context);
  JsonValue json;
  for (const char* key :
       {"tyto", "time", "command", "model", "prompt_tokens", "generated_tokens", "devices",
        "phases", "submissions", "completions", "fallbacks", "on_host", "virtual", "hashes"})
    json[key] = whole.at(key);
  return json;
}

}  // namespace

bool has_passed(const VerifyReport& report) {
  return report.problem.empty() && !report.prompts.empty() &&
         std::all_of(report.prompts.begin(), report.prompts.end(),
                     [](const VerifiedPrompt& prompt) { return prompt.gate.passed; });
}

Table verify_table(const VerifyReport& report, const Tokenizer& tokenizer) {
  Table table{
      .id = "verify",
      .title = fmt::format("{} against {}: {} greedy tokens, best {}", report.combination.device,
                           report.against, report.gate.tokens, report.gate.k),
      .columns = {{"prompt", false},
                  {"compared", true, 2},
                  {"first difference"},
                  {"ours", false, 1},
                  {"theirs", false, 1},
                  {"rank of ours there", true, 4},
                  {"rank of theirs here", true, 4},
                  {"worst logit cosine", true, 3},
                  {"verdict", false}}};
  for (const VerifiedPrompt& prompt : report.prompts) {
    const GateResult& gate = prompt.gate;
    TableRow row{
        {on_one_line(redacted(prompt.ours.text)), std::to_string(gate.compared), "none", "", "", "",
         "", prompt.worst_cosine ? fmt::format("{:.6f}", *prompt.worst_cosine) : "-",
         gate.passed ? "pass" : "FAIL"},
        gate.passed ? RowStyle::plain : RowStyle::alarm};
    if (gate.divergence) {
      const size_t at = *gate.divergence;
      row.cells[2] = "token " + std::to_string(at);
      row.cells[3] = shown(tokenizer, gate.ours);
      row.cells[4] = shown(tokenizer, gate.theirs);
      row.cells[5] = rank_text(gate.rank_of_ours, prompt.theirs.top[at].size());
      row.cells[6] = rank_text(gate.rank_of_theirs, prompt.ours.top[at].size());
    }
    table.rows.push_back(std::move(row));
  }
  for (const VerifiedPrompt& prompt : report.prompts)
    if (!prompt.gate.passed)
      table.notes.push_back(
          fmt::format("\"{}\": {}", shortened(prompt.ours.text), prompt.gate.reason));
  return table;
}

std::string verdict_line(const VerifyReport& report) {
  size_t failed = 0;
  for (const VerifiedPrompt& prompt : report.prompts) failed += prompt.gate.passed ? 0 : 1;
  const std::string cosine =
      worst_cosine(report) ? fmt::format(" · worst logit cosine {:.6f}", *worst_cosine(report))
                           : "";
  if (has_passed(report))
    return fmt::format("PASS: {} agrees with {} on {}{}", report.combination.device, report.against,
                       counted(report.prompts.size(), "prompt"), cosine);
  if (!report.problem.empty()) return fmt::format("FAIL: {}{}", report.problem, cosine);
  return fmt::format("FAIL: {} differs from {} on {} of {}{}", report.combination.device,
                     report.against, failed, counted(report.prompts.size(), "prompt"), cosine);
}

std::string verify_json(const VerifyReport& report, const Tokenizer& tokenizer) {
  JsonValue prompts = JsonValue::array();
  for (const VerifiedPrompt& prompt : report.prompts)
    prompts.push_back(prompt_json(prompt, tokenizer));
  const Combination& of = report.combination;
  JsonValue json = {
      {"schema", "tyto-verify-1"},
      {"verdict", has_passed(report) ? "pass" : "fail"},
      {"problem", nullptr},
      {"against", report.against},
      {"gate",
       {{"tokens", report.gate.tokens}, {"k", report.gate.k}, {"prompts", report.prompts.size()}}},
      {"worst_logit_cosine", nullptr},
      {"settings",
       {{"device", of.device},
        {"fusion", of.fusion},
        {"weight_form", of.weight_form},
        {"kv_type", of.kv_type},
        {"numerics", of.numerics},
        {"driver", of.driver},
        {"hardware", of.hardware}}},
      {"remembered", report.remembered},
      {"prompts", std::move(prompts)},
      {"receipt", executed_json(report)}};
  if (!report.problem.empty()) json["problem"] = report.problem;
  if (const auto worst = worst_cosine(report)) json["worst_logit_cosine"] = *worst;
  return json.dump(2) + "\n";
}

}  // namespace tyto
