// Virtual images: programs in a container, each with the argument list its control code is called
// with. They stand for the ELF and xclbin files that a real NPU is given.
//
// Calling convention of an ELF: argument i is arguments[i]. Where the instance takes a call, three
// uint32_t scalars follow: Call::rows, position, first_row; one that was never set is that of
// {1, 0, 0}. Where it does not, as MLIR-AIR's do not, the call is compiled in.
// The full-ELF decode takes the length in the scratchpad of its run, and as a scalar argument.
// Of an xclbin: 0 is the opcode 3, 1 the buffer of instruction words, 2 how many there are, and
// arguments[i] is at index 3 + i. The words are the instance's stream; one that takes a call has
// the words {kInstructionMagic, tokens, position, first_row} instead.
//
// image.cc has the file format.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "device/npu/formats/decode_parameters.h"
#include "device/npu/formats/transaction.h"
#include "program/pattern.h"
#include "program/program.h"

namespace tyto::vxrt {

// The instruction words of an xclbin run: thousands that are always the same and a few that follow
// L, the number of live positions, along a straight line. The hardware would take a wrong word for
// an instruction; here every word is looked at.

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

// The words of an ELF's scratchpad, for lengths of 1 to `positions`.
struct Scratchpad {
  DecodeParameters parameters;
  uint32_t positions = 0;
  bool operator==(const Scratchpad&) const = default;
};

// What the words and what the cores had before say; `core` becomes what they have then.
ReadWords read_scratchpad(const Scratchpad& scratchpad, std::span<const uint32_t> words,
                          uint32_t& core);

constexpr uint8_t kPlatformAie2p = 69;
constexpr uint32_t kCallScalars = 3;
constexpr uint32_t kXclbinFirstArgument = 3;
constexpr uint32_t kXclbinOpcode = 3;

constexpr uint32_t kColumns = 8;                    // an XDNA2 has these
constexpr uint32_t kL1Bytes = 64 * 1024;            // per compute tile
constexpr uint32_t kL2BytesPerColumn = 512 * 1024;  // one memory tile

enum class ImageForm : uint8_t { elf, xclbin };

enum class Encoding : uint8_t {
  values,  // the slot's own type
  q4nx,    // 4-bit blocks that the device decodes to bf16
};

// A matrix whose rows are part of a phase's. Slot row r is row
//   first_row + r / chunk_rows * chunk_stride + r % chunk_rows
// of the phase, and its columns are the phase's first ones.
struct Q4nxPlace {
  uint64_t phase_rows = 0, phase_cols = 0;  // the whole phase's, padded
  uint64_t first_row = 0, chunk_rows = 0, chunk_stride = 0;
  bool operator==(const Q4nxPlace&) const = default;
};

// Where a slot's values are.
struct SlotPlace {
  int32_t argument = -1;  // -1: scratch, private to the instance
  Pattern pattern = {};   // q4nx: only the offset, of the phase, in 16-bit elements
  Encoding encoding = Encoding::values;
  Q4nxPlace q4nx = {};
  bool operator==(const SlotPlace&) const = default;
};

struct ImageArgument {
  uint64_t bytes = 0;  // the signature's; the launches may reach fewer
  bool dead = false;   // part of the calling convention, never read or written
  bool operator==(const ImageArgument&) const = default;
};

struct LaunchNeeds {
  uint32_t l1_bytes = 0;  // in the fullest compute tile
  uint32_t l2_bytes = 0;  // in all memory tiles together
  bool operator==(const LaunchNeeds&) const = default;
};

// One piece of control code: "main:<name>".
struct Instance {
  std::string name;
  Program program;
  std::vector<SlotPlace> places;         // [program.slots]
  std::vector<ImageArgument> arguments;  // several slots may lie in one
  std::vector<LaunchNeeds> needs;        // empty when unknown, else one per launch of the program
  uint32_t launches = 0;                 // as the hardware counts them; 0: the program's
  bool takes_call = true;
  Call fixed_call = {};                       // when it takes none
  std::optional<InstructionStream> stream;    // xclbin: the words it is driven by
  std::optional<Scratchpad> scratchpad = {};  // ELF: what its run is told the length by

  uint32_t counted_launches() const {
    return launches != 0 ? launches : static_cast<uint32_t>(program.launches.size());
  }
};

struct Image {
  ImageForm form = ImageForm::elf;
  uint8_t platform = kPlatformAie2p;
  uint32_t columns = kColumns;
  AirDims dims = {};                // what it was made for; all 0: no model in particular
  std::vector<Instance> instances;  // names differ; an xclbin has one

  // The hash of the file it was read from; not written from here.
  Hash128 hash = {};
  uint64_t file_bytes = 0;
};

// An ELF of one instance whose arguments are the program's slots in order and which takes a call.
// Scratch is private to the instance unless it is to be an argument too: another image may read it.
enum class Scratch : uint8_t { is_private, is_argument };
Image make_image(const std::string& name, const Program& program,
                 Scratch scratch = Scratch::is_private);

// One ELF with all their instances, so that one context can hold them.
Image combined(std::span<const Image> images);

std::vector<std::byte> serialise(const Image& image);  // throws when check_image would

// Throws an input Error that starts with `where` unless the bytes are an image of this version,
// whole and unchanged, that check_image accepts.
Image parse_image(std::span<const std::byte> bytes, const std::string& where);

// Everything a file could get wrong that execution relies on: types the kernels take, places inside
// their arguments that the DMAs can reach, no two written slots on top of each other, launches that
// fit L1 and L2.
void check_image(const Image& image, const std::string& where);

// Bytes of the slot's argument up to the last one its place touches.
uint64_t reach(const Slot& slot, const SlotPlace& place);

}  // namespace tyto::vxrt
