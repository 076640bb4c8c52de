#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <queue>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {

namespace {

constexpr char32_t kFirstStandIn = 0x100;
constexpr size_t kAlphabetEnd = 0x144;  // one past the last stand-in

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCodePoints = [] {
  std::array<char32_t, 256> points{};
  char32_t next = kFirstStandIn;
  for (int byte = 0; byte < 256; ++byte)
    points[byte] = stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++;
  return points;
}();

// [code point] to byte, -1 where the code point is not in the alphabet.
constexpr auto kBytes = [] {
  std::array<int, kAlphabetEnd> bytes{};
  for (int& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kCodePoints[byte]] = byte;
  return bytes;
}();

}  // namespace

char32_t byte_level_code_point(unsigned char byte) {
  return kCodePoints[byte];
}

std::string to_byte_level(std::string_view bytes) {
  std::string piece;
  piece.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(kCodePoints[static_cast<unsigned char>(byte)], piece);
  return piece;
}

std::string from_byte_level(std::string_view piece) {
  std::string bytes;
  bytes.reserve(piece.size());
  while (!piece.empty()) {
    const Utf8Head head = utf8_head(piece);
    const bool known = head.kind == Utf8Head::Kind::valid && head.code_point < kAlphabetEnd &&
                       kBytes[head.code_point] >= 0;
    if (known)
      bytes.push_back(static_cast<char>(kBytes[head.code_point]));
    else
      bytes.append(piece.substr(0, head.bytes));
    piece.remove_prefix(head.bytes);
  }
  return bytes;
}

PieceIndex::PieceIndex(const std::vector<std::string>& pieces) : PieceIndex(pieces, {}) {}

PieceIndex::PieceIndex(const std::vector<std::string>& pieces, const std::vector<bool>& left_out)
    : pieces_(&pieces), slots_(std::bit_ceil(pieces.size() * 3 / 2 + 2), -1) {
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty() || (!left_out.empty() && left_out[id])) continue;
    Token& slot = slots_[slot_of(pieces[id])];
    if (slot < 0) slot = static_cast<Token>(id);
  }
}

// The slot that holds the text, or the free one where it belongs.
size_t PieceIndex::slot_of(std::string_view text) const {
  const size_t mask = slots_.size() - 1;
  size_t slot = std::hash<std::string_view>()(text) & mask;
  while (slots_[slot] >= 0 && (*pieces_)[static_cast<size_t>(slots_[slot])] != text)
    slot = (slot + 1) & mask;
  return slot;
}

Token PieceIndex::find(std::string_view text) const {
  return slots_.empty() ? -1 : slots_[slot_of(text)];
}

namespace {

// Words up to this length are merged by scanning all pairs, which beats a heap there.
constexpr size_t kShortWord = 48;

// Trained vocabularies stop at 16 characters; the bound keeps building the table linear in the
// vocabulary's text.
constexpr size_t kMaxScoredPieceBytes = 256;

constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

// [vocab] rank of each piece by falling score: 0 is the best, equal scores share a rank.
std::vector<uint32_t> score_ranks(const std::vector<float>& scores) {
  std::vector<float> order = scores;
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  std::vector<uint32_t> ranks(scores.size());
  for (size_t id = 0; id < scores.size(); ++id) {
    const auto at = std::lower_bound(order.begin(), order.end(), scores[id], std::greater<>());
    ranks[id] = static_cast<uint32_t>(at - order.begin());
  }
  return ranks;
}

struct ScoredMerge {
  Token left, right;
  Merge merge;
};

// Every way to put the piece together from two others.
void append_splits(std::string_view piece, Merge merge, const PieceIndex& index,
                   std::vector<ScoredMerge>& out) {
  for (size_t cut = utf8_head(piece).bytes; cut < piece.size();
       cut += utf8_head(piece.substr(cut)).bytes) {
    const Token left = index.find(piece.substr(0, cut));
    if (left < 0) continue;
    const Token right = index.find(piece.substr(cut));
    if (right >= 0) out.push_back({left, right, merge});
  }
}

}  // namespace

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(merges * 3 / 2 + 2)) {}

size_t MergeTable::slot_of(Token left, Token right) const {
  const uint64_t key = key_of(left, right);
  // Multiplying by an odd constant spreads neighbouring ids; the top bits are the good ones.
  const uint64_t mixed = (key ^ key >> 29) * 0x9E3779B97F4A7C15u;
  const size_t mask = slots_.size() - 1;
  size_t slot = (mixed ^ mixed >> 32) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::add(Token left, Token right, Merge merge) {
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.key == kFree) slot = {key_of(left, right), merge};
}

MergeTable ranked_merges(const Vocabulary& vocabulary, const std::vector<bool>& left_out) {
  MergeTable table(vocabulary.merges.size());
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const auto [left, right] = vocabulary.merges[rank];
    const Token result = vocabulary.merge_results[rank];
    if (!left_out[static_cast<size_t>(result)])
      table.add(left, right, {static_cast<uint32_t>(rank), result});
  }
  return table;
}

MergeTable scored_merges(const Vocabulary& vocabulary, const PieceIndex& index,
                         const std::string& name) {
  const std::vector<uint32_t> ranks = score_ranks(vocabulary.scores);
  std::vector<ScoredMerge> merges;
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const std::string& piece = vocabulary.pieces[id];
    if (piece.empty() || index.find(piece) != static_cast<Token>(id)) continue;
    if (piece.size() > kMaxScoredPieceBytes)
      fail_unsupported(name, "piece {} is {} bytes long; at most {} are supported", id,
                       piece.size(), kMaxScoredPieceBytes);
    append_splits(piece, {ranks[id], static_cast<Token>(id)}, index, merges);
  }
  MergeTable table(merges.size());
  for (const ScoredMerge& each : merges) table.add(each.left, each.right, each.merge);
  return table;
}

void WordMerger::merge(std::vector<Symbol>& word) {
  if (word.size() < 2) return;
  if (word.size() <= kShortWord)
    merge_short(word);
  else
    merge_long(word);
}

void WordMerger::merge_short(std::vector<Symbol>& word) {
  pair_.clear();
  for (size_t i = 0; i + 1 < word.size(); ++i)
    pair_.push_back(merges_.find(word[i].token, word[i + 1].token));
  while (!pair_.empty()) {
    const auto best = std::min_element(
        pair_.begin(), pair_.end(), [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best->rank == Merge::kNever) return;
    const auto i = static_cast<size_t>(best - pair_.begin());
    word[i] = {best->result, word[i + 1].end};
    word.erase(word.begin() + static_cast<ptrdiff_t>(i) + 1);
    pair_.erase(best);
    if (i < pair_.size()) pair_[i] = merges_.find(word[i].token, word[i + 1].token);
    if (i > 0) pair_[i - 1] = merges_.find(word[i - 1].token, word[i].token);
  }
}

void WordMerger::merge_long(std::vector<Symbol>& word) {
  const auto count = static_cast<uint32_t>(word.size());
  // An entry is rank and position in one number, so that the smallest is the next merge. Entries
  // are never removed when a pair changes; one whose rank is no longer the pair's is skipped.
  std::vector<uint64_t> entries;
  entries.reserve(count);
  const auto entry = [](uint32_t rank, uint32_t at) { return uint64_t{rank} << 32 | at; };
  pair_.assign(count, Merge{});
  next_.resize(count);
  previous_.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kNone;
    previous_[i] = i > 0 ? i - 1 : kNone;
    if (i + 1 < count) pair_[i] = merges_.find(word[i].token, word[i + 1].token);
    if (pair_[i].rank != Merge::kNever) entries.push_back(entry(pair_[i].rank, i));
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> queue(std::greater<>(),
                                                                             std::move(entries));
  const auto renew = [&](uint32_t i) {
    pair_[i] = next_[i] == kNone ? Merge{} : merges_.find(word[i].token, word[next_[i]].token);
    if (pair_[i].rank != Merge::kNever) queue.push(entry(pair_[i].rank, i));
  };
  while (!queue.empty()) {
    const auto rank = static_cast<uint32_t>(queue.top() >> 32);
    const auto i = static_cast<uint32_t>(queue.top());
    queue.pop();
    if (pair_[i].rank != rank) continue;
    const uint32_t gone = next_[i];
    word[i] = {pair_[i].result, word[gone].end};
    pair_[gone] = Merge{};
    next_[i] = next_[gone];
    if (next_[i] != kNone) previous_[next_[i]] = i;
    renew(i);
    if (previous_[i] != kNone) renew(previous_[i]);
  }
  size_t kept = 0;
  for (uint32_t i = 0; i != kNone; i = next_[i]) word[kept++] = word[i];
  word.resize(kept);
}

}  // namespace tyto
