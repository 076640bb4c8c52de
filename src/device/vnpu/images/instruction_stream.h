// The instruction words of an xclbin run: thousands that are always the same and a few that follow
// L, the number of live positions, along a straight line. The hardware would take a wrong word for
// an instruction; here every word is looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/npu/formats/virtual_image.h"

namespace tyto::vxrt {

constexpr uint32_t kInstructionMagic = kVirtualInstructions;  // the first word of every stream

struct InstructionStream {
  struct Patch {
    uint32_t index = 0;
    uint32_t base = 0;  // the word is base + slope * L, modulo 2^32
    uint32_t slope = 0;
    bool operator==(const Patch&) const = default;
  };

  uint32_t words = 0;
  uint32_t window = 0;         // the second word: the largest L; 0: no word depends on any
  uint32_t seed = 0;           // the words between are a function of it
  std::vector<Patch> patches;  // by ascending index
  bool operator==(const InstructionStream&) const = default;
};

std::vector<uint32_t> instruction_words(const InstructionStream& stream, uint32_t live);

struct ReadWords {
  uint32_t live = 0;         // 0 when the stream has no window
  std::string problem = {};  // not empty: what is wrong with them
};
ReadWords read_words(const InstructionStream& stream, std::span<const uint32_t> words);

}  // namespace tyto::vxrt
