#include "device/npu/formats/heads_first.h"

#include <cstring>

namespace tyto {
namespace {

constexpr uint64_t kValueBytes = sizeof(uint16_t);

}  // namespace

void to_heads_first(const HeadsFirst& form, const uint16_t* by_row, uint64_t rows,
                    uint16_t* by_head, ThreadPool& pool) {
  pool.parallel_for(form.cols / form.run, 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      uint16_t* const head = by_head + r * form.seq * form.run;
      for (uint64_t t = 0; t < rows; ++t)
        std::memcpy(head + t * form.run, by_row + t * form.cols + r * form.run,
                    form.run * kValueBytes);
      std::memset(head + rows * form.run, 0, (form.seq - rows) * form.run * kValueBytes);
    }
  });
}

void from_heads_first(const HeadsFirst& form, const uint16_t* by_head, uint64_t rows,
                      uint16_t* by_row, ThreadPool& pool) {
  pool.parallel_for(form.cols / form.run, 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r)
      for (uint64_t t = 0; t < rows; ++t)
        std::memcpy(by_row + t * form.cols + r * form.run, by_head + (r * form.seq + t) * form.run,
                    form.run * kValueBytes);
  });
}

}  // namespace tyto
