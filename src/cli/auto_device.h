// --device auto: which device, by what was measured on this machine or else is modelled.
// docs/run.md is the user's side.
#pragma once

#include "plan/device_choice.h"

namespace tyto {

struct EngineFlags;

inline constexpr const char* kAutoDevice = "auto";

// Where the flags say auto: makes flags.device the device and says why on stderr. What --require
// asks for is then the only choice, and not to have it a require Error. Where they name a device:
// refuses the flags that are for auto alone.
void settle_device(EngineFlags& flags, Workload expected = {});

// Tokens of a text, as far as that can be said without its tokenizer.
uint32_t about_tokens(size_t bytes);

}  // namespace tyto
