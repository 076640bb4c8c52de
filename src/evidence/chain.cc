#include "evidence/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace tyto {

std::vector<LedgerProblem> check_chain(std::vector<Link> links, const std::string& before) {
  links.insert(links.begin(), Link{.line = 0, .digest = before, .previous = {}});
  std::unordered_map<std::string, size_t> with_digest;
  for (size_t i = 0; i < links.size(); ++i) with_digest.emplace(links[i].digest, i);
  std::vector<LedgerProblem> problems;
  for (size_t i = 1; i < links.size(); ++i) {
    const Link &link = links[i], &above = links[i - 1];
    // A line that was changed has another digest than the next one knows: said once is enough.
    if (link.previous == above.digest || !above.is_whole) continue;
    const auto found = with_digest.find(link.previous);
    if (found == with_digest.end()) {
      problems.push_back(
          {link.line, i == 1 ? "is not the first record: what stood before it is missing or changed"
                             : fmt::format("does not follow line {}: records between them are "
                                           "missing, or that line was replaced",
                                           above.line)});
    } else if (found->second >= i) {
      problems.push_back(
          {link.line, fmt::format("was moved: it follows line {}", links[found->second].line)});
    } else {
      const std::string really =
          found->second == 0
              ? fmt::format("line {} is the first record", link.line)
              : fmt::format("line {} follows line {}", link.line, links[found->second].line);
      for (size_t k = found->second + 1; k < i; ++k)
        problems.push_back({links[k].line, "was inserted or moved here: " + really});
    }
  }
  return problems;
}

std::optional<LedgerProblem> check_end(const std::vector<Link>& links,
                                       const std::optional<LedgerHead>& head) {
  if (!head) {
    if (links.empty()) return std::nullopt;
    return LedgerProblem{0,
                         "results.head is missing or cannot be read: whether records are missing "
                         "at the end cannot be told"};
  }
  const auto last = std::find_if(links.begin(), links.end(),
                                 [&](const Link& link) { return link.digest == head->last; });
  // A process that was killed between the two leaves a head that is one record behind.
  const auto place = static_cast<uint64_t>(last - links.begin()) + 1;
  if (last != links.end() && place == head->rows) return std::nullopt;
  // A last line that was changed is said to be, and is not missing.
  if (last == links.end() && links.size() == head->rows && !links.back().is_whole)
    return std::nullopt;
  return LedgerProblem{
      0,
      last == links.end()
          ? fmt::format("records are missing at the end: results.head counts {}, and the last of "
                        "them is not here",
                        head->rows)
          : fmt::format("results.head counts {} records, and the last of them is number {} here",
                        head->rows, place)};
}

}  // namespace tyto
