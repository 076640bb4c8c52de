#include "hub/hooks.h"

#include <algorithm>
#include <thread>

namespace tyto {

void check_interrupted(const HubHooks& hooks) {
  if (hooks.is_interrupted && hooks.is_interrupted()) throw PullInterrupted{};
}

void pause(std::chrono::milliseconds time, const HubHooks& hooks) {
  constexpr std::chrono::milliseconds kSlice(100);
  for (; time.count() > 0; time -= std::min(time, kSlice)) {
    check_interrupted(hooks);
    std::this_thread::sleep_for(std::min(time, kSlice));
  }
}

}  // namespace tyto
