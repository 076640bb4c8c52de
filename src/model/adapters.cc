#include "model/adapters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "model/adapter_files.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

constexpr double kLargestScale = 1e4;

// A projection of the forward pass, which may be some rows of what a file has.
enum class Target : uint8_t { q, k, v, o, gate, up, down, head };

struct TargetRows {
  Target target;
  uint64_t first = 0, count = 0;
};

std::vector<TargetRows> targets_of(const WeightSpec& spec, const Config& config) {
  const uint64_t q = config.q_width(), kv = config.kv_width(), hidden = config.hidden;
  if (spec.part == TensorPart::q) return {{Target::q, 0, q}};
  if (spec.part == TensorPart::k) return {{Target::k, 0, kv}};
  if (spec.part == TensorPart::v) return {{Target::v, 0, kv}};
  if (spec.part == TensorPart::qkv)
    return {{Target::q, 0, q}, {Target::k, q, kv}, {Target::v, q + kv, kv}};
  if (spec.part == TensorPart::o) return {{Target::o, 0, spec.rows}};
  if (spec.part == TensorPart::gate) return {{Target::gate, 0, hidden}};
  if (spec.part == TensorPart::up) return {{Target::up, 0, hidden}};
  if (spec.part == TensorPart::gate_up)
    return {{Target::gate, 0, hidden}, {Target::up, hidden, hidden}};
  if (spec.part == TensorPart::down) return {{Target::down, 0, spec.rows}};
  TYTO_ASSERT(spec.part == TensorPart::head);
  return {{Target::head, 0, spec.rows}};
}

LowRank& low_rank_of(Weights& weights, Target target, uint32_t layer) {
  constexpr LowRank LayerWeights::* kFields[] = {&LayerWeights::q_lora,    &LayerWeights::k_lora,
                                                 &LayerWeights::v_lora,    &LayerWeights::o_lora,
                                                 &LayerWeights::gate_lora, &LayerWeights::up_lora,
                                                 &LayerWeights::down_lora};
  if (target == Target::head) return weights.head_lora;
  return weights.layers[layer].*kFields[static_cast<size_t>(target)];
}

// What one adapter adds to one projection.
struct Addend {
  const AdapterPair* pair;
  TargetRows rows;
  double factor;
  // Where the adapter has rows of heads in another order than the model.
  RopeLayout from, to;
};

using Addends = std::map<std::pair<Target, uint32_t>, std::vector<Addend>>;

uint64_t rank_of(const std::vector<Addend>& addends) {
  uint64_t rank = 0;
  for (const Addend& each : addends) rank += each.pair->a.rows;
  return rank;
}

// Row of the adapter's b that stands at `row` of the model's projection.
uint64_t source_row(const Addend& addend, uint64_t row, uint32_t head_dim) {
  const bool is_rotated = addend.rows.target == Target::q || addend.rows.target == Target::k;
  if (!is_rotated || addend.from == addend.to) return row;
  if (addend.to == RopeLayout::pairs) return unpermuted_row(row, head_dim);
  const uint64_t half = head_dim / 2, within = row % head_dim;
  return row - within + within % half * 2 + within / half;
}

std::span<float> new_matrix(uint64_t rows, uint64_t cols, Model& model, TensorView& view) {
  std::vector<std::byte>& bytes = model.copies.emplace_back(rows * cols * sizeof(float));
  view = {DType::f32, rows, cols, bytes};
  return {reinterpret_cast<float*>(bytes.data()), rows * cols};
}

// Side by side along the rank: the sum over it is the sum over the adapters. `rank` may be more
// than they have; the rest is zero.
void combine(const std::vector<Addend>& addends, uint64_t rank, Model& model, LowRank& result) {
  const Addend& any = addends.front();
  const uint64_t width = any.pair->a.cols, rows = any.rows.count;
  const std::span<float> a = new_matrix(rank, width, model, result.a);
  const std::span<float> b = new_matrix(rows, rank, model, result.b);
  uint64_t first = 0;
  for (const Addend& each : addends) {
    const TensorView &from_a = each.pair->a, &from_b = each.pair->b;
    for (uint64_t r = 0; r < from_a.rows; ++r)
      dequantize(from_a.dtype, from_a.row(r), a.subspan((first + r) * width, width));
    for (uint64_t row = 0; row < rows; ++row) {
      const uint64_t source = each.rows.first + source_row(each, row, model.config.head_dim);
      const std::span<float> values = b.subspan(row * rank + first, from_b.cols);
      dequantize(from_b.dtype, from_b.row(source), values);
      for (float& value : values) value = static_cast<float>(value * each.factor);
    }
    first += from_a.rows;
  }
}

}  // namespace

AdapterChoice parse_adapter(const std::string& text) {
  const size_t equals = text.rfind('=');
  std::error_code ignored;
  if (equals == std::string::npos || std::filesystem::exists(text, ignored)) return {text, 1};
  double scale = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + equals + 1, end, scale);
  if (error != std::errc() || rest != end || equals == 0 || !(std::abs(scale) <= kLargestScale))
    throw Error(ErrorCode::usage, "--lora " + text, "expected FILE or FILE=SCALE",
                "like --lora adapter.gguf=0.5");
  return {text.substr(0, equals), scale};
}

void add_adapters(const std::vector<AdapterChoice>& choices, Model& model) {
  if (choices.empty()) return;
  std::vector<AdapterFile> files;
  for (const AdapterChoice& choice : choices)
    files.push_back(read_adapter(choice.path, model.config));
  Addends addends;
  for (size_t i = 0; i < files.size(); ++i) {
    Adapter added{.file = {},
                  .scale = choices[i].scale,
                  .alpha = files[i].alpha,
                  .by_root = files[i].by_root,
                  .matrices = static_cast<uint32_t>(files[i].pairs.size())};
    for (const AdapterPair& pair : files[i].pairs) {
      added.rank = std::max(added.rank, static_cast<uint32_t>(pair.a.rows));
      for (const TargetRows& rows : targets_of(pair.target, model.config))
        addends[{rows.target, pair.target.layer}].push_back(
            {&pair, rows, pair.factor * choices[i].scale, files[i].layout,
             model.config.rope.layout});
    }
    model.adapters.push_back(std::move(added));
  }
  // Layers share their buffers, so that a projection has one rank in all of them.
  std::map<Target, uint64_t> ranks;
  for (const auto& [key, each] : addends)
    ranks[key.first] = std::max(ranks[key.first], rank_of(each));
  for (const auto& [key, each] : addends)
    combine(each, ranks[key.first], model, low_rank_of(model.weights, key.first, key.second));
  for (size_t i = 0; i < files.size(); ++i) model.adapters[i].file = std::move(files[i].file);
  model.config.adapted = true;
}

}  // namespace tyto
