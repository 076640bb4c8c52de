// Remembers which tokens lie behind pages of the KV memory, so that a prompt which begins like an
// earlier one only runs what is new.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "llama/kv_store.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

// A tree of pages: a node is one page and its tokens, its parent the page before it. Only a full
// page has children. No node's tokens begin with all of a sibling's, but siblings may begin alike:
// they are different pages. A node has the windowed page that belongs to it as long as there is one
// (KvWindow), and the states of recurrent layers that are known inside of it. Used by one thread.
class PrefixCache {
 public:
  // All of them outlive it; without `states` no layer has one.
  explicit PrefixCache(KvPool& pool, const KvWindow& window = kNoWindow, KvPool* states = nullptr)
      : pool_(pool), window_(window), states_(states) {}
  ~PrefixCache() { clear(); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest known prefix of `tokens`, token by token, as a table of its own; of at most `most`
  // positions, which is tokens.size() - 1 for one who needs the last token's logits. Where windowed
  // pages that the next position attends to are gone, as many whole pages as have theirs; where
  // layers have states, as far as the last one that is there.
  //
  // Where it ends inside a page, appending copies that page (KvTable), but a page that nothing else
  // depends on is handed over: it leaves the tree, and with it what it held after the match. So
  // continuing a conversation copies nothing, and a single page as large as the context will do.
  // What was handed over is forgotten if the table is dropped instead of kept.
  KvTable find(std::span<const Token> tokens, uint32_t most);

  // Keeps the pages behind `tokens` ([table.length()]) for later; the table is used up. A running
  // sequence keeps a share() of its own. What is known already stays on the page it has, unless
  // that has lost its windowed page; a shorter beginning of the same page gives way.
  void keep(std::span<const Token> tokens, KvTable table);

  // Gives back the page that was found or kept least recently, of those that have no other user and
  // no longer prefix depends on; false when there is none. Where windowed pages alone are lacking,
  // one of those: of the least recent prefix that has some the first, since those behind it are
  // what a continuation attends to.
  //
  // It cannot give back what a table shares. A table that fails to grow although nothing is left to
  // evict still has one way to be alone in the pool: set_length() to whole pages, so that the part
  // it would have to copy can be evicted, too.
  bool evict(KvKind lacking = KvKind::full);
  void clear();

  // That it holds references to, one each.
  uint32_t pages() const { return static_cast<uint32_t>(nodes_.size()); }

  struct Counts {
    uint64_t lookups = 0;
    uint64_t hits = 0;          // that found at least one token
    uint64_t tokens_found = 0;  // in all hits
    uint64_t evictions = 0;     // pages given back by evict()
  };
  Counts counts() const { return counts_; }

 private:
  struct Node {
    std::vector<Token> tokens = {};  // [1 .. page_positions]
    PassBegins begins = {};          // for each token
    KvPage page = 0;
    KvPage window_page = kNoPage;
    std::vector<StateAt> states = {};  // by positions of the page, 1 to as many as there are tokens
    Node* parent = nullptr;
    std::vector<Node*> children = {};     // by tokens, in lexicographical order
    std::list<Node>::iterator self = {};  // in nodes_
  };
  struct Match {
    Node* child = nullptr;
    size_t length = 0;  // tokens in common; 0: there is no child
  };

  static Match best_child(const Node& parent, std::span<const Token> tokens);
  // What one page of a table holds.
  struct PageContent {
    std::span<const Token> tokens;
    PassBegins begins;
    KvPage page;
    KvPage window_page;
    std::vector<StateAt> states;  // as a node's
  };
  Node& add_child(Node& parent, const PageContent& content);
  void replace(Node& node, const PageContent& content);
  void remove(Node& leaf);
  void touch(Node& deepest);
  bool has_window(std::span<Node* const> path, uint32_t length) const;
  uint32_t usable(std::vector<Node*>& path, uint32_t length) const;
  uint32_t state_at(std::span<Node* const> path, uint32_t length) const;
  std::vector<StateAt> states_inside(const KvTable& table, size_t page) const;
  void add_states(Node& node, std::span<const StateAt> states);
  bool evict_state();
  bool has_state_alone(const Node& node) const;
  KvTable table_of(std::span<Node* const> path, uint32_t length) const;
  bool evict_window_page();
  bool has_window_page_alone(const Node& node) const;
  void retain(const PageContent& content);
  void release(Node& node);

  KvPool& pool_;
  const KvWindow& window_;
  KvPool* const states_;
  Node root_;  // has no page
  // Least recently used first, and a child before its parent: the first node that can go is the one
  // that should. They are owned here and not by their parents so that destruction does not recurse.
  std::list<Node> nodes_;
  Counts counts_;
};

}  // namespace tyto
