#include "program/pattern.h"

#include <algorithm>

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

Pattern simplified(const Pattern& pattern) {
  Pattern result{pattern.offset, {}};
  for (const Pattern::Dim& dim : pattern.dims) {
    if (dim.size == 1) continue;
    if (!result.dims.empty() && result.dims.back().stride == dim.size * dim.stride)
      result.dims.back() = {result.dims.back().size * dim.size, dim.stride};
    else
      result.dims.push_back(dim);
  }
  if (result.dims.size() == 1 && result.dims[0].stride == 1) result.dims.clear();
  return result;
}

void for_each_stretch(const Pattern& pattern, uint64_t values,
                      const std::function<void(const Stretch&)>& visit) {
  for_each_stretch(pattern, 0, values, visit);
}

void for_each_stretch(const Pattern& pattern, uint64_t begin, uint64_t end,
                      const std::function<void(const Stretch&)>& visit) {
  if (begin >= end) return;
  if (pattern.is_contiguous()) return visit({begin, end - begin, pattern.offset + begin, 1});
  const size_t outer = pattern.dims.size() - 1;
  const Pattern::Dim inner = pattern.dims.back();
  std::vector<uint64_t> index(outer);
  uint64_t at = pattern.offset;
  uint64_t rest = begin / inner.size;
  for (size_t d = outer; d-- > 0;) {
    index[d] = rest % pattern.dims[d].size;
    rest /= pattern.dims[d].size;
    at += index[d] * pattern.dims[d].stride;
  }
  uint64_t skipped = begin % inner.size;  // in the first stretch
  for (uint64_t first = begin; first < end; skipped = 0) {
    const uint64_t count = std::min(inner.size - skipped, end - first);
    visit({first, count, at + skipped * inner.stride, inner.stride});
    first += count;
    for (size_t d = outer; d-- > 0;) {  // an odometer
      at += pattern.dims[d].stride;
      if (++index[d] < pattern.dims[d].size) break;
      at -= pattern.dims[d].size * pattern.dims[d].stride;
      index[d] = 0;
    }
  }
}

}  // namespace tyto
