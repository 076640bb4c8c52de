#include "text/grammar/state_builder.h"

#include <algorithm>

#include "base/error.h"
#include "text/grammar/utf8_ranges.h"

namespace tyto {
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
      const auto add = [&](Moves& to, const ByteRange& bytes) {
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

}  // namespace tyto
