// A graph of ggml's as pieces: runs of operations that become one dispatch each, and what is left
// to the host between them.
#pragma once

#include <ggml.h>

#include <unordered_map>
#include <vector>

#include "ggml/offer.h"

namespace tyto::plugin {

struct Piece {
  bool on_device = false;
  std::vector<ggml_tensor*> nodes;
};

// What ggml numbers a graph by that it computes again and again; 0: it does not say.
uint64_t number_of(const ggml_cgraph* graph);

std::vector<Piece> cut(const Offer& offer, ggml_cgraph* graph);

// Who uses the results of a graph's nodes.
class Uses {
 public:
  explicit Uses(ggml_cgraph* graph);
  // Whether anything but the run uses a result of it, through whatever view.
  bool is_needed_beyond(const std::vector<ggml_tensor*>& run, const ggml_tensor* result) const;

 private:
  ggml_cgraph* graph_;
  std::unordered_map<const ggml_tensor*, std::vector<const ggml_tensor*>> views_;  // by source
};

}  // namespace tyto::plugin
