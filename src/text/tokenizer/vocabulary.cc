#include "text/tokenizer/vocabulary.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "text/tokenizer/bpe.h"

namespace tyto {
namespace {

constexpr size_t kMostTemplates = 100;  // each is looked for among the others

}  // namespace

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

bool lacks_byte_tokens(const Vocabulary& vocabulary) {
  const auto& tokens = vocabulary.byte_tokens;
  return tokens.empty() || std::find(tokens.begin(), tokens.end(), -1) != tokens.end();
}

void set_chat_template(Vocabulary& vocabulary, std::string_view name, std::string source) {
  if (name == "default") {
    vocabulary.chat_template = std::move(source);
    return;
  }
  std::vector<ChatSource>& more = vocabulary.more_templates;
  const auto at = std::ranges::find(more, name, &ChatSource::name);
  if (at != more.end()) {
    at->source = std::move(source);
    return;
  }
  if (more.size() == kMostTemplates)
    fail_input("chat templates", "more than {}; published models have three", kMostTemplates);
  more.push_back({std::string(name), std::move(source)});
}

const std::string& chat_template_for(const Vocabulary& vocabulary, bool with_tools) {
  const std::vector<ChatSource>& more = vocabulary.more_templates;
  const auto at = std::ranges::find(more, "tool_use", &ChatSource::name);
  return with_tools && at != more.end() ? at->source : vocabulary.chat_template;
}

}  // namespace tyto
