#include "trace/trace.h"

#include <algorithm>

namespace tyto {

DeviceCounters& Trace::device(std::string_view name, bool is_virtual) {
  for (DeviceCounters& counters : devices_)
    if (counters.device == name) return counters;
  devices_.push_back({.device = std::string(name), .is_virtual = is_virtual});
  return devices_.back();
}

void Trace::fallback(const std::string& what_and_why) {
  if (std::find(fallbacks_.begin(), fallbacks_.end(), what_and_why) == fallbacks_.end())
    fallbacks_.push_back(what_and_why);
}

}  // namespace tyto
