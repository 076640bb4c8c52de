#include "model/text_part.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/utf8.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

constexpr std::string_view kVisionPrefixes[] = {"model.visual.", "visual.", "v.", "mm."};
constexpr std::string_view kDraftPrefixes[] = {"mtp.", "model.mtp."};
constexpr std::string_view kTextPrefix = "model.language_model.";

template <size_t N>
bool has_prefix(std::string_view name, const std::string_view (&prefixes)[N]) {
  return std::ranges::any_of(prefixes,
                             [&](std::string_view each) { return name.starts_with(each); });
}

// GGUFs have the layers for drafting behind the others.
bool is_behind_layers(std::string_view name, uint32_t layers, uint32_t drafting) {
  constexpr std::string_view kLayer = "blk.";
  if (!name.starts_with(kLayer)) return false;
  uint32_t number = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kLayer.size(), name.data() + name.size(), number);
  return error == std::errc() && *end == '.' && number >= layers && number - layers < drafting;
}

void note_left_out(const char* what, size_t count, uint64_t bytes, Model& model) {
  if (count == 0) return;
  constexpr double kMega = 1e6;
  model.notes.push_back(fmt::format("{} is not used: {} tensors of {:.1f} MB", what, count,
                                    static_cast<double>(bytes) / kMega));
}

// Ends a checkpoint's name, behind the layer's prefix, and what a GGUF has in its place.
struct Interleaved {
  std::string_view stored;
  // Parts that each key head has in turn: what they are together called, and how many rows of one
  // key head they are.
  struct Part {
    std::string_view name;
    uint32_t rows;
  };
  std::array<Part, 4> parts;  // those of one name follow each other
};

// The rows of some parts of `stored`, all key heads' of one part before those of the next.
TensorView put_in_order(const TensorView& stored, const Interleaved& how, std::string_view name,
                        uint32_t key_heads, Model& model) {
  const uint64_t stride = stored.row_stride();
  uint64_t of_head = 0, wanted = 0;
  for (const Interleaved::Part& part : how.parts) {
    of_head += part.rows;
    if (part.name == name) wanted += part.rows;
  }
  std::vector<std::byte>& copy = model.copies.emplace_back(wanted * key_heads * stride);
  std::byte* to = copy.data();
  uint64_t before = 0;
  for (const Interleaved::Part& part : how.parts) {
    for (uint32_t head = 0; head < key_heads && part.name == name; ++head) {
      const uint64_t bytes = part.rows * stride;
      std::memcpy(to, stored.bytes.data() + (head * of_head + before) * stride, bytes);
      to += bytes;
    }
    before += part.rows;
  }
  return {stored.dtype, wanted * key_heads, stored.cols, copy};
}

std::vector<Interleaved> interleaved(const RecurrentHeads& shape, NameStyle style) {
  const bool is_gguf = style == NameStyle::gguf;
  const auto name = [&](std::string_view gguf, std::string_view hugging_face) {
    return is_gguf ? gguf : hugging_face;
  };
  const uint32_t values = shape.heads / shape.key_heads * shape.head_dim;
  const std::string_view in = name("attn_qkv.weight", "linear_attn.in_proj_qkv.weight");
  const std::string_view gate = name("attn_gate.weight", "linear_attn.in_proj_z.weight");
  return {{name("ssm_in.weight", "linear_attn.in_proj_qkvz.weight"),
           {{{in, shape.key_dim}, {in, shape.key_dim}, {in, values}, {gate, values}}}}};
}

// Checkpoints have the logarithm of how fast a state fades.
TensorView rates_of(const TensorView& logarithms, Model& model) {
  std::vector<float> values(logarithms.values());
  dequantize(logarithms.dtype, logarithms.bytes, values);
  for (float& value : values) value = -std::exp(value);
  const auto bytes = std::as_bytes(std::span(values));
  model.copies.emplace_back(bytes.begin(), bytes.end());
  return {DType::f32, logarithms.rows, logarithms.cols, model.copies.back()};
}

// Columns of one value are how GGUFs have what a head has one of.
TensorView one_below_the_other(const TensorView& view, uint64_t rows) {
  if (view.rows != 1 || rows == 0 || view.cols % rows != 0) return view;  // refused by its shape
  return {view.dtype, rows, view.cols / rows, view.bytes};
}

// Granite's checkpoints have two matrices of the feed-forward in one.
bool add_halves(const NamedTensor& tensor, const Config& config, std::vector<NamedTensor>& result) {
  constexpr std::string_view kBoth = "shared_mlp.input_linear.weight";
  if (!tensor.name.ends_with(kBoth) || tensor.view.rows % 2 != 0) return false;
  const std::string prefix = tensor.name.substr(0, tensor.name.size() - kBoth.size()) +
                             (config.has_experts() ? "mlp.shared_expert." : "mlp.");
  const uint64_t rows = tensor.view.rows / 2, bytes = rows * tensor.view.row_stride();
  const auto half = [&](uint64_t first) {
    return TensorView{tensor.view.dtype, rows, tensor.view.cols,
                      tensor.view.bytes.subspan(first, bytes)};
  };
  result.push_back({prefix + "gate_proj.weight", half(0)});
  result.push_back({prefix + "up_proj.weight", half(bytes)});
  return true;
}

std::vector<NamedTensor> with_mamba2_in_order(std::vector<NamedTensor> tensors,
                                              const Config& config, NameStyle style, Model& model) {
  if (style == NameStyle::gguf) return tensors;
  const RecurrentHeads& shape = config.recurrent;
  std::vector<NamedTensor> result;
  for (NamedTensor& tensor : tensors) {
    if (add_halves(tensor, config, result)) continue;
    TensorView& view = tensor.view;
    if (tensor.name.ends_with("mamba.A_log"))
      view = one_below_the_other(rates_of(view, model), shape.heads);
    if (tensor.name.ends_with("mamba.D")) view = one_below_the_other(view, shape.heads);
    if (tensor.name.ends_with("mamba.norm.weight"))
      view = one_below_the_other(view, shape.key_heads);
    constexpr std::string_view kDown = "shared_mlp.output_linear.weight";
    if (!config.has_experts() && tensor.name.ends_with(kDown))
      tensor.name.replace(tensor.name.size() - kDown.size(), kDown.size(), "mlp.down_proj.weight");
    result.push_back(std::move(tensor));
  }
  return result;
}

void add_in_order(const NamedTensor& tensor, const Interleaved& how, std::string_view prefix,
                  const Config& config, const std::string& where, Model& model,
                  std::vector<NamedTensor>& result) {
  uint64_t of_head = 0;
  for (const Interleaved::Part& part : how.parts) of_head += part.rows;
  if (tensor.view.rows != of_head * config.recurrent.key_heads)
    fail_input(where + ": tensor " + printable_name(tensor.name),
               "has {} rows, and {} key heads of {} rows are wanted", tensor.view.rows,
               config.recurrent.key_heads, of_head);
  std::string_view last;
  for (const Interleaved::Part& part : how.parts) {
    if (part.name.empty() || part.name == last) continue;
    last = part.name;
    result.push_back(
        {std::string(prefix) + std::string(part.name),
         put_in_order(tensor.view, how, part.name, config.recurrent.key_heads, model)});
  }
}

}  // namespace

void keep_text_part(NameStyle style, uint32_t drafting, Model& model) {
  size_t vision = 0, drafts = 0;
  uint64_t vision_bytes = 0, draft_bytes = 0;
  std::vector<NamedTensor> kept;
  for (NamedTensor& tensor : model.tensors) {
    const bool is_draft =
        has_prefix(tensor.name, kDraftPrefixes) ||
        (style == NameStyle::gguf && is_behind_layers(tensor.name, model.config.layers, drafting));
    if (has_prefix(tensor.name, kVisionPrefixes)) {
      ++vision;
      vision_bytes += tensor.view.bytes.size();
    } else if (is_draft) {
      ++drafts;
      draft_bytes += tensor.view.bytes.size();
    } else {
      if (tensor.name.starts_with(kTextPrefix))
        tensor.name = "model." + tensor.name.substr(kTextPrefix.size());
      kept.push_back(std::move(tensor));
    }
  }
  note_left_out("the part for images", vision, vision_bytes, model);
  note_left_out("the head for drafting several tokens", drafts, draft_bytes, model);
  model.tensors = std::move(kept);
}

std::vector<NamedTensor> with_recurrence_in_order(std::vector<NamedTensor> tensors,
                                                  const Config& config, NameStyle style,
                                                  const std::string& where, Model& model) {
  if (config.has_kind(LayerKind::mamba2))
    return with_mamba2_in_order(std::move(tensors), config, style, model);
  if (!config.has_kind(LayerKind::delta_rule)) return tensors;
  const std::vector<Interleaved> hows = interleaved(config.recurrent, style);
  std::vector<NamedTensor> result;
  for (NamedTensor& tensor : tensors) {
    const auto how = std::ranges::find_if(hows, [&](const Interleaved& each) {
      return tensor.name.ends_with("." + std::string(each.stored));
    });
    if (how != hows.end()) {
      const std::string prefix = tensor.name.substr(0, tensor.name.size() - how->stored.size());
      add_in_order(tensor, *how, prefix, config, where, model, result);
      continue;
    }
    if (tensor.name.ends_with("linear_attn.A_log")) tensor.view = rates_of(tensor.view, model);
    result.push_back(std::move(tensor));
  }
  return result;
}

uint64_t untiled_row(uint64_t row, uint64_t width, const RecurrentHeads& heads) {
  const uint64_t head = row / width, group = heads.heads / heads.key_heads;
  return (head % heads.key_heads * group + head / heads.key_heads) * width + row % width;
}

}  // namespace tyto
