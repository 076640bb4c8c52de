// Writes bundles as FastFlowLM does, value by value from the description of the format, and keeps
// what was written as numbers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/float16.h"

namespace tyto::testing_support {

enum class BundleForm {
  i8,    // scale * code + offset, the shape counts blocks
  q4nx,  // scale * (code - offset), the shape is the matrix's
};

class BundleWriter {
 public:
  explicit BundleWriter(BundleForm form) : form_(form) {}

  void add_bf16(const std::string& name, const std::string& shape, std::span<const float> values) {
    const size_t begin = data_.size();
    for (const float value : values) put16(f32_to_bf16(value));
    describe(name, "BF16", shape, begin);
    written_[name].assign(values.begin(), values.end());
    for (float& value : written_[name]) value = bf16_to_f32(f32_to_bf16(value));
  }

  void add_blocks(const std::string& name, size_t rows, size_t cols,
                  std::span<const float> values) {
    const size_t begin = data_.size(), blocks = rows / 32 * (cols / 256);
    data_.resize(begin + blocks * 5120);
    std::vector<float>& written = written_[name];
    written.resize(rows * cols);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; c += 32)
        put_group(begin + (r / 32 * (cols / 256) + c / 256) * 5120, r % 32, c % 256,
                  values.subspan(r * cols + c, 32), &written[r * cols + c]);
    const std::string packed = "[" + std::to_string(blocks) + ",5120]";
    const std::string logical = "[" + std::to_string(rows) + "," + std::to_string(cols) + "]";
    describe(name, form_ == BundleForm::i8 ? "I8" : "Q4NX",
             form_ == BundleForm::i8 ? packed : logical, begin);
  }

  // What a tensor's values are, by the formula of its form.
  const std::vector<float>& written(const std::string& name) const { return written_.at(name); }

  std::string file() const {
    const std::string header = "{" + header_ + "}";
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + data_;
  }

 private:
  void put16(uint16_t value) {
    data_.push_back(static_cast<char>(value & 255));
    data_.push_back(static_cast<char>(value >> 8));
  }
  void put16_at(size_t at, uint16_t value) {
    data_[at] = static_cast<char>(value & 255);
    data_[at + 1] = static_cast<char>(value >> 8);
  }

  // 32 columns of one row of a block.
  void put_group(size_t block, size_t row, size_t col, std::span<const float> values,
                 float* written) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const float scale = bf16_to_f32(f32_to_bf16(std::max((*high - *low) / 15, 1e-4f)));
    const float minimum = bf16_to_f32(f32_to_bf16(*low));
    const float zero_point = bf16_to_f32(f32_to_bf16(-minimum / scale));
    const float offset = form_ == BundleForm::i8 ? minimum : zero_point;
    const size_t parameter = (col / 32 * 32 + row) * 2;
    put16_at(block + parameter, f32_to_bf16(scale));
    put16_at(block + 512 + parameter, f32_to_bf16(offset));
    for (size_t i = 0; i < 32; ++i) {
      const float steps =
          form_ == BundleForm::i8 ? (values[i] - minimum) / scale : values[i] / scale + zero_point;
      const int code = std::clamp(static_cast<int>(std::lround(steps)), 0, 15);
      char& byte = data_[block + 1024 + row / 16 * 2048 + (col + i) * 8 + row % 16 / 2];
      byte = static_cast<char>(byte | code << (row % 2 * 4));
      const auto number = static_cast<float>(code);
      written[i] = form_ == BundleForm::i8 ? scale * number + offset : scale * (number - offset);
    }
  }

  void describe(const std::string& name, const std::string& type, const std::string& shape,
                size_t begin) {
    header_ += (header_.empty() ? "\"" : ",\"") + name + "\":{\"dtype\":\"" + type +
               "\",\"shape\":" + shape + ",\"data_offsets\":[" + std::to_string(begin) + "," +
               std::to_string(data_.size()) + "]}";
  }

  BundleForm form_;
  std::string header_, data_;
  std::map<std::string, std::vector<float>> written_;
};

}  // namespace tyto::testing_support
