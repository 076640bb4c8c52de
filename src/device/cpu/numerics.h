// What a matrix product does to its operands before it adds up in f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"

namespace tyto::cpu {

enum class Numerics : uint8_t {
  bf16,   // nothing: operands as they are stored
  bfp16,  // products of more than one row take both operands as bfp16ebs8, as the array's GEMMs do
};

constexpr size_t kBfp16Block = 8;

// Eight values, fewer at the end, with one exponent and signed 8-bit mantissas.
void round_to_bfp16(float* values, size_t count);
// Rows of an operand, each in blocks of its own.
std::vector<float> in_blocks(const float* values, size_t rows, size_t width, ThreadPool& pool);

}  // namespace tyto::cpu
