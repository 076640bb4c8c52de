#include "device/vnpu/images/instruction_stream.h"

#include <fmt/format.h>

namespace tyto::vxrt {
namespace {

// Some bits for each word; which ones does not matter as long as no two words are alike.
uint32_t filler(uint32_t seed, uint32_t index) {
  uint64_t x = (uint64_t{seed} << 32 | index) * 0x9e3779b97f4a7c15u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return static_cast<uint32_t>(x >> 32);
}

}  // namespace

std::vector<uint32_t> instruction_words(const InstructionStream& stream, uint32_t live) {
  std::vector<uint32_t> words(stream.words);
  for (uint32_t i = 0; i < stream.words; ++i) words[i] = filler(stream.seed, i);
  for (const InstructionStream::Patch& patch : stream.patches)
    words[patch.index] = patch.base + patch.slope * live;
  words[0] = kInstructionMagic;
  words[1] = stream.window;
  return words;
}

ReadWords read_words(const InstructionStream& stream, std::span<const uint32_t> words) {
  if (words.size() != stream.words)
    return {.problem =
                fmt::format("{} instruction words instead of {}", words.size(), stream.words)};
  if (words[0] != kInstructionMagic) return {.problem = "the instruction words are not an image's"};
  if (words[1] != stream.window)
    return {.problem = fmt::format("instruction words for a window of {} positions, not {}",
                                   words[1], stream.window)};
  ReadWords result;
  for (const InstructionStream::Patch& patch : stream.patches)
    if (patch.slope == 1) {
      result.live = words[patch.index] - patch.base;
      break;
    }
  if (stream.window != 0 && (result.live == 0 || result.live > stream.window))
    return {.problem =
                fmt::format("instruction word L = {} is not in 1..{}", result.live, stream.window)};
  size_t next = 0;  // patch
  for (uint32_t i = 2; i < stream.words; ++i) {
    uint32_t expected = 0;
    if (next < stream.patches.size() && stream.patches[next].index == i) {
      expected = stream.patches[next].base + stream.patches[next].slope * result.live;
      ++next;
    } else {
      expected = filler(stream.seed, i);
    }
    if (words[i] != expected)
      return {.problem = fmt::format("instruction word {} is {:#x}, for L = {} it is {:#x}", i,
                                     words[i], result.live, expected)};
  }
  return result;
}

}  // namespace tyto::vxrt
