#include "model/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/round_up.h"
#include "base/utf8.h"
#include "model/model.h"
#include "model/weight_table.h"

namespace tyto {

template <typename T>
const T* GgufKeys::get(std::string_view key, const char* wanted) const {
  const auto found = gguf_.metadata.find(key);
  if (found == gguf_.metadata.end()) return nullptr;
  const T* value = std::get_if<T>(&found->second.value);
  if (value == nullptr) fail_input(where(key), "is not {}", wanted);
  return value;
}

std::optional<uint64_t> GgufKeys::integer(std::string_view key) const {
  const auto found = gguf_.metadata.find(key);
  if (found == gguf_.metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<uint64_t>(&found->second.value)) return *value;
  if (std::holds_alternative<std::vector<int64_t>>(found->second.value))
    fail_unsupported(where(key), "differs from layer to layer");
  const auto* value = std::get_if<int64_t>(&found->second.value);
  if (value == nullptr) fail_input(where(key), "is not an integer");
  if (*value < 0) fail_input(where(key), "{} is negative", *value);
  return static_cast<uint64_t>(*value);
}

std::optional<double> GgufKeys::real(std::string_view key) const {
  const double* value = get<double>(key, "a floating-point number");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::optional<bool> GgufKeys::flag(std::string_view key) const {
  const bool* value = get<bool>(key, "a boolean");
  return value == nullptr ? std::nullopt : std::optional(*value);
}

const std::string* GgufKeys::text(std::string_view key) const {
  return get<std::string>(key, "a string");
}

const std::vector<std::string>* GgufKeys::strings(std::string_view key) const {
  return get<std::vector<std::string>>(key, "an array of strings");
}

const std::vector<int64_t>* GgufKeys::integers(std::string_view key) const {
  return get<std::vector<int64_t>>(key, "an array of integers");
}

bool GgufKeys::has_integers(std::string_view key) const {
  const auto found = gguf_.metadata.find(key);
  return found != gguf_.metadata.end() &&
         std::holds_alternative<std::vector<int64_t>>(found->second.value);
}

const std::vector<double>* GgufKeys::reals(std::string_view key) const {
  return get<std::vector<double>>(key, "an array of numbers");
}

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".gguf";
constexpr size_t kDigits = 5;  // digits of both numbers in a name
constexpr std::string_view kOf = "-of-";

std::optional<uint32_t> five_digits(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc() && end == text.data() + text.size();
  return text.size() == kDigits && is_whole ? std::optional(value) : std::nullopt;
}

std::string lower_case(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

Gguf map_and_parse(const fs::path& path, std::vector<MappedFile>& files) {
  files.emplace_back(path);
  return parse_gguf(files.back().bytes(), path.string());
}

uint64_t split_key(const Gguf& gguf, const char* key) {
  const GgufKeys keys(gguf);
  const auto value = keys.integer(key);
  if (!value) fail_input(keys.where(key), "is missing");
  return *value;
}

// How the files of a model are called of which one is at `path`.
ShardName names_beside(const fs::path& path, const Gguf& one) {
  const uint64_t number = split_key(one, "split.no"), count = split_key(one, "split.count");
  const std::string place = path.string();
  const auto name = shard_name(path.filename().string());
  if (!name || name->count != count || name->number != number + 1)
    throw Error(ErrorCode::input, place,
                fmt::format("is file {} of {} of a model, but is not called so", number + 1, count),
                fmt::format("give it back its name, which ends with -{:05}-of-{:05}.gguf",
                            number + 1, count));
  return *name;
}

void check_is_shard(const Gguf& gguf, const ShardName& name, uint32_t which) {
  const uint64_t number = split_key(gguf, "split.no"), count = split_key(gguf, "split.count");
  if (number + 1 != which || count != name.count)
    fail_input(gguf.name, "says that it is file {} of {}, its name that it is {} of {}", number + 1,
               count, which, name.count);
}

void add_tensors(Gguf&& from, Gguf& to, std::set<std::string>& names) {
  for (NamedTensor& tensor : from.tensors) {
    if (!names.insert(tensor.name).second)
      fail_input(from.name + ": tensor " + printable_name(tensor.name),
                 "is in another file of the model, too");
    to.tensors.push_back(std::move(tensor));
  }
}

}  // namespace

std::string ShardName::file(uint32_t which) const {
  return fmt::format("{}-{:05}{}{:05}{}", stem, which, kOf, count, extension);
}

std::optional<ShardName> shard_name(const std::string& file_name) {
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
  if (file_name.size() <= kTail) return std::nullopt;
  const size_t begin = file_name.size() - kTail;
  const std::string_view tail = std::string_view(file_name).substr(begin);
  const auto number = five_digits(tail.substr(1, kDigits));
  const auto count = five_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  const std::string extension(tail.substr(tail.size() - kExtension.size()));
  const bool has_form = tail.front() == '-' && tail.substr(1 + kDigits, kOf.size()) == kOf &&
                        lower_case(extension) == kExtension;
  if (!has_form || !number || !count || *number == 0 || *number > *count) return std::nullopt;
  return ShardName{file_name.substr(0, begin), *number, *count, extension};
}

Gguf open_gguf_files(const fs::path& path, std::vector<MappedFile>& files) {
  Gguf whole = map_and_parse(path, files);
  if (GgufKeys(whole).integer("split.count").value_or(1) <= 1) return whole;
  const ShardName name = names_beside(path, whole);
  if (name.number != 1) {
    const fs::path first = path.parent_path() / name.file(1);
    std::error_code ignored;
    if (!fs::exists(first, ignored))
      throw Error(ErrorCode::input, path.string(),
                  fmt::format("is file {} of {}, but {} is missing", name.number, name.count,
                              first.filename().string()),
                  "put all files of the model into one folder");
    files.pop_back();
    return open_gguf_files(first, files);
  }
  std::set<std::string> names;
  for (const NamedTensor& tensor : whole.tensors) names.insert(tensor.name);
  for (uint32_t which = 2; which <= name.count; ++which) {
    const fs::path next = path.parent_path() / name.file(which);
    std::error_code ignored;
    if (!fs::exists(next, ignored))
      throw Error(ErrorCode::input, path.string(),
                  fmt::format("is the first of {} files, but {} is missing", name.count,
                              next.filename().string()),
                  "put all files of the model into one folder");
    Gguf part = map_and_parse(next, files);
    check_is_shard(part, name, which);
    add_tensors(std::move(part), whole, names);
  }
  if (const uint64_t promised = split_key(whole, "split.tensors.count");
      promised != whole.tensors.size())
    fail_input(path.string(), "split.tensors.count is {}, but the {} files have {} tensors",
               promised, name.count, whole.tensors.size());
  return whole;
}

namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kLargestAlignment = 1 << 20;
constexpr uint32_t kMostGgufDimensions = 4;
constexpr uint64_t kLongestName = 65535;
// Array elements in all metadata together. A vocabulary with its merges has under a million; the
// bound keeps what a hostile file makes us allocate small whatever its size.
constexpr uint64_t kMaxArrayElements = 1 << 24;
// The least bytes one record can take, to refuse a count before anything is allocated for it.
constexpr uint64_t kLeastMetadataBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 4 + 8;

enum class Kind : uint8_t { unsigned_int, signed_int, real, boolean, string, array };

struct ValueType {
  Kind kind;
  uint32_t bytes;  // the least a value takes in the file
};

// Indexed by the type number of the format.
constexpr std::array<ValueType, 13> kValueTypes = {{
    {Kind::unsigned_int, 1},
    {Kind::signed_int, 1},
    {Kind::unsigned_int, 2},
    {Kind::signed_int, 2},
    {Kind::unsigned_int, 4},
    {Kind::signed_int, 4},
    {Kind::real, 4},
    {Kind::boolean, 1},
    {Kind::string, 8},
    {Kind::array, 12},
    {Kind::unsigned_int, 8},
    {Kind::signed_int, 8},
    {Kind::real, 8},
}};

// Tensor types of the format that Tyto cannot compute with, so that errors can name them.
struct ForeignType {
  uint32_t id;
  const char* name;
};
constexpr ForeignType kForeignTypes[] = {
    {9, "q8_1"},   {15, "q8_k"},  {24, "i8"},    {25, "i16"},  {27, "i64"},  {28, "f64"},
    {34, "tq1_0"}, {35, "tq2_0"}, {40, "nvfp4"}, {41, "q1_0"}, {42, "q2_0"},
};

std::string type_text(uint32_t ggml_id) {
  for (const ForeignType& type : kForeignTypes)
    if (type.id == ggml_id) return type.name;
  return fmt::format("of type {}", ggml_id);
}

// Walks the header. Every read is checked against what is left of the file.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  uint64_t position() const { return position_; }
  uint64_t left() const { return bytes_.size() - position_; }

  template <typename T>
  T number() {
    T value{};
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string string(const char* what, uint64_t longest = UINT64_MAX) {
    const uint64_t length = number<uint64_t>();
    if (length > longest)
      fail_input(file_, "{} at byte {}: {} bytes long, at most {} are allowed", what, position_,
                 length, longest);
    const auto text = take(length);
    return std::string(reinterpret_cast<const char*>(text.data()), text.size());
  }

  // Refuses `count` records that cannot fit in what is left.
  void expect_room(uint64_t count, uint64_t least_bytes) {
    if (count <= left() / least_bytes) return;
    uint64_t end = 0;
    if (__builtin_mul_overflow(count, least_bytes, &end) ||
        __builtin_add_overflow(end, position_, &end))
      end = UINT64_MAX;
    fail_cut_off(file_, bytes_.size(), end);
  }

  void count_elements(uint64_t count) {
    if (count > kMaxArrayElements - elements_)
      fail_input(file_, "metadata arrays hold more than {} elements", kMaxArrayElements);
    elements_ += count;
  }

 private:
  std::span<const std::byte> take(uint64_t count) {
    uint64_t end = 0;
    if (__builtin_add_overflow(position_, count, &end)) end = UINT64_MAX;
    if (count > left()) fail_cut_off(file_, bytes_.size(), end);
    const auto taken = bytes_.subspan(position_, count);
    position_ += count;
    return taken;
  }

  std::span<const std::byte> bytes_;
  const std::string& file_;
  uint64_t position_ = 0;
  uint64_t elements_ = 0;
};

const ValueType& value_type(uint32_t id, const std::string& where) {
  if (id >= kValueTypes.size()) fail_input(where, "value type {} does not exist", id);
  return kValueTypes[id];
}

uint64_t read_unsigned(Cursor& cursor, uint32_t bytes) {
  switch (bytes) {
    case 1:
      return cursor.number<uint8_t>();
    case 2:
      return cursor.number<uint16_t>();
    case 4:
      return cursor.number<uint32_t>();
    default:
      return cursor.number<uint64_t>();
  }
}

int64_t read_signed(Cursor& cursor, uint32_t bytes) {
  switch (bytes) {
    case 1:
      return cursor.number<int8_t>();
    case 2:
      return cursor.number<int16_t>();
    case 4:
      return cursor.number<int32_t>();
    default:
      return cursor.number<int64_t>();
  }
}

double read_real(Cursor& cursor, uint32_t bytes) {
  return bytes == 4 ? static_cast<double>(cursor.number<float>()) : cursor.number<double>();
}

bool read_bool(Cursor& cursor, const std::string& where) {
  const auto value = cursor.number<uint8_t>();
  if (value > 1) fail_input(where, "a boolean is {}", value);
  return value == 1;
}

int64_t read_integer_element(Cursor& cursor, const ValueType& type, const std::string& where) {
  if (type.kind == Kind::boolean) return read_bool(cursor, where) ? 1 : 0;
  if (type.kind == Kind::signed_int) return read_signed(cursor, type.bytes);
  const uint64_t value = read_unsigned(cursor, type.bytes);
  if (value > INT64_MAX) fail_input(where, "array element {} is too large", value);
  return static_cast<int64_t>(value);
}

GgufValue read_array(Cursor& cursor, const std::string& where) {
  const ValueType& type = value_type(cursor.number<uint32_t>(), where);
  const uint64_t count = cursor.number<uint64_t>();
  if (type.kind == Kind::array) fail_unsupported(where, "arrays of arrays");
  cursor.expect_room(count, type.bytes);
  cursor.count_elements(count);
  const auto fill = [count](auto elements, const auto& next) {
    elements.reserve(count);
    for (uint64_t i = 0; i < count; ++i) elements.push_back(next());
    return GgufValue{std::move(elements)};
  };
  if (type.kind == Kind::string)
    return fill(std::vector<std::string>{}, [&] { return cursor.string("array string"); });
  if (type.kind == Kind::real)
    return fill(std::vector<double>{}, [&] { return read_real(cursor, type.bytes); });
  return fill(std::vector<int64_t>{}, [&] { return read_integer_element(cursor, type, where); });
}

GgufValue read_value(Cursor& cursor, const std::string& where) {
  const ValueType& type = value_type(cursor.number<uint32_t>(), where);
  switch (type.kind) {
    case Kind::unsigned_int:
      return {read_unsigned(cursor, type.bytes)};
    case Kind::signed_int:
      return {read_signed(cursor, type.bytes)};
    case Kind::real:
      return {read_real(cursor, type.bytes)};
    case Kind::boolean:
      return {read_bool(cursor, where)};
    case Kind::string:
      return {cursor.string("metadata string")};
    case Kind::array:
      return read_array(cursor, where);
  }
  return {};
}

uint64_t alignment_of(const Gguf& gguf) {
  const auto found = gguf.metadata.find("general.alignment");
  if (found == gguf.metadata.end()) return kDefaultAlignment;
  const auto* value = std::get_if<uint64_t>(&found->second.value);
  // Eight keeps every element of every type aligned in memory, as the format demands.
  if (value == nullptr || !std::has_single_bit(*value) || *value < 8 || *value > kLargestAlignment)
    fail_input(gguf.name + ": general.alignment", "must be a power of two from 8 to {}",
               kLargestAlignment);
  return *value;
}

// A tensor as the header has it.
struct RawRecord {
  std::string name;
  std::array<uint64_t, kMostGgufDimensions> extents = {1, 1, 1, 1};
  uint32_t dimensions = 0;
  uint32_t type = 0;
  uint64_t offset = 0;  // into the data section
};

// One of a type that Tyto reads, before the data section's place is known.
struct Record {
  std::string name;
  TensorView view;
  uint64_t bytes = 0;
  uint64_t offset = 0;
};

// Another file of the same model helps only where Tyto runs such models at all.
[[noreturn]] void fail_type(const Gguf& gguf, const std::string& tensor, uint32_t ggml_id) {
  if (gguf.metadata.contains("general.architecture")) check_architecture(gguf);
  throw Error(ErrorCode::unsupported, gguf.name,
              fmt::format("its weights are {}, which Tyto does not read (tensor {})",
                          type_text(ggml_id), printable_name(tensor)),
              "get the same model as Q4_K_M or Q8_0, or make one of its bf16 or f16 file with "
              "`tyto quantize`");
}

RawRecord read_raw(Cursor& cursor, const Gguf& gguf) {
  RawRecord record;
  record.name = cursor.string("tensor name", kLongestName);
  const std::string where = gguf.name + ": tensor " + printable_name(record.name);
  record.dimensions = cursor.number<uint32_t>();
  if (record.dimensions > kMostGgufDimensions)
    fail_input(where, "{} dimensions, at most {} exist", record.dimensions, kMostGgufDimensions);
  for (uint32_t i = 0; i < record.dimensions; ++i) {
    record.extents[i] = cursor.number<uint64_t>();
    if (record.extents[i] == 0) fail_input(where, "dimension {} is zero", i);
  }
  record.type = cursor.number<uint32_t>();
  record.offset = cursor.number<uint64_t>();
  return record;
}

Record checked_record(const RawRecord& raw, const Gguf& gguf) {
  Record record{.name = raw.name, .view = {}, .offset = raw.offset};
  const std::string where = gguf.name + ": tensor " + printable_name(record.name);
  const auto& extents = raw.extents;
  const auto dtype = dtype_from_ggml(raw.type);
  if (!dtype) fail_type(gguf, record.name, raw.type);
  const DTypeInfo& layout = info(*dtype);
  record.view.dtype = *dtype;
  record.view.cols = extents[0];
  if (record.view.cols % layout.block_values != 0)
    fail_input(where, "{} columns are not a multiple of {}'s block of {}", record.view.cols,
               layout.name, layout.block_values);
  // Rows times the bytes of one row, refused as soon as it leaves 63 bits.
  uint64_t row = 0;
  bool overflow =
      __builtin_mul_overflow(record.view.cols / layout.block_values, layout.block_bytes, &row);
  overflow |= __builtin_mul_overflow(extents[1], extents[2], &record.view.rows);
  overflow |= __builtin_mul_overflow(record.view.rows, extents[3], &record.view.rows);
  overflow |= __builtin_mul_overflow(record.view.rows, row, &record.bytes);
  if (overflow || record.bytes > INT64_MAX)
    fail_input(where, "{} x {} x {} x {} values overflow", extents[0], extents[1], extents[2],
               extents[3]);
  return record;
}

// Where the data of a tensor ends in its file.
uint64_t end_of(const Record& record, uint64_t data_start, uint64_t alignment,
                const std::string& file) {
  const std::string where = file + ": tensor " + printable_name(record.name);
  if (record.offset % alignment != 0)
    fail_input(where, "offset {} is not a multiple of the alignment {}", record.offset, alignment);
  uint64_t end = 0;
  if (__builtin_add_overflow(data_start, record.offset, &end) ||
      __builtin_add_overflow(end, record.bytes, &end))
    fail_input(where, "offset {} overflows", record.offset);
  return end;
}

[[noreturn]] void fail_foreign(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (std::string_view("GGUF").starts_with(text)) fail_cut_off(name, bytes.size(), 4);
  const bool is_page = text.starts_with("<!") || text.starts_with("<html");
  throw Error(ErrorCode::input, name, is_page ? "a web page, not a GGUF file" : "not a GGUF file",
              is_page ? "`tyto pull` takes the address of such a page and fetches the model"
                      : "a model is a GGUF file, or a folder with config.json and safetensors");
}

void check_version(uint32_t version, const std::string& name) {
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffff) == 0)
    throw Error(ErrorCode::unsupported, name, "GGUF of a big-endian machine",
                "turn it round with gguf_convert_endian.py, which comes with llama.cpp");
  throw Error(ErrorCode::unsupported, name,
              fmt::format("GGUF version {}; versions 2 and 3 are supported", version),
              "get a file of the model that is of one of these");
}

// All of the header; `gguf` has the name of the file.
std::vector<RawRecord> read_header(Cursor& cursor, std::span<const std::byte> bytes, Gguf& gguf) {
  if (bytes.size() < 4 || cursor.number<uint32_t>() != kMagic) fail_foreign(bytes, gguf.name);
  gguf.version = cursor.number<uint32_t>();
  check_version(gguf.version, gguf.name);
  const auto tensor_count = cursor.number<uint64_t>();
  const auto metadata_count = cursor.number<uint64_t>();

  cursor.expect_room(metadata_count, kLeastMetadataBytes);
  for (uint64_t i = 0; i < metadata_count; ++i) {
    std::string key = cursor.string("metadata key", kLongestName);
    const std::string where = gguf.name + ": " + printable_name(key);
    GgufValue value = read_value(cursor, where);
    if (!gguf.metadata.emplace(std::move(key), std::move(value)).second)
      fail_input(where, "is in the metadata twice");
  }

  cursor.expect_room(tensor_count, kLeastTensorBytes);
  std::vector<RawRecord> records;
  std::set<std::string, std::less<>> names;
  for (uint64_t i = 0; i < tensor_count; ++i) {
    records.push_back(read_raw(cursor, gguf));
    if (!names.insert(records.back().name).second)
      fail_input(gguf.name + ": tensor " + printable_name(records.back().name),
                 "is in the file twice");
  }
  return records;
}

}  // namespace

Gguf parse_gguf(std::span<const std::byte> bytes, const std::string& name) {
  refuse_lfs_pointer(bytes, name);
  Gguf gguf;
  gguf.name = name;
  Cursor cursor(bytes, gguf.name);
  const std::vector<RawRecord> raw = read_header(cursor, bytes, gguf);
  std::vector<Record> records;
  for (const RawRecord& each : raw) records.push_back(checked_record(each, gguf));
  const uint64_t alignment = alignment_of(gguf);
  const uint64_t data_start = round_up(cursor.position(), alignment);
  std::vector<uint64_t> ends;
  for (const Record& record : records) ends.push_back(end_of(record, data_start, alignment, name));
  const uint64_t last = ends.empty() ? 0 : *std::max_element(ends.begin(), ends.end());
  if (last > bytes.size()) fail_cut_off(name, bytes.size(), last);
  for (size_t i = 0; i < records.size(); ++i) {
    Record& record = records[i];
    record.view.bytes = bytes.subspan(ends[i] - record.bytes, record.bytes);
    gguf.tensors.push_back({std::move(record.name), record.view});
  }
  check_layout(gguf.tensors, bytes.subspan(std::min<uint64_t>(data_start, bytes.size())), alignment,
               name);
  return gguf;
}

Gguf parse_gguf_header(std::span<const std::byte> bytes, const std::string& name,
                       std::vector<StoredTensor>& tensors) {
  refuse_lfs_pointer(bytes, name);
  Gguf gguf;
  gguf.name = name;
  Cursor cursor(bytes, gguf.name);
  const std::vector<RawRecord> raw = read_header(cursor, bytes, gguf);
  const uint64_t start = round_up(cursor.position(), alignment_of(gguf));
  const std::span<const std::byte> data = bytes.subspan(std::min<uint64_t>(start, bytes.size()));
  std::set<uint64_t> ends = {data.size()};
  for (const RawRecord& record : raw) ends.insert(record.offset);
  for (const RawRecord& record : raw) {
    const auto dtype = dtype_from_ggml(record.type);
    StoredTensor tensor{
        record.name, dtype ? std::string(info(*dtype).name) : type_text(record.type), {}, {}};
    // The innermost dimension comes first in the file.
    for (uint32_t i = record.dimensions; i-- > 0;) tensor.shape.push_back(record.extents[i]);
    const uint64_t first = std::min<uint64_t>(record.offset, data.size());
    const auto end = ends.upper_bound(first);
    tensor.bytes =
        data.subspan(first, (end == ends.end() ? first : std::min(*end, data.size())) - first);
    tensors.push_back(std::move(tensor));
  }
  return gguf;
}

}  // namespace tyto
