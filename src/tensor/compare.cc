#include "tensor/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "tensor/quant.h"
#include "tensor/quant_blocks.h"

namespace tyto {

Comparison compare(std::span<const float> actual, std::span<const float> reference) {
  TYTO_ASSERT(actual.size() == reference.size());
  Comparison result;
  double dot = 0, actual_norm = 0, reference_norm = 0, error_norm = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double a = actual[i], b = reference[i];
    if (!std::isfinite(a) || !std::isfinite(b)) result.finite = false;
    dot += a * b;
    actual_norm += a * a;
    reference_norm += b * b;
    error_norm += (a - b) * (a - b);
    result.max_abs_error = std::max(result.max_abs_error, std::fabs(a - b));
    result.max_abs_reference = std::max(result.max_abs_reference, std::fabs(b));
  }
  const double norms = std::sqrt(actual_norm) * std::sqrt(reference_norm);
  result.cosine = norms > 0 ? dot / norms : (actual_norm == reference_norm ? 1.0 : 0.0);
  result.nmse = reference_norm > 0 ? error_norm / reference_norm : error_norm;
  return result;
}

namespace {

// An exponent with all bits set is that of an infinity or a NaN. Most of the loop has a fixed
// length, which compilers make vector code of.
template <typename Word>
bool plain_finite(std::span<const std::byte> bytes, Word exponent) {
  const auto is_bad = [&](size_t i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    return static_cast<Word>((word & exponent) == exponent ? 1 : 0);
  };
  constexpr size_t kAtOnce = 64;
  const size_t count = bytes.size() / sizeof(Word);
  Word found = 0;
  size_t i = 0;
  for (; i + kAtOnce <= count; i += kAtOnce)
    for (size_t k = 0; k < kAtOnce; ++k) found = static_cast<Word>(found | is_bad(i + k));
  for (; i < count; ++i) found = static_cast<Word>(found | is_bad(i));
  return found == 0;
}

constexpr uint16_t kF16Exponent = 0x7c00, kBf16Exponent = 0x7f80;
constexpr uint32_t kF32Exponent = 0x7f800000;

// Where a block has its f16 scales, in bytes; the same twice where there is one. A scale that is
// not finite spoils every value of its block: zero times it is NaN too.
struct Scales {
  size_t first, second;
};

bool blocks_finite(std::span<const std::byte> bytes, size_t block_bytes, const Scales& scales) {
  const auto is_bad = [](const std::byte* at) {
    uint16_t half;
    std::memcpy(&half, at, sizeof half);
    return (half & kF16Exponent) == kF16Exponent ? 1u : 0u;
  };
  unsigned found = 0;
  for (size_t i = 0; i + block_bytes <= bytes.size(); i += block_bytes)
    found |= is_bad(&bytes[i + scales.first]) | is_bad(&bytes[i + scales.second]);
  return found == 0;
}

Scales scales_of(DType type) {
  switch (type) {
    case DType::q8_0:
      return {offsetof(BlockQ8_0, d), offsetof(BlockQ8_0, d)};
    case DType::q4_0:
      return {offsetof(BlockQ4_0, d), offsetof(BlockQ4_0, d)};
    case DType::q4_1:
      return {offsetof(BlockQ4_1, d), offsetof(BlockQ4_1, m)};
    case DType::q5_0:
      return {offsetof(BlockQ5_0, d), offsetof(BlockQ5_0, d)};
    case DType::q5_1:
      return {offsetof(BlockQ5_1, d), offsetof(BlockQ5_1, m)};
    case DType::q2_k:
      return {offsetof(BlockQ2K, d), offsetof(BlockQ2K, dmin)};
    case DType::q3_k:
      return {offsetof(BlockQ3K, d), offsetof(BlockQ3K, d)};
    case DType::q4_k:
      return {offsetof(BlockQ4K, d), offsetof(BlockQ4K, dmin)};
    case DType::q5_k:
      return {offsetof(BlockQ5K, d), offsetof(BlockQ5K, dmin)};
    case DType::q6_k:
      return {offsetof(BlockQ6K, d), offsetof(BlockQ6K, d)};
    case DType::iq4_nl:
    case DType::iq4_xs:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq1_s:
      return {0, 0};
    case DType::f32:
    case DType::f16:
    case DType::bf16:
    case DType::i32:
    case DType::i8:
    case DType::iq1_m:
    case DType::mxfp4:
      break;
  }
  TYTO_ASSERT(!"a type whose blocks have f16 scales");
  return {0, 0};
}

static_assert(offsetof(BlockIQ4NL, d) == 0 && offsetof(BlockIQ4XS, d) == 0);
static_assert(offsetof(BlockIQ3XXS, d) == 0 && offsetof(BlockIQ3S, d) == 0);
static_assert(offsetof(BlockIQ2XXS, d) == 0 && offsetof(BlockIQ2XS, d) == 0);
static_assert(offsetof(BlockIQ2S, d) == 0 && offsetof(BlockIQ1S, d) == 0);

bool iq1_m_finite(std::span<const std::byte> bytes) {
  for (size_t i = 0; i + sizeof(BlockIQ1M) <= bytes.size(); i += sizeof(BlockIQ1M)) {
    const auto& block = reinterpret_cast<const BlockIQ1M&>(bytes[i]);
    if ((std::bit_cast<uint16_t>(block.d()) & kF16Exponent) == kF16Exponent) return false;
  }
  return true;
}

// An exponent of at most 252 leaves room for the largest code; beyond it the codes decide.
bool mxfp4_finite(std::span<const std::byte> bytes) {
  constexpr uint8_t kRoomForAll = 252;
  for (size_t i = 0; i + sizeof(BlockMXFP4) <= bytes.size(); i += sizeof(BlockMXFP4)) {
    if (std::to_integer<uint8_t>(bytes[i]) <= kRoomForAll) continue;
    float values[BlockMXFP4::kValues];
    decode_blocks(DType::mxfp4, &bytes[i], values, 1);
    if (!all_finite(values)) return false;
  }
  return true;
}

}  // namespace

bool all_finite(std::span<const float> values) {
  return plain_finite(std::as_bytes(values), kF32Exponent);
}

bool all_finite(DType type, std::span<const std::byte> bytes) {
  if (type == DType::f32) return plain_finite(bytes, kF32Exponent);
  if (type == DType::f16) return plain_finite(bytes, kF16Exponent);
  if (type == DType::bf16) return plain_finite(bytes, kBf16Exponent);
  if (type == DType::i32 || type == DType::i8) return true;
  if (type == DType::iq1_m) return iq1_m_finite(bytes);
  if (type == DType::mxfp4) return mxfp4_finite(bytes);
  return blocks_finite(bytes, info(type).block_bytes, scales_of(type));
}

std::optional<FoundValue> find_non_finite(const TensorView& view) {
  if (all_finite(view.dtype, view.bytes)) return std::nullopt;
  return find_beyond(view, std::numeric_limits<float>::max());
}

std::optional<FoundValue> find_beyond(const TensorView& view, float limit) {
  std::vector<float> values(view.cols);
  for (uint64_t row = 0; row < view.rows; ++row) {
    dequantize(view.dtype, view.row(row), values);
    for (size_t i = 0; i < values.size(); ++i)
      if (!(std::fabs(values[i]) <= limit)) return FoundValue{row, i, values[i]};
  }
  return std::nullopt;
}

}  // namespace tyto
