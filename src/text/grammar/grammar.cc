#include "text/grammar/grammar.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {
namespace {

std::string spelled(char32_t character) {
  std::string bytes;
  append_utf8(character, bytes);
  return bytes;
}

// All of `range` has the same number of bytes. Where the ends differ in some byte, all the bytes
// behind it must run from the lowest to the highest; else the range is cut there.
void append(CharacterRange range, std::vector<ByteRanges>& out) {
  const std::string first = spelled(range.first), last = spelled(range.last);
  for (size_t tail = 1; tail < first.size(); ++tail) {
    const char32_t low = (char32_t{1} << (6 * tail)) - 1;
    if ((range.first & ~low) == (range.last & ~low)) continue;
    if ((range.first & low) != 0) {
      append({range.first, range.first | low}, out);
      return append({(range.first | low) + 1, range.last}, out);
    }
    if ((range.last & low) != low) {
      append({range.first, (range.last & ~low) - 1}, out);
      return append({range.last & ~low, range.last}, out);
    }
  }
  ByteRanges bytes;
  for (size_t i = 0; i < first.size(); ++i)
    bytes.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
  out.push_back(std::move(bytes));
}

}  // namespace

std::vector<ByteRanges> utf8_sequences(CharacterRange range) {
  constexpr CharacterRange kSameLength[] = {
      {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, kLastCharacter}};
  std::vector<ByteRanges> sequences;
  for (const CharacterRange& each : kSameLength) {
    const CharacterRange part{std::max(range.first, each.first), std::min(range.last, each.last)};
    if (part.first <= part.last) append(part, sequences);
  }
  return sequences;
}

namespace {

uint64_t hash_of(std::span<const uint64_t> values) {
  uint64_t hash = values.size();
  for (const uint64_t value : values) {
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

InternedSets::InternedSets() : begins_{0}, slots_(64) {
  intern({});
}

size_t InternedSets::slot_of(std::span<const uint64_t> sorted) const {
  size_t slot = hash_of(sorted) & (slots_.size() - 1);
  while (slots_[slot] != 0 && !std::ranges::equal((*this)[slots_[slot] - 1], sorted))
    slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

uint32_t InternedSets::intern(std::span<const uint64_t> sorted) {
  const size_t slot = slot_of(sorted);
  if (slots_[slot] != 0) return slots_[slot] - 1;
  const auto id = static_cast<uint32_t>(size());
  values_.insert(values_.end(), sorted.begin(), sorted.end());
  begins_.push_back(values_.size());
  slots_[slot] = id + 1;
  if (size() * 2 > slots_.size()) grow();
  return id;
}

void InternedSets::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (uint32_t id = 0; id < size(); ++id) slots_[slot_of((*this)[id])] = id + 1;
}

namespace {

constexpr size_t kMaxBuildSteps = 500'000;  // well below a second
constexpr size_t kMaxStates = 100'000;

// All that makes two states the same.
std::vector<uint64_t> signature(const Moves& moves) {
  std::vector<uint64_t> key = {moves.ends_rule, moves.bytes.size(), moves.calls.size()};
  for (const auto& [target, bytes] : moves.bytes) {
    key.push_back(target);
    key.insert(key.end(), bytes.words.begin(), bytes.words.end());
  }
  for (const auto& [rule, target] : moves.calls) key.push_back(uint64_t{rule} << 32 | target);
  key.insert(key.end(), moves.skips.begin(), moves.skips.end());
  return key;
}

template <typename T>
void sort_unique(std::vector<T>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

void merge(Moves& into, const Moves& from) {
  for (const auto& [target, bytes] : from.bytes) into.bytes[target] |= bytes;
  into.calls.insert(into.calls.end(), from.calls.begin(), from.calls.end());
  into.skips.insert(into.skips.end(), from.skips.begin(), from.skips.end());
  into.ends_rule |= from.ends_rule;
}

}  // namespace

StateBuilder::StateBuilder(const GrammarText& text) : starts_(text.rules.size(), kFinished) {
  new_state({.ends_rule = true});  // kFinished, which is like no other state
  state_of({.ends_rule = true});   // kEndOfRule
  pending_.push_back(text.root);
  while (!pending_.empty()) {
    const uint32_t rule = pending_.back();
    pending_.pop_back();
    if (!is_built(rule)) starts_[rule] = state_of(moves(text.rules[rule].body, kEndOfRule));
  }
}

void StateBuilder::spend(size_t work) {
  work_ += work;
  if (work_ > kMaxBuildSteps || states_.size() > kMaxStates)
    fail_input("grammar", "becomes too large: its repetitions take more than {} states",
               kMaxStates);
}

uint32_t StateBuilder::new_state(Moves moves) {
  spend(1);
  states_.push_back(std::move(moves));
  return static_cast<uint32_t>(states_.size() - 1);
}

uint32_t StateBuilder::state_of(Moves moves) {
  sort_unique(moves.calls);
  sort_unique(moves.skips);
  if (moves.bytes.empty() && moves.calls.empty() && moves.skips.size() == 1 && !moves.ends_rule)
    return moves.skips[0];
  const auto [entry, is_new] = known_.try_emplace(signature(moves), 0);
  if (is_new) entry->second = new_state(std::move(moves));
  return entry->second;
}

// From the last part to the first, so that each knows where it leads.
Moves StateBuilder::moves(const Expression& expression, uint32_t next) {
  spend(1);
  switch (expression.kind) {
    case Expression::Kind::text:
      return text_moves(expression.text, next);
    case Expression::Kind::characters:
      return character_moves(expression.ranges, next);
    case Expression::Kind::rule:
      pending_.push_back(expression.rule);
      return {.calls = {{expression.rule, next}}};
    case Expression::Kind::sequence:
      for (size_t i = expression.parts.size(); i-- > 1;)
        next = state_of(moves(expression.parts[i], next));
      return expression.parts.empty() ? Moves{.skips = {next}} : moves(expression.parts[0], next);
    case Expression::Kind::choice: {
      Moves all;
      for (const Expression& part : expression.parts) merge(all, moves(part, next));
      return all;
    }
    case Expression::Kind::repeat:
      return repeat_moves(expression, next);
  }
  TYTO_ASSERT(!"an expression has a kind");
  return {};
}

Moves StateBuilder::text_moves(const std::string& text, uint32_t next) {
  spend(text.size());
  if (text.empty()) return {.skips = {next}};
  const auto step = [&](size_t i) {
    Moves one;
    one.bytes[next].add(static_cast<uint8_t>(text[i]));
    return one;
  };
  for (size_t i = text.size(); i-- > 1;) next = state_of(step(i));
  return step(0);
}

Moves StateBuilder::character_moves(const std::vector<CharacterRange>& ranges, uint32_t next) {
  Moves all;
  for (const CharacterRange& range : ranges)
    for (const ByteRanges& sequence : utf8_sequences(range)) {
      spend(sequence.size());
      uint32_t target = next;
      const auto add = [&](Moves& to, const ByteInterval& bytes) {
        for (unsigned byte = bytes.first; byte <= bytes.last; ++byte) to.bytes[target].add(byte);
      };
      for (size_t i = sequence.size(); i-- > 1;) {
        Moves one;
        add(one, sequence[i]);
        target = state_of(std::move(one));
      }
      add(all, sequence[0]);
    }
  return all;
}

Moves StateBuilder::repeat_moves(const Expression& repeat, uint32_t next) {
  const Expression& part = repeat.parts[0];
  uint32_t target = next;
  if (repeat.most == Expression::kForever) {
    target = new_state({});  // filled when what leads back to it is known
    Moves again = moves(part, target);
    again.skips.push_back(next);
    states_[target] = std::move(again);
  } else {
    for (uint32_t i = repeat.least; i < repeat.most; ++i) {
      Moves once_more = moves(part, target);
      once_more.skips.push_back(next);
      target = state_of(std::move(once_more));
    }
  }
  for (uint32_t i = 0; i < repeat.least; ++i) target = state_of(moves(part, target));
  return {.skips = {target}};
}

std::vector<bool> StateBuilder::reach_end(bool through_bytes) const {
  struct Needed {  // the state reaches its end when both of these do
    uint32_t state;
    uint32_t both[2];
  };
  std::vector<Needed> needs;
  std::vector<bool> reaches(states_.size());
  std::vector<uint32_t> found;
  const auto mark = [&](uint32_t state) {
    if (reaches[state]) return;
    reaches[state] = true;
    found.push_back(state);
  };
  for (uint32_t state = 0; state < states_.size(); ++state) {
    const Moves& from = states_[state];
    if (from.ends_rule) mark(state);
    for (const uint32_t target : from.skips) needs.push_back({state, {target, target}});
    for (const auto& [rule, target] : from.calls) needs.push_back({state, {target, starts_[rule]}});
    if (!through_bytes) continue;
    for (const auto& [target, bytes] : from.bytes)
      if (!bytes.is_empty()) needs.push_back({state, {target, target}});
  }
  std::vector<std::vector<uint32_t>> needed_for(states_.size());  // indices of needs
  for (uint32_t i = 0; i < needs.size(); ++i)
    for (const uint32_t state : needs[i].both) needed_for[state].push_back(i);
  while (!found.empty()) {
    const uint32_t state = found.back();
    found.pop_back();
    for (const uint32_t i : needed_for[state])
      if (reaches[needs[i].both[0]] && reaches[needs[i].both[1]]) mark(needs[i].state);
  }
  return reaches;
}

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

  // Some of the rules that are left over only follow from a circle; walking back from any of them
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
