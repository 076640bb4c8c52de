#include "plan/public_images.h"

#include <algorithm>
#include <span>

#include "model/shapes.h"

namespace tyto {
namespace {

// Models the projects' public tables name kernels or runs for.
constexpr std::string_view kIronShapes[] = {"llama-3.2-1b"};
constexpr std::string_view kAirBf16Shapes[] = {"llama-3.2-1b", "llama-3.2-3b", "smollm2-1.7b",
                                               "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",
                                               "qwen3-0.6b",   "qwen3-1.7b",   "qwen3-4b"};
constexpr std::string_view kAirQ4nxShapes[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b",
                                               "qwen2.5-3b",   "qwen2.5-7b",   "qwen3-8b"};
constexpr std::string_view kFlmShapes[] = {"llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b",
                                           "qwen2.5-3b",   "qwen3-0.6b",   "qwen3-1.7b",
                                           "qwen3-4b",     "qwen3-8b"};

// By dimensions, since files call the same model by many names.
bool listed(std::span<const std::string_view> names, const Config& config) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    const Config known = shape_by_name(name);
    return known.layers == config.layers && known.emb == config.emb &&
           known.hidden == config.hidden && known.heads == config.heads &&
           known.kv_heads == config.kv_heads && known.vocab == config.vocab;
  });
}

std::span<const std::string_view> public_shapes(const PlanOption& option) {
  switch (option.kernels) {
    case KernelSet::air_bf16:
      return option.fusion == Fusion::op ? std::span<const std::string_view>(kIronShapes)
                                         : std::span<const std::string_view>(kAirBf16Shapes);
    case KernelSet::air_q4nx:
      return kAirQ4nxShapes;
    case KernelSet::flm_q4:
      return kFlmShapes;
  }
  return {};
}

}  // namespace

bool has_public_images(const PlanOption& option, const Config& config) {
  return listed(public_shapes(option), config);
}

}  // namespace tyto
