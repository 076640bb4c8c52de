#include "device/vnpu/machine/loaded_image.h"

#include <algorithm>
#include <utility>

namespace tyto::vxrt {
namespace {

// Repacked weights are handed to the interpreter in one piece.
std::vector<Pattern> patterns_of(const Instance& instance) {
  std::vector<Pattern> patterns;
  for (size_t i = 0; i < instance.places.size(); ++i)
    patterns.push_back(is_repacked(instance, i) ? Pattern{} : instance.places[i].pattern);
  return patterns;
}

}  // namespace

LoadedInstance::LoadedInstance(const Instance& loaded)
    : instance(loaded),
      reach(loaded.arguments.size()),
      repacked(loaded.places.size()),
      interpreter(loaded.program, patterns_of(loaded)),
      scratch(loaded.places.size()) {
  const auto& slots = loaded.program.slots;
  std::vector<bool> is_written(slots.size());
  for (const Launch& launch : loaded.program.launches)
    for (const Arg& arg : launch.args)
      if (arg.writes) is_written[arg.slot] = true;
  for (size_t i = 0; i < slots.size(); ++i) {
    repacked[i] = is_repacked(loaded, i);
    const int32_t argument = loaded.places[i].argument;
    if (argument < 0) continue;
    uint64_t& bytes = reach[static_cast<size_t>(argument)];
    bytes = std::max(bytes, vxrt::reach(slots[i], loaded.places[i]));
    if (is_written[i]) written.push_back(static_cast<uint16_t>(i));
  }
}

LoadedImage::LoadedImage(Image loaded) : image(std::move(loaded)) {
  for (const Instance& instance : image.instances)
    instances.push_back(std::make_unique<LoadedInstance>(instance));
}

LoadedInstance* LoadedImage::find(const std::string& name) const {
  for (const auto& loaded : instances)
    if (loaded->instance.name == name) return loaded.get();
  return nullptr;
}

}  // namespace tyto::vxrt
