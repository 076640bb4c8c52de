#include "power/power.h"

#include <algorithm>
#include <iterator>

namespace tyto {

std::vector<RailReader> power_rails(const PowerSources& sources) {
  std::vector<RailReader> rails;
  const auto add = [&rails](std::vector<RailReader> more) {
    std::move(more.begin(), more.end(), std::back_inserter(rails));
  };
  add(rapl_rails(sources.root));
  add(amdgpu_rails(sources.root));
  add(amdxdna_rails(sources.root));
  if (!sources.nvml.empty()) add(nvml_rails(sources.nvml));
  return rails;
}

}  // namespace tyto
