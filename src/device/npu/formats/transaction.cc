#include "device/npu/formats/transaction.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "base/spelling.h"

namespace tyto {
namespace {

constexpr size_t kHeaderWords = 4;
constexpr uint32_t kMajor = 0, kMinor = 1;

// A shim tile is row 0 of its column; its descriptors lie one after another.
constexpr uint32_t kTileMask = 0xfffff, kRowMask = 0x1f;
constexpr unsigned kRowShift = 20;
constexpr uint32_t kDescriptorsAt = 0x1d000, kDescriptorsEnd = 0x1d200, kDescriptorBytes = 0x20;

enum Opcode : uint32_t {
  kWrite = 0,
  kBlockWrite = 1,
  kMaskWrite = 3,
  kMaskPoll = 4,
  kNoOp = 5,
  kPreempt = 6,
  kMaskPollBusy = 7,
  kLoadPdi = 8,
  kLoadProgram = 9,
  kCreateScratchpad = 10,
  kUpdateState = 11,
  kUpdateRegister = 12,
  kUpdateScratchpad = 13,
  kFirstCustom = 128,  // from here on the second word is the operation's size
  kAddressPatch = 129,
};

// Words of an operation, or which of them holds its bytes.
struct OperationSize {
  uint32_t opcode;
  uint32_t words;
  uint32_t size_at;  // 0: `words` is all there is to know
};
constexpr OperationSize kSizes[] = {{kWrite, 6, 5},
                                    {kBlockWrite, 4, 3},
                                    {kMaskWrite, 7, 6},
                                    {kMaskPoll, 7, 6},
                                    {kNoOp, 1, 0},
                                    {kPreempt, 1, 0},
                                    {kLoadPdi, 4, 0},
                                    {kMaskPollBusy, 7, 6},
                                    {kLoadProgram, 2, 0},
                                    {kCreateScratchpad, 4, 0},
                                    {kUpdateState, 2, 0},
                                    {kUpdateRegister, 3, 0},
                                    {kUpdateScratchpad, 1, 0}};
constexpr uint32_t kPatchWords = 12;

class TransactionReader {
 public:
  TransactionReader(std::span<const uint32_t> words, const std::string& where)
      : words_(words), where_(where) {}

  Transaction read() {
    if (words_.size() < kHeaderWords || words_[3] != words_.size_bytes())
      fail_input(where_, "not an instruction stream: {} bytes, and its header says {}",
                 words_.size_bytes(), words_.size() < kHeaderWords ? 0 : words_[3]);
    const uint32_t major = words_[0] & 0xff, minor = words_[0] >> 8 & 0xff;
    if (major != kMajor || minor != kMinor) {
      result_.not_read = fmt::format("instruction format {}.{} is not {}.{}, the one Tyto reads",
                                     major, minor, kMajor, kMinor);
      return result_;
    }
    result_.generation = words_[0] >> 16 & 0xff;
    result_.columns = words_[1] & 0xff;
    if (result_.generation != kGenerationXdna2)
      throw Error(
          ErrorCode::input, where_,
          fmt::format("built for an array of generation {}{}, XDNA2 is {}", result_.generation,
                      result_.generation == kGenerationXdna1 ? " (XDNA1)" : "", kGenerationXdna2),
          "build again for npu2: AIR_TARGET_DEVICE=npu2 or NPU2=1");
    if (result_.columns == 0 || result_.columns > kArrayColumns)
      fail_input(where_, "compiled for {} columns, and the array of XDNA2 has {}", result_.columns,
                 kArrayColumns);
    size_t at = kHeaderWords;
    for (uint32_t operation = 0; operation < words_[2] && result_.not_read.empty(); ++operation)
      at += take(at, operation);
    if (result_.not_read.empty() && at != words_.size())
      fail_input(where_, "{} operations end at word {} of {}", words_[2], at, words_.size());
    take_off_array_offset();
    return std::move(result_);
  }

 private:
  size_t take(size_t at, uint32_t operation) {
    if (at >= words_.size())
      fail_input(where_, "operation {} of {} lies beyond the last word", operation, words_[2]);
    const uint32_t opcode = words_[at] & 0xff;
    const std::span<const uint32_t> rest = words_.subspan(at);
    const size_t size = operation_words(opcode, rest, operation);
    if (size == 0) return 0;
    const std::span<const uint32_t> body = rest.first(size);
    if (opcode == kWrite) write(body[2], body[4]);
    if (opcode == kBlockWrite)
      for (size_t i = 4; i < size; ++i) write(body[2] + static_cast<uint32_t>(i - 4) * 4, body[i]);
    if (opcode == kAddressPatch) patch(body);
    if (opcode == kCreateScratchpad) result_.scratchpad.bytes = body[1];
    if (opcode == kUpdateRegister) update(body);
    return size;
  }

  // 0: unknown, and so is where the next one begins.
  size_t operation_words(uint32_t opcode, std::span<const uint32_t> rest, uint32_t operation) {
    OperationSize size = {opcode, 2, 1};
    if (opcode < kFirstCustom) {
      const auto* known =
          std::find_if(std::begin(kSizes), std::end(kSizes),
                       [&](const OperationSize& row) { return row.opcode == opcode; });
      if (known == std::end(kSizes)) {
        result_.not_read = fmt::format("operation {} has the unknown code {}", operation, opcode);
        return 0;
      }
      size = *known;
    }
    const size_t least = opcode == kAddressPatch ? kPatchWords : size.words;
    const size_t words = rest.size() < least           ? 0
                         : size.size_at == 0           ? size.words
                         : rest[size.size_at] % 4 == 0 ? rest[size.size_at] / 4
                                                       : 0;
    if (words < least || words > rest.size())
      fail_input(where_, "operation {} (code {}) does not fit in what is left of the stream",
                 operation, opcode);
    return words;
  }

  static bool is_descriptor(uint32_t address) {
    const uint32_t in_tile = address & kTileMask;
    return (address >> kRowShift & kRowMask) == 0 && in_tile >= kDescriptorsAt &&
           in_tile < kDescriptorsEnd;
  }

  void write(uint32_t address, uint32_t value) {
    if (is_descriptor(address)) registers_[address] = value;
    if (value == 0)
      cleared_.insert(address);
    else
      cleared_.erase(address);
  }

  // Opcode, place and operation lie in one word; then the factor and the register.
  void update(std::span<const uint32_t> body) {
    const uint32_t address = body[2];
    result_.scratchpad.updates.push_back(
        {body[0] >> 8 & 0xff, is_descriptor(address), body[1], cleared_.erase(address) > 0});
  }

  // The address that is patched is the descriptor's second word, or its first.
  void patch(std::span<const uint32_t> body) {
    AddressPatch patch;
    patch.argument = body[8];
    patch.offset = body[10] | uint64_t{body[11]} << 32;
    const uint32_t base = body[6] / kDescriptorBytes * kDescriptorBytes;
    DmaDescriptor descriptor;
    bool is_whole = is_descriptor(base);
    for (uint32_t i = 0; is_whole && i < kDescriptorWords; ++i) {
      const auto found = registers_.find(base + i * 4);
      is_whole = found != registers_.end();
      if (is_whole) descriptor[i] = found->second;
    }
    if (is_whole) patch.descriptor = descriptor;
    result_.patches.push_back(patch);
  }

  // Every buffer is moved from its beginning, so the least offset tells whether one was added.
  void take_off_array_offset() {
    std::map<uint32_t, uint64_t> least;
    for (const AddressPatch& patch : result_.patches) {
      if (patch.argument < kTranslatedArguments) continue;
      uint64_t& offset = least.try_emplace(patch.argument, patch.offset).first->second;
      offset = std::min(offset, patch.offset);
    }
    for (AddressPatch& patch : result_.patches) {
      const auto found = least.find(patch.argument);
      if (found != least.end() && found->second >= kArrayOffset) patch.offset -= kArrayOffset;
    }
    for (const auto& [argument, offset] : least)
      if (offset < kArrayOffset) result_.untranslated.push_back(argument);
  }

  std::span<const uint32_t> words_;
  const std::string& where_;
  std::map<uint32_t, uint32_t> registers_;  // the descriptors', as written so far
  std::set<uint32_t> cleared_;              // registers whose last value is 0
  Transaction result_;
};

}  // namespace

// Steps are held less one, as is the number of iterations; a size of 0 does not wrap.
uint64_t descriptor_reach(const DmaDescriptor& descriptor) {
  const uint64_t length = descriptor[0];
  if (length == 0) return 0;
  const auto step = [&](size_t word) { return uint64_t{descriptor[word] & 0xfffff} + 1; };
  const auto size = [&](size_t word) { return uint64_t{descriptor[word] >> 20 & 0x3ff}; };
  const uint64_t d0 = size(3) == 0 ? length : std::min(size(3), length);
  const uint64_t rows = (length + d0 - 1) / d0;
  const uint64_t d1 = size(4) == 0 ? rows : std::min(size(4), rows);
  const uint64_t d2 = (rows + d1 - 1) / d1;
  const uint64_t again = descriptor[6] >> 20 & 0x3f;
  const uint64_t last =
      (d0 - 1) * step(3) + (d1 - 1) * step(4) + (d2 - 1) * step(5) + again * step(6);
  return (last + 1) * 4;
}

Transaction read_transaction(std::span<const uint32_t> words, const std::string& where) {
  return TransactionReader(words, where).read();
}

std::string dims_difference(const AirDims& has, const AirDims& wanted) {
  std::vector<std::string> parts;
  for (const DimField& field : kDimFields)
    if (has.*field.member != wanted.*field.member)
      parts.push_back(
          fmt::format("{} {} and not {}", field.name, has.*field.member, wanted.*field.member));
  return joined(parts);
}

namespace {

template <typename T>
void put(std::vector<std::byte>& out, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

template <typename T>
T take(std::span<const std::byte>& from) {
  T value;
  std::memcpy(&value, from.data(), sizeof(T));
  from = from.subspan(sizeof(T));
  return value;
}

}  // namespace

bool is_virtual_image(std::span<const std::byte> bytes) {
  return bytes.size() >= kVirtualMagic.size() &&
         std::memcmp(bytes.data(), kVirtualMagic.data(), kVirtualMagic.size()) == 0;
}

std::vector<std::byte> virtual_file(const AirDims& dims, std::span<const std::byte> rest) {
  std::vector<std::byte> body;
  for (const DimField& field : kDimFields) put(body, dims.*field.member);
  body.insert(body.end(), rest.begin(), rest.end());
  const Hash128 hash = hash_bytes(body);
  std::vector<std::byte> file;
  for (const char letter : kVirtualMagic) put(file, letter);
  put(file, kVirtualVersion);
  put(file, uint64_t{kVirtualHashedFrom + body.size()});
  put(file, hash.high);
  put(file, hash.low);
  file.insert(file.end(), body.begin(), body.end());
  return file;
}

VirtualHeader read_virtual_header(std::span<const std::byte> bytes, const std::string& where) {
  if (!is_virtual_image(bytes)) fail_input(where, "is not an image for the virtual NPU");
  std::span<const std::byte> rest = bytes.subspan(kVirtualMagic.size());
  if (rest.size() < sizeof(uint32_t)) fail_input(where, "ends inside version");
  const auto version = take<uint32_t>(rest);
  if (version != kVirtualVersion)
    throw Error(ErrorCode::input, where,
                fmt::format("image version {}, this program reads {}", version, kVirtualVersion),
                "make it again with `tyto compile`");
  if (bytes.size() < kVirtualHeaderBytes) fail_input(where, "ends inside the header");
  VirtualHeader header;
  header.bytes = take<uint64_t>(rest);
  header.hash.high = take<uint64_t>(rest);
  header.hash.low = take<uint64_t>(rest);
  for (const DimField& field : kDimFields) header.dims.*field.member = take<uint32_t>(rest);
  return header;
}

}  // namespace tyto
