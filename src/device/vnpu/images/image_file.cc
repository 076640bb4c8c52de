// The file of an image, little-endian; a string is u16 length and bytes.
//   the header of npu/formats/virtual_image.h, with its dimensions
//   u8 form | u8 platform | u32 columns | u32 count | count x instance
// instance:
//   string name | u8 takes_call | 3 x u32 fixed call | u32 launches
//   u32 count | count x { u64 bytes | u8 dead }                        arguments
//   u32 count | count x { u32 l1_bytes | u32 l2_bytes }                needs
//   u8 has_stream | u32 words | u32 window | u32 seed | u32 count
//             | count x { u32 index | u32 base | u32 slope }
//   program: string name
//     u32 count | count x { string name | u8 kind | u8 dtype | u64 rows | u64 cols | place }
//     u32 count | count x { u8 kernel | string name | u8 role | u16 layer | u8 count | count x
//       { u16 slot | u8 reads | u8 writes } | 4 x u32 shape | u8 rope_pairs | f32 eps
//       | u8 bf16_sums | f32 factor | u32 rotated }; what a virtual NPU runs has caches in one
//       piece
// place:
//   i32 argument | u8 encoding | u64 offset | u8 count | count x { u64 size | u64 stride }
//   | 5 x u64 q4nx, only in that encoding
#include <cstring>

#include "base/error.h"
#include "device/vnpu/images/image.h"

namespace tyto::vxrt {
namespace {

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
  out.add(launch.role);
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
  launch.role = in.take_enum(kLastRole, "role");
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

}  // namespace tyto::vxrt
