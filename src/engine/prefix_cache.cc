#include "engine/prefix_cache.h"

#include <algorithm>
#include <iterator>

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

KvTable PrefixCache::find(std::span<const Token> tokens, uint32_t most) {
  const uint32_t page_positions = pool_.page_positions();
  std::span<const Token> rest = tokens.first(std::min<size_t>(tokens.size(), most));
  std::vector<KvPage> pages;
  PassBegins begins;
  uint32_t length = 0;
  Node* deepest = &root_;
  while (!rest.empty() && length % page_positions == 0) {
    const auto page_tokens = rest.first(std::min<size_t>(rest.size(), page_positions));
    const Match match = best_child(*deepest, page_tokens);
    if (match.child == nullptr) break;
    deepest = match.child;
    pages.push_back(match.child->page);
    const auto first = match.child->begins.begin();
    begins.insert(begins.end(), first, first + static_cast<std::ptrdiff_t>(match.length));
    length += static_cast<uint32_t>(match.length);
    rest = rest.subspan(match.length);
  }

  ++counts_.lookups;
  counts_.hits += length > 0 ? 1 : 0;
  counts_.tokens_found += length;
  touch(*deepest);
  const bool inside = length % page_positions != 0;
  const bool hand_over =
      inside && deepest->children.empty() && pool_.references(deepest->page) == 1;
  KvTable table(pool_, pages, std::move(begins));
  if (hand_over) remove(*deepest);
  return table;
}

void PrefixCache::keep(std::span<const Token> tokens, KvTable table) {
  TYTO_ASSERT(tokens.size() == table.length());
  const size_t page_positions = pool_.page_positions();
  auto begins = table.begins().begin();
  Node* deepest = &root_;
  for (const KvPage page : table.pages()) {
    if (tokens.empty()) break;  // room that nothing was written to
    const auto page_tokens = tokens.first(std::min(tokens.size(), page_positions));
    const auto begins_end = begins + static_cast<std::ptrdiff_t>(page_tokens.size());
    const PageContent content{page_tokens, {begins, begins_end}, page};
    const Match match = best_child(*deepest, page_tokens);
    if (match.child == nullptr ||
        match.length < std::min(page_tokens.size(), match.child->tokens.size())) {
      deepest = &add_child(*deepest, content);
    } else {
      deepest = match.child;
      if (match.length < page_tokens.size()) replace(*deepest, content);
    }
    tokens = tokens.subspan(page_tokens.size());
    begins = begins_end;
  }
  touch(*deepest);
}

bool PrefixCache::evict() {
  for (Node& node : nodes_) {
    if (!node.children.empty() || pool_.references(node.page) > 1) continue;
    remove(node);
    ++counts_.evictions;
    return true;
  }
  return false;
}

void PrefixCache::clear() {
  for (const Node& node : nodes_) pool_.release(node.page);
  nodes_.clear();
  root_.children.clear();
}

PrefixCache::Node& PrefixCache::add_child(Node& parent, const PageContent& content) {
  TYTO_ASSERT(&parent == &root_ || parent.tokens.size() == pool_.page_positions());
  Node& node = nodes_.emplace_back(
      Node{{content.tokens.begin(), content.tokens.end()}, content.begins, content.page, &parent});
  node.self = std::prev(nodes_.end());
  parent.children.insert(lower_bound(parent.children, content.tokens), &node);
  pool_.retain(content.page);
  return node;
}

// By tokens that begin with the node's own: no sibling does, so its place among them stays. Whoever
// else uses the old page goes on with it, and need not copy it on the tree's account.
void PrefixCache::replace(Node& node, const PageContent& content) {
  pool_.retain(content.page);  // first: it may be the same page
  pool_.release(node.page);
  node.page = content.page;
  node.tokens.assign(content.tokens.begin(), content.tokens.end());
  node.begins = content.begins;
}

void PrefixCache::remove(Node& leaf) {
  TYTO_ASSERT(leaf.children.empty());
  std::vector<Node*>& siblings = leaf.parent->children;
  const auto place = lower_bound(siblings, leaf.tokens);
  TYTO_ASSERT(place != siblings.end() && *place == &leaf);
  siblings.erase(place);
  pool_.release(leaf.page);
  nodes_.erase(leaf.self);
}

void PrefixCache::touch(Node& deepest) {
  for (Node* node = &deepest; node != &root_; node = node->parent)
    nodes_.splice(nodes_.end(), nodes_, node->self);
}

}  // namespace tyto
