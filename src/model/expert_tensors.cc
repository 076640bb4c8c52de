#include "model/expert_tensors.h"

#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "base/utf8.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// The end of a name, a star in the place of the expert's number, and what weight_specs() has there.
struct Rename {
  NameStyle style;
  std::string_view stored;
  std::string_view together;
};
constexpr Rename kRenames[] = {
    // Files of before GGUF had tensors of three dimensions for them.
    {NameStyle::gguf, "ffn_gate.*.weight", "ffn_gate_exps.weight"},
    {NameStyle::gguf, "ffn_up.*.weight", "ffn_up_exps.weight"},
    {NameStyle::gguf, "ffn_down.*.weight", "ffn_down_exps.weight"},
    {NameStyle::hugging_face, "mlp.experts.*.gate_proj.weight", "mlp.experts.*.gate_proj.weight"},
    {NameStyle::hugging_face, "mlp.experts.*.up_proj.weight", "mlp.experts.*.up_proj.weight"},
    {NameStyle::hugging_face, "mlp.experts.*.down_proj.weight", "mlp.experts.*.down_proj.weight"},
    // gpt-oss's.
    {NameStyle::hugging_face, "mlp.router.weight", "mlp.gate.weight"},
    {NameStyle::hugging_face, "mlp.router.bias", "mlp.gate.bias"},
    // Mixtral's.
    {NameStyle::hugging_face, "block_sparse_moe.gate.weight", "mlp.gate.weight"},
    {NameStyle::hugging_face, "block_sparse_moe.experts.*.w1.weight",
     "mlp.experts.*.gate_proj.weight"},
    {NameStyle::hugging_face, "block_sparse_moe.experts.*.w3.weight",
     "mlp.experts.*.up_proj.weight"},
    {NameStyle::hugging_face, "block_sparse_moe.experts.*.w2.weight",
     "mlp.experts.*.down_proj.weight"},
};

// "blk.3." and "model.layers.3." are what stands before the names of a layer.
std::string_view layer_prefix(std::string_view name, NameStyle style) {
  const std::string_view begin = style == NameStyle::gguf ? "blk." : "model.layers.";
  if (!name.starts_with(begin)) return {};
  const size_t dot = name.find('.', begin.size());
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot + 1);
}

// The number that stands for the star; nothing: the name is another. A pattern without a star
// matches itself as number 0.
std::optional<uint32_t> number_in(std::string_view name, std::string_view pattern) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos)
    return name == pattern ? std::optional<uint32_t>(0) : std::nullopt;
  const std::string_view before = pattern.substr(0, star), after = pattern.substr(star + 1);
  if (name.size() <= before.size() + after.size() || !name.starts_with(before) ||
      !name.ends_with(after))
    return std::nullopt;
  const std::string_view digits =
      name.substr(before.size(), name.size() - before.size() - after.size());
  constexpr size_t kMostDigits = 5;
  if (digits.size() > kMostDigits || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  uint32_t number = 0;
  for (const char digit : digits) {
    if (digit < '0' || digit > '9') return std::nullopt;
    number = number * 10 + static_cast<uint32_t>(digit - '0');
  }
  return number;
}

// Which of all experts' matrices a tensor belongs to.
struct Place {
  std::string together;
  uint32_t expert = 0;
  bool is_of_one = false;  // expert
};

Place place_of(std::string_view name, NameStyle style) {
  const std::string_view prefix = layer_prefix(name, style);
  if (prefix.empty()) return {std::string(name)};
  for (const Rename& rename : kRenames) {
    if (rename.style != style) continue;
    if (const auto number = number_in(name.substr(prefix.size()), rename.stored))
      return {std::string(prefix) + std::string(rename.together), *number,
              rename.stored.find('*') != std::string_view::npos};
  }
  return {std::string(name)};
}

bool lie_together(const std::vector<const NamedTensor*>& experts) {
  for (size_t i = 1; i < experts.size(); ++i) {
    const auto before = experts[i - 1]->view.bytes;
    if (before.data() + before.size() != experts[i]->view.bytes.data()) return false;
  }
  return true;
}

TensorView together(const std::vector<const NamedTensor*>& experts, Model& model) {
  TensorView all = experts.front()->view;
  const size_t each = all.bytes.size();
  all.rows *= experts.size();
  if (lie_together(experts)) {
    all.bytes = {all.bytes.data(), each * experts.size()};
    return all;
  }
  std::vector<std::byte>& copy = model.copies.emplace_back(each * experts.size());
  for (size_t i = 0; i < experts.size(); ++i)
    std::memcpy(copy.data() + i * each, experts[i]->view.bytes.data(), each);
  all.bytes = copy;
  return all;
}

// As GGUFs have routers: with bf16 weights kernels may round what they multiply to bf16, and a
// router's scores decide.
TensorView in_f32(const TensorView& view, Model& model) {
  if (view.dtype == DType::f32) return view;
  std::vector<float> values(view.values());
  dequantize(view.dtype, view.bytes, values);
  const auto bytes = std::as_bytes(std::span(values));
  model.copies.emplace_back(bytes.begin(), bytes.end());
  return {DType::f32, view.rows, view.cols, model.copies.back()};
}

void check_experts(const std::vector<const NamedTensor*>& experts, const std::string& name,
                   const std::string& where) {
  for (size_t i = 0; i < experts.size(); ++i) {
    if (experts[i] == nullptr) fail_input(where, "{}: expert {} is missing", name, i);
    const TensorView &view = experts[i]->view, &first = experts.front()->view;
    if (view.dtype != first.dtype || view.rows != first.rows || view.cols != first.cols)
      fail_input(where + ": tensor " + experts[i]->name,
                 "differs from expert 0's in shape or type");
  }
}

// gpt-oss's tensors, [experts, columns, rows] with every `step`-th row from `first` on of one
// matrix; biases [experts, rows].
struct Turned {
  std::string_view stored;
  std::string_view together;
  uint32_t first;
  uint32_t step;
  bool is_bias;
};
constexpr Turned kTurned[] = {
    {"mlp.experts.gate_up_proj", "mlp.experts.*.gate_proj.weight", 0, 2, false},
    {"mlp.experts.gate_up_proj", "mlp.experts.*.up_proj.weight", 1, 2, false},
    {"mlp.experts.gate_up_proj_bias", "mlp.experts.*.gate_proj.bias", 0, 2, true},
    {"mlp.experts.gate_up_proj_bias", "mlp.experts.*.up_proj.bias", 1, 2, true},
    {"mlp.experts.down_proj", "mlp.experts.*.down_proj.weight", 0, 1, false},
    {"mlp.experts.down_proj_bias", "mlp.experts.*.down_proj.bias", 0, 1, true},
};

template <typename T>
void turn(const TensorView& in, uint64_t experts, const Turned& how, std::byte* out) {
  const T* from = reinterpret_cast<const T*>(in.bytes.data());
  T* to = reinterpret_cast<T*>(out);
  const uint64_t inner = how.is_bias ? 1 : in.rows / experts;
  for (uint64_t e = 0; e < experts; ++e)
    for (uint64_t row = how.first; row < in.cols; row += how.step)
      for (uint64_t i = 0; i < inner; ++i) *to++ = from[(e * inner + i) * in.cols + row];
}

TensorView turned(const TensorView& in, const Config& config, const Turned& how,
                  const std::string& where, Model& model) {
  const DTypeInfo& type = info(in.dtype);
  if (type.block_values != 1 || in.rows % config.experts != 0 || in.cols % how.step != 0 ||
      (how.is_bias && in.rows != config.experts))
    fail_input(where, "{} rows and {} columns of {} are not those of {} experts", in.rows, in.cols,
               type.name, config.experts);
  std::vector<std::byte>& copy = model.copies.emplace_back(in.bytes.size() / how.step);
  if (type.block_bytes == sizeof(uint16_t))
    turn<uint16_t>(in, config.experts, how, copy.data());
  else
    turn<uint32_t>(in, config.experts, how, copy.data());
  const uint64_t width = in.cols / how.step;
  if (how.is_bias) return {in.dtype, config.experts, width, copy};
  return {in.dtype, config.experts * width, in.rows / config.experts, copy};
}

bool add_turned(const NamedTensor& tensor, const Config& config, const std::string& where,
                Model& model, std::vector<NamedTensor>& result) {
  const std::string_view prefix = layer_prefix(tensor.name, NameStyle::hugging_face);
  bool found = false;
  for (const Turned& how : kTurned) {
    if (prefix.empty() || tensor.name.substr(prefix.size()) != how.stored) continue;
    result.push_back({std::string(prefix) + std::string(how.together),
                      turned(tensor.view, config, how, where + ": tensor " + tensor.name, model)});
    found = true;
  }
  return found;
}

}  // namespace

std::vector<NamedTensor> with_experts_together(const std::vector<NamedTensor>& tensors,
                                               const Config& config, NameStyle style,
                                               const std::string& where, Model& model) {
  if (!config.has_experts()) return tensors;
  std::vector<NamedTensor> result;
  std::vector<std::string> order;
  std::unordered_map<std::string, std::vector<const NamedTensor*>> apart;
  for (const NamedTensor& tensor : tensors) {
    if (config.expert_bias && style == NameStyle::hugging_face &&
        add_turned(tensor, config, where, model, result))
      continue;
    Place place = place_of(tensor.name, style);
    if (!place.is_of_one) {
      const bool is_router = place.together.ends_with(".mlp.gate.weight");
      result.push_back(
          {std::move(place.together), is_router ? in_f32(tensor.view, model) : tensor.view});
      continue;
    }
    if (place.expert >= config.experts)
      fail_input(where + ": tensor " + printable_name(tensor.name), "there are {} experts",
                 config.experts);
    std::vector<const NamedTensor*>& experts = apart[place.together];
    if (experts.empty()) order.push_back(place.together);
    experts.resize(config.experts);
    experts[place.expert] = &tensor;
  }
  for (const std::string& name : order) {
    check_experts(apart[name], name, where);
    result.push_back({name, together(apart[name], model)});
  }
  return result;
}

std::vector<WeightSpec> specs_of_each_expert(const Config& config,
                                             const std::vector<WeightSpec>& specs) {
  if (config.expert_bias)
    throw Error(ErrorCode::unsupported, config.name,
                "checkpoint folders of this family are read, and not written", "write a GGUF");
  const bool is_mixtral = config.architecture == "mixtral";
  const auto stored_name = [&](const std::string& name) {
    const std::string_view prefix = layer_prefix(name, NameStyle::hugging_face);
    for (const Rename& rename : kRenames)
      if (is_mixtral && rename.stored.starts_with("block_sparse_moe.") &&
          name.substr(prefix.size()) == rename.together)
        return std::string(prefix) + std::string(rename.stored);
    return name;
  };
  std::vector<WeightSpec> result;
  for (const WeightSpec& spec : specs) {
    const std::string name = stored_name(spec.name);
    const size_t star = name.find('*');
    const uint32_t count = star == std::string::npos ? 1 : config.experts;
    for (uint32_t i = 0; i < count; ++i) {
      WeightSpec& each = result.emplace_back(spec);
      each.name = name;
      each.rows = spec.rows / count;
      each.slices = 0;
      if (star != std::string::npos) each.name.replace(star, 1, std::to_string(i));
    }
  }
  return result;
}

}  // namespace tyto
