// Packed weights beside those of tests/scripts/q4nx_golden.py, which knows the published layout and
// nothing of this code.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/npu/formats/q4nx.h"

namespace tyto {
namespace {

constexpr uint32_t kGroup = 32;

// Level, scale and minimum as in the script.
float value(uint64_t tensor, uint64_t row, uint64_t col) {
  const uint64_t group = col / kGroup, place = col % kGroup;
  const uint64_t level = place == 0            ? 0
                         : place == kGroup - 1 ? 15
                                               : (7 * row + 3 * col + tensor + row * col % 5) % 16;
  const double scale = std::ldexp(1.0, -static_cast<int>(3 + (row + group + tensor) % 4));
  return static_cast<float>(
      scale * (static_cast<double>(level) - static_cast<double>(1 + (row + 3 * group) % 14)));
}

struct Tensor {
  uint64_t rows, cols;
  std::vector<float> values;

  Tensor(uint64_t number, uint64_t r, uint64_t c) : rows(r), cols(c) {
    for (uint64_t row = 0; row < rows; ++row)
      for (uint64_t col = 0; col < cols; ++col) values.push_back(value(number, row, col));
  }
  TensorView view() const { return {DType::f32, rows, cols, std::as_bytes(std::span(values))}; }
};

uint32_t crc32(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
  }
  return ~crc;
}

class Q4nxGolden : public testing::Test {
 protected:
  Q4nxGolden() {
    const std::string path = TYTO_SOURCE_DIR "/tests/data/q4nx/blocks.json";
    Json::parse_file(path, 1 << 20)
        .at("crc32")
        .for_each_member([&](std::string_view phase, const Json& sums) {
          sums.for_each_element([&](size_t, const Json& sum) {
            expected_[std::string(phase)].push_back(static_cast<uint32_t>(sum.as_uint(UINT32_MAX)));
          });
        });
  }

  void expect_blocks(const std::string& phase, std::span<const std::byte> packed) {
    const std::vector<uint32_t>& expected = expected_.at(phase);
    ASSERT_EQ(packed.size(), expected.size() * kQ4nxBlockBytes) << phase;
    for (size_t i = 0; i < expected.size(); ++i)
      ASSERT_EQ(crc32(packed.subspan(i * kQ4nxBlockBytes, kQ4nxBlockBytes)), expected[i])
          << "block " << i << " of " << phase;
  }

  std::map<std::string, std::vector<uint32_t>> expected_;
  const AirDims dims_ = {1, 288, 4, 1, 64, 640, 700, 64};
  const Q4nxLayout layout_ = q4nx_layout(dims_, 64);
  ThreadPool pool_{2};
};

TEST_F(Q4nxGolden, ALayerIsPackedAsPublished) {
  const Tensor q(1, 256, 288), k(2, 64, 288), v(3, 64, 288), o(4, 288, 256), gate(5, 640, 288),
      up(6, 640, 288), down(7, 288, 640);
  const Q4nxLayerSources sources = {{"q", q.view()},      {"k", k.view()},       {"v", v.view()},
                                    {"o", o.view()},      {"gate", gate.view()}, {"up", up.view()},
                                    {"down", down.view()}};
  std::vector<std::byte> packed(layout_.layer_elements * 2);
  pack_q4nx_layer(layout_, sources, packed, pool_);
  const auto phase = [&](const Q4nxPhase& of) {
    return std::span(packed).subspan(of.offset * 2, of.elements() * 2);
  };
  expect_blocks("qkv", phase(layout_.qkv));
  expect_blocks("o", phase(layout_.o));
  expect_blocks("gate_up", phase(layout_.gate_up));
  expect_blocks("down", phase(layout_.down));
}

TEST_F(Q4nxGolden, TheHeadIsPackedAsPublished) {
  const Tensor head(8, 700, 288);
  std::vector<std::byte> packed(layout_.head_chunks * layout_.head_chunk_elements * 2);
  pack_q4nx_head(layout_, {"head", head.view()}, packed, pool_);
  expect_blocks("head", packed);
}

}  // namespace
}  // namespace tyto
