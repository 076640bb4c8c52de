// How a subgroup of 32 threads holds a cooperative matrix of 16 x 16: eight elements each. Which
// ones is the GPU's business; coop_layout.comp finds out. The number of an element in the matrix
// (16 * row + column) has the bits of the thread's number (0 .. 4) and of the element's in the
// thread (5 .. 7), in some order: three bits of a layout's code say where each of them goes.
uint layout_bit(uint code, uint bit) {
  return code >> (3 * bit) & 7;
}

uint number_in_matrix(uint code, uint thread, uint element) {
  const uint bits = thread | element << 5;
  uint number = 0;
  [[unroll]] for (uint bit = 0; bit < 8; ++bit) number |= (bits >> bit & 1) << layout_bit(code, bit);
  return number;
}

// Elements of a thread are in one row where these bits of their numbers are equal.
uint row_of_thread(uint code, uint element) {
  uint row = 0;
  [[unroll]] for (uint bit = 0; bit < 3; ++bit)
    if (layout_bit(code, 5 + bit) >= 4) row |= element & 1 << bit;
  return row;
}

// Whether threads whose numbers differ in this bit alone have the same rows.
bool shares_rows(uint code, uint bit) {
  return layout_bit(code, bit) < 4;
}
