// Writing a model's tensors into the layouts that kernels were compiled for.
#pragma once

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "program/pattern.h"
#include "tensor/view.h"

namespace tyto {

// Rows [first_row, first_row + rows) of `tensor`, of whatever type, to `argument` as bf16: the
// place of the r-th of them is the place of row r of `place`.
void place_rows(const TensorView& tensor, uint64_t first_row, uint64_t rows, const Pattern& place,
                std::span<uint16_t> argument, ThreadPool& pool);

}  // namespace tyto
