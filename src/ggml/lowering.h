// Neighbouring ggml operations as one Program: what runs as one dispatch. Nothing here knows the
// device; values are named by where the operations have them, so that the program of one graph also
// serves the next graph of the same form.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ggml/offer.h"
#include "program/program.h"

namespace tyto::plugin {

// The most tokens of one dispatch; more are cut into several, since no operation here looks from
// one token at another.
constexpr uint32_t kMostRows = 512;

// A tensor of a graph, found again in each graph of the same form.
struct Place {
  uint16_t node = 0;   // position in the run
  int8_t source = -1;  // which of its operands; -1: its result

  const ggml_tensor* tensor(const std::vector<ggml_tensor*>& run) const {
    return source < 0 ? run[node] : run[node]->src[source];
  }
};

struct BoundValue {  // rows that the host writes before, or reads after
  uint16_t slot = 0;
  Place place;
};

struct BoundWeight {
  uint16_t slot = 0;
  Place place;
};

// Cosines and sines of each token's position, in a row: what the rotation of `rope` takes.
struct BoundRotation {
  uint16_t slot = 0;
  uint16_t rope = 0;  // the node whose parameters, positions and factors they come from
};

// A vector of ones: a norm whose result is used without its weight.
struct BoundOnes {
  uint16_t slot = 0;
};

struct Lowered {
  Program program;
  std::vector<BoundValue> inputs, outputs;
  std::vector<BoundWeight> weights;
  std::vector<BoundRotation> rotations;
  std::vector<BoundOnes> ones;
  uint64_t macs_per_token = 0;
};

// Whether anything but the run's own nodes uses a node's result.
using IsNeeded = std::function<bool(const ggml_tensor* result)>;

// `run`: operations that were offered (ggml/offer.h), in order, all of as many tokens. Values
// between launches have type `activations`.
Lowered lower(const std::vector<ggml_tensor*>& run, DType activations, const IsNeeded& is_needed);

// Whether `node` can join the run: every operand that the run computes is taken whole.
bool can_join(const std::vector<ggml_tensor*>& run, const ggml_tensor* node);

// Equal for runs that the same program serves: operations, parameters, shapes but for the number of
// tokens, weights, and which result is whose operand.
std::vector<uint64_t> form_of(const std::vector<ggml_tensor*>& run, const IsNeeded& is_needed);

// What llama.cpp's name of a weight says about its part in the forward pass.
struct WeightRole {
  Role role = Role::none;
  uint16_t layer = kNoLayer;
  std::string name;  // "L03.q"; the tensor's own where the role is not known
};
WeightRole weight_role(const std::string& tensor_name);

// Cosines and sines of the positions of a graph's tokens, as a ggml ROPE operation describes them.

// A row of head_dim values for each token: the cosines of half the head, then the sines.
class RotationTable {
 public:
  // The table for a ROPE operation that was offered. All layers of a graph ask for the same one, so
  // that it is computed once.
  std::span<const float> rows(const ggml_tensor* rope);

 private:
  std::vector<int32_t> key_;  // parameters, width and positions it was made for
  std::vector<float> factors_;
  std::vector<float> rows_;
};

// A graph of ggml's as pieces: runs of operations that become one dispatch each, and what is left
// to the host between them.

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
