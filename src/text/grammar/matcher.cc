#include "text/grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxTokenBytes = (1 << 24) - 1;  // a node's depth has 24 bits

size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer) {
  drops_first_space_ = tokenizer.drops_first_space();
  std::vector<Token> tokens;
  begins_.push_back(0);
  for (Token token = 0; static_cast<size_t>(token) < tokenizer.size(); ++token) {
    if (tokenizer.is_eos(token)) ends_of_text_.push_back(token);
    const bool is_text = !tokenizer.is_eos(token) && !tokenizer.is_special(token);
    if (is_text) bytes_ += tokenizer.token_bytes(token);
    if (bytes_.size() - begins_.back() > kMaxTokenBytes || bytes_.size() > UINT32_MAX)
      fail_unsupported("vocabulary", "the token {} makes it too long for a grammar", token);
    begins_.push_back(static_cast<uint32_t>(bytes_.size()));
    if (begins_.end()[-1] > begins_.end()[-2]) tokens.push_back(token);
  }
  std::ranges::sort(tokens, [&](Token a, Token b) {
    const int order = bytes_of(a).compare(bytes_of(b));
    return order != 0 ? order < 0 : a < b;
  });
  add_nodes(tokens);
}

void TokenTrie::add_nodes(std::span<const Token> sorted) {
  std::vector<uint32_t> path;  // nodes of the token at hand
  std::string_view before;
  for (const Token token : sorted) {
    const std::string_view bytes = bytes_of(token);
    if (bytes == before) {
      twins_.push_back({token, static_cast<Token>(nodes_.back().token)});
      continue;
    }
    const size_t shared = common_prefix(before, bytes);
    for (; path.size() > shared; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t depth = shared; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(vocabulary_size()), static_cast<uint32_t>(depth),
                        static_cast<uint8_t>(bytes[depth])});
    }
    nodes_.back().token = static_cast<uint32_t>(token);
    depth_ = std::max(depth_, bytes.size());
    before = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

std::string_view TokenTrie::bytes_of(Token token) const {
  const auto id = static_cast<size_t>(token);
  if (token < 0 || id >= vocabulary_size()) return {};
  return std::string_view(bytes_).substr(begins_[id], begins_[id + 1] - begins_[id]);
}

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
