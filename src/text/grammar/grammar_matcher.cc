#include "text/grammar/grammar_matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxTokenSteps = 2'000'000;  // a few dozen milliseconds

void sort_unique(std::vector<uint64_t>& values) {
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

GrammarMatcher::GrammarMatcher(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), classes_(grammar_->classes()) {
  next_.assign(classes_, kNowhere);  // the empty place's
  callers_[grammar_->root()].push_back(kFinished);
  if (grammar_->may_be_empty()) items_.push_back(kFinished);
  start_ = place_of_pending();
}

bool GrammarMatcher::may_end(Place place) const {
  const auto items = places_[place];
  return !items.empty() && items.front() == kFinished;  // they are sorted
}

void GrammarMatcher::spend(size_t work) {
  work_ += work;
  if (work_ > kMaxTokenSteps)
    throw Error(ErrorCode::unsupported, "grammar",
                fmt::format("one token takes more than {} steps", kMaxTokenSteps),
                "make it less ambiguous");
}

GrammarMatcher::Place GrammarMatcher::work_out(Place from, uint8_t byte) {
  pending_.clear();
  items_.clear();
  callers_.clear();
  const auto items = places_[from];
  for (const Item item : items) {
    const auto edges = grammar_->byte_edges(state_of(item));
    spend(edges.size());
    for (const Grammar::ByteEdge& edge : edges)
      if (grammar_->bytes_of(edge).has(byte))
        pending_.push_back(item_of(edge.target, stack_of(item)));
  }
  const Place found = place_of_pending();
  next_[from * size_t{classes_} + grammar_->class_of(byte)] = found;
  return found;
}

// What can be done at an item without a byte, apart from returning: call rules.
void GrammarMatcher::take(Item item) {
  const Grammar::State state = state_of(item);
  if (!grammar_->byte_edges(state).empty() || item == kFinished) items_.push_back(item);
  for (const Grammar::CallEdge& call : grammar_->call_edges(state)) {
    std::vector<Item>& callers = callers_[call.rule];
    if (call.is_tail) {  // the rule returns right to those who called this one
      const auto frames = stacks_[stack_of(item)];
      spend(frames.size());
      callers.insert(callers.end(), frames.begin(), frames.end());
    } else {
      spend(1);
      callers.push_back(item_of(call.target, stack_of(item)));
    }
  }
}

// First all returns, then all calls. Calls lead to no more returns: a rule that may be empty is
// skipped by an edge of its own. Rules are called in the order of their numbers, so that all
// callers of one are known when its turn comes.
GrammarMatcher::Place GrammarMatcher::place_of_pending() {
  seen_.clear();
  while (!pending_.empty()) {
    const Item item = pending_.back();
    pending_.pop_back();
    if (!seen_.insert(item).second) continue;
    spend(1);
    if (grammar_->ends_rule(state_of(item))) {
      const auto frames = stacks_[stack_of(item)];
      spend(frames.size());
      pending_.insert(pending_.end(), frames.begin(), frames.end());
    }
    take(item);
  }
  while (!callers_.empty()) {
    auto called = callers_.extract(callers_.begin());
    sort_unique(called.mapped());
    spend(called.mapped().size());
    take(item_of(grammar_->start_of(called.key()), stacks_.intern(called.mapped())));
  }
  return place_of(items_);
}

GrammarMatcher::Place GrammarMatcher::place_of(std::vector<Item>& items) {
  sort_unique(items);
  const Place place = places_.intern(items);
  if (places_.size() * classes_ > next_.size()) {
    spend(classes_);
    next_.resize(places_.size() * classes_, kUnknown);
  }
  return place;
}

size_t GrammarMatcher::bytes() const {
  return stacks_.bytes() + places_.bytes() + next_.size() * sizeof(Place);
}

// A stack's frames lie on stacks of lower numbers.
GrammarMatcher::Place GrammarMatcher::forget_but(Place kept) {
  const InternedSets stacks = std::exchange(stacks_, {});
  const InternedSets places = std::exchange(places_, {});
  next_.assign(classes_, kNowhere);
  std::vector<bool> is_needed(stacks.size());
  for (const Place place : {start_, kept})
    for (const Item item : places[place]) is_needed[stack_of(item)] = true;
  for (uint32_t stack = static_cast<uint32_t>(stacks.size()); stack-- > 0;)
    if (is_needed[stack])
      for (const Item frame : stacks[stack]) is_needed[stack_of(frame)] = true;
  std::vector<uint32_t> renamed(stacks.size());
  std::vector<Item> moved;
  const auto move = [&](std::span<const Item> set) -> std::vector<Item>& {
    moved.clear();
    for (const Item item : set) moved.push_back(item_of(state_of(item), renamed[stack_of(item)]));
    sort_unique(moved);
    return moved;
  };
  for (uint32_t stack = 0; stack < stacks.size(); ++stack)
    if (is_needed[stack]) renamed[stack] = stacks_.intern(move(stacks[stack]));
  start_ = place_of(move(places[start_]));
  return place_of(move(places[kept]));
}

}  // namespace tyto
