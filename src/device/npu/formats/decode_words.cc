#include "device/npu/formats/decode_words.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

// No product of a length and a slope leaves 64 bits.
constexpr uint32_t kMaxLength = 1u << 24;

void check_builds(const DecodeBuild& base, const DecodeBuild& reference) {
  for (const DecodeBuild* build : {&base, &reference}) {
    if (build->words.empty()) fail_input(build->file, "has no instruction words");
    if (build->length == 0 || build->length > kMaxLength)
      fail_input(build->file, "L = {} is not between 1 and {}", build->length, kMaxLength);
  }
  if (base.length == reference.length)
    fail_input(reference.file,
               "is for L = {}, as {} is: two lengths are needed to tell what changes", base.length,
               base.file);
  if (base.words.size() != reference.words.size())
    fail_input(reference.file, "{} instruction words, but {} has {}: not two builds of one program",
               reference.words.size(), base.file, base.words.size());
}

// Whole steps per position between the two builds.
int64_t slope_of(const DecodeBuild& base, const DecodeBuild& reference, size_t word) {
  const int64_t positions = int64_t{base.length} - reference.length;
  const int64_t change = int64_t{base.words[word]} - reference.words[word];
  if (change % positions != 0)
    fail_input(reference.file,
               "word {} is {:#x}, and {:#x} in {}: not a whole step per position over {} positions",
               word, reference.words[word], base.words[word], base.file,
               positions < 0 ? -positions : positions);
  return change / positions;
}

}  // namespace

DecodeWords DecodeWords::from_builds(const DecodeBuild& base, const DecodeBuild& reference) {
  check_builds(base, reference);
  DecodeWords result;
  result.file_ = base.file;
  result.base_length_ = base.length;
  result.window_ = std::max(base.length, reference.length);
  for (size_t i = 0; i < base.words.size(); ++i) {
    if (base.words[i] == reference.words[i]) continue;
    const int64_t slope = slope_of(base, reference, i);
    // An address that carries into the next word between here and there is no straight line.
    for (const uint32_t length : {uint32_t{1}, result.window_}) {
      const int64_t value = base.words[i] + (int64_t{length} - base.length) * slope;
      if (value < 0 || value > int64_t{UINT32_MAX})
        fail_input(base.file, "word {} would be {} at L = {}: not 32 bits", i, value, length);
    }
    result.slopes_.push_back({i, slope});
  }
  if (result.slopes_.empty())
    fail_input(reference.file, "has the words of {}: nothing in them depends on L", base.file);
  result.base_.assign(base.words.begin(), base.words.end());
  return result;
}

uint32_t DecodeWords::word_at(const Slope& slope, uint32_t length) const {
  const int64_t positions = int64_t{length} - base_length_;
  return static_cast<uint32_t>(base_[slope.word] + positions * slope.per_position);
}

WordRange DecodeWords::patch(uint32_t length, std::span<uint32_t> words) {
  if (length == 0 || length > window_)
    fail_unsupported(file_, "L = {} is not between 1 and the window, {}", length, window_);
  if (words.size() != base_.size())
    fail_unsupported(file_, "{} words do not fit a buffer of {}", base_.size(), words.size());
  const bool whole = words.data() != buffer_;
  if (!whole && length == length_) return {};
  if (whole) std::copy(base_.begin(), base_.end(), words.begin());
  for (const Slope& slope : slopes_) words[slope.word] = word_at(slope, length);
  buffer_ = words.data();
  length_ = length;
  const size_t first = whole ? 0 : slopes_.front().word;
  const size_t last = whole ? base_.size() - 1 : slopes_.back().word;
  return {first, last - first + 1};
}

}  // namespace tyto
