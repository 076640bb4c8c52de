// A unit's product with x in whole numbers; x is in shared memory (gemv_dot.comp).

// OpSDotKHR: the dot product of four signed bytes in a word with four others.
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6018, 6019], id = 4450)
int packed_dot(int a, int b, spirv_literal int format);

int byte_products(uint codes, uint word) {
  return 256 * packed_dot(int(codes), x_high[word], 0) + packed_dot(int(codes), x_low[word], 0);
}

// With the row of x whose blocks begin at `block`.
float product(const Unit unit, uint index, uint block) {
#if defined(Q8_0) || defined(I8)
  block += index / 2u;
  int sum = 0;
  for (uint i = 0; i < 4; ++i) sum += byte_products(unit.codes[i], block * 8u + index % 2u * 4u + i);
#if defined(Q8_0)
  return half_value(unit.scale) * x_scale[block] * float(sum);
#else
  return x_scale[block] * float(sum);
#endif
#elif defined(Q4_0)
  block += index;
  int sum = -8 * (x_sum[2u * block] + x_sum[2u * block + 1u]);
  for (uint i = 0; i < 4; ++i) {
    sum += byte_products(unit.codes[i] & 0x0f0f0f0fu, block * 8u + i);
    sum += byte_products((unit.codes[i] >> 4) & 0x0f0f0f0fu, block * 8u + 4u + i);
  }
  return half_value(unit.scale) * x_scale[block] * float(sum);
#elif defined(Q4_K)
  const uint low = block + index / 2u * 2u, high = low + 1u, part = index % 2u;
  ivec2 sums = ivec2(0);
  for (uint i = 0; i < 4; ++i) {
    sums.x += byte_products(unit.codes[i] & 0x0f0f0f0fu, low * 8u + part * 4u + i);
    sums.y += byte_products((unit.codes[i] >> 4) & 0x0f0f0f0fu, high * 8u + part * 4u + i);
  }
  const vec2 x_scales = vec2(x_scale[low], x_scale[high]);
  const vec2 x_sums = x_scales * vec2(x_sum[2u * low + part], x_sum[2u * high + part]);
  const vec4 scales = unit_scales(unit, index);
  return dot(scales.xy, x_scales * vec2(sums)) - dot(scales.zw, x_sums);
#elif defined(Q6_K)
  block += index / 4u * 4u;
  const uint at = index % 4u * 2u;
  ivec4 sums = ivec4(0);
  for (uint i = 0; i < 2; ++i) {
    const uvec4 codes = ((unit_codes(unit, i) | 0x80808080u) - 0x20202020u) ^ 0x80808080u;  // less 32, each
    for (uint q = 0; q < 4; ++q) sums[q] += byte_products(codes[q], (block + q) * 8u + at + i);
  }
  const vec4 x_scales = vec4(x_scale[block], x_scale[block + 1u], x_scale[block + 2u], x_scale[block + 3u]);
  return dot(unit_scales(unit) * x_scales, vec4(sums));
#endif
}
