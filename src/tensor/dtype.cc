#include "tensor/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"

namespace tyto {
namespace {

constexpr std::array<DTypeInfo, 25> kTypes = {{
    {DType::f32, "f32", 0, 1, 4},
    {DType::f16, "f16", 1, 1, 2},
    {DType::bf16, "bf16", 30, 1, 2},
    {DType::i32, "i32", 26, 1, 4},
    {DType::q8_0, "q8_0", 8, 32, 34},
    {DType::q4_0, "q4_0", 2, 32, 18},
    {DType::q4_1, "q4_1", 3, 32, 20},
    {DType::q5_0, "q5_0", 6, 32, 22},
    {DType::q5_1, "q5_1", 7, 32, 24},
    {DType::q4_k, "q4_k", 12, 256, 144},
    {DType::q5_k, "q5_k", 13, 256, 176},
    {DType::q6_k, "q6_k", 14, 256, 210},
    {DType::i8, "i8", 24, 1, 1},
    {DType::q2_k, "q2_k", 10, 256, 84},
    {DType::q3_k, "q3_k", 11, 256, 110},
    {DType::iq4_nl, "iq4_nl", 20, 32, 18},
    {DType::iq4_xs, "iq4_xs", 23, 256, 136},
    {DType::iq3_xxs, "iq3_xxs", 18, 256, 98},
    {DType::iq3_s, "iq3_s", 21, 256, 110},
    {DType::iq2_xxs, "iq2_xxs", 16, 256, 66},
    {DType::iq2_xs, "iq2_xs", 17, 256, 74},
    {DType::iq2_s, "iq2_s", 22, 256, 82},
    {DType::iq1_s, "iq1_s", 19, 256, 50},
    {DType::iq1_m, "iq1_m", 29, 256, 56},
    {DType::mxfp4, "mxfp4", 39, 32, 17},
}};

// info() looks up by position.
static_assert([] {
  for (size_t i = 0; i < kTypes.size(); ++i)
    if (kTypes[i].type != static_cast<DType>(i)) return false;
  return true;
}());

}  // namespace

const DTypeInfo& info(DType type) {
  return kTypes[static_cast<size_t>(type)];
}

std::optional<DType> dtype_from_ggml(uint32_t ggml_id) {
  for (const DTypeInfo& entry : kTypes)
    if (entry.ggml_id == ggml_id && entry.type != DType::i8) return entry.type;
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& entry : kTypes)
    if (std::equal(name.begin(), name.end(), entry.name.begin(), entry.name.end(),
                   [](unsigned char a, unsigned char b) { return std::tolower(a) == b; }))
      return entry.type;
  return std::nullopt;
}

bool is_encodable(DType type) {
  return type < DType::q2_k && type != DType::i32 && type != DType::i8;
}

uint64_t row_bytes(DType type, uint64_t values) {
  const DTypeInfo& entry = info(type);
  TYTO_ASSERT(values % entry.block_values == 0);
  return values / entry.block_values * entry.block_bytes;
}

}  // namespace tyto
