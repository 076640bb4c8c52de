#include "text/grammar/constraint.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

constexpr size_t kMaxKeptBytes = 32 << 20;  // what places and masks that are kept may take
constexpr size_t kMostThoughtMasks = 32;
constexpr int kMostSpaces = 4;  // tokens of white space between thoughts and the answer

bool is_in(std::span<const uint64_t> bits, Token token) {
  const auto id = static_cast<size_t>(token);
  return (bits[id / 64] >> (id % 64) & 1) != 0;
}

}  // namespace

Constraint::Constraint(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const TokenTrie> tokens, AnswerPlace begin)
    : tokens_(std::move(tokens)),
      matcher_(std::move(grammar)),
      place_(matcher_.start()),
      drops_space_(tokens_->drops_first_space() && !begin.continues_text),
      thoughts_(std::move(begin.thoughts)),
      path_(tokens_->depth() + 1) {}

bool Constraint::is_complete() const {
  const bool is_thinking = thoughts_ && !thoughts_->stream.may_answer();
  return !is_thinking && matcher_.may_end(place_);
}

std::span<const uint64_t> Constraint::allowed() {
  forget_if_large();
  matcher_.allow_work();
  if (thoughts_) return known_mask_of_thoughts();
  const bool is_special = drops_space_ || most_spaces_ > 0;  // a mask of no place: once only
  if (is_special) return masks_[GrammarMatcher::kNowhere] = mask();
  const auto known = masks_.find(place_);
  return known != masks_.end() ? known->second : masks_[place_] = mask();
}

// The bit behind the last token's is for nodes without one, which need not be asked for then.
Constraint::Mask Constraint::mask() {
  Mask bits(tokens_->vocabulary_size() / 64 + 1);
  const auto allow = [&](size_t id) { bits[id / 64] |= uint64_t{1} << (id % 64); };
  const std::span<const TokenTrie::Node> nodes = tokens_->nodes();
  path_[0] = {place_, most_spaces_ > 0};
  for (uint32_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const bool is_dropped = drops_space_ && node.depth == 0 && node.byte == ' ';
    const Step step = is_dropped ? path_[0] : next(path_[node.depth], static_cast<char>(node.byte));
    if (step.place == GrammarMatcher::kNowhere) {
      i = node.end;
      continue;
    }
    path_[node.depth + 1] = step;
    allow(node.token);
    ++i;
  }
  for (const TokenTrie::Twin& twin : tokens_->twins())
    if (is_in(bits, twin.same_as)) allow(static_cast<size_t>(twin.token));
  if (is_complete())
    for (const Token token : tokens_->ends_of_text()) allow(static_cast<size_t>(token));
  bits.back() &= (uint64_t{1} << (tokens_->vocabulary_size() % 64)) - 1;
  return bits;
}

// White space that the grammar knows is the answer's.
Constraint::Step Constraint::next(Step from, char byte) {
  const GrammarMatcher::Place place = matcher_.next(from.place, static_cast<uint8_t>(byte));
  if (place != GrammarMatcher::kNowhere) return {place, false};
  const bool is_space = byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
  return from.skips_space && is_space ? from : Step{GrammarMatcher::kNowhere, false};
}

const Constraint::Mask& Constraint::known_mask_of_thoughts() {
  if (thought_masks_.size() > kMostThoughtMasks) thought_masks_.clear();
  const std::string key = thoughts_->stream.key();
  const auto known = thought_masks_.find(key);
  return known != thought_masks_.end() ? known->second : thought_masks_[key] = mask_of_thoughts();
}

Constraint::Mask Constraint::mask_of_thoughts() {
  Mask bits(tokens_->vocabulary_size() / 64 + 1);
  const auto allow = [&](Token token) {
    bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
  };
  const auto next_markers = thoughts_->stream.next_markers();
  if (next_markers.empty()) {
    for (Token token = 0; static_cast<size_t>(token) < tokens_->vocabulary_size(); ++token)
      if (may_follow(token)) allow(token);
    for (const Token end : tokens_->ends_of_text())
      bits[static_cast<size_t>(end) / 64] &= ~(uint64_t{1} << (end % 64));
    return bits;
  }
  if (thoughts_->stream.may_answer()) bits = mask();
  for (const ThoughtMarker& marker : thoughts_->markers)
    if (is_marker(marker.token, next_markers)) allow(marker.token);
  return bits;
}

// The token's text; a special token that is a marker of thoughts has one as well.
std::string_view Constraint::text_of(Token token) const {
  if (thoughts_)
    for (const ThoughtMarker& marker : thoughts_->markers)
      if (marker.token == token) return marker.text;
  return tokens_->bytes_of(token);
}

bool Constraint::is_marker(Token token, std::span<const std::string_view> texts) const {
  return std::ranges::find(texts, text_of(token)) != texts.end();
}

// Thoughts end with a marker, and markers with '>': only behind one a token can begin the answer.
bool Constraint::may_follow(Token token) {
  const std::string_view bytes = text_of(token);
  if (bytes.find('>') >= bytes.size() - std::min<size_t>(bytes.size(), 1)) return true;
  ReasoningStream stream = thoughts_->stream;
  size_t at = 0;
  while (at < bytes.size() && !stream.answers()) stream.push(bytes.substr(at++, 1));
  return follow({place_, stream.skips_space()}, bytes.substr(at)).place != GrammarMatcher::kNowhere;
}

Constraint::Step Constraint::follow(Step from, std::string_view bytes) {
  for (const char byte : bytes) from = next(from, byte);
  return from;
}

void Constraint::accept(Token token) {
  const std::string text(text_of(token));  // which may be the thoughts'
  std::string_view bytes = text;
  if (bytes.empty()) return;  // an end of text, after which a caller may go on
  matcher_.allow_work();
  if (std::exchange(drops_space_, false) && bytes.starts_with(' ')) bytes.remove_prefix(1);
  if (thoughts_) bytes = think(token, bytes);
  if (bytes.empty()) return;
  const Step step = follow({place_, most_spaces_ > 0}, bytes);
  place_ = step.place;
  most_spaces_ = step.skips_space ? most_spaces_ - 1 : 0;
  TYTO_ASSERT(place_ != GrammarMatcher::kNowhere);
}

// Returns the part of the bytes that belongs to the answer.
std::string_view Constraint::think(Token token, std::string_view bytes) {
  ReasoningStream& stream = thoughts_->stream;
  if (stream.may_answer()) {
    // A grammar may describe thoughts itself.
    const bool is_text = follow({place_, false}, bytes).place != GrammarMatcher::kNowhere;
    if (is_text || !is_marker(token, stream.next_markers())) {
      end_thoughts();
      return bytes;
    }
  }
  size_t at = 0;
  while (at < bytes.size() && !stream.answers()) stream.push(bytes.substr(at++, 1));
  if (!stream.answers()) return {};
  most_spaces_ = stream.skips_space() ? kMostSpaces : 0;
  end_thoughts();
  return bytes.substr(at);
}

void Constraint::end_thoughts() {
  thoughts_.reset();
  thought_masks_.clear();
}

void Constraint::forget_if_large() {
  const size_t mask_bytes = tokens_->vocabulary_size() / 8;
  if (matcher_.bytes() + masks_.size() * mask_bytes < kMaxKeptBytes) return;
  masks_.clear();
  place_ = matcher_.forget_but(place_);
}

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
  next_.assign(classes_, kNowhere);  // successors of the empty place
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
