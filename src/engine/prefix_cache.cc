#include "engine/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

size_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Where `tokens` stand among `nodes`, or would.
template <typename Nodes>
auto lower_bound(Nodes& nodes, std::span<const Token> tokens) {
  return std::lower_bound(nodes.begin(), nodes.end(), tokens,
                          [](const auto* node, std::span<const Token> wanted) {
                            return std::ranges::lexicographical_compare(node->tokens, wanted);
                          });
}

}  // namespace

// In lexicographical order, the longest match is next to where the tokens themselves would stand;
// of two equally long ones this takes the later.
PrefixCache::Match PrefixCache::best_child(const Node& parent, std::span<const Token> tokens) {
  Match best;
  const auto consider = [&](Node* child) {
    const size_t length = common_prefix(child->tokens, tokens);
    if (length > best.length) best = {child, length};
  };
  const auto place = lower_bound(parent.children, tokens);
  if (place != parent.children.end()) consider(*place);
  if (place != parent.children.begin()) consider(*(place - 1));
  return best;
}

// Asked of a path from the root down, whose pages hold the first `length` positions.
bool PrefixCache::has_window(std::span<Node* const> path, uint32_t length) const {
  if (window_.pool == nullptr) return true;
  return std::ranges::all_of(path.subspan(window_.first_needed(length)),
                             [](const Node* node) { return node->window_page != kNoPage; });
}

// The state behind the first `length` positions of the path's pages.
uint32_t PrefixCache::state_at(std::span<Node* const> path, uint32_t length) const {
  const uint32_t inside =
      length - (static_cast<uint32_t>(path.size()) - 1) * pool_.page_positions();
  const auto& states = path.back()->states;
  const auto found = std::ranges::find(states, inside, &StateAt::position);
  return found == states.end() ? kNoState : found->state;
}

// The most of the first `length` positions behind which a sequence can go on; the path becomes that
// of their pages.
uint32_t PrefixCache::usable(std::vector<Node*>& path, uint32_t length) const {
  const uint32_t page = pool_.page_positions();
  while (!path.empty()) {
    const uint32_t begin = (static_cast<uint32_t>(path.size()) - 1) * page;
    if (states_ == nullptr) {
      if (has_window(path, length)) return length;
    } else {
      for (const StateAt& each : path.back()->states | std::views::reverse)
        if (begin + each.position <= length && has_window(path, begin + each.position))
          return begin + each.position;
    }
    path.pop_back();
    length = begin;
  }
  return 0;
}

KvTable PrefixCache::table_of(std::span<Node* const> path, uint32_t length) const {
  std::vector<KvPage> pages, window_pages;
  PassBegins begins;
  for (const Node* node : path) {
    pages.push_back(node->page);
    begins.insert(begins.end(), node->begins.begin(), node->begins.end());
  }
  begins.resize(length);
  for (size_t i = 0; window_.pool != nullptr && i < path.size(); ++i)
    window_pages.push_back(i < window_.first_needed(length) ? kNoPage : path[i]->window_page);
  std::vector<StateAt> states;
  if (states_ != nullptr && length > 0) states.push_back({length, state_at(path, length)});
  return KvTable(pool_, pages, std::move(begins), window_, window_pages, states_, states);
}

KvTable PrefixCache::find(std::span<const Token> tokens, uint32_t most) {
  const uint32_t page_positions = pool_.page_positions();
  std::span<const Token> rest = tokens.first(std::min<size_t>(tokens.size(), most));
  std::vector<Node*> path;
  uint32_t length = 0;
  while (!rest.empty() && length % page_positions == 0) {
    const auto page_tokens = rest.first(std::min<size_t>(rest.size(), page_positions));
    const Match match = best_child(path.empty() ? root_ : *path.back(), page_tokens);
    if (match.child == nullptr) break;
    path.push_back(match.child);
    length += static_cast<uint32_t>(match.length);
    rest = rest.subspan(match.length);
  }
  length = usable(path, length);

  ++counts_.lookups;
  counts_.hits += length > 0 ? 1 : 0;
  counts_.tokens_found += length;
  KvTable table = table_of(path, length);
  if (path.empty()) return table;
  Node& deepest = *path.back();
  touch(deepest);
  const bool inside = length % page_positions != 0;
  if (inside && deepest.children.empty() && pool_.references(deepest.page) == 2)
    remove(deepest);  // the other reference is the table's
  return table;
}

void PrefixCache::keep(std::span<const Token> tokens, KvTable table) {
  TYTO_ASSERT(tokens.size() == table.length());
  const size_t page_positions = pool_.page_positions();
  auto begins = table.begins().begin();
  Node* deepest = &root_;
  for (size_t i = 0; !tokens.empty(); ++i) {
    const auto page_tokens = tokens.first(std::min(tokens.size(), page_positions));
    const auto begins_end = begins + static_cast<std::ptrdiff_t>(page_tokens.size());
    const PageContent content{page_tokens,
                              {begins, begins_end},
                              table.pages()[i],
                              window_.pool == nullptr ? kNoPage : table.window_pages()[i],
                              states_inside(table, i)};
    const Match match = best_child(*deepest, page_tokens);
    if (match.child == nullptr ||
        match.length < std::min(page_tokens.size(), match.child->tokens.size())) {
      deepest = &add_child(*deepest, content);
    } else {
      deepest = match.child;
      const bool brings_window = deepest->window_page == kNoPage &&
                                 content.window_page != kNoPage &&
                                 deepest->tokens.size() == page_tokens.size();
      if (match.length < page_tokens.size() || brings_window)
        replace(*deepest, content);
      else
        add_states(*deepest, content.states);
    }
    tokens = tokens.subspan(page_tokens.size());
    begins = begins_end;
  }
  touch(*deepest);
}

// What a table has kept, and what is behind its last position.
std::vector<StateAt> PrefixCache::states_inside(const KvTable& table, size_t page) const {
  const auto begin = static_cast<uint32_t>(page) * pool_.page_positions();
  std::vector<StateAt> inside;
  for (const StateAt& each : table.states())
    if (each.position > begin && each.position <= begin + pool_.page_positions() &&
        (each.is_kept || each.position == table.length() || each.position == table.wanted_state()))
      inside.push_back({each.position - begin, each.state, true});
  return inside;
}

// Those that the node does not have.
void PrefixCache::add_states(Node& node, std::span<const StateAt> states) {
  for (const StateAt& each : states) {
    const auto place = std::ranges::lower_bound(node.states, each.position, {}, &StateAt::position);
    if (place != node.states.end() && place->position == each.position) continue;
    node.states.insert(place, each);
    states_->retain(each.state);
  }
}

bool PrefixCache::has_state_alone(const Node& node) const {
  return std::ranges::any_of(
      node.states, [&](const StateAt& each) { return states_->references(each.state) == 1; });
}

// As with windowed pages, the first of the least recent prefix: what lies behind is further on.
bool PrefixCache::evict_state() {
  const auto least_recent =
      std::ranges::find_if(nodes_, [&](const Node& node) { return has_state_alone(node); });
  if (least_recent == nodes_.end()) return false;
  Node* first = &*least_recent;
  while (first->parent->children.size() == 1 && has_state_alone(*first->parent))
    first = first->parent;
  const auto state = std::ranges::find_if(
      first->states, [&](const StateAt& each) { return states_->references(each.state) == 1; });
  states_->release(state->state);
  first->states.erase(state);
  ++counts_.evictions;
  return true;
}

bool PrefixCache::evict(KvKind lacking) {
  if (lacking == KvKind::state) return evict_state();
  if (lacking == KvKind::windowed) return evict_window_page();
  for (Node& node : nodes_) {
    if (!node.children.empty() || pool_.references(node.page) > 1) continue;
    remove(node);
    ++counts_.evictions;
    return true;
  }
  return false;
}

bool PrefixCache::has_window_page_alone(const Node& node) const {
  return node.window_page != kNoPage && window_.pool->references(node.window_page) == 1;
}

bool PrefixCache::evict_window_page() {
  const auto least_recent =
      std::ranges::find_if(nodes_, [&](const Node& node) { return has_window_page_alone(node); });
  if (least_recent == nodes_.end()) return false;
  // Where prefixes part, what lies before is of use to the others, too.
  Node* first = &*least_recent;
  while (first->parent->children.size() == 1 && has_window_page_alone(*first->parent))
    first = first->parent;
  window_.pool->release(std::exchange(first->window_page, kNoPage));
  ++counts_.evictions;
  return true;
}

void PrefixCache::clear() {
  for (Node& node : nodes_) release(node);
  nodes_.clear();
  root_.children.clear();
}

void PrefixCache::retain(const PageContent& content) {
  pool_.retain(content.page);
  if (content.window_page != kNoPage) window_.pool->retain(content.window_page);
  for (const StateAt& each : content.states) states_->retain(each.state);
}

void PrefixCache::release(Node& node) {
  pool_.release(node.page);
  if (node.window_page != kNoPage) window_.pool->release(node.window_page);
  for (const StateAt& each : node.states) states_->release(each.state);
}

PrefixCache::Node& PrefixCache::add_child(Node& parent, const PageContent& content) {
  TYTO_ASSERT(&parent == &root_ || parent.tokens.size() == pool_.page_positions());
  std::vector<Node*>& siblings = parent.children;  // have room before there is something to insert
  if (siblings.size() == siblings.capacity()) siblings.reserve(2 * siblings.size() + 1);
  Node& node = nodes_.emplace_back(Node{{content.tokens.begin(), content.tokens.end()},
                                        content.begins,
                                        content.page,
                                        content.window_page,
                                        content.states,
                                        &parent});
  node.self = std::prev(nodes_.end());
  siblings.insert(lower_bound(siblings, content.tokens), &node);
  retain(content);
  return node;
}

// By tokens that begin with the node's own: no sibling does, so its place among them stays. Other
// users of the old page go on with it, and need not copy it on the tree's account.
void PrefixCache::replace(Node& node, const PageContent& content) {
  std::vector<Token> tokens(content.tokens.begin(), content.tokens.end());
  PassBegins begins = content.begins;
  const std::vector<StateAt> before = node.states;  // the tokens in front of them are the same
  for (const StateAt& each : before) states_->retain(each.state);
  retain(content);  // first: it may be the same page
  release(node);
  node.page = content.page;
  node.window_page = content.window_page;
  node.tokens = std::move(tokens);
  node.begins = std::move(begins);
  node.states = content.states;
  add_states(node, before);
  for (const StateAt& each : before) states_->release(each.state);
}

void PrefixCache::remove(Node& leaf) {
  TYTO_ASSERT(leaf.children.empty());
  std::vector<Node*>& siblings = leaf.parent->children;
  const auto place = lower_bound(siblings, leaf.tokens);
  TYTO_ASSERT(place != siblings.end() && *place == &leaf);
  siblings.erase(place);
  release(leaf);
  nodes_.erase(leaf.self);
}

void PrefixCache::touch(Node& deepest) {
  for (Node* node = &deepest; node != &root_; node = node->parent)
    nodes_.splice(nodes_.end(), nodes_, node->self);
}

}  // namespace tyto
