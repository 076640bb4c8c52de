// What a gate goes through before it multiplies, and what bounds a value: as tensor/activation.h
// and soft_cap have it.
#ifndef GATES_GLSL
#define GATES_GLSL
const uint SILU = 0, GELU_TANH = 1, SWIGLU_OAI = 2, SIGMOID = 3, NONE = 4, RELU = 5;

// min(x, y) that keeps a NaN of x.
vec4 bounded(vec4 value, float least, float most) {
  return mix(clamp(value, least, most), value, isnan(value));
}

vec4 gated(uint activation, vec4 gate, vec4 up) {
  if (activation == GELU_TANH)  // gate / 2 * (1 + tanh(u)) = gate / (1 + exp(-2u))
    return gate / (1 + exp(-gate * (0.0713548163 * gate * gate + 1.59576912))) * up;
  if (activation == SWIGLU_OAI) {
    const vec4 most = bounded(gate, -3.0e38, 7.0);
    return most / (1 + exp(-1.702 * most)) * (1 + bounded(up, -7.0, 7.0));
  }
  if (activation == SIGMOID) return up / (1 + exp(-gate));
  if (activation == NONE) return gate * up;
  if (activation == RELU) return bounded(gate, 0, 3.4e38) * up;
  return gate / (1 + exp(-gate)) * up;
}

float gated(uint activation, float gate, float up) {
  return gated(activation, vec4(gate), vec4(up)).x;
}

// cap * tanh(x / cap); Vulkan's own tanh may be off by more.
vec4 capped(vec4 value, float cap) {
  return cap - 2 * cap / (exp(2 / cap * value) + 1);
}

float capped(float value, float cap) {
  return cap - 2 * cap / (exp(2 / cap * value) + 1);
}
#endif
