#include "program/pattern.h"

#include "base/error.h"

namespace tyto {

Pattern transposed(uint64_t rows, uint64_t cols) {
  return {0, {{rows, 1}, {cols, rows}}};
}

Pattern rows_apart(uint64_t offset, uint64_t rows, uint64_t cols, uint64_t stride) {
  return {offset, {{rows, stride}, {cols, 1}}};
}

uint64_t end_of(const Pattern& pattern, uint64_t values) {
  if (values == 0 || pattern.is_contiguous()) return pattern.offset + values;
  uint64_t last = pattern.offset;
  for (const Pattern::Dim& dim : pattern.dims) last += (dim.size - 1) * dim.stride;
  return last + 1;
}

void for_each_stretch(const Pattern& pattern, uint64_t values,
                      const std::function<void(const Stretch&)>& visit) {
  if (pattern.is_contiguous()) return visit({0, values, pattern.offset, 1});
  const size_t outer = pattern.dims.size() - 1;
  const Pattern::Dim inner = pattern.dims.back();
  std::vector<uint64_t> index(outer);
  uint64_t at = pattern.offset;
  for (uint64_t first = 0; first < values; first += inner.size) {
    visit({first, inner.size, at, inner.stride});
    for (size_t d = outer; d-- > 0;) {  // an odometer
      at += pattern.dims[d].stride;
      if (++index[d] < pattern.dims[d].size) break;
      at -= pattern.dims[d].size * pattern.dims[d].stride;
      index[d] = 0;
    }
  }
}

}  // namespace tyto
