// Eight or two dimensions of rows of a KV cache, as they lie in memory, and their values. LANES: of
// the including kernel.

// Eight dimensions of a row as they lie in memory; `high` is of F32 caches alone.
struct Piece {
  uvec4 low, high;
};

uint row_words() {
  return CACHE == F32 ? HEAD_DIM : HALF;
}

// Where `row` of a cache begins, `words` later.
Words cache_at(Words cache, uint row, uint words) {
  uvec2 bytes;
  umulExtended(row, 4 * row_words(), bytes.y, bytes.x);
  uvec2 address = uvec2(cache);
  uint carry;
  address.x = uaddCarry(address.x, bytes.x, carry);
  address.y += bytes.y + carry;
  address.x = uaddCarry(address.x, 4 * words, carry);
  address.y += carry;
  return Words(address);
}

// Eight dimensions from d on, which begin `words` after `cache`; zeros beyond the row.
Piece load_piece(Words cache, uint words, uint d) {
  Piece piece = Piece(uvec4(0), uvec4(0));
  if (HEAD_DIM % (8 * LANES) != 0 && d >= HEAD_DIM) return piece;
  if (HEAD_DIM % 8 == 0) {
    piece.low = WordQuads(cache).at[words / 4];
    if (CACHE == F32) piece.high = WordQuads(cache).at[words / 4 + 1];
    return piece;
  }
  const uint left = row_words() - (CACHE == F32 ? d : d / 2);
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    if (i < left) piece.low[i] = cache.at[words + i];
    if (CACHE == F32 && i + 4 < left) piece.high[i] = cache.at[words + i + 4];
  }
  return piece;
}

// The four values of a half of a piece.
vec4 values_of(Piece piece, uint part) {
  if (CACHE == F32) return uintBitsToFloat(part == 0 ? piece.low : piece.high);
  const uvec2 words = part == 0 ? piece.low.xy : piece.low.zw;
  return vec4(unpack16(words.x, CACHE), unpack16(words.y, CACHE));
}

vec2 pair_of(uvec2 words) {
  return CACHE == F32 ? uintBitsToFloat(words) : unpack16(words.x, CACHE);
}
