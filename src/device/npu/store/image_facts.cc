#include "device/npu/store/image_facts.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>

#include "base/error.h"
#include "base/round_up.h"
#include "base/spelling.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/transaction.h"

namespace tyto {
namespace {

constexpr char kElfMagic[] = {0x7f, 'E', 'L', 'F'};
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
  constexpr std::string_view kNames[] = {"elf", "xclbin", "insts", "params"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view extension(ImageKind kind) {
  constexpr std::string_view kExtensions[] = {".elf", ".xclbin", ".insts.bin", ".params.txt"};
  return kExtensions[static_cast<size_t>(kind)];
}

ImageFacts inspect_image(std::span<const std::byte> bytes, ImageKind kind,
                         const std::string& where) {
  if (bytes.empty()) fail_input(where, "the file is empty");
  ImageFacts facts;
  if (kind == ImageKind::insts) return inspect_words(bytes, where);
  if (kind == ImageKind::params) {
    facts.platform = "not checked: a text carries no platform";
    facts.parameters =
        read_decode_parameters({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, where);
    return facts;
  }
  if (is_virtual_image(bytes)) {
    facts.platform = kVirtualPlatform;
    facts.dims = read_virtual_header(bytes, where).dims;
    return facts;
  }
  if (kind == ImageKind::elf) return inspect_elf(bytes, where);
  if (!starts_with(bytes, kXclbinMagic)) fail_input(where, "not an xclbin");
  facts.platform = "not checked: the instruction words tell the platform of an xclbin";
  facts.xclbin = read_xclbin(bytes, where);
  return facts;
}

namespace {

// Neither the argument of the length nor the elements of a position depend on how many there are.
constexpr uint32_t kPositionsOfAny = 16;

constexpr const char* kOtherModel =
    "`--shape` says for which model a build is; kernels of another one must not run";

bool is_of_xclbin(AirRole role) {
  return role == AirRole::opcode || role == AirRole::instructions || role == AirRole::word_count;
}

// As far as the builders say, every byte of these is moved in each run.
bool is_moved_whole(AirRole role) {
  return role == AirRole::input || role == AirRole::output || role == AirRole::inout ||
         role == AirRole::weight || role == AirRole::kv;
}

struct Touched {
  uint64_t bytes = 0;      // up to the furthest
  bool is_certain = true;  // nothing unread could lie further
};

// What is touched of each argument that is touched at all.
std::map<uint32_t, Touched> touched_arguments(std::span<const AddressPatch> patches) {
  std::map<uint32_t, Touched> arguments;
  for (const AddressPatch& patch : patches) {
    Touched& touched = arguments[patch.argument];
    const uint64_t reach = patch.descriptor ? descriptor_reach(*patch.descriptor) : 1;
    const bool is_beyond = patch.offset > UINT64_MAX - reach;
    touched.bytes = std::max(touched.bytes, is_beyond ? UINT64_MAX : patch.offset + reach);
    touched.is_certain &= patch.descriptor.has_value();
  }
  return arguments;
}

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::input, where, what, kOtherModel);
}

// An argument that the array's view of memory was added to for some of its descriptors only.
[[noreturn]] void refuse_reach(const std::string& where, const std::string& what,
                               uint32_t data_index, const Touched& touched, bool is_stream) {
  if (is_stream && data_index >= kTranslatedArguments && touched.bytes > kArrayOffset)
    throw Error(ErrorCode::input, where,
                what + "; mlir-aie adds 2147483648 to all offsets into such an argument or to none",
                "build it again, with one version of mlir-aie");
  refuse(where, what);
}

std::vector<std::string> check_touched(std::span<const AddressPatch> patches,
                                       const AirProgram& program, const NamedDims& shape,
                                       const std::string& where) {
  std::vector<std::string> short_of;
  bool is_whole = false;  // some argument is moved to its last byte
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
    const std::string reach =
        fmt::format("reaches byte {} of argument {} ({}), which has {} bytes for {}", touched.bytes,
                    index, argument.name, argument.bytes(), shape.name);
    if (touched.bytes > argument.bytes())
      refuse_reach(where, reach, data_index, touched, first != 0);
    if (!is_moved_whole(argument.role)) continue;
    if (touched.is_certain && touched.bytes < argument.bytes())
      short_of.push_back(reach);
    else
      is_whole = true;
  }
  // A kernel may leave out parts that are zero. One that ends early everywhere is a smaller
  // model's.
  if (!short_of.empty() && !is_whole)
    refuse(where, short_of.front() + "; no argument is reached to its end");
  for (std::string& note : short_of) note = where + ": " + note;
  return short_of;
}

std::vector<std::string> check_elf(const ElfImage& elf, const AirProgram& program,
                                   const NamedDims& shape, const std::string& where) {
  const ElfInstance* instance = elf.instance_of(program.entry);
  if (instance == nullptr)
    refuse(where, fmt::format("has no \"{}\", the entry of {}; it has {}", program.entry,
                              program.name, joined(elf.entries())));
  const uint32_t arguments = elf.kernel_of(program.entry)->arguments;
  if (arguments != program.arguments.size())
    refuse(where, fmt::format("takes {} arguments, {}'s {} has {}", arguments, shape.name,
                              program.name, program.arguments.size()));
  return check_touched(instance->patches, program, shape, where);
}

// Data lies in the host's memory, the instruction words in the device's heap.
constexpr uint32_t kHostBank = 0;

void check_xclbin(const XclbinImage& xclbin, const AirProgram& program, const std::string& where) {
  const XclbinKernel* kernel = xclbin.find(program.entry);
  if (kernel == nullptr)
    fail_input(where, "has the kernels {}, and {} runs {}",
               joined(xclbin.kernels, ", ", &XclbinKernel::name), program.name, program.entry);
  if (xclbin.columns == 0 || xclbin.columns > kArrayColumns)
    fail_input(where, "takes {} columns, and the array of XDNA2 has {}", xclbin.columns,
               kArrayColumns);
  for (uint32_t i = 0; i < program.arguments.size(); ++i) {
    const AirRole role = program.arguments[i].role;
    if (role == AirRole::opcode || role == AirRole::word_count) continue;
    const auto found = kernel->memory.find(i);
    if (found == kernel->memory.end())
      fail_input(where, "connects {} arguments to memory and not argument {} ({}); {} has {}",
                 kernel->memory.size(), i, program.arguments[i].name, program.name,
                 program.arguments.size());
    if (role != AirRole::instructions && found->second != kHostBank)
      fail_input(
          where, "connects argument {} to memory bank {}{}, and data lies in bank {}", i,
          found->second,
          found->second < xclbin.banks.size() ? " (" + xclbin.banks[found->second] + ")" : "",
          kHostBank);
  }
}

}  // namespace

bool depends_on_prompt(std::string_view program) {
  return is_air_program(program) && air_phase(program) == AirPhase::prompt;
}

bool same_images(std::string_view program, AirDims built, const AirDims& wanted) {
  if (!depends_on_prompt(program)) built.seq = wanted.seq;
  return built == wanted;
}

std::vector<std::string> check_fit(const ImageFacts& facts, const AirProgram& program,
                                   const NamedDims& shape, const std::string& where) {
  const bool is_for_model = facts.dims && *facts.dims != AirDims{};
  if (is_for_model && !same_images(program.name, *facts.dims, shape.dims))
    refuse(where, fmt::format("made for another model than {}: {}", shape.name,
                              dims_difference(*facts.dims, shape.dims)));
  if (facts.parameters)
    check_decode_parameters(*facts.parameters, q4nx_layout(shape.dims, kPositionsOfAny), where);
  if (facts.xclbin) check_xclbin(*facts.xclbin, program, where);
  if (facts.elf) return check_elf(*facts.elf, program, shape, where);
  if (facts.instructions) return check_touched(facts.instructions->patches, program, shape, where);
  return {};
}

DecodeParameters check_scratchpad(const ImageFacts& elf, const DecodeParameters& parameters,
                                  const std::string& where) {
  if (!elf.elf) return parameters;  // the virtual NPU's say nothing here
  const ElfInstance* instance = elf.elf->instance_of("main:q4nx_decode");
  TYTO_ASSERT(instance != nullptr);
  if (instance->scratchpad) return check_scratchpad_use(parameters, *instance->scratchpad, where);
  if (!instance->not_read.empty()) return parameters;
  refuse(where, "its control code has no scratchpad, from which it would take the length");
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

namespace {

// So that no file keeps the reader busy for long.
constexpr size_t kMaxName = 512, kMaxKernels = 1024, kMaxPdis = 1024;
constexpr size_t kMaxGroupMembers = size_t{1} << 20;
constexpr uint32_t kGroupSection = 17, kCompressed = 0x800;
constexpr uint32_t kObjectSymbol = 1, kFunctionSymbol = 2;
constexpr std::string_view kScratchpad = "scratch-pad-ctrl";  // XRT's name for its address
constexpr uint32_t kShimAddress = 5;  // XRT's shim_dma_48: the address of a shim's descriptor
constexpr size_t kSectionBytes = 40, kSymbolBytes = 16, kRelocationBytes = 12;

struct Section {
  std::string name;
  uint32_t type = 0, flags = 0, link = 0, info = 0;
  std::span<const std::byte> data;
  uint32_t group = 0;  // the section of the group that it belongs to; 0: none

  bool is(std::string_view part) const { return name.find(part) != std::string::npos; }
};

struct Symbol {
  std::string name;
  uint32_t type = 0, section = 0, size = 0;
};

class ElfReader {
 public:
  ElfReader(std::span<const std::byte> bytes, const std::string& where)
      : bytes_(bytes), where_(where) {}

  ElfImage read() {
    check_header();
    read_sections();
    read_groups();
    read_relocations();
    for (auto& [group, code] : codes_) finish(group, code);
    image_.columns = read_columns();
    if (image_.kernels.empty()) fail_input(where_, "an ELF without kernels");
    return std::move(image_);
  }

 private:
  // Control code that a run copies: where its instance is, and what goes into the heap with it.
  struct Code {
    size_t kernel = 0, instance = 0;
    uint64_t text_bytes = 0, packet_bytes = 0, save_bytes = 0, restore_bytes = 0;
    uint64_t scratchpad_bytes = 0;
    std::vector<std::byte> text;
    bool is_compressed = false;
    std::set<std::string> pdis;
    struct Patch {
      uint32_t argument;
      uint64_t addend;
      uint32_t at;  // byte of the text
    };
    std::vector<Patch> patches;
  };

  // An unsigned number, least significant byte first.
  uint32_t number(std::span<const std::byte> from, uint64_t offset, size_t size,
                  const char* what) const {
    if (offset > from.size() || size > from.size() - offset)
      fail_input(where_, "truncated: {} lies beyond the end", what);
    uint32_t value = 0;
    for (size_t i = size; i-- > 0;)
      value = value << 8 | std::to_integer<uint32_t>(from[offset + i]);
    return value;
  }

  std::string text(std::span<const std::byte> strings, uint32_t offset, const char* what) const {
    for (size_t size = 0; size <= kMaxName; ++size) {
      if (offset >= strings.size() || size >= strings.size() - offset) break;
      if (strings[offset + size] == std::byte{0})
        return {reinterpret_cast<const char*>(strings.data()) + offset, size};
    }
    fail_input(where_, "the name of {} does not end", what);
  }

  void check_header() {
    constexpr size_t kAbiVersion = 8, kOsAbi = 7, kClass = 4;
    if (number(bytes_, kClass, 1, "the header") != 1)
      fail_input(where_, "not a 32-bit ELF; XRT knows the control code of XDNA2 as no other");
    image_.os_abi = static_cast<uint8_t>(number(bytes_, kOsAbi, 1, "the header"));
    const uint32_t version = number(bytes_, kAbiVersion, 1, "the header");
    if (version >> 4 == 0)
      throw Error(ErrorCode::input, where_,
                  fmt::format("ABI version {}.{}: control code without kernels, made to go with an "
                              "xclbin; 1.0 is the first to have them",
                              version >> 4, version & 15),
                  "build with a newer mlir-aie");
  }

  void read_sections() {
    const uint32_t table = number(bytes_, 32, 4, "the header");
    const uint32_t entry = number(bytes_, 46, 2, "the header");
    const uint32_t count = number(bytes_, 48, 2, "the header");
    const uint32_t names = number(bytes_, 50, 2, "the header");
    if (count > 0 && entry < kSectionBytes)
      fail_input(where_, "section headers of {} bytes", entry);
    std::vector<uint32_t> name_at(count);
    for (uint32_t i = 0; i < count; ++i) {
      const uint64_t at = uint64_t{table} + uint64_t{i} * entry;
      number(bytes_, at + kSectionBytes - 4, 4, "the section table");
      const auto field = [&](size_t offset) {
        return number(bytes_, at + offset, 4, "the section table");
      };
      Section section;
      name_at[i] = field(0);
      section.type = field(4);
      section.flags = field(8);
      section.link = field(24);
      section.info = field(28);
      const uint32_t offset = field(16), size = field(20);
      constexpr uint32_t kNoBits = 8;
      if (section.type != 0 && section.type != kNoBits) {
        if (offset > bytes_.size() || size > bytes_.size() - offset)
          fail_input(where_, "truncated: section {} ends at byte {} of {}", i,
                     uint64_t{offset} + size, bytes_.size());
        section.data = bytes_.subspan(offset, size);
      }
      sections_.push_back(std::move(section));
    }
    if (names >= count) fail_input(where_, "section {}, that of names, is not there", names);
    for (uint32_t i = 1; i < count; ++i)
      sections_[i].name = text(sections_[names].data, name_at[i], "a section");
  }

  const Section* find(std::string_view name) const {
    for (const Section& section : sections_)
      if (section.name == name) return &section;
    return nullptr;
  }

  const Section& need(std::string_view name) const {
    const Section* section = find(name);
    if (section == nullptr) fail_input(where_, "an ELF without a section {}", name);
    return *section;
  }

  Symbol symbol(const Section& table, const Section& strings, uint32_t index) const {
    const uint64_t at = uint64_t{index} * kSymbolBytes;
    Symbol result;
    result.name = text(strings.data, number(table.data, at, 4, "a symbol"), "a symbol");
    result.type = number(table.data, at + 12, 1, "a symbol") & 15;
    result.section = number(table.data, at + 14, 2, "a symbol");
    result.size = number(table.data, at + 8, 4, "a symbol");
    return result;
  }

  // A group is an instance: its symbol is one of type object, in whose section field stands the
  // symbol of its kernel, whose mangled name is the signature.
  void read_groups() {
    size_t members = 0;
    for (uint32_t i = 1; i < sections_.size(); ++i) {
      if (sections_[i].type != kGroupSection) continue;
      const Section& symbols = need(".symtab");
      if (symbols.link >= sections_.size())
        fail_input(where_, "section {}, that of symbols' names, is not there", symbols.link);
      const Section& strings = sections_[symbols.link];
      const Symbol instance = symbol(symbols, strings, sections_[i].info);
      const Symbol kernel = symbol(symbols, strings, instance.section);
      if (instance.type != kObjectSymbol || kernel.type != kFunctionSymbol)
        fail_input(where_, "group {} names no instance of a kernel", i);
      add_instance(i, kernel.name, instance.name);
      const std::span<const std::byte> list = sections_[i].data;
      members += list.size() / 4;
      if (members > kMaxGroupMembers) fail_input(where_, "more than {} sections", kMaxGroupMembers);
      for (size_t at = 4; at + 4 <= list.size(); at += 4) {
        const uint32_t member = number(list, at, 4, "a group");
        if (member >= sections_.size())
          fail_input(where_, "group {} has section {} of {}", i, member, sections_.size());
        sections_[member].group = i;
      }
    }
    for (const Section& section : sections_) {
      const auto found = codes_.find(section.group);
      if (found != codes_.end()) add_section(found->second, section);
    }
  }

  void add_instance(uint32_t group, const std::string& mangled, const std::string& instance) {
    const ElfKernel signature = demangled(mangled);
    size_t kernel = 0;
    while (kernel < image_.kernels.size() && image_.kernels[kernel].name != signature.name)
      ++kernel;
    if (kernel == image_.kernels.size()) image_.kernels.push_back(signature);
    if (kernel >= kMaxKernels) fail_input(where_, "more than {} kernels", kMaxKernels);
    codes_[group].kernel = kernel;
    codes_[group].instance = image_.kernels[kernel].instances.size();
    image_.kernels[kernel].instances.push_back({instance, 0, {}});
  }

  // _Z, the name's length, the name, and a type for each argument: "Pc" is char*.
  ElfKernel demangled(const std::string& mangled) const {
    const auto fail = [&] { fail_input(where_, "\"{}\" is not a kernel's signature", mangled); };
    if (!mangled.starts_with("_Z")) fail();
    size_t length = 0;
    const char* const end = mangled.data() + mangled.size();
    const auto [name, error] = std::from_chars(mangled.data() + 2, end, length);
    if (error != std::errc() || length > static_cast<size_t>(end - name)) fail();
    ElfKernel kernel;
    kernel.name.assign(name, length);
    for (const char* at = name + length; at != end;) {
      if (*at != 'P')
        fail_input(where_,
                   "argument {} of {} is not a pointer, and XRT gives control code no others",
                   kernel.arguments, kernel.name);
      while (at != end && *at == 'P') ++at;
      if (at == end || std::string_view("vci").find(*at) == std::string_view::npos) fail();
      ++at;
      ++kernel.arguments;
    }
    return kernel;
  }

  // What it is before it was compressed.
  uint64_t size_of(const Section& section) const {
    return (section.flags & kCompressed) != 0 ? number(section.data, 4, 4, "a compressed section")
                                              : section.data.size();
  }

  // XRT joins all sections of one name: a PDI that the compiler wrote for each kernel is held as
  // often as it was written.
  uint64_t joined_bytes(const std::string& name) {
    if (bytes_by_name_.empty())
      for (const Section& section : sections_)
        if (section.is("pdi")) bytes_by_name_[section.name] += size_of(section);
    return bytes_by_name_[name];
  }

  void add_section(Code& code, const Section& section) {
    if (section.is(".ctrltext")) {
      text_bytes_ += section.data.size();
      if (text_bytes_ > bytes_.size()) fail_input(where_, "sections of control code overlap");
      code.text_bytes += size_of(section);
      code.is_compressed |= (section.flags & kCompressed) != 0;
      code.text.insert(code.text.end(), section.data.begin(), section.data.end());
    } else if (section.is(".ctrldata")) {
      code.packet_bytes += size_of(section);
    } else if (section.is(".preempt_save")) {
      code.save_bytes += size_of(section);
    } else if (section.is(".preempt_restore")) {
      code.restore_bytes += size_of(section);
    }
  }

  // XRT looks an argument up by its name, "argv" and its index, and by the index alone.
  static std::optional<uint32_t> argument_of(std::string_view name) {
    constexpr std::string_view kPrefix = "argv";
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    uint32_t argument = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data(), end, argument);
    return error == std::errc() && rest == end ? std::optional(argument) : std::nullopt;
  }

  // A symbol of the dynamic table stands for what is patched in: an argument, or the PDI in the
  // section of that name. Its own section is the one that is patched.
  void read_relocations() {
    const Section* symbols = find(".dynsym");
    const Section* strings = find(".dynstr");
    const Section* relocations = find(".rela.dyn");
    if (symbols == nullptr || strings == nullptr || relocations == nullptr) return;
    for (size_t at = 0; at + kRelocationBytes <= relocations->data.size(); at += kRelocationBytes) {
      const auto field = [&](size_t offset) {
        return number(relocations->data, at + offset, 4, "a relocation");
      };
      const uint32_t offset = field(0), info = field(4), addend = field(8);
      const Symbol target = symbol(*symbols, *strings, info >> 8);
      if (target.section >= sections_.size())
        fail_input(where_, "a relocation of section {} of {}", target.section, sections_.size());
      const Section& patched = sections_[target.section];
      const auto code = codes_.find(patched.group);
      if (code == codes_.end()) continue;
      if (target.name.find("pdi") != std::string::npos) code->second.pdis.insert(target.name);
      if (code->second.pdis.size() > kMaxPdis) fail_input(where_, "more than {} PDIs", kMaxPdis);
      if (target.name == kScratchpad) code->second.scratchpad_bytes = target.size;
      const std::optional<uint32_t> argument = argument_of(target.name);
      if (argument && (info & 0xff) == kShimAddress && patched.is(".ctrltext"))
        code->second.patches.push_back({*argument, addend, offset});
    }
  }

  // What a run copies into the heap, and the descriptors that are patched, from the joined text.
  void finish(uint32_t group, const Code& code) {
    ElfInstance& instance = image_.kernels[code.kernel].instances[code.instance];
    if (code.text_bytes == 0) fail_input(where_, "group {} has no control code", group);
    for (const uint64_t bytes : {code.text_bytes, code.packet_bytes, code.save_bytes,
                                 code.restore_bytes, code.scratchpad_bytes})
      instance.run_bytes += round_up(bytes, kHeapPiece);
    if (code.scratchpad_bytes > 0) read_scratchpad(code, instance);
    for (const std::string& name : code.pdis) {
      if (find(name) == nullptr)
        fail_input(where_, "the control code of group {} needs {}", group, name);
      instance.run_bytes += round_up(joined_bytes(name), kHeapPiece);
    }
    for (const Code::Patch& patch : code.patches) {
      AddressPatch touched{patch.argument, patch.addend, {}};
      if (!code.is_compressed) {
        DmaDescriptor descriptor;
        for (size_t i = 0; i < kDescriptorWords; ++i)
          descriptor[i] = number(code.text, uint64_t{patch.at} + i * 4, 4, "a descriptor");
        touched.descriptor = descriptor;
      }
      instance.patches.push_back(touched);
    }
  }

  // A stream of the same form as an xclbin's.
  void read_scratchpad(const Code& code, ElfInstance& instance) const {
    if (code.is_compressed) {
      instance.not_read = "its control code is compressed";
      return;
    }
    if (code.text.size() % 4 != 0) fail_input(where_, "control code that is not whole words");
    std::vector<uint32_t> words(code.text.size() / 4);
    std::memcpy(words.data(), code.text.data(), code.text.size());
    const Transaction stream = read_transaction(words, where_);
    instance.not_read = stream.not_read;
    if (stream.not_read.empty()) instance.scratchpad = stream.scratchpad;
  }

  // The description of the first note: sizes of name and description, a type, both padded.
  uint32_t read_columns() const {
    const std::span<const std::byte> note = need(".note.xrt.configuration").data;
    const uint32_t name = number(note, 0, 4, "a note"), size = number(note, 4, 4, "a note");
    const uint32_t columns = size < 4 ? 0 : number(note, 12 + round_up(name, 4), 4, "a note");
    constexpr uint32_t kMost = 8;
    if (columns == 0 || columns > kMost)
      fail_input(where_, "compiled for {} columns, and the array of XDNA2 has {}", columns, kMost);
    return columns;
  }

  std::span<const std::byte> bytes_;
  const std::string& where_;
  std::vector<Section> sections_;
  std::map<std::string, uint64_t> bytes_by_name_;  // PDIs alone
  std::map<uint32_t, Code> codes_;                 // by the section of their group
  uint64_t text_bytes_ = 0;                        // all of them together, in the file
  ElfImage image_;
};

}  // namespace

const ElfKernel* ElfImage::kernel_of(std::string_view entry) const {
  const std::string_view name = entry.substr(0, entry.find(':'));
  for (const ElfKernel& kernel : kernels)
    if (kernel.name == name) return &kernel;
  return nullptr;
}

const ElfInstance* ElfImage::instance_of(std::string_view entry) const {
  const ElfKernel* kernel = kernel_of(entry);
  const size_t colon = entry.find(':');
  if (kernel == nullptr || colon == std::string_view::npos) return nullptr;
  for (const ElfInstance& instance : kernel->instances)
    if (instance.name == entry.substr(colon + 1)) return &instance;
  return nullptr;
}

std::vector<std::string> ElfImage::entries() const {
  std::vector<std::string> names;
  for (const ElfKernel& kernel : kernels)
    for (const ElfInstance& instance : kernel.instances)
      names.push_back(kernel.name + ":" + instance.name);
  return names;
}

ElfImage read_elf(std::span<const std::byte> bytes, const std::string& where) {
  return ElfReader(bytes, where).read();
}

}  // namespace tyto
