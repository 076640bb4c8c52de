#include "text/vocabulary.h"

#include <fmt/format.h>

#include "base/error.h"
#include "text/piece_index.h"

namespace tyto {

std::optional<PiecePair> split_merge(std::string_view merge) {
  // The separator is the first space that leaves a left side: a piece may itself be a space.
  const size_t space = merge.find(' ', 1);
  if (space == std::string_view::npos) return std::nullopt;
  return PiecePair{merge.substr(0, space), merge.substr(space + 1)};
}

void resolve_merges(Vocabulary& vocabulary, const std::vector<PiecePair>& merges,
                    const std::string& where) {
  const PieceIndex index(vocabulary.pieces);
  vocabulary.merges.clear();
  vocabulary.merge_results.clear();
  vocabulary.merges.reserve(merges.size());
  vocabulary.merge_results.reserve(merges.size());
  std::string whole;
  for (const auto& [left, right] : merges) {
    whole.assign(left).append(right);
    const Token left_id = index.find(left);
    const Token right_id = index.find(right);
    const Token whole_id = index.find(whole);
    if (left_id < 0 || right_id < 0 || whole_id < 0)
      fail_input(where, "merge {} uses a piece that is not in the vocabulary",
                 vocabulary.merges.size());
    vocabulary.merges.emplace_back(left_id, right_id);
    vocabulary.merge_results.push_back(whole_id);
  }
}

void find_byte_tokens(Vocabulary& vocabulary) {
  const PieceIndex index(vocabulary.pieces);
  vocabulary.byte_tokens.assign(256, -1);
  bool any = false;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const Token id = index.find(fmt::format("<0x{:02X}>", byte));
    vocabulary.byte_tokens[byte] = id;
    any = any || id >= 0;
  }
  if (!any) vocabulary.byte_tokens.clear();
}

}  // namespace tyto
