#include "ggml/graph_cut.h"

#include <ggml-impl.h>

#include "ggml/lowering.h"

namespace tyto::plugin {

uint64_t number_of(const ggml_cgraph* graph) {
  return graph->uid;
}

std::vector<Piece> cut(const Offer& offer, ggml_cgraph* graph) {
  std::vector<Piece> pieces;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* node = ggml_graph_node(graph, i);
    const bool computes = (node->flags & GGML_TENSOR_FLAG_COMPUTE) != 0;
    if (!computes || is_only_a_view(node) || ggml_is_empty(node)) continue;
    bool on_device = !why_not(offer, node);
    const bool may_join = !pieces.empty() && pieces.back().on_device == on_device;
    if (on_device && may_join && offer.fuses && can_join(pieces.back().nodes, node)) {
      pieces.back().nodes.push_back(node);
      continue;
    }
    on_device = on_device && can_join({}, node);
    if (on_device || pieces.empty() || pieces.back().on_device) pieces.push_back({on_device, {}});
    pieces.back().nodes.push_back(node);
  }
  return pieces;
}

Uses::Uses(ggml_cgraph* graph) : graph_(graph) {
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    const ggml_tensor* node = ggml_graph_node(graph, i);
    if (is_only_a_view(node) && node->src[0] != nullptr) views_[node->src[0]].push_back(node);
  }
}

bool Uses::is_needed_beyond(const std::vector<ggml_tensor*>& run, const ggml_tensor* result) const {
  if ((result->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) return true;
  int32_t known = 0;
  for (const ggml_tensor* node : run)
    for (int s = 0; s < GGML_MAX_SRC; ++s) known += node->src[s] == result ? 1 : 0;
  if (const auto views = views_.find(result); views != views_.end())
    for (const ggml_tensor* view : views->second) {
      if (is_needed_beyond(run, view)) return true;
      ++known;
    }
  // A graph is cut into one for each backend, but the counts are of the whole.
  const size_t at = ggml_hash_find(&graph_->visited_hash_set, result);
  const bool is_counted =
      at != GGML_HASHSET_FULL && ggml_bitset_get(graph_->visited_hash_set.used, at);
  return !is_counted || known < graph_->use_counts[at] || graph_->use_counts[at] == 0;
}

}  // namespace tyto::plugin
