#include "check/verify_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/json_value.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "engine/engine.h"
#include "evidence/receipt_json.h"
#include "model/description.h"
#include "tensor/compare.h"
#include "text/chat_template.h"
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

namespace {

constexpr uint64_t kMaxTranscriptBytes = uint64_t{256} << 20;
constexpr uint32_t kWrittenCandidates = 10;  // beyond the gate's, so that a rank can be told

// Short and varied. tools/hf_reference.py has the same ones, in the same order.
constexpr std::array<const char*, 8> kGatePrompts = {
    "Tell me a story about a fox who finds a lamp.",
    "What is 3 plus 4?",
    "The owl looked down at the river and",
    "Name three things that are blue.",
    "Why does the moon change its shape?",
    "Write a short poem about rain.",
    "One, two, three, four,",
    "Who lives in the old house on the hill?",
};
constexpr size_t kQuickPrompts = 2;

// Through the model's chat template, where it has one.
Continuation prompt_of(const std::string& text, const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  Continuation result;
  result.text = text;
  if (tokenizer.vocabulary().chat_template.empty()) {
    result.prompt = tokenizer.encode(text);
    return result;
  }
  const ChatTemplate chat_template =
      choose_chat_template(tokenizer.vocabulary(), "", engine.model().path.string());
  result.prompt = encode_chat(tokenizer, chat_template, {{"user", text}});
  return result;
}

std::vector<Continuation> own_prompts(const VerifyOrder& order, const Engine& engine) {
  std::vector<Continuation> result;
  for (size_t i = 0; i < (order.full ? kGatePrompts.size() : kQuickPrompts); ++i)
    result.push_back(prompt_of(kGatePrompts[i], engine));
  if (!order.prompt.empty()) result.push_back(prompt_of(order.prompt, engine));
  return result;
}

// The other engine's file must be able to answer what the gate asks.
Transcript read_transcript(const VerifyOrder& order, const Engine& engine) {
  Transcript file = transcript_from_json(read_text_file(order.against, kMaxTranscriptBytes),
                                         order.against, engine.model().config.vocab);
  const auto refuse = [&](const std::string& what, const std::string& next) {
    throw Error(ErrorCode::input, order.against, what, next);
  };
  if (file.k < order.gate.k)
    refuse(fmt::format("has the best {}, the gate asks for {}", file.k, order.gate.k),
           fmt::format("write it again with more, or give -k {}", file.k));
  if (file.max_tokens < order.gate.tokens)
    refuse(fmt::format("has {} tokens, the gate asks for {}", file.max_tokens, order.gate.tokens),
           fmt::format("write it again with more, or give -n {}", file.max_tokens));
  if (order.full && file.continuations.size() < kGatePrompts.size())
    refuse(fmt::format("has {} prompts, --full wants {}", file.continuations.size(),
                       kGatePrompts.size()),
           "write it again with all prompts");
  if (!order.full && file.continuations.size() > kQuickPrompts)
    file.continuations.resize(kQuickPrompts);
  for (const Continuation& from : file.continuations)
    if (from.generated.size() < order.gate.tokens &&
        !engine.tokenizer().is_eos(from.generated.back()))
      refuse(fmt::format("a continuation ends after {} tokens without an end-of-text token",
                         from.generated.size()),
             "write it again");
  return file;
}

double lowest_cosine(const AllLogits& ours, const AllLogits& theirs, uint32_t count) {
  double lowest = 1;
  for (size_t i = 0; i < count; ++i) lowest = std::min(lowest, compare(ours[i], theirs[i]).cosine);
  return lowest;
}

// Runs the prompts one after the other.
class Verifier {
 public:
  Verifier(Engine& engine, const VerifyOrder& order, const Progress& progress)
      : engine_(engine), order_(order), progress_(progress) {}

  VerifyReport run() {
    report_.gate = order_.gate;
    report_.against = "the f32 reference";
    std::vector<Continuation> prompts;
    if (order_.against.empty()) {
      prompts = own_prompts(order_, engine_);
    } else {
      Transcript file = read_transcript(order_, engine_);
      report_.against = fmt::format("{} ({})", file.engine, order_.against);
      prompts = std::move(file.continuations);
    }
    prompts_ = prompts.size();
    for (Continuation& prompt : prompts) {
      compare_one(std::move(prompt));
      if (!report_.problem.empty()) break;
    }
    engine_.check_required(report_.receipt.phases);
    return std::move(report_);
  }

 private:
  // `other` has the prompt and, from a file, the other engine's continuation.
  void compare_one(Continuation other) {
    VerifiedPrompt result;
    AllLogits our_logits, their_logits;
    const bool uses_reference = order_.compares && order_.against.empty();
    const GreedyRequest request{other.prompt, order_.gate.tokens,
                                std::max(kWrittenCandidates, order_.gate.k)};
    try {
      result.ours = greedy(engine_.generator_from_nothing(), request, report_.receipt,
                           uses_reference ? &our_logits : nullptr, progress_of_prompt());
    } catch (const Error& error) {
      if (error.code != ErrorCode::device) throw;
      report_.problem = error.what();
      return;
    }
    result.ours.text = other.text;
    if (uses_reference) {
      const std::string text = other.text;
      other = greedy_reference(engine_.model(), engine_.tokenizer(), request, &their_logits,
                               progress_of_prompt());
      other.text = text;
    }
    if (order_.compares) {
      result.theirs = std::move(other);
      result.gate = compare_greedy(result.ours, result.theirs, order_.gate);
    }
    if (uses_reference)
      result.worst_cosine = lowest_cosine(our_logits, their_logits, result.gate.compared);
    report_.prompts.push_back(std::move(result));
  }

  Progress progress_of_prompt() const {
    return [this, number = report_.prompts.size() + 1](std::string_view what, uint64_t done,
                                                       uint64_t total) {
      if (progress_)
        progress_(fmt::format("prompt {} of {}: {}", number, prompts_, what), done, total);
    };
  }

  Engine& engine_;
  const VerifyOrder& order_;
  const Progress& progress_;
  VerifyReport report_;
  size_t prompts_ = 0;
};

}  // namespace

VerifyReport run_gate(Engine& engine, const VerifyOrder& order, const Progress& progress) {
  return Verifier(engine, order, progress).run();
}

Transcript own_transcript(const VerifyReport& report, const Engine& engine) {
  Transcript file{
      .engine = fmt::format("tyto {} on {}", TYTO_VERSION, device_names(report.receipt.devices)),
      .model = describe(engine.model()).name,
      .max_tokens = report.gate.tokens,
      .k = std::max(kWrittenCandidates, report.gate.k)};
  for (const VerifiedPrompt& prompt : report.prompts) file.continuations.push_back(prompt.ours);
  return file;
}

}  // namespace tyto
