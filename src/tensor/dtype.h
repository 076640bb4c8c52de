// Element types of weights and activations. Block-quantised types follow GGUF's public layouts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tyto {

enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  i32,
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q4_k,
  q5_k,
  q6_k,
  i8,  // operands of an NPU's integer GEMM; no model file holds it
  q2_k,
  q3_k,
  iq4_nl,
  iq4_xs,
  iq3_xxs,
  iq3_s,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq1_s,
  iq1_m,
  mxfp4,
};

struct DTypeInfo {
  DType type;
  std::string_view name;  // as GGUF tools print it, lower case: "q4_k"
  uint32_t ggml_id;       // number in a GGUF tensor record
  uint32_t block_values;  // values per block; 1 for plain types
  uint32_t block_bytes;   // bytes per block
};

const DTypeInfo& info(DType type);
std::optional<DType> dtype_from_ggml(uint32_t ggml_id);
std::optional<DType> dtype_from_name(std::string_view name);  // case-insensitive

// Whether quantize() makes it. From q2_k on types are read and not written.
bool is_encodable(DType type);

// Bytes of `values` consecutive values; values must be a multiple of the block.
uint64_t row_bytes(DType type, uint64_t values);

// A tensor that another object owns: type, shape, bytes. Never allocates.

// Row-major, at most two dimensions: [rows, cols], a vector being [1, cols].
// (Llama-family weights have no more; the KV cache and activations are addressed by their kernels.)
struct TensorView {
  DType dtype = DType::f32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  std::span<const std::byte> bytes = {};

  bool empty() const { return bytes.empty(); }
  uint64_t values() const { return rows * cols; }
  uint64_t row_stride() const { return row_bytes(dtype, cols); }
  std::span<const std::byte> row(uint64_t index) const {
    return bytes.subspan(index * row_stride(), row_stride());
  }
};

}  // namespace tyto
