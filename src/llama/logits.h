// A row of logits as a device has left them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "program/top_k.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

struct Model;

// The upper half of an f32.
inline float value_of_bf16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

struct Candidate {
  Token token = 0;
  float logit = 0;
  bool operator==(const Candidate&) const = default;
};

// A view of f32 values, of bf16 ones, which become f32 only where that is asked for, or of the best
// few, which is all that a device hands back where the others are not needed.
class Logits {
 public:
  Logits() = default;
  Logits(std::span<const float> values) : f32_(values) {}
  Logits(const std::vector<float>& values) : f32_(values) {}
  // `room` is as long, outlives this, and is written to whenever f32 is asked for.
  Logits(std::span<const uint16_t> bf16, std::span<float> room) : bf16_(bf16), room_(room) {}
  // The best of the row, larger logits first and of equal ones the smaller token.
  explicit Logits(std::span<const Candidate> best) : best_(best) {}

  bool is_bf16() const { return bf16_.data() != nullptr; }
  std::span<const uint16_t> bf16() const { return bf16_; }

  bool are_candidates() const { return best_.data() != nullptr; }
  std::span<const Candidate> candidates() const { return best_; }

  operator std::span<const float>() const {
    TYTO_ASSERT(!are_candidates());  // the others are not known
    if (!is_bf16()) return f32_;
    for (size_t i = 0; i < bf16_.size(); ++i) room_[i] = value_of_bf16(bf16_[i]);
    return room_;
  }

 private:
  std::span<const float> f32_;
  std::span<const uint16_t> bf16_;
  std::span<float> room_;
  std::span<const Candidate> best_;
};

// Whether what a device says of logits that never left it can be believed.

// What is wrong with a row that top_k has left of `vocab` logits; nothing: it is one it may leave.
std::optional<std::string> problem_of(const TopKRow& row, size_t vocab);

// What to say when results are no finite numbers.

// Throws: about a weight that is not finite, which no other device and no second try makes better,
// else about `who` computed the `results`. `code` is of the latter.
[[noreturn]] void fail_non_finite(std::string_view results, const Model& model, ErrorCode code,
                                  const std::string& who);

}  // namespace tyto
