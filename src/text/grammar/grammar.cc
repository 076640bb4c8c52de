#include "text/grammar/grammar.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "text/grammar/state_builder.h"

namespace tyto {
namespace {

constexpr size_t kMaxSteps = 2'000'000;  // through skips, in all: well below a second

}  // namespace

// States without skips: each gets the moves of all that it can skip to. What leads nowhere is left
// out, and so are states that nothing leads to.
class GrammarCompiler {
 public:
  GrammarCompiler(const GrammarText& text, Grammar& out)
      : text_(text),
        out_(out),
        builder_(text),
        is_useful_(builder_.reach_end(true)),
        is_empty_(builder_.reach_end(false)),
        numbers_(builder_.states().size(), kUnknown),
        seen_(builder_.states().size()) {}

  void compile() {
    const uint32_t root = builder_.start_of(text_.root);
    if (!is_useful_[root]) fail_input("grammar", "no text that ends matches the rule \"root\"");
    out_.may_be_empty_ = is_empty_[root];
    number(StateBuilder::kFinished);
    number(root);
    for (uint32_t next = 0; next < order_.size(); ++next) close(order_[next]);
    out_.states_.push_back({static_cast<uint32_t>(out_.byte_edges_.size()),
                            static_cast<uint32_t>(out_.call_edges_.size())});
    for (Grammar::CallEdge& call : out_.call_edges_)
      call.is_tail = out_.ends_rule(call.target) && out_.byte_edges(call.target).empty() &&
                     out_.call_edges(call.target).empty();
    number_rules();
    find_classes();
  }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;

  uint32_t number(uint32_t built) {
    if (numbers_[built] == kUnknown) {
      numbers_[built] = static_cast<uint32_t>(order_.size());
      order_.push_back(built);
    }
    return numbers_[built];
  }

  // The state itself and all that it may skip to; a rule that may be empty is skipped, too.
  std::vector<uint32_t> skipped_to(uint32_t from) {
    std::vector<uint32_t> found = {from};
    seen_[from] = true;
    const auto add = [&](uint32_t state) {
      if (++steps_ > kMaxSteps)
        fail_input("grammar", "becomes too large: too much of it may be left out");
      if (seen_[state] || !is_useful_[state]) return;
      seen_[state] = true;
      found.push_back(state);
    };
    for (size_t i = 0; i < found.size(); ++i) {
      const Moves& moves = builder_.states()[found[i]];
      for (const uint32_t target : moves.skips) add(target);
      for (const auto& [rule, target] : moves.calls)
        if (is_empty_[builder_.start_of(rule)]) add(target);
    }
    for (const uint32_t state : found) seen_[state] = false;
    return found;
  }

  void close(uint32_t built) {
    Grammar::FirstEdges state{static_cast<uint32_t>(out_.byte_edges_.size()),
                              static_cast<uint32_t>(out_.call_edges_.size())};
    std::map<uint32_t, ByteSet> bytes;
    std::vector<std::pair<uint32_t, uint32_t>> calls;
    for (const uint32_t each : skipped_to(built)) {
      const Moves& moves = builder_.states()[each];
      state.ends_rule |= moves.ends_rule;
      steps_ += moves.bytes.size() + moves.calls.size();
      for (const auto& [target, set] : moves.bytes)
        if (is_useful_[target] && !set.is_empty()) bytes[target] |= set;
      for (const auto& call : moves.calls)
        if (is_useful_[call.second] && is_useful_[builder_.start_of(call.first)])
          calls.push_back(call);
    }
    std::ranges::sort(calls);
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    for (const auto& [target, set] : bytes)
      out_.byte_edges_.push_back({number_of(set), number(target)});
    for (const auto& [rule, target] : calls) {
      number(builder_.start_of(rule));
      out_.call_edges_.push_back({rule, number(target)});
    }
    out_.states_.push_back(state);
  }

  uint32_t number_of(const ByteSet& set) {
    const auto [entry, is_new] = sets_.try_emplace(set, static_cast<uint32_t>(out_.sets_.size()));
    if (is_new) out_.sets_.push_back(set);
    return entry->second;
  }

  std::span<const Grammar::CallEdge> first_calls(uint32_t rule) const {
    return out_.call_edges(numbers_[builder_.start_of(rule)]);
  }

  bool is_kept(uint32_t rule) const {
    return builder_.is_built(rule) && numbers_[builder_.start_of(rule)] != kUnknown;
  }

  // Each rule before those that it may begin with. (A rule whose start is a state
  // that others have as well is kept with it, called or not.)
  void number_rules() {
    std::vector<uint32_t> callers(text_.rules.size());
    std::vector<uint32_t> ordered, ready;
    size_t kept = 0;
    for (uint32_t rule = 0; rule < text_.rules.size(); ++rule) {
      if (!is_kept(rule)) continue;
      ++kept;
      for (const Grammar::CallEdge& call : first_calls(rule)) ++callers[call.rule];
    }
    for (uint32_t rule = 0; rule < text_.rules.size(); ++rule)
      if (is_kept(rule) && callers[rule] == 0) ready.push_back(rule);
    while (!ready.empty()) {
      const uint32_t rule = ready.back();
      ready.pop_back();
      ordered.push_back(rule);
      for (const Grammar::CallEdge& call : first_calls(rule))
        if (--callers[call.rule] == 0) ready.push_back(call.rule);
    }
    if (ordered.size() < kept) refuse_left_recursion(callers);
    std::vector<Grammar::Rule> numbers(text_.rules.size());
    for (const uint32_t rule : ordered) {
      numbers[rule] = static_cast<Grammar::Rule>(out_.starts_.size());
      out_.starts_.push_back(numbers_[builder_.start_of(rule)]);
    }
    for (Grammar::CallEdge& call : out_.call_edges_) call.rule = numbers[call.rule];
    out_.root_ = numbers[text_.root];
  }

  // Of the rules that are left over some only follow from a circle; walking back from any of them
  // for as many steps as there are rules ends in one.
  [[noreturn]] void refuse_left_recursion(const std::vector<uint32_t>& callers) {
    const auto is_left = [&](uint32_t rule) { return is_kept(rule) && callers[rule] > 0; };
    std::vector<uint32_t> caller_of(text_.rules.size());
    uint32_t at = 0;
    for (uint32_t rule = 0; rule < text_.rules.size(); ++rule) {
      if (!is_left(rule)) continue;
      at = rule;
      for (const Grammar::CallEdge& call : first_calls(rule)) caller_of[call.rule] = rule;
    }
    for (size_t i = 0; i < text_.rules.size(); ++i) at = caller_of[at];
    throw Error(ErrorCode::input, fmt::format("grammar: line {}", text_.rules[at].line),
                fmt::format("the rule \"{}\" may begin with itself", text_.rules[at].name),
                "write the repetition with * or +, or put the recursion last");
  }

  // Splits the bytes by one set after the other.
  void find_classes() {
    std::array<uint32_t, 256> class_of{};
    uint32_t classes = 1;
    for (const ByteSet& set : out_.sets_) {
      std::map<std::pair<uint32_t, bool>, uint32_t> parts;
      for (unsigned byte = 0; byte < 256; ++byte)
        class_of[byte] =
            parts.try_emplace({class_of[byte], set.has(byte)}, static_cast<uint32_t>(parts.size()))
                .first->second;
      classes = static_cast<uint32_t>(parts.size());
    }
    std::ranges::transform(class_of, out_.class_of_.begin(),
                           [](uint32_t each) { return static_cast<uint8_t>(each); });
    out_.classes_ = classes;
  }

  const GrammarText& text_;
  Grammar& out_;
  StateBuilder builder_;
  const std::vector<bool> is_useful_;  // [built states], a sentence can be finished from here
  const std::vector<bool> is_empty_;   // [built states], the rule may end here
  std::vector<uint32_t> numbers_;      // [built states], in the grammar
  std::vector<uint32_t> order_;        // [states of the grammar], as built
  std::vector<bool> seen_;             // [built states], in skipped_to
  std::map<ByteSet, uint32_t> sets_;
  size_t steps_ = 0;
};

Grammar::Grammar(std::string_view gbnf) {
  const GrammarText text = parse_gbnf(gbnf);
  GrammarCompiler(text, *this).compile();
}

}  // namespace tyto
