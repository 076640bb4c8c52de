#include "ggml/lowering.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <string_view>

#include <ggml-impl.h>

#include "base/error.h"
#include "ggml/offer.h"

namespace tyto::plugin {
namespace {

// The run's node that computes an operand, wherever reshapes hide it; none: it comes from outside.
std::optional<uint16_t> producer(const std::vector<ggml_tensor*>& run, size_t before,
                                 const ggml_tensor* operand) {
  const ggml_tensor* base = behind_reshapes(operand);
  for (size_t i = 0; i < before; ++i)
    if (run[i] == base) return static_cast<uint16_t>(i);
  return std::nullopt;
}

// A norm is computed with its weight, by the product that follows: that one's operand is the
// norm's.
bool is_weighted_norm(const ggml_tensor* node) {
  return node->op == GGML_OP_MUL;
}

int operand_count(const ggml_tensor* node) {
  return node->op == GGML_OP_RMS_NORM || node->op == GGML_OP_MUL || node->op == GGML_OP_ROPE ? 1
                                                                                             : 2;
}

// Whether the operand is a product's matrix or the vector of a norm. All other operands are values,
// also where they are vectors: a residual of one token is.
bool is_weight(const ggml_tensor* node, int source) {
  return (node->op == GGML_OP_MUL_MAT && source == 0) || (node->op == GGML_OP_MUL && source == 1);
}

class Lowering {
 public:
  Lowering(const std::vector<ggml_tensor*>& run, DType activations, const IsNeeded& is_needed)
      : run_(run), activations_(activations), is_needed_(is_needed), result_slots_(run.size()) {
    lowered_.program.name = weight_role(run.front()->src[0]->name).name;
  }

  Lowered take() {
    for (size_t i = 0; i < run_.size(); ++i) node(static_cast<uint16_t>(i));
    for (size_t i = 0; i < run_.size(); ++i) {
      if (!result_slots_[i] || !is_needed_(run_[i])) continue;
      slots()[*result_slots_[i]].kind = SlotKind::output;
      lowered_.outputs.push_back({*result_slots_[i], {static_cast<uint16_t>(i), -1}});
    }
    return std::move(lowered_);
  }

 private:
  std::vector<Slot>& slots() { return lowered_.program.slots; }

  uint16_t add_slot(const std::string& name, SlotKind kind, DType type, uint64_t rows,
                    uint64_t cols) {
    slots().push_back({name, kind, type, rows, cols});
    return static_cast<uint16_t>(slots().size() - 1);
  }

  // The slot of an operand: a result of the run, or an input, one for all who use it.
  uint16_t value(uint16_t node, int8_t source) {
    const ggml_tensor* operand = run_[node]->src[source];
    if (const auto from = producer(run_, node, operand)) return *result_slots_[*from];
    const auto [entry, is_new] = inputs_.try_emplace(operand);
    if (!is_new) return entry->second;
    entry->second = add_slot(operand->name, SlotKind::input, activations_, kMostRows,
                             operand_rows(run_[node], operand).width);
    lowered_.inputs.push_back({entry->second, {node, source}});
    return entry->second;
  }

  uint16_t weight(uint16_t node, int8_t source) {
    const ggml_tensor* tensor = run_[node]->src[source];
    const TensorView view = view_of(tensor);
    const WeightRole what = weight_role(tensor->name);
    const uint16_t slot = add_slot(what.name, SlotKind::weight, view.dtype, view.rows, view.cols);
    slots()[slot].role = what.role;
    slots()[slot].layer = what.layer;
    lowered_.weights.push_back({slot, {node, source}});
    return slot;
  }

  uint16_t result(uint16_t node) {
    result_slots_[node] = add_slot(run_[node]->name, SlotKind::scratch, activations_, kMostRows,
                                   static_cast<uint64_t>(width_of(run_[node])));
    return *result_slots_[node];
  }

  void launch(Kernel kernel, const WeightRole& what, const std::vector<uint16_t>& reads,
              uint16_t writes, const LaunchShape& shape = {}) {
    std::vector<Arg> args;
    for (const uint16_t slot : reads) args.push_back({slot, true, false});
    args.push_back({writes, false, true});
    lowered_.program.launches.push_back(
        {kernel, what.name, std::move(args), shape, what.role, what.layer});
  }

  static WeightRole unnamed(const ggml_tensor* op) { return {.name = op->name}; }

  void node(uint16_t index) {
    const ggml_tensor* op = run_[index];
    switch (op->op) {
      case GGML_OP_MUL_MAT: {
        const uint16_t x = value(index, 1), w = weight(index, 0);
        launch(Kernel::matmul, weight_role(op->src[0]->name), {x, w}, result(index));
        lowered_.macs_per_token += static_cast<uint64_t>(ggml_nelements(op->src[0]));
        return;
      }
      case GGML_OP_ADD: {
        const uint16_t a = value(index, 0), b = value(index, 1);
        return launch(Kernel::add, unnamed(op), {a, b}, result(index));
      }
      case GGML_OP_RMS_NORM:
        return norm(index);
      case GGML_OP_MUL:
        return weighted_norm(index);
      case GGML_OP_ROPE:
        return rope(index);
      case GGML_OP_GLU: {
        const uint16_t gate = value(index, 0), up = value(index, 1);
        return launch(Kernel::swiglu, unnamed(op), {gate, up}, result(index));
      }
      default:
        TYTO_ASSERT(!"an operation that is not offered");
    }
  }

  static LaunchShape norm_shape(const ggml_tensor* norm) {
    LaunchShape shape;
    std::memcpy(&shape.eps, norm->op_params, sizeof shape.eps);
    return shape;
  }

  bool is_weighted_only(uint16_t index) const {
    return !is_needed_(run_[index]) &&
           std::all_of(run_.begin() + index + 1, run_.end(), [&](const ggml_tensor* user) {
             for (int s = 0; s < operand_count(user); ++s)
               if (behind_reshapes(user->src[s]) == run_[index] && !is_weighted_norm(user))
                 return false;
             return true;
           });
  }

  void norm(uint16_t index) {
    const uint16_t x = value(index, 0);
    norm_operand_[index] = x;
    if (is_weighted_only(index)) return;
    const auto width = static_cast<uint64_t>(run_[index]->ne[0]);
    const uint16_t ones = add_slot("ones", SlotKind::weight, DType::f32, 1, width);
    lowered_.ones.push_back({ones});
    launch(Kernel::rmsnorm, unnamed(run_[index]), {x, ones}, result(index),
           norm_shape(run_[index]));
  }

  void weighted_norm(uint16_t index) {
    const auto from = producer(run_, index, run_[index]->src[0]);
    TYTO_ASSERT(from);
    const uint16_t w = weight(index, 1);
    launch(Kernel::rmsnorm, weight_role(run_[index]->src[1]->name), {norm_operand_.at(*from), w},
           result(index), norm_shape(run_[*from]));
  }

  void rope(uint16_t index) {
    const ggml_tensor* op = run_[index];
    const uint16_t x = value(index, 0), table = rotation(index);
    LaunchShape shape;
    shape.head_dim = static_cast<uint32_t>(op->ne[0]);
    shape.heads = static_cast<uint32_t>(op->ne[1]);
    shape.rope_pairs = op->op_params[2] == GGML_ROPE_TYPE_NORMAL;
    launch(Kernel::rope, unnamed(op), {x, table}, result(index), shape);
  }

  uint16_t rotation(uint16_t index) {
    for (const BoundRotation& made : lowered_.rotations) {
      const ggml_tensor *a = run_[made.rope], *b = run_[index];
      if (a->src[1] == b->src[1] && a->src[2] == b->src[2] && a->ne[0] == b->ne[0] &&
          std::memcmp(a->op_params, b->op_params, sizeof a->op_params) == 0)
        return made.slot;
    }
    const uint16_t slot = add_slot("rotation", SlotKind::input, activations_, kMostRows,
                                   static_cast<uint64_t>(run_[index]->ne[0]));
    lowered_.rotations.push_back({slot, index});
    return slot;
  }

  const std::vector<ggml_tensor*>& run_;
  const DType activations_;
  const IsNeeded& is_needed_;
  std::vector<std::optional<uint16_t>> result_slots_;  // [run]
  std::map<uint16_t, uint16_t> norm_operand_;          // by node
  std::map<const ggml_tensor*, uint16_t> inputs_;
  Lowered lowered_;
};

// Who computes it, which weight it is, or where it is first used: two users of one input share a
// slot.
uint64_t operand_form(const std::vector<ggml_tensor*>& run, size_t node, int source) {
  const ggml_tensor* operand = run[node]->src[source];
  if (is_weight(run[node], source)) return reinterpret_cast<uintptr_t>(operand->data);
  if (const auto from = producer(run, node, operand)) return *from;
  constexpr uint64_t kInput = uint64_t{1} << 63;
  // Positions are as long as there are tokens.
  const bool has_width = source < operand_count(run[node]);
  const uint64_t width = has_width ? static_cast<uint64_t>(operand->ne[0]) : 0;
  for (size_t i = 0; i <= node; ++i)
    for (uint64_t s = 0; s < GGML_MAX_SRC && run[i]->src[s] != nullptr; ++s)
      if (run[i]->src[s] == operand) return kInput | i << 48 | s << 40 | width;
  return kInput;
}

}  // namespace

Lowered lower(const std::vector<ggml_tensor*>& run, DType activations, const IsNeeded& is_needed) {
  return Lowering(run, activations, is_needed).take();
}

bool can_join(const std::vector<ggml_tensor*>& run, const ggml_tensor* node) {
  if (!run.empty() && tokens_of(run.front()) != tokens_of(node)) return false;
  for (int s = 0; s < operand_count(node); ++s) {
    const ggml_tensor* operand = node->src[s];
    if (operand == nullptr || producer(run, run.size(), operand)) continue;
    // A part of a result that the run computes is not in memory before the run has ended.
    const ggml_tensor* memory = operand->view_src != nullptr ? operand->view_src : operand;
    for (const ggml_tensor* computed : run)
      if (memory == computed || (computed->view_src != nullptr && memory == computed->view_src))
        return false;
    // A weighted norm takes the operand of a norm that must be part of the run.
    if (node->op == GGML_OP_MUL) return false;
  }
  return true;
}

std::vector<uint64_t> form_of(const std::vector<ggml_tensor*>& run, const IsNeeded& is_needed) {
  std::vector<uint64_t> form;
  form.reserve(run.size() * 16);
  for (size_t i = 0; i < run.size(); ++i) {
    const ggml_tensor* node = run[i];
    form.push_back(static_cast<uint64_t>(node->op) << 32 | static_cast<uint64_t>(width_of(node)));
    form.push_back(is_needed(node) ? 1 : 0);
    for (int s = 0; s < GGML_MAX_SRC && node->src[s] != nullptr; ++s)
      form.push_back(operand_form(run, i, s));
    uint64_t params[GGML_MAX_OP_PARAMS / sizeof(uint64_t)];
    std::memcpy(params, node->op_params, sizeof params);
    form.insert(form.end(), std::begin(params), std::end(params));
  }
  return form;
}

WeightRole weight_role(const std::string& tensor_name) {
  static const std::map<std::string_view, Role> kRoles = {
      {"attn_q.weight", Role::q},         {"attn_k.weight", Role::k},
      {"attn_v.weight", Role::v},         {"attn_output.weight", Role::o},
      {"ffn_gate.weight", Role::gate},    {"ffn_up.weight", Role::up},
      {"ffn_down.weight", Role::down},    {"attn_norm.weight", Role::attn_norm},
      {"ffn_norm.weight", Role::ffn_norm}};
  if (tensor_name == "output.weight" || tensor_name == "token_embd.weight")
    return {Role::lm_head, kNoLayer, "lm_head"};
  if (tensor_name == "output_norm.weight") return {Role::final_norm, kNoLayer, "final_norm"};
  constexpr std::string_view kBlock = "blk.";
  const char* const end = tensor_name.data() + tensor_name.size();
  uint16_t layer = kNoLayer;
  const char* part = end;  // the part of a layer, behind its number
  if (tensor_name.starts_with(kBlock))
    part = std::from_chars(tensor_name.data() + kBlock.size(), end, layer).ptr;
  if (layer == kNoLayer || end - part < 2 || *part != '.') return {.name = tensor_name};
  const std::string_view tensor(part + 1, end);
  const auto known = kRoles.find(tensor);
  if (known == kRoles.end()) return {Role::none, layer, layer_name(tensor, layer)};
  return {known->second, layer, layer_name(name(known->second), layer)};
}

namespace {

struct RopeParameters {
  int32_t dims;
  float base, scale, magnitude;
};

// Where ggml keeps them among an operation's parameters.
RopeParameters parameters_of(const ggml_tensor* rope) {
  RopeParameters result{};
  result.dims = rope->op_params[1];
  std::memcpy(&result.base, rope->op_params + 5, sizeof(float));
  std::memcpy(&result.scale, rope->op_params + 6, sizeof(float));
  std::memcpy(&result.magnitude, rope->op_params + 8, sizeof(float));
  return result;
}

}  // namespace

std::span<const float> RotationTable::rows(const ggml_tensor* rope) {
  const RopeParameters parameters = parameters_of(rope);
  const auto tokens = static_cast<size_t>(rope->src[1]->ne[0]);
  const auto half = static_cast<size_t>(parameters.dims) / 2;
  const auto* positions = static_cast<const int32_t*>(rope->src[1]->data);
  std::vector<int32_t> key(std::begin(rope->op_params), std::end(rope->op_params));
  key.insert(key.end(), positions, positions + tokens);
  std::vector<float> factors(half, 1.0f);
  if (rope->src[2] != nullptr)
    std::memcpy(factors.data(), rope->src[2]->data, half * sizeof(float));
  if (key == key_ && factors == factors_) return rows_;
  rows_.resize(tokens * 2 * half);
  for (size_t i = 0; i < half; ++i) {
    // In double: at positions in the thousands a float's error in the angle would show.
    const double frequency =
        std::pow(static_cast<double>(parameters.base),
                 -2.0 * static_cast<double>(i) / static_cast<double>(parameters.dims)) *
        static_cast<double>(parameters.scale) / static_cast<double>(factors[i]);
    for (size_t t = 0; t < tokens; ++t) {
      const double angle = static_cast<double>(positions[t]) * frequency;
      rows_[t * 2 * half + i] = static_cast<float>(std::cos(angle)) * parameters.magnitude;
      rows_[t * 2 * half + half + i] = static_cast<float>(std::sin(angle)) * parameters.magnitude;
    }
  }
  key_ = std::move(key);
  factors_ = std::move(factors);
  return rows_;
}

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
