#include "report/conclusion.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/columns.h"
#include "base/joined.h"
#include "base/printable.h"

namespace tyto {
namespace {

constexpr size_t kShownText = 160;       // columns of a prompt or an answer
constexpr double kWorthTelling = 0.005;  // a smaller share would read "0 %"

struct Meaning {
  std::string_view name;
  std::string_view text;
};
constexpr std::string_view kInput =
    "norm, query, key and value projections, and their rotation by position (RoPE)";
constexpr Meaning kMeanings[] = {
    {"rms_qkv_rope", kInput},
    {"rms_gemms_rope", kInput},
    {"rms_gemv_rope", kInput},
    {"rms_qkv_bias_rope", kInput},
    {"rms_qkv_bias_rope_gemv", kInput},
    {"rms_qkv_qknorm_rope", kInput},
    {"rms_qkv_qknorm_rope_gemv", kInput},
    {"flash_attn", "attention of a prompt"},
    {"prompt_attention", "attention of a prompt"},
    {"o_ffn", "attention's output projection, then the whole feed-forward"},
    {"o_ffn_qwen", "attention's output projection, then the whole feed-forward"},
    {"o_gemv_ffn", "attention's output projection, then the whole feed-forward"},
    {"o_ffn_head", "attention's output projection, then the feed-forward up to its last product"},
    {"o_res_norm", "attention's output projection, the residual and the norm"},
    {"o_gemv", "attention's output projection"},
    {"gate_up", "the feed-forward's first two products"},
    {"gate", "the feed-forward's gate"},
    {"gate_gemv", "the feed-forward's gate"},
    {"up", "the feed-forward's up projection"},
    {"up_gemv", "the feed-forward's up projection"},
    {"swiglu", "the feed-forward's activation"},
    {"down_add", "the feed-forward's last product and the residual"},
    {"down_gemv", "the feed-forward's last product"},
    {"lm_head_gemv", "the logits, a score for each token of the vocabulary"},
    {"LM head", "the logits, a score for each token of the vocabulary"},
    {"fused_decode", "a whole token in one dispatch"},
};

// The share of the memory's peak over all dispatches; 0 where no peak is known.
double bandwidth_share(const PhaseSummary& phase) {
  double time = 0, weighted = 0;
  for (const CallRow& row : phase.calls) {
    if (row.peak_bandwidth_share <= 0) continue;
    time += row.run.total;
    weighted += row.peak_bandwidth_share * row.run.total;
  }
  return time > 0 ? weighted / time : 0;
}

const OperatorRow* largest_operator(const PhaseSummary& phase) {
  const auto largest = std::ranges::max_element(phase.operators, {}, &OperatorRow::share);
  return largest == phase.operators.end() ? nullptr : &*largest;
}

std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  const std::string line = shortened_at_end(printable_line(only_text(text)), kShownText);
  return line.empty() ? "(empty)" : line;
}

}  // namespace

std::string conclusion(const ProfileRun& run, const Summary& summary) {
  if (run.receipt.plausibility.verdict == Verdict::refused)
    return "The speed is refused because it cannot be true: see the receipt.";
  const bool decodes = summary.decode.tokens > 0;
  const PhaseSummary& phase = decodes ? summary.decode : summary.prefill;
  const Flow& flow = phase.flow;
  if (flow.total_ms <= 0) return "";
  std::vector<std::string> parts = {fmt::format("{:.0f} % of {} is spent in the layers",
                                                100 * flow.layer_ms * flow.layers / flow.total_ms,
                                                decodes ? "a decoded token" : "the prompt")};
  if (const OperatorRow* largest = largest_operator(phase);
      largest != nullptr && largest->share > kWorthTelling)
    parts.push_back(fmt::format("{} take{} most, {:.0f} %", largest->label,
                                largest->label.ends_with('s') ? "" : "s", 100 * largest->share));
  if (const double share = bandwidth_share(phase); share > kWorthTelling)
    parts.push_back(fmt::format("memory is read at {:.0f} % of its peak", 100 * share));
  if (phase.wall.unattributed_share() > 0.01)
    parts.push_back(fmt::format("{:.0f} % is not attributed to anything",
                                100 * phase.wall.unattributed_share()));
  return joined(parts, "; ") + (summary.modelled ? " (the device's time is modelled)." : ".");
}

std::vector<std::string> request_lines(const Profile& profile, const ProfileRun& run) {
  std::vector<std::string> lines;
  if (!profile.facts.prompt.empty()) lines.push_back("Prompt: " + one_line(profile.facts.prompt));
  if (!run.answer.empty()) lines.push_back("Answer: " + one_line(run.answer));
  return lines;
}

std::vector<std::string> name_lines(const Summary& summary) {
  std::vector<std::pair<std::string_view, std::vector<std::string_view>>> told;  // text, and names
  const auto tell = [&](const Meaning& meaning) {
    for (auto& [text, names] : told) {
      if (text != meaning.text) continue;
      if (std::ranges::find(names, meaning.name) == names.end()) names.push_back(meaning.name);
      return;
    }
    told.push_back({meaning.text, {meaning.name}});
  };
  for (const PhaseSummary* phase : {&summary.prefill, &summary.decode})
    for (const FlowRow& row : phase->flow.rows)
      for (const Meaning& meaning : kMeanings)
        if (row.label == meaning.name) tell(meaning);
  std::vector<std::string> lines;
  for (const auto& [text, names] : told)
    lines.push_back(fmt::format("{}: {}", joined(names), text));
  return lines;
}

}  // namespace tyto
