// A row of logits as a device has left them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tyto {

// The upper half of an f32.
inline float value_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

// A view of f32 values, or of bf16 ones, which become f32 only for those who ask for that.
class Logits {
 public:
  Logits() = default;
  Logits(std::span<const float> values) : f32_(values) {}
  Logits(const std::vector<float>& values) : f32_(values) {}
  // `room` is as long, outlives this, and is written to whenever somebody asks for f32.
  Logits(std::span<const uint16_t> bf16, std::span<float> room) : bf16_(bf16), room_(room) {}

  size_t size() const { return is_bf16() ? bf16_.size() : f32_.size(); }
  bool is_bf16() const { return bf16_.data() != nullptr; }
  std::span<const uint16_t> bf16() const { return bf16_; }

  operator std::span<const float>() const {
    if (!is_bf16()) return f32_;
    for (size_t i = 0; i < bf16_.size(); ++i) room_[i] = value_of_bf16(bf16_[i]);
    return room_;
  }

 private:
  std::span<const float> f32_;
  std::span<const uint16_t> bf16_;
  std::span<float> room_;
};

}  // namespace tyto
