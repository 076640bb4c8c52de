// How a pull speaks with whoever started it. Hooks are called between transfers, never inside one.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/progress.h"

namespace tyto {

struct HubHooks {
  Progress progress;                                  // bytes of all files
  std::function<void(const std::string& line)> note;  // something people want to know
  std::function<bool()> is_interrupted;               // by Ctrl-C
};

// Thrown where a wait was interrupted. What was fetched is kept.
struct PullInterrupted {};

void check_interrupted(const HubHooks& hooks);
void pause(std::chrono::milliseconds time, const HubHooks& hooks);

}  // namespace tyto
