#include "device/vnpu/images/image.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "base/error.h"
#include "device/cpu/interpreter.h"
#include "device/npu/formats/q4nx.h"
#include "device/vnpu/machine/machine.h"

namespace tyto::vxrt {

// The file of an image, little-endian; a string is u16 length and bytes.
//   the header (VirtualHeader, npu/formats/transaction.h), with its dimensions
//   u8 form | u8 platform | u32 columns | u32 count | count x instance
// instance:
//   string name | u8 takes_call | 3 x u32 fixed call | u32 launches
//   u32 count | count x { u64 bytes | u8 dead }                        arguments
//   u32 count | count x { u32 l1_bytes | u32 l2_bytes }                needs
//   u8 has_stream | u32 words | u32 window | u32 seed | u32 count
//             | count x { u32 index | u32 base | u32 slope }
//   u8 has_scratchpad | 5 x u32 | 2 x i64 | u8 adds_up                 only where it has one
//   program: string name
//     u32 count | count x { string name | u8 kind | u8 dtype | u64 rows | u64 cols | place }
//     u32 count | count x { u8 kernel | string name | role | u16 layer | u8 count | count x
//       { u16 slot | u8 reads | u8 writes } | 4 x u32 shape | u8 rope_pairs | f32 eps
//       | u8 bf16_sums | f32 factor | u32 rotated }; what a virtual NPU runs has caches in one
//       piece
// role:
//   u8 255 | string name; in older files a number, and the launch is named after layer and role
// place:
//   i32 argument | u8 encoding | u64 offset | u8 count | count x { u64 size | u64 stride }
//   | 5 x u64 q4nx, only in that encoding

namespace {

constexpr uint8_t kNamedRole = 255;

class Writer {
 public:
  template <typename T>
  void add(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto bytes = std::as_bytes(std::span(&value, 1));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add_text(const std::string& text) {
    if (text.size() > UINT16_MAX)
      fail_input("image", "a name of {} bytes is too long", text.size());
    add(static_cast<uint16_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void add_count(size_t count) { add(static_cast<uint32_t>(count)); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& where)
      : rest_(bytes), where_(where) {}

  template <typename T>
  T take(const char* field) {
    T value;
    std::memcpy(&value, take_bytes(sizeof(T), field).data(), sizeof(T));
    return value;
  }
  template <typename T>
  T take_enum(T last, const char* field) {
    const uint8_t value = take<uint8_t>(field);
    if (value > static_cast<uint8_t>(last)) fail_input(where_, "{} {} is not known", field, value);
    return static_cast<T>(value);
  }
  bool take_flag(const char* field) { return take_enum<uint8_t>(1, field) == 1; }
  std::string take_text(const char* field) {
    const auto bytes = take_bytes(take<uint16_t>(field), field);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  // A count of records of at least `record_bytes`, so that a bad one cannot ask for much memory.
  size_t take_count(size_t record_bytes, const char* field) {
    const uint32_t count = take<uint32_t>(field);
    if (count > rest_.size() / record_bytes)
      fail_input(where_, "{} {} are more than the file holds", count, field);
    return count;
  }
  Role take_role(const std::string& launch) {
    const bool is_named = take<uint8_t>("role") == kNamedRole;
    const std::string text = is_named ? take_text("role") : launch.substr(launch.rfind('.') + 1);
    const Role role = role_named(text);
    if (is_named && name(role) != text) fail_input(where_, "has a role that is not known");
    return role;
  }
  size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> take_bytes(size_t count, const char* field) {
    if (count > rest_.size()) fail_input(where_, "ends inside {}", field);
    const auto bytes = rest_.first(count);
    rest_ = rest_.subspan(count);
    return bytes;
  }

  std::span<const std::byte> rest_;
  const std::string& where_;
};

void add_place(Writer& out, const SlotPlace& place) {
  if (place.pattern.dims.size() > UINT8_MAX) fail_input("image", "a pattern is too long");
  out.add(place.argument);
  out.add(place.encoding);
  out.add(place.pattern.offset);
  out.add(static_cast<uint8_t>(place.pattern.dims.size()));
  for (const Pattern::Dim& dim : place.pattern.dims) {
    out.add(dim.size);
    out.add(dim.stride);
  }
  if (place.encoding != Encoding::q4nx) return;
  for (uint64_t value : {place.q4nx.phase_rows, place.q4nx.phase_cols, place.q4nx.first_row,
                         place.q4nx.chunk_rows, place.q4nx.chunk_stride})
    out.add(value);
}

void add_launch(Writer& out, const Launch& launch) {
  out.add(launch.kernel);
  out.add_text(launch.name);
  out.add(kNamedRole);
  out.add_text(name(launch.role));
  out.add(launch.layer);
  out.add(static_cast<uint8_t>(launch.args.size()));
  for (const Arg& arg : launch.args) {
    out.add(arg.slot);
    out.add(static_cast<uint8_t>(arg.reads));
    out.add(static_cast<uint8_t>(arg.writes));
  }
  for (uint32_t size :
       {launch.shape.heads, launch.shape.kv_heads, launch.shape.head_dim, launch.shape.context})
    out.add(size);
  out.add(static_cast<uint8_t>(launch.shape.rope_pairs));
  out.add(launch.shape.eps);
  out.add(static_cast<uint8_t>(launch.shape.bf16_sums));
  out.add(launch.shape.factor);
  out.add(launch.shape.rotated);
}

void add_program(Writer& out, const Instance& instance) {
  const Program& program = instance.program;
  out.add_text(program.name);
  out.add_count(program.slots.size());
  for (size_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    out.add_text(slot.name);
    out.add(slot.kind);
    out.add(slot.dtype);
    out.add(slot.rows);
    out.add(slot.cols);
    add_place(out, instance.places[i]);
  }
  out.add_count(program.launches.size());
  for (const Launch& launch : program.launches) add_launch(out, launch);
}

void add_stream(Writer& out, const std::optional<InstructionStream>& stream) {
  out.add(static_cast<uint8_t>(stream.has_value()));
  if (!stream) return;
  out.add(stream->words);
  out.add(stream->window);
  out.add(stream->seed);
  out.add_count(stream->patches.size());
  for (const InstructionStream::Patch& patch : stream->patches)
    for (uint32_t value : {patch.index, patch.base, patch.slope}) out.add(value);
}

void add_scratchpad(Writer& out, const std::optional<Scratchpad>& scratchpad) {
  out.add(static_cast<uint8_t>(scratchpad.has_value()));
  if (!scratchpad) return;
  const DecodeParameters& p = scratchpad->parameters;
  for (uint32_t value : {p.words, p.append, p.mask, p.scalar, scratchpad->positions})
    out.add(value);
  out.add(p.scale);
  out.add(p.addend);
  out.add(static_cast<uint8_t>(p.core_adds_up));
}

void add_instance(Writer& out, const Instance& instance) {
  out.add_text(instance.name);
  out.add(static_cast<uint8_t>(instance.takes_call));
  const Call& call = instance.fixed_call;
  for (uint32_t value : {call.rows, call.only.position, call.only.first_row, instance.launches})
    out.add(value);
  out.add_count(instance.arguments.size());
  for (const ImageArgument& argument : instance.arguments) {
    out.add(argument.bytes);
    out.add(static_cast<uint8_t>(argument.dead));
  }
  out.add_count(instance.needs.size());
  for (const LaunchNeeds& needs : instance.needs) {
    out.add(needs.l1_bytes);
    out.add(needs.l2_bytes);
  }
  add_stream(out, instance.stream);
  add_scratchpad(out, instance.scratchpad);
  add_program(out, instance);
}

SlotPlace take_place(Reader& in) {
  SlotPlace place;
  place.argument = in.take<int32_t>("slot argument");
  if (place.argument < 0) place.argument = -1;
  place.encoding = in.take_enum(Encoding::q4nx, "slot encoding");
  place.pattern.offset = in.take<uint64_t>("slot offset");
  for (uint8_t count = in.take<uint8_t>("pattern length"); count > 0; --count) {
    const uint64_t size = in.take<uint64_t>("pattern size");
    place.pattern.dims.push_back({size, in.take<uint64_t>("pattern stride")});
  }
  if (place.encoding != Encoding::q4nx) return place;
  for (uint64_t* value : {&place.q4nx.phase_rows, &place.q4nx.phase_cols, &place.q4nx.first_row,
                          &place.q4nx.chunk_rows, &place.q4nx.chunk_stride})
    *value = in.take<uint64_t>("q4nx place");
  return place;
}

Launch take_launch(Reader& in) {
  Launch launch;
  launch.kernel = in.take_enum(kLastKernel, "kernel");
  launch.name = in.take_text("launch name");
  launch.role = in.take_role(launch.name);
  launch.layer = in.take<uint16_t>("layer");
  const uint8_t args = in.take<uint8_t>("argument count");
  for (uint8_t i = 0; i < args; ++i) {
    Arg arg;
    arg.slot = in.take<uint16_t>("launch argument");
    arg.reads = in.take_flag("reads flag");
    arg.writes = in.take_flag("writes flag");
    launch.args.push_back(arg);
  }
  launch.shape.heads = in.take<uint32_t>("heads");
  launch.shape.kv_heads = in.take<uint32_t>("kv_heads");
  launch.shape.head_dim = in.take<uint32_t>("head_dim");
  launch.shape.context = in.take<uint32_t>("context");
  launch.shape.rope_pairs = in.take_flag("rope_pairs flag");
  launch.shape.eps = in.take<float>("eps");
  launch.shape.bf16_sums = in.take_flag("bf16_sums flag");
  launch.shape.factor = in.take<float>("factor");
  launch.shape.rotated = in.take<uint32_t>("rotated values");
  return launch;
}

void take_program(Reader& in, Instance& instance) {
  Program& program = instance.program;
  program.name = in.take_text("program name");
  for (size_t count = in.take_count(34, "slots"); count > 0; --count) {
    Slot slot;
    slot.name = in.take_text("slot name");
    slot.kind = in.take_enum(SlotKind::inout, "slot kind");
    slot.dtype = in.take_enum(DType::mxfp4, "slot type");
    slot.rows = in.take<uint64_t>("slot rows");
    slot.cols = in.take<uint64_t>("slot cols");
    program.slots.push_back(std::move(slot));
    instance.places.push_back(take_place(in));
  }
  for (size_t count = in.take_count(28, "launches"); count > 0; --count)
    program.launches.push_back(take_launch(in));
}

InstructionStream take_stream(Reader& in) {
  InstructionStream stream;
  stream.words = in.take<uint32_t>("instruction words");
  stream.window = in.take<uint32_t>("window");
  stream.seed = in.take<uint32_t>("seed");
  for (size_t count = in.take_count(12, "words to set"); count > 0; --count) {
    InstructionStream::Patch patch;
    for (uint32_t* value : {&patch.index, &patch.base, &patch.slope})
      *value = in.take<uint32_t>("word to set");
    stream.patches.push_back(patch);
  }
  return stream;
}

Scratchpad take_scratchpad(Reader& in) {
  Scratchpad scratchpad;
  DecodeParameters& p = scratchpad.parameters;
  for (uint32_t* value : {&p.words, &p.append, &p.mask, &p.scalar, &scratchpad.positions})
    *value = in.take<uint32_t>("scratchpad");
  p.scale = in.take<int64_t>("scratchpad");
  p.addend = in.take<int64_t>("scratchpad");
  p.core_adds_up = in.take_flag("scratchpad flag");
  return scratchpad;
}

Instance take_instance(Reader& in) {
  Instance instance;
  instance.name = in.take_text("instance name");
  instance.takes_call = in.take_flag("takes_call flag");
  const uint32_t rows = in.take<uint32_t>("fixed call"), position = in.take<uint32_t>("fixed call");
  instance.fixed_call = call_of(rows, position, in.take<uint32_t>("fixed call"));
  instance.launches = in.take<uint32_t>("launches");
  for (size_t count = in.take_count(9, "arguments"); count > 0; --count) {
    const uint64_t bytes = in.take<uint64_t>("argument bytes");
    instance.arguments.push_back({bytes, in.take_flag("dead flag")});
  }
  for (size_t count = in.take_count(8, "needs"); count > 0; --count) {
    const uint32_t l1 = in.take<uint32_t>("l1_bytes");
    instance.needs.push_back({l1, in.take<uint32_t>("l2_bytes")});
  }
  if (in.take_flag("stream flag")) instance.stream = take_stream(in);
  if (in.take_flag("scratchpad flag")) instance.scratchpad = take_scratchpad(in);
  take_program(in, instance);
  return instance;
}

}  // namespace

std::vector<std::byte> serialise(const Image& image) {
  check_image(image, image.instances.empty() ? "image" : image.instances.front().name);
  Writer body;
  body.add(image.form);
  body.add(image.platform);
  body.add(image.columns);
  body.add_count(image.instances.size());
  for (const Instance& instance : image.instances) add_instance(body, instance);
  return virtual_file(image.dims, body.take());
}

Image parse_image(std::span<const std::byte> bytes, const std::string& where) {
  const VirtualHeader header = read_virtual_header(bytes, where);
  if (header.bytes != bytes.size())
    fail_input(where, "has {} bytes instead of {}", bytes.size(), header.bytes);
  if (hash_bytes(bytes.subspan(kVirtualHashedFrom)) != header.hash)
    fail_input(where, "does not match its hash");
  Image image;
  image.hash = header.hash;
  image.dims = header.dims;
  image.file_bytes = header.bytes;
  Reader in(bytes.subspan(kVirtualHeaderBytes), where);
  image.form = in.take_enum(ImageForm::xclbin, "form");
  image.platform = in.take<uint8_t>("platform");
  image.columns = in.take<uint32_t>("columns");
  for (size_t count = in.take_count(38, "instances"); count > 0; --count)
    image.instances.push_back(take_instance(in));
  if (in.left() != 0) fail_input(where, "{} bytes follow the last launch", in.left());
  check_image(image, where);
  return image;
}

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

ReadWords read_scratchpad(const Scratchpad& scratchpad, std::span<const uint32_t> words,
                          uint32_t& core) {
  const DecodeParameters& p = scratchpad.parameters;
  constexpr uint32_t kCleared = 3;  // bits that the firmware clears
  core = ((p.core_adds_up ? core : 0) + words[p.mask]) & ~kCleared;
  ReadWords result{.live = core >> 2};
  if (result.live == 0 || result.live > scratchpad.positions)
    return {.problem = fmt::format("the cores are told L = {}, not in 1..{}", result.live,
                                   scratchpad.positions)};
  const uint32_t append = p.append_word(result.live);
  if (words[p.append] != append)
    return {.problem = fmt::format("the new position goes to element {}, and for L = {} that is {}",
                                   words[p.append], result.live, append)};
  return result;
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

namespace {

// So that sums and products of byte counts stay in 64 bits.
constexpr uint64_t kMostValues = uint64_t{1} << 32;
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr uint64_t kMostPhaseRows = uint64_t{1} << 28;
constexpr size_t kMostDims = 8;

uint64_t q4nx_bytes(const Q4nxPlace& place) {
  return place.phase_rows / kQ4nxBlockRows * (place.phase_cols / kQ4nxBlockCols) *
         kQ4nxBlockElements * 2;
}

void check_slot(const Slot& slot, const std::string& where) {
  if (slot.rows == 0 || slot.cols == 0 || slot.rows > kMostValues || slot.cols > kMostValues ||
      slot.rows > kMostValues / slot.cols)
    fail_input(where, "slot {} has bad size {} x {}", slot.name, slot.rows, slot.cols);
  if (slot.cols % info(slot.dtype).block_values != 0)
    fail_input(where, "slot {}: {} values are not whole blocks of {}", slot.name, slot.cols,
               info(slot.dtype).name);
}

void check_pattern(const Slot& slot, const Pattern& pattern, const std::string& where) {
  if (pattern.offset > kMostBytes || pattern.dims.size() > kMostDims)
    fail_input(where, "slot {} has a bad pattern", slot.name);
  uint64_t values = 1;
  for (const Pattern::Dim& dim : pattern.dims) {
    if (dim.size == 0 || dim.size > kMostValues / values || dim.stride > kMostBytes / dim.size)
      fail_input(where, "slot {} has a bad pattern", slot.name);
    values *= dim.size;
  }
  if (!pattern.dims.empty() && values != slot.rows * slot.cols)
    fail_input(where, "slot {} has {} values, its pattern {}", slot.name, slot.rows * slot.cols,
               values);
  const uint32_t block = info(slot.dtype).block_values;
  if (block > 1 && (!pattern.is_contiguous() || pattern.offset % block != 0))
    fail_input(where, "slot {}: blocks of {} must be contiguous", slot.name, info(slot.dtype).name);
}

// What the launches do with a slot.
struct Use {
  bool is_written = false;
  bool is_matmul_weight = false;
  bool is_other = false;
};

std::vector<Use> uses_of(const Program& program) {
  std::vector<Use> uses(program.slots.size());
  for (const Launch& launch : program.launches)
    for (size_t i = 0; i < launch.args.size(); ++i) {
      Use& use = uses[launch.args[i].slot];
      use.is_written = use.is_written || launch.args[i].writes;
      (launch.kernel == Kernel::matmul && i == 1 ? use.is_matmul_weight : use.is_other) = true;
    }
  // Those may be transposed, as the GEMM kernel itself reads B as (K, N), or 4-bit blocks.
  for (Use& use : uses) use.is_matmul_weight = use.is_matmul_weight && !use.is_other;
  return uses;
}

void check_q4nx(const Instance& instance, size_t slot_index, const Use& use,
                const std::string& where) {
  const Slot& slot = instance.program.slots[slot_index];
  const Q4nxPlace& q4nx = instance.places[slot_index].q4nx;
  if (slot.dtype != DType::bf16 || !use.is_matmul_weight)
    fail_input(where, "slot {} is q4nx, but not the weight of a matmul", slot.name);
  if (!instance.places[slot_index].pattern.dims.empty())
    fail_input(where, "slot {}: q4nx has no pattern", slot.name);
  const bool has_size = q4nx.phase_rows > 0 && q4nx.phase_cols > 0 &&
                        q4nx.phase_rows <= kMostPhaseRows &&
                        q4nx.phase_cols <= kMostValues / q4nx.phase_rows;
  if (!has_size || q4nx.phase_rows % kQ4nxPassRows != 0 || q4nx.phase_cols % kQ4nxBlockCols != 0)
    fail_input(where, "slot {}: a phase of {} x {} is not whole blocks for 16 cores", slot.name,
               q4nx.phase_rows, q4nx.phase_cols);
  const uint64_t last = slot.rows - 1;
  if (slot.cols > q4nx.phase_cols || slot.rows > q4nx.phase_rows || q4nx.chunk_rows == 0 ||
      q4nx.chunk_stride > q4nx.phase_rows ||
      q4nx.chunk_stride < std::min(q4nx.chunk_rows, slot.rows) ||
      q4nx.first_row >= q4nx.phase_rows ||
      q4nx.first_row + last / q4nx.chunk_rows * q4nx.chunk_stride + last % q4nx.chunk_rows >=
          q4nx.phase_rows)
    fail_input(where, "slot {} is not inside its phase of {} x {}", slot.name, q4nx.phase_rows,
               q4nx.phase_cols);
}

// Whether no two values lie in one place: each stride steps over all that the smaller ones cover.
bool is_injective(const Pattern& pattern) {
  std::vector<Pattern::Dim> dims = pattern.dims;
  std::sort(dims.begin(), dims.end(),
            [](const Pattern::Dim& a, const Pattern::Dim& b) { return a.stride < b.stride; });
  uint64_t covered = 1;
  for (const Pattern::Dim& dim : dims) {
    if (dim.size == 1) continue;
    if (dim.stride < covered) return false;
    covered += (dim.size - 1) * dim.stride;
  }
  return true;
}

// Whether the kernels can take the values from where they are, and the DMAs bring them.
void check_access(const Instance& instance, size_t slot_index, const Use& use,
                  const std::string& where) {
  const Slot& slot = instance.program.slots[slot_index];
  const Pattern& pattern = instance.places[slot_index].pattern;
  const bool is_weight = use.is_matmul_weight;
  if (!is_weight)
    if (const auto problem = cpu::pattern_problem(instance.program, slot_index, pattern))
      fail_input(where, "slot {} {}", slot.name, *problem);
  const auto stays = [](const Pattern::Dim& dim) { return dim.size > 1 && dim.stride == 0; };
  if (is_weight && std::any_of(pattern.dims.begin(), pattern.dims.end(), stays))
    fail_input(where, "slot {} has rows of a weight on top of each other", slot.name);
  // A transposed weight is walked along its columns, tile by tile.
  Pattern walked = pattern;
  if (is_weight && !walked.dims.empty() && walked.dims.back().stride != 1)
    std::stable_sort(
        walked.dims.begin(), walked.dims.end(),
        [](const Pattern::Dim& a, const Pattern::Dim& b) { return a.stride > b.stride; });
  if (const auto problem = dma_problem(walked, slot.dtype))
    fail_input(where, "slot {} {}", slot.name, *problem);
  if (use.is_written && !is_injective(pattern))
    fail_input(where, "slot {} is written with values on top of each other", slot.name);
}

void check_place(const Instance& instance, size_t slot_index, const Use& use,
                 const std::string& where) {
  const Slot& slot = instance.program.slots[slot_index];
  const SlotPlace& place = instance.places[slot_index];
  check_pattern(slot, place.pattern, where);
  if (place.encoding == Encoding::q4nx) check_q4nx(instance, slot_index, use, where);
  if (place.argument < 0) {
    if (slot.kind != SlotKind::scratch)
      fail_input(where, "slot {} is neither scratch nor an argument", slot.name);
    if (place != SlotPlace{}) fail_input(where, "slot {}: private scratch has no place", slot.name);
    return;
  }
  if (static_cast<size_t>(place.argument) >= instance.arguments.size() ||
      instance.arguments[static_cast<size_t>(place.argument)].dead)
    fail_input(where, "slot {} is in bad argument {}", slot.name, place.argument);
  const uint64_t bytes = instance.arguments[static_cast<size_t>(place.argument)].bytes;
  if (reach(slot, place) > bytes)
    fail_input(where, "slot {} reaches byte {} of argument {}, which has {}", slot.name,
               reach(slot, place), place.argument, bytes);
  check_access(instance, slot_index, use, where);
}

// Two launches may write the same values, or different ones, but not some of each other's.
// Patterns are compared by the range they span: no image interleaves what it writes.
void check_overlaps(const Instance& instance, std::span<const Use> uses, const std::string& where) {
  const auto& slots = instance.program.slots;
  struct Range {
    int32_t argument;
    uint64_t begin, end;
    size_t slot;
    auto operator<=>(const Range&) const = default;
  };
  std::vector<Range> written;
  for (size_t i = 0; i < slots.size(); ++i) {
    const SlotPlace& place = instance.places[i];
    if (place.argument < 0 || !uses[i].is_written) continue;
    written.push_back({place.argument, row_bytes(slots[i].dtype, place.pattern.offset),
                       reach(slots[i], place), i});
  }
  std::sort(written.begin(), written.end());
  const auto is_same = [&](const Range& a, const Range& b) {
    return simplified(instance.places[a.slot].pattern) ==
               simplified(instance.places[b.slot].pattern) &&
           slots[a.slot].dtype == slots[b.slot].dtype &&
           slots[a.slot].rows * slots[a.slot].cols == slots[b.slot].rows * slots[b.slot].cols;
  };
  // By ascending begin, what overlaps any earlier range overlaps the one that reaches furthest.
  size_t furthest = 0;
  for (size_t i = 1; i < written.size(); ++i) {
    const Range &last = written[furthest], &next = written[i];
    const bool overlaps = next.argument == last.argument && next.begin < last.end;
    if (overlaps && !is_same(next, last))
      fail_input(where, "slots {} and {} are written and overlap", slots[last.slot].name,
                 slots[next.slot].name);
    if (!overlaps || next.end > last.end) furthest = i;
  }
}

void check_needs(const Instance& instance, uint32_t columns, const std::string& where) {
  const auto& launches = instance.program.launches;
  const auto& needs = instance.needs;
  if (!needs.empty() && needs.size() != launches.size())
    fail_input(where, "needs of {} launches, but {} launches", needs.size(), launches.size());
  const uint64_t l2 = uint64_t{kL2BytesPerColumn} * columns;
  for (size_t i = 0; i < needs.size(); ++i) {
    if (needs[i].l1_bytes > kL1Bytes)
      fail_input(where, "launch {} needs {} bytes of L1, a tile has {}", launches[i].name,
                 needs[i].l1_bytes, kL1Bytes);
    if (needs[i].l2_bytes > l2)
      fail_input(where, "launch {} needs {} bytes of L2, {} columns have {}", launches[i].name,
                 needs[i].l2_bytes, columns, l2);
  }
}

void check_stream(const Instance& instance, const std::string& where) {
  const InstructionStream& stream = *instance.stream;
  constexpr uint32_t kStreamHeader = 2, kMostWords = 1u << 24;
  if (stream.words < kStreamHeader || stream.words > kMostWords)
    fail_input(where, "a stream of {} instruction words", stream.words);
  uint32_t next = kStreamHeader;
  bool has_live = false;
  for (const InstructionStream::Patch& patch : stream.patches) {
    if (patch.index < next || patch.index >= stream.words)
      fail_input(where, "bad instruction word {}", patch.index);
    next = patch.index + 1;
    has_live = has_live || patch.slope == 1;
  }
  if ((stream.window != 0) != has_live)
    fail_input(where, "a window of {} positions and {} words to set", stream.window,
               stream.patches.size());
}

void check_scratchpad(const Instance& instance, const Image& image, const std::string& where) {
  const DecodeParameters& p = instance.scratchpad->parameters;
  if (image.form != ImageForm::elf || instance.takes_call)
    fail_input(where, "only an ELF that takes no call has a scratchpad");
  if (p.words == 0 || p.words > kMostStateWords)
    fail_input(where, "a scratchpad of {} words: the firmware's state table has {}", p.words,
               kMostStateWords);
  const auto attends = [](const Launch& launch) { return launch.kernel == Kernel::attention; };
  if (std::none_of(instance.program.launches.begin(), instance.program.launches.end(), attends))
    fail_input(where, "a scratchpad, and nothing that attends to as many positions as it says");
  if (p.append >= p.words || p.mask >= p.words || p.append == p.mask)
    fail_input(where, "words {} and {} of a scratchpad of {}", p.append, p.mask, p.words);
  if (p.scalar >= instance.arguments.size() || !instance.arguments[p.scalar].dead)
    fail_input(where, "argument {} is not a length", p.scalar);
  if (instance.scratchpad->positions == 0 || p.scale <= 0)
    fail_input(where, "a scratchpad for {} positions of {} elements",
               instance.scratchpad->positions, p.scale);
}

void check_instance(const Instance& instance, const Image& image, const std::string& where) {
  if (instance.name.empty() || instance.name.find(':') != std::string::npos)
    fail_input(where, "instance name '{}' is not usable", instance.name);
  const auto& slots = instance.program.slots;
  if (slots.size() > UINT16_MAX) fail_input(where, "{} slots are too many", slots.size());
  for (const Slot& slot : slots) check_slot(slot, where);
  cpu::check_launches(instance.program, where);
  if (instance.places.size() != slots.size())
    fail_input(where, "{} slots, but {} places", slots.size(), instance.places.size());
  for (const ImageArgument& argument : instance.arguments)
    if (argument.bytes > kMostBytes)
      fail_input(where, "an argument of {} bytes is too large", argument.bytes);
  const std::vector<Use> uses = uses_of(instance.program);
  for (size_t i = 0; i < slots.size(); ++i) check_place(instance, i, uses[i], where);
  check_overlaps(instance, uses, where);
  check_needs(instance, image.columns, where);
  const bool is_xclbin = image.form == ImageForm::xclbin;
  if (instance.stream.has_value() != (is_xclbin && !instance.takes_call))
    fail_input(
        where,
        "an xclbin that takes no call must have a stream of instructions, no other image may");
  if (instance.stream) check_stream(instance, where);
  if (instance.scratchpad) check_scratchpad(instance, image, where);
}

}  // namespace

uint64_t reach(const Slot& slot, const SlotPlace& place) {
  if (place.encoding == Encoding::q4nx) return place.pattern.offset * 2 + q4nx_bytes(place.q4nx);
  return row_bytes(slot.dtype, end_of(place.pattern, slot.rows * slot.cols));
}

Image make_image(const std::string& name, const Program& program, Scratch scratch) {
  Instance instance;
  instance.name = name;
  instance.program = program;
  for (const Slot& slot : program.slots) {
    const bool is_private = slot.kind == SlotKind::scratch && scratch == Scratch::is_private;
    SlotPlace place;
    if (!is_private) {
      place.argument = static_cast<int32_t>(instance.arguments.size());
      instance.arguments.push_back({slot.bytes(), false});
    }
    instance.places.push_back(std::move(place));
  }
  Image image;
  image.instances.push_back(std::move(instance));
  return image;
}

Image combined(std::span<const Image> images) {
  Image result;
  for (const Image& image : images) {
    if (image.form != ImageForm::elf || image.platform != images.front().platform ||
        image.columns != images.front().columns)
      fail_input("images", "are not ELFs for one partition");
    result.platform = image.platform;
    result.columns = image.columns;
    result.instances.insert(result.instances.end(), image.instances.begin(), image.instances.end());
  }
  return result;
}

void check_image(const Image& image, const std::string& where) {
  if (image.columns == 0 || image.columns > 255)
    fail_input(where, "{} columns are not possible", image.columns);
  constexpr uint8_t kPlatforms[] = {64, 69, 70, 75, 86, 105};
  if (std::find(std::begin(kPlatforms), std::end(kPlatforms), image.platform) ==
      std::end(kPlatforms))
    fail_input(where, "platform {} is not known", image.platform);
  if (image.instances.empty()) fail_input(where, "has no instance");
  if (image.form == ImageForm::xclbin && image.instances.size() != 1)
    fail_input(where, "an xclbin of {} instances", image.instances.size());
  std::set<std::string> names;
  for (const Instance& instance : image.instances) {
    check_instance(instance, image, where);
    if (!names.insert(instance.name).second)
      fail_input(where, "two instances are called {}", instance.name);
  }
}

}  // namespace tyto::vxrt
