// How the full-ELF decode is told the length of the context: words of a scratchpad that XRT keeps
// for the run (xrt::run::get_ctrl_scratchpad_bo), which the control code copies to where they are
// needed. A build says in decode_scratchpad.params.txt which word is which:
//
//   <count>
//   <name> <place in the state table> <type> <kind>
//
// An "addr" is a number of elements that the firmware adds to the address of DMA descriptors: where
// K and V of the new position go. Its name tells how it follows from L, which the program also
// takes as a scalar: __air_param_argoff_<argument>_x<scale>_<m|p><addend>. A "core" is L itself,
// times four, since the firmware clears two bits. mlir-aie's AIELowerScratchpadParameters writes
// the control code; from #3061 on it clears a core's word before the firmware adds to it, which an
// image shows (ScratchpadUse).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/transaction.h"

namespace tyto {

// The firmware's state table.
constexpr uint32_t kMostStateWords = 32;

struct DecodeParameters {
  uint32_t words = 0;             // in the scratchpad
  uint32_t append = 0;            // place of the word of kind "addr"
  uint32_t mask = 0;              // place of the word of kind "core"
  uint32_t scalar = 0;            // XRT's index of the argument L
  int64_t scale = 0, addend = 0;  // the append word is scale * L + addend
  // Cores keep their word from run to run, and what is written is added to it.
  bool core_adds_up = false;

  uint32_t append_word(uint32_t length) const {
    return static_cast<uint32_t>(scale * length + addend);
  }
  static uint32_t mask_word(uint32_t length) { return length << 2; }
  bool operator==(const DecodeParameters&) const = default;
};

// Throws an input Error that begins with `where` unless the text describes one word of each kind.
DecodeParameters read_decode_parameters(std::string_view text, const std::string& where);
std::string decode_parameters_text(const Q4nxLayout& layout);  // as a build writes it

// Throws an Error that begins with `where` where a model of this layout has other parameters: the
// argument L, the elements from one position to the next.
void check_decode_parameters(const DecodeParameters& parameters, const Q4nxLayout& layout,
                             const std::string& where);

// The same for the control code: it takes every word, and each as the kind that it is. Returns the
// parameters with what only the control code tells.
DecodeParameters check_scratchpad_use(DecodeParameters parameters, const ScratchpadUse& use,
                                      const std::string& where);

}  // namespace tyto
