#include "device/npu/store/image_facts.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/spelling.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/transaction.h"

namespace tyto {
namespace {

constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};
constexpr char kXclbinMagic[] = {'x', 'c', 'l', 'b', 'i', 'n', '2', '\0'};
constexpr size_t kElfHeaderBytes = 52;

bool starts_with(std::span<const std::byte> bytes, std::span<const char> magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

std::string_view platform_name(uint8_t os_abi) {
  switch (os_abi) {
    case 64:
    case 70:
      return "AIE2PS";
    case 75:
    case 86:
    case 105:
      return "AIE4";
    default:
      return "none that XRT knows";
  }
}

ImageFacts inspect_elf(std::span<const std::byte> bytes, const std::string& where) {
  constexpr size_t kData = 5, kOsAbi = 7;
  if (starts_with(bytes, kXclbinMagic))
    throw Error(ErrorCode::input, where, "an xclbin where an ELF is expected",
                "MLIR-AIR builds ELFs for XDNA2 alone: set AIR_TARGET_DEVICE=npu2 and build again");
  if (!starts_with(bytes, kElfMagic)) fail_input(where, "not an ELF file");
  if (bytes.size() < kElfHeaderBytes)
    fail_input(where, "truncated: {} bytes cannot hold an ELF header", bytes.size());
  if (std::to_integer<unsigned>(bytes[kData]) != 1) fail_input(where, "not a little-endian ELF");
  const auto os_abi = std::to_integer<uint8_t>(bytes[kOsAbi]);
  if (os_abi != kOsAbiAie2p)
    fail_input(where, "built for another platform: OS/ABI {} ({}), XDNA2 is {} (AIE2P)", os_abi,
               platform_name(os_abi), kOsAbiAie2p);
  ImageFacts facts;
  facts.platform = "aie2p";
  facts.elf = read_elf(bytes, where);
  return facts;
}

// Older releases of mlir-aie wrote the words as text.
bool is_hexadecimal_text(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find_first_not_of("0123456789abcdefABCDEFx\r\n ") == std::string_view::npos;
}

ImageFacts inspect_words(std::span<const std::byte> bytes, const std::string& where) {
  if (is_hexadecimal_text(bytes))
    throw Error(ErrorCode::input, where, "instruction words as text",
                "build again with a newer mlir-aie, which writes them as they are");
  if (bytes.size() % 4 != 0)
    fail_input(where, "{} bytes are not whole 32-bit instruction words", bytes.size());
  ImageFacts facts;
  facts.words.resize(bytes.size() / 4);
  std::memcpy(facts.words.data(), bytes.data(), bytes.size());
  if (facts.words.front() == kVirtualInstructions) {
    facts.platform = kVirtualPlatform;
    return facts;
  }
  facts.instructions = read_transaction(facts.words, where);
  facts.platform = "not checked: instruction words carry no platform";
  return facts;
}

}  // namespace

std::string_view to_string(ImageKind kind) {
  constexpr std::string_view kNames[] = {"elf", "xclbin", "insts"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view extension(ImageKind kind) {
  constexpr std::string_view kExtensions[] = {".elf", ".xclbin", ".insts.bin"};
  return kExtensions[static_cast<size_t>(kind)];
}

ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where) {
  if (bytes.empty()) fail_input(where, "the file is empty");
  ImageFacts facts;
  if (kind == ImageKind::insts) return inspect_words(bytes, where);
  if (is_virtual_image(bytes)) {
    facts.platform = kVirtualPlatform;
    facts.dims = read_virtual_header(bytes, where).dims;
    return facts;
  }
  if (kind == ImageKind::elf) return inspect_elf(bytes, where);
  if (!starts_with(bytes, kXclbinMagic)) fail_input(where, "not an xclbin");
  facts.platform = "not checked: an xclbin's platform is only known to XRT";
  return facts;
}

namespace {

constexpr const char* kOtherModel =
    "`--shape` says for which model a build is; kernels of another one must not run";

bool is_of_xclbin(AirRole role) {
  return role == AirRole::opcode || role == AirRole::instructions || role == AirRole::word_count;
}

// Every byte of these is moved in each run.
bool is_moved_whole(AirRole role) {
  return role == AirRole::input || role == AirRole::output || role == AirRole::inout ||
         role == AirRole::weight || role == AirRole::kv;
}

struct Touched {
  uint64_t bytes = 0;      // up to the furthest
  bool is_certain = true;  // nothing unread could lie further
};

// Of each argument that is touched at all.
std::map<uint32_t, Touched> touched_arguments(std::span<const AddressPatch> patches) {
  std::map<uint32_t, Touched> arguments;
  for (const AddressPatch& patch : patches) {
    Touched& touched = arguments[patch.argument];
    const uint64_t reach = patch.descriptor ? descriptor_reach(*patch.descriptor) : 1;
    touched.bytes = std::max(touched.bytes, patch.offset + reach);
    touched.is_certain &= patch.descriptor.has_value();
  }
  return arguments;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::input, where, what, kOtherModel);
}

void check_touched(std::span<const AddressPatch> patches, const AirProgram& program,
                   const NamedDims& shape, const std::string& where) {
  // Data buffers are counted from 0 in the code; in XRT's list an xclbin has three before them.
  const auto first = static_cast<uint32_t>(
      std::count_if(program.arguments.begin(), program.arguments.end(),
                    [](const AirArgument& argument) { return is_of_xclbin(argument.role); }));
  for (const auto& [data_index, touched] : touched_arguments(patches)) {
    const uint64_t index = uint64_t{first} + data_index;
    if (index >= program.arguments.size())
      refuse(where, fmt::format("touches argument {}, and {}'s {} has {}", index, shape.name,
                                program.name, program.arguments.size()));
    const AirArgument& argument = program.arguments[index];
    if (argument.role == AirRole::dead)
      refuse(where, fmt::format("touches {} bytes of argument {}, which {}'s {} leaves alone",
                                touched.bytes, index, shape.name, program.name));
    const bool is_short =
        touched.is_certain && is_moved_whole(argument.role) && touched.bytes < argument.bytes();
    if (touched.bytes > argument.bytes() || is_short)
      refuse(where, fmt::format("reaches byte {} of argument {} ({}), which has {} bytes for {}",
                                touched.bytes, index, argument.name, argument.bytes(), shape.name));
  }
}

void check_elf(const ElfImage& elf, const AirProgram& program, const NamedDims& shape,
               const std::string& where) {
  const ElfInstance* instance = elf.instance_of(program.entry);
  if (instance == nullptr)
    refuse(where, fmt::format("has no \"{}\", the entry of {}; it has {}", program.entry,
                              program.name, joined(elf.entries())));
  const uint32_t arguments = elf.kernel_of(program.entry)->arguments;
  if (arguments != program.arguments.size())
    refuse(where, fmt::format("takes {} arguments, {}'s {} has {}", arguments, shape.name,
                              program.name, program.arguments.size()));
  check_touched(instance->patches, program, shape, where);
}

}  // namespace

bool depends_on_prompt(std::string_view program) {
  return is_air_program(program) && air_phase(program) == AirPhase::prompt;
}

bool same_images(std::string_view program, AirDims built, const AirDims& wanted) {
  if (!depends_on_prompt(program)) built.seq = wanted.seq;
  return built == wanted;
}

void check_fit(const ImageFacts& facts, const AirProgram& program, const NamedDims& shape,
               const std::string& where) {
  const bool is_for_model = facts.dims && *facts.dims != AirDims{};
  if (is_for_model && !same_images(program.name, *facts.dims, shape.dims))
    refuse(where, fmt::format("made for another model than {}: {}", shape.name,
                              dims_difference(*facts.dims, shape.dims)));
  if (facts.elf) check_elf(*facts.elf, program, shape, where);
  if (facts.instructions) check_touched(facts.instructions->patches, program, shape, where);
}

void check_lengths(const ImageFacts& longer, const ImageFacts& shorter, uint32_t window,
                   const NamedDims& shape, const std::string& where) {
  if (longer.words.size() != shorter.words.size())
    fail_input(where, "{} instruction words, but decode_L{} has {}: not two builds of one program",
               longer.words.size(), window - 1, shorter.words.size());
  const auto position = static_cast<int64_t>(kv_position_bytes(q4nx_layout(shape.dims, window)));
  for (size_t i = 0; i < longer.words.size(); ++i) {
    const int64_t change = int64_t{longer.words[i]} - shorter.words[i];
    if (change != 0 && change != 1 && change != position)
      refuse(where, fmt::format("word {} changes by {} from one position to the next; {}'s change "
                                "by 1, the length, or by {}, the bytes of a position",
                                i, change, shape.name, position));
  }
}

}  // namespace tyto
