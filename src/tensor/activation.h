// What the gate of a feed-forward layer goes through before it multiplies.
#pragma once

#include <cstdint>

namespace tyto {

enum class Activation : uint8_t {
  silu,       // x / (1 + exp(-x))
  gelu_tanh,  // GELU as tanh approximates it, which is how Gemma was trained
};

}  // namespace tyto
