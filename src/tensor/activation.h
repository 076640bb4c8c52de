// What a gate goes through before it multiplies.
#pragma once

#include <cstdint>

namespace tyto {

enum class Activation : uint8_t {
  silu,       // x / (1 + exp(-x))
  gelu_tanh,  // GELU as tanh approximates it, which is how Gemma was trained
  // gpt-oss: g / (1 + exp(-1.702 g)) with g = min(gate, 7); what it multiplies becomes 1 + up, with
  // up bounded to -7..7
  swiglu_oai,
  sigmoid,  // 1 / (1 + exp(-x)), of the attention's output
  none,     // x
  relu,     // max(x, 0); of what it multiplies, too, it is squared ReLU
};

}  // namespace tyto
