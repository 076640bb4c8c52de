#include "device/vxrt/image.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "device/cpu/interpreter.h"

namespace tyto::vxrt {
namespace {

constexpr std::string_view kMagic = "TYTOVNPU";
constexpr size_t kHeaderBytes = 8 + 4 + 8 + 16;
constexpr uint64_t kMostValues = uint64_t{1}
                                 << 32;  // of a slot, so that byte counts stay in 64 bits

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

void add_program(Writer& out, const Program& program) {
  out.add_text(program.name);
  out.add_count(program.slots.size());
  for (const Slot& slot : program.slots) {
    out.add_text(slot.name);
    out.add(slot.kind);
    out.add(slot.dtype);
    out.add(slot.rows);
    out.add(slot.cols);
  }
  out.add_count(program.launches.size());
  for (const Launch& launch : program.launches) {
    out.add(launch.kernel);
    out.add_text(launch.step);
    out.add_text(launch.block);
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
  }
}

Launch take_launch(Reader& in) {
  Launch launch;
  launch.kernel = in.take_enum(Kernel::matmul_i8, "kernel");
  launch.step = in.take_text("step name");
  launch.block = in.take_text("block name");
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
  return launch;
}

Program take_program(Reader& in) {
  Program program;
  program.name = in.take_text("program name");
  for (size_t count = in.take_count(20, "slots"); count > 0; --count) {
    Slot slot;
    slot.name = in.take_text("slot name");
    slot.kind = in.take_enum(SlotKind::inout, "slot kind");
    slot.dtype = in.take_enum(DType::i8, "slot type");
    slot.rows = in.take<uint64_t>("slot rows");
    slot.cols = in.take<uint64_t>("slot cols");
    program.slots.push_back(std::move(slot));
  }
  for (size_t count = in.take_count(28, "launches"); count > 0; --count)
    program.launches.push_back(take_launch(in));
  return program;
}

void check_slots(const Image& image, const std::string& where) {
  const auto& slots = image.program.slots;
  if (slots.size() > UINT16_MAX) fail_input(where, "{} slots are too many", slots.size());
  for (const Slot& slot : slots) {
    if (slot.rows == 0 || slot.cols == 0 || slot.rows > kMostValues || slot.cols > kMostValues ||
        slot.rows > kMostValues / slot.cols)
      fail_input(where, "slot {} has bad size {} x {}", slot.name, slot.rows, slot.cols);
    if (slot.cols % info(slot.dtype).block_values != 0)
      fail_input(where, "slot {}: {} values are not whole blocks of {}", slot.name, slot.cols,
                 info(slot.dtype).name);
  }
}

void check_arguments(const Image& image, const std::string& where) {
  std::vector<bool> covered(image.program.slots.size());
  for (size_t i = 0; i < image.arguments.size(); ++i) {
    const ImageArgument& argument = image.arguments[i];
    if (argument.dead) continue;
    if (argument.slot >= covered.size() || covered[argument.slot])
      fail_input(where, "argument {} has bad slot {}", i, argument.slot);
    covered[argument.slot] = true;
  }
  for (size_t i = 0; i < covered.size(); ++i)
    if (!covered[i] && image.program.slots[i].kind != SlotKind::scratch)
      fail_input(where, "slot {} is neither scratch nor an argument", image.program.slots[i].name);
}

void check_needs(const Image& image, const std::string& where) {
  const auto& launches = image.program.launches;
  if (!image.needs.empty() && image.needs.size() != launches.size())
    fail_input(where, "needs of {} launches, but {} launches", image.needs.size(), launches.size());
  const uint64_t l2 = uint64_t{kL2BytesPerColumn} * image.columns;
  for (size_t i = 0; i < image.needs.size(); ++i) {
    if (image.needs[i].l1_bytes > kL1Bytes)
      fail_input(where, "launch {} needs {} bytes of L1, a tile has {}", launches[i].step,
                 image.needs[i].l1_bytes, kL1Bytes);
    if (image.needs[i].l2_bytes > l2)
      fail_input(where, "launch {} needs {} bytes of L2, {} columns have {}", launches[i].step,
                 image.needs[i].l2_bytes, image.columns, l2);
  }
}

}  // namespace

Image make_image(const std::string& instance, const Program& program) {
  Image image;
  image.instance = instance;
  image.program = program;
  for (size_t i = 0; i < program.slots.size(); ++i)
    if (program.slots[i].kind != SlotKind::scratch)
      image.arguments.push_back({static_cast<uint16_t>(i), false});
  return image;
}

void check_image(const Image& image, const std::string& where) {
  if (image.instance.empty() || image.instance.find(':') != std::string::npos)
    fail_input(where, "instance name '{}' is not usable", image.instance);
  if (image.columns == 0 || image.columns > 255)
    fail_input(where, "{} columns are not possible", image.columns);
  constexpr uint8_t kPlatforms[] = {64, 69, 70, 75, 86, 105};
  if (std::find(std::begin(kPlatforms), std::end(kPlatforms), image.platform) ==
      std::end(kPlatforms))
    fail_input(where, "platform {} is not known", image.platform);
  check_slots(image, where);
  check_arguments(image, where);
  cpu::check_launches(image.program, where);
  check_needs(image, where);
}

std::vector<std::byte> serialise(const Image& image) {
  check_image(image, image.instance);
  Writer body;
  body.add_text(image.instance);
  body.add(image.form);
  body.add(image.platform);
  body.add(image.columns);
  body.add_count(image.arguments.size());
  for (const ImageArgument& argument : image.arguments) {
    body.add(argument.slot);
    body.add(static_cast<uint8_t>(argument.dead));
  }
  body.add_count(image.needs.size());
  for (const LaunchNeeds& needs : image.needs) {
    body.add(needs.l1_bytes);
    body.add(needs.l2_bytes);
  }
  add_program(body, image.program);
  const std::vector<std::byte> payload = body.take();
  const Hash128 hash = hash_bytes(payload);
  Writer out;
  for (char c : kMagic) out.add(c);
  out.add(kImageVersion);
  out.add(static_cast<uint64_t>(kHeaderBytes + payload.size()));
  out.add(hash.high);
  out.add(hash.low);
  std::vector<std::byte> file = out.take();
  file.insert(file.end(), payload.begin(), payload.end());
  return file;
}

void write_image(const std::filesystem::path& path, const Image& image) {
  AtomicFile file(path);
  file.write(serialise(image));
  file.commit();
}

Image parse_image(std::span<const std::byte> bytes, const std::string& where) {
  if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
    fail_input(where, "is not an image for the virtual NPU");
  Reader in(bytes.subspan(kMagic.size()), where);
  const uint32_t version = in.take<uint32_t>("version");
  if (version != kImageVersion)
    fail_input(where, "image version {}, this program reads {}: compile it again", version,
               kImageVersion);
  const uint64_t size = in.take<uint64_t>("file size");
  if (size != bytes.size()) fail_input(where, "has {} bytes instead of {}", bytes.size(), size);
  Image image;
  image.hash.high = in.take<uint64_t>("hash");
  image.hash.low = in.take<uint64_t>("hash");
  image.file_bytes = size;
  if (hash_bytes(bytes.subspan(kHeaderBytes)) != image.hash)
    fail_input(where, "does not match its hash");
  image.instance = in.take_text("instance name");
  image.form = in.take_enum(ImageForm::xclbin, "form");
  image.platform = in.take<uint8_t>("platform");
  image.columns = in.take<uint32_t>("columns");
  for (size_t count = in.take_count(3, "arguments"); count > 0; --count) {
    const uint16_t slot = in.take<uint16_t>("argument slot");
    image.arguments.push_back({slot, in.take_flag("dead flag")});
  }
  for (size_t count = in.take_count(8, "needs"); count > 0; --count) {
    const uint32_t l1 = in.take<uint32_t>("l1_bytes");
    image.needs.push_back({l1, in.take<uint32_t>("l2_bytes")});
  }
  image.program = take_program(in);
  if (in.left() != 0) fail_input(where, "{} bytes follow the last launch", in.left());
  check_image(image, where);
  return image;
}

Image read_image(const std::filesystem::path& path) {
  const MappedFile file(path);
  return parse_image(file.bytes(), path.string());
}

}  // namespace tyto::vxrt
