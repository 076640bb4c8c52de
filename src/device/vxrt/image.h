// Virtual images: a Program in a container, with the argument order its kernel is called in. They
// stand for the ELF and xclbin files that a real NPU is given.
//
// File, little-endian:
//   "TYTOVNPU" | u32 version | u64 bytes of the whole file | u128 hash of all that follows
//   string instance | u8 form | u8 platform | u32 columns
//   u32 count | count x { u16 slot | u8 dead }                        arguments
//   u32 count | count x { u32 l1_bytes | u32 l2_bytes }               needs: none, or one per
//   launch string name | u32 count | count x { string name | u8 kind | u8 dtype | u64 rows | u64
//   cols } u32 count | count x { u8 kernel | string step | string block | u8 count | count x
//     { u16 slot | u8 reads | u8 writes } | 4 x u32 shape | u8 rope_pairs | f32 eps | u8 bf16_sums
//     }
// where a string is u16 length and bytes.
//
// Calling convention of the ELF form: argument i is the buffer of arguments[i]; then come three
// uint32_t scalars at the indices arguments.size() + 0, 1, 2: Call::tokens, position, first_row.
// A Call that was never set is {1, 0, 0}.
// Of the xclbin form: 0 is the opcode 3, 1 the buffer of instruction words, 2 how many there are,
// and arguments[i] is at index 3 + i. The words are {kInstructionMagic, tokens, position,
// first_row}.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "program/program.h"

namespace tyto::vxrt {

constexpr uint32_t kImageVersion = 2;
constexpr uint32_t kInstructionMagic = 0x4e505654;  // "TVPN"
constexpr uint8_t kPlatformAie2p = 69;
constexpr uint32_t kCallScalars = 3;
constexpr uint32_t kXclbinFirstArgument = 3;
constexpr uint32_t kXclbinOpcode = 3;

constexpr uint32_t kColumns = 8;                    // of XDNA2
constexpr uint32_t kL1Bytes = 64 * 1024;            // per compute tile
constexpr uint32_t kL2BytesPerColumn = 512 * 1024;  // one memory tile

enum class ImageForm : uint8_t { elf, xclbin };

struct ImageArgument {
  uint16_t slot = 0;  // not looked at when dead
  bool dead = false;  // part of the calling convention, never read or written
  bool operator==(const ImageArgument&) const = default;
};

struct LaunchNeeds {
  uint32_t l1_bytes = 0;  // of the fullest compute tile
  uint32_t l2_bytes = 0;  // of all memory tiles together
  bool operator==(const LaunchNeeds&) const = default;
};

struct Image {
  std::string instance;  // the control code is "main:<instance>"
  ImageForm form = ImageForm::elf;
  uint8_t platform = kPlatformAie2p;
  uint32_t columns = kColumns;
  std::vector<ImageArgument> arguments;
  std::vector<LaunchNeeds> needs;  // empty when unknown, else one per launch
  Program program;

  // Of the file it was read from; not written from here.
  Hash128 hash = {};
  uint64_t file_bytes = 0;
};

// An image whose arguments are the program's slots in order, scratch left out: it is private to the
// image.
Image make_image(const std::string& instance, const Program& program);

std::vector<std::byte> serialise(const Image& image);  // throws when check_image would
void write_image(const std::filesystem::path& path, const Image& image);

// Throws an input Error that starts with `where` unless the bytes are an image of this version,
// whole and unchanged, that check_image accepts.
Image parse_image(std::span<const std::byte> bytes, const std::string& where);
Image read_image(const std::filesystem::path& path);

// Everything a file could get wrong that execution relies on: slots within bounds, types the
// kernels take, arguments that cover every slot but scratch, launches that fit L1 and L2.
void check_image(const Image& image, const std::string& where);

}  // namespace tyto::vxrt
