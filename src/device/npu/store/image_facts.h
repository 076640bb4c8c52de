// What can be told about a kernel image without XRT.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/npu/formats/air_models.h"
#include "device/npu/formats/decode_parameters.h"
#include "device/npu/formats/transaction.h"
#include "device/npu/formats/xclbin.h"

namespace tyto {

// An ELF of control code as XRT reads it: kernels with their signatures and instances. For each it
// has the device heap that a run takes, and the bytes of the arguments that its DMAs touch.
//
// After XRT's own reader (xrt_elf.cpp, for AIE2P ELFs with groups) and not after a compiled file:
// none was at hand when this was written.

// The driver gives out the heap in pieces of this size (dev_mem_buf_shift of npu4 to npu6).
constexpr uint64_t kHeapPiece = 32 * 1024;

// One piece of control code: "main:<name>".
struct ElfInstance {
  std::string name;
  uint64_t run_bytes = 0;  // control code, its packets and its PDIs, in pieces of the heap
  std::vector<AddressPatch> patches;  // those of the control code; addresses of arguments alone
  // What it does with its scratchpad, where it has one; null: not_read says why.
  std::optional<ScratchpadUse> scratchpad = {};
  std::string not_read = {};
};

struct ElfKernel {
  std::string name;
  uint32_t arguments = 0;
  std::vector<ElfInstance> instances;
};

struct ElfImage {
  uint8_t os_abi = 0;
  uint32_t columns = 0;  // the partition's that it is compiled for
  std::vector<ElfKernel> kernels;

  // `entry` is what XRT is asked for: "main:o_ffn". Null: it has none.
  const ElfKernel* kernel_of(std::string_view entry) const;
  const ElfInstance* instance_of(std::string_view entry) const;
  std::vector<std::string> entries() const;
};

// Throws an Error that names `where` unless the bytes are such an ELF from end to end. The platform
// is left to the caller.
ElfImage read_elf(std::span<const std::byte> bytes, const std::string& where);

enum class ImageKind : uint8_t { elf, xclbin, insts, params };
constexpr ImageKind kImageKinds[] = {ImageKind::elf, ImageKind::xclbin, ImageKind::insts,
                                     ImageKind::params};
std::string_view to_string(ImageKind kind);
std::string_view extension(ImageKind kind);  // ".elf", ".xclbin", ".insts.bin", ".params.txt"

// XRT takes the platform from the OS/ABI byte of the identification, not from the machine field.
constexpr uint8_t kOsAbiAie2p = 69;
constexpr std::string_view kVirtualPlatform = "vnpu";

struct ImageFacts {
  std::string platform;                        // "aie2p", "vnpu", or "not checked: reason"
  std::optional<AirDims> dims;                 // what an image for the virtual NPU was made for
  std::optional<ElfImage> elf;                 // an ELF's content
  std::optional<XclbinImage> xclbin;           // a real xclbin's content
  std::vector<uint32_t> words;                 // from an instruction file
  std::optional<Transaction> instructions;     // the same, read; not those of the virtual NPU
  std::optional<DecodeParameters> parameters;  // what a full-ELF decode's scratchpad holds
};

// Throws an Error that names `where` when the bytes are not an image of this kind for XDNA2 or its
// virtual counterpart.
ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where);

// Whether an image is what it is taken for. XRT compares no sizes: an image of another model would
// load, and its DMAs leave the buffers.

// What kernels are compiled for, and its name: "llama-3.2-1b".
struct NamedDims {
  std::string name;
  AirDims dims;
};

// Whether a program is compiled for a padded length of the prompt.
bool depends_on_prompt(std::string_view program);

// Whether images of a program that were built for one of these run the other: the padded length of
// a prompt matters to the programs of prompts alone.
bool same_images(std::string_view program, AirDims built, const AirDims& wanted);

// Throws an Error that names `where` and gives both numbers where the image contradicts the
// argument list of `program` for that shape: its dimensions, its entry, how many arguments there
// are, and which bytes of them are touched. Returns what is not a contradiction and was not
// expected either: arguments that are not touched to their last byte.
std::vector<std::string> check_fit(const ImageFacts& facts, const AirProgram& program,
                                   const NamedDims& shape, const std::string& where);

// Throws an Error where the words that the parameters describe are not those that the control code
// of a full-ELF decode takes. Returns the parameters with what only the control code tells; as they
// are where it could not be read.
DecodeParameters check_scratchpad(const ImageFacts& elf, const DecodeParameters& parameters,
                                  const std::string& where);

// Two streams of a fused decode that are one position apart: a word that depends on it is the
// length itself, or the place of the new position in the caches.
void check_lengths(const ImageFacts& longer, const ImageFacts& shorter, uint32_t window,
                   const NamedDims& shape, const std::string& where);

}  // namespace tyto
