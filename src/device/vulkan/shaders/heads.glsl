// What all kernels on attention heads share: their constants, the KV cache, rotary angles.
#ifndef HEADS_GLSL
#define HEADS_GLSL
#include "call.glsl"

layout(constant_id = 1) const uint HEAD_DIM = 64;  // even
layout(constant_id = 2) const uint PAGE = 256;     // positions of a page
layout(constant_id = 3) const uint CACHE = F16;    // type of the caches: F32, BF16, F16
layout(constant_id = 4) const uint PAIRS = 0;      // rope turns 0: d with d + ROTATED / 2, 1: neighbours
layout(constant_id = 5) const uint NORM = 0;       // 1: heads of q and k are normalised before rope
layout(constant_id = 6) const uint ROTATED = 64;   // a head's first dimensions that rope turns, even
layout(constant_id = 7) const uint WINDOW = 0;     // positions that a row sees, its own too; 0: all

const uint HALF = HEAD_DIM / 2;

// A row's list of pages, for the layer's window or for none.
uint list_of_pages(Words call, uint pages) {
  return WINDOW != 0 ? pages + window_pages(call) : pages;
}

// The first position that a row at `position` sees.
uint first_seen(uint position) {
  return WINDOW != 0 && position >= WINDOW ? position + 1 - WINDOW : 0;
}

// Row of a cache [pages][kv_heads][PAGE][HEAD_DIM] that holds a position of one KV head.
uint cache_row(Words call, uint pages, uint kv_heads, uint head, uint position) {
  return (call.at[pages + position / PAGE] * kv_heads + head) * PAGE + position % PAGE;
}

// Dimensions 2 * pair and 2 * pair + 1 of a cache's row.
void store_cache_pair(Words cache, uint row, uint pair, vec2 value) {
  if (CACHE == F32) {
    cache.at[row * HEAD_DIM + 2 * pair] = floatBitsToUint(value.x);
    cache.at[row * HEAD_DIM + 2 * pair + 1] = floatBitsToUint(value.y);
  } else {
    cache.at[row * HALF + pair] = pack16(value, CACHE);
  }
}

// The dimension that `d` < ROTATED is turned with; which angle; which way.
uint rope_partner(uint d) {
  if (PAIRS != 0) return d ^ 1;
  return d < ROTATED / 2 ? d + ROTATED / 2 : d - ROTATED / 2;
}

uint rope_index(uint d) {
  if (PAIRS != 0) return d / 2;
  return d < ROTATED / 2 ? d : d - ROTATED / 2;
}

float rope_sign(uint d) {
  return (PAIRS != 0 ? (d & 1) == 0 : d < ROTATED / 2) ? -1 : 1;
}

// Cosine and sine of angle >= 0 to f32's last bit or two. Vulkan promises 11 bits and only up to
// pi, positions go to 100000s. The angle in turns is a product of its 24-bit mantissa and 1 / 2 pi
// in 64 bits, of which the whole turns are dropped.
vec2 cos_sin(float angle) {
  float rest = angle;
  int quarter = 0;
  if (angle >= 0.5) {
    const uint bits = floatBitsToUint(angle);
    const uint mantissa = (bits & 0x7fffffu) | 0x800000u;
    const uint fraction_bits = 150u - (bits >> 23);  // 24 at 0.5, 0 at 2^23
    uint high, low, carried, unused;
    umulExtended(mantissa, 0x28be60dbu, high, low);
    umulExtended(mantissa, 0x9391054au, carried, unused);
    low = uaddCarry(low, carried, carried);
    high += carried;
    const uint turns = fraction_bits == 0 ? low : high << (32 - fraction_bits) | low >> fraction_bits;
    quarter = int((turns + 0x20000000u) >> 30);
    rest = float(int(turns - (uint(quarter) << 30))) * 1.4629180792671596e-9;  // 2 pi / 2^32
  }
  const float s = rest * rest;
  const float sine =
      rest + rest * s * (-1.0 / 6 + s * (1.0 / 120 + s * (-1.0 / 5040 + s * (1.0 / 362880))));
  const float cosine = 1 + s * (-0.5 + s * (1.0 / 24 + s * (-1.0 / 720 + s * (1.0 / 40320))));
  const vec2 turned = (quarter & 1) == 0 ? vec2(cosine, sine) : vec2(-sine, cosine);
  return (quarter & 2) == 0 ? turned : -turned;
}

// Cosine and sine of an angle. A table's row is all cosines, then all sines.
vec2 rope_cos_sin(Floats table, uint row, uint index) {
  return vec2(table.at[row * ROTATED + index], table.at[row * ROTATED + ROTATED / 2 + index]);
}
#endif
