// A matrix's rows cut into units: what one thread reads at once. A unit is WORDS words of codes and
// what scales them, UNIT_VALUES values of a row.

#if defined(BF16) || defined(F16) || defined(F32)
#define WORDS 4
#elif !defined(WORDS)
#define WORDS 2
#endif

#if defined(F32)
#define UNIT_VALUES 4u
#elif defined(BF16) || defined(F16)
#define UNIT_VALUES 8u
#elif defined(Q8_0) || defined(I8)
#define UNIT_VALUES (4u * WORDS)
#elif defined(Q4_0) || defined(Q4_K) || defined(Q5_K) || defined(NIBBLES)
#define UNIT_VALUES (8u * WORDS)
#elif defined(Q6_K) || defined(Q2_K) || defined(Q3_K)
#define UNIT_VALUES (16u * WORDS)
#endif

#if WORDS == 4
#define VECTOR uvec4
#else
#define VECTOR uvec2
#endif

layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer Vectors { VECTOR at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) readonly buffer FourWords { uvec4 at[]; };

struct Unit {
  VECTOR codes;
#if defined(Q8_0) || defined(Q4_0)
  uint scale;  // f16 in the low half
#elif defined(Q4_K)
  uvec4 scales;
#elif defined(Q5_K)
  uvec4 scales;
  VECTOR high;
#elif defined(NIBBLES)
  vec2 factors;
  uint high;  // the fifth bits of its low nibbles, and from bit 16 on of its high ones
#elif defined(Q2_K) || defined(Q3_K)
  VECTOR high;
  vec2 factors[4];  // the quarters'
#elif defined(Q6_K)
  VECTOR low[2];
  uvec2 scales;  // the four quarters', in bytes 0 and 2
  uint factor;   // f16 in the low half
#endif
};

uint unit_count(uint k) { return (k + UNIT_VALUES - 1u) / UNIT_VALUES; }

// Half number `index` of those that begin at a word, in the low half.
uint half_bits_at(Words words, uint first, uint index) {
  return words.at[first + (index >> 1)] >> (16u * (index & 1u));
}

Unit read_unit(Words w, uint rows, uint k, uint row, uint index) {
  Unit unit;
#if defined(F32)
  unit.codes = Vectors(w).at[row * (padded(k) / 4u) + index];
#elif defined(BF16) || defined(F16)
  unit.codes = Vectors(w).at[row * (padded(k) / 8u) + index];
#elif defined(I8)
  unit.codes = Vectors(w).at[row * (padded(k) / (4u * WORDS)) + index];
#elif defined(Q8_0)
  unit.codes = Vectors(w).at[row * (k / (4u * WORDS)) + index];
  unit.scale = half_bits_at(w, plane_words(rows * (k / 4u)), row * (k / 32u) + index / (8u / WORDS));
#elif defined(Q4_0)
  unit.codes = Vectors(w).at[row * (k / (8u * WORDS)) + index];
  unit.scale = half_bits_at(w, plane_words(rows * (k / 8u)), row * (k / 32u) + index / (4u / WORDS));
#elif defined(Q4_K)
  unit.codes = Vectors(w).at[row * (k / (8u * WORDS)) + index];
  unit.scales = FourWords(w).at[plane_words(rows * (k / 8u)) / 4u + row * (k / 256u) + index / (32u / WORDS)];
#elif defined(Q5_K)
  const uint super = row * (k / 256u) + index / (32u / WORDS);
  const uint headers = plane_words(rows * (k / 8u)), high = headers + plane_words(rows * (k / 256u) * 4u);
  unit.codes = Vectors(w).at[row * (k / (8u * WORDS)) + index];
  unit.scales = FourWords(w).at[headers / 4u + super];
  unit.high = Vectors(w).at[(high + super * 8u) / WORDS + index % (8u / WORDS)];
#elif defined(NIBBLES)
  const uint block = row * (k / 32u) + index / (4u / WORDS);
  unit.codes = Vectors(w).at[row * (k / (8u * WORDS)) + index];
  unit.factors = block_factors(w, rows, k, block);
  unit.high = high_bits(w, rows, k, block) >> (index % (4u / WORDS) * 4u * WORDS);
#elif defined(Q2_K) || defined(Q3_K)
  const uint super = row * (k / 256u) + index / (16u / WORDS);
  const uint second = index / (8u / WORDS) % 2u, at = index % (8u / WORDS);
  unit.codes = Vectors(w).at[row * (k / (16u * WORDS)) + index];
  unit.high = VECTOR(0u);
#if defined(Q3_K)
  const uint high = plane_words(rows * (k / 256u) * 16u);
  unit.high = Vectors(w).at[(high + super * 8u) / WORDS + at] >> (4u * second);
#endif
  for (uint q = 0; q < 4; ++q)
    unit.factors[q] = sub_block_factors(w, rows, k, super, second * 8u + 2u * q + (at < 4u / WORDS ? 0u : 1u));
#elif defined(Q6_K)
  const uint supers = rows * (k / 256u), super = row * (k / 256u) + index / (16u / WORDS);
  const uint high = plane_words(supers * 32u), scales = high + plane_words(supers * 16u);
  const uint factors = scales + plane_words(supers * 4u);
  const uint second = index / (8u / WORDS) % 2u, at = index % (8u / WORDS);
  unit.codes = Vectors(w).at[high / WORDS + row * (k / (16u * WORDS)) + index];
  unit.low[0] = Vectors(w).at[(super * 32u + second * 16u) / WORDS + at];
  unit.low[1] = Vectors(w).at[(super * 32u + second * 16u + 8u) / WORDS + at];
  const uint word = scales + super * 4u + second * 2u;
  unit.scales = uvec2(w.at[word], w.at[word + 1u]) >> (at < 4u / WORDS ? 0u : 8u);
  unit.factor = half_bits_at(w, factors, super);
#endif
  return unit;
}

float half_value(uint bits) { return unpackHalf2x16(bits).x; }

#if defined(Q4_K) || defined(Q5_K)
// Scales and minima of the sub-blocks of a unit's low and of its high nibbles, times their factors.
vec4 unit_scales(const Unit unit, uint index) {
  const uint sub = index / (8u / WORDS) % 4u * 2u;
  const vec2 factors = unpackHalf2x16(unit.scales.x);
  const vec2 low = factors * q4_k_scale(unit.scales.yzw, sub), high = factors * q4_k_scale(unit.scales.yzw, sub + 1u);
  return vec4(low.x, high.x, low.y, high.y);
}
#elif defined(Q6_K)
// Codes of six bits in the bytes of a word for each quarter of 128 values.
uvec4 unit_codes(const Unit unit, uint i) {
  const uint high = unit.codes[i], low0 = unit.low[0][i], low1 = unit.low[1][i];
  return (uvec4(low0, low1, low0 >> 4, low1 >> 4) & 0x0f0f0f0fu) |
         (uvec4(high << 4, high << 2, high, high >> 2) & 0x30303030u);
}

vec4 unit_scales(const Unit unit) {
  const ivec2 even = bitfieldExtract(ivec2(unit.scales), 0, 8), odd = bitfieldExtract(ivec2(unit.scales), 16, 8);
  return half_value(unit.factor) * vec4(even.x, odd.x, even.y, odd.y);
}
#endif
