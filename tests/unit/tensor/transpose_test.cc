#include "tensor/float16.h"

#include <gtest/gtest.h>

#include <vector>

namespace tyto {
namespace {

TEST(Transpose, TurnsEveryShapeAndTouchesNothingElse) {
  constexpr uint16_t kUntouched = 0xffff;
  for (uint64_t rows : {1, 7, 8, 9, 31, 40, 65})
    for (uint64_t cols : {1, 3, 8, 15, 16, 50}) {
      const uint64_t in_stride = cols + 3, out_stride = rows + 5;
      std::vector<uint16_t> in(rows * in_stride);
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(i);
      std::vector<uint16_t> out(cols * out_stride, kUntouched);
      transpose_16bit(in.data(), in_stride, rows, cols, out.data(), out_stride);
      for (uint64_t c = 0; c < cols; ++c)
        for (uint64_t r = 0; r < out_stride; ++r)
          ASSERT_EQ(out[c * out_stride + r], r < rows ? in[r * in_stride + c] : kUntouched)
              << rows << " x " << cols << " at " << r << ", " << c;
    }
}

}  // namespace
}  // namespace tyto
