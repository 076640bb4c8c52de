#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/round_up.h"
#include "model/gguf.h"

namespace tyto {
namespace {

constexpr uint64_t kAlignment = 32;

// Type numbers of the format.
enum : uint32_t {
  kTypeU8 = 0,
  kTypeU32 = 4,
  kTypeI32 = 5,
  kTypeF32 = 6,
  kTypeBool = 7,
  kTypeString = 8,
  kTypeArray = 9,
  kTypeU64 = 10,
};

// Collects the header; it is small next to the tensors.
class Header {
 public:
  template <typename T>
  void number(T value) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    text_.append(raw, sizeof value);
  }
  void string(const std::string& value) {
    number<uint64_t>(value.size());
    text_ += value;
  }
  const std::string& text() const { return text_; }

  void operator()(uint64_t value) {
    number<uint32_t>(value <= UINT32_MAX ? kTypeU32 : kTypeU64);
    if (value <= UINT32_MAX)
      number(static_cast<uint32_t>(value));
    else
      number(value);
  }
  void operator()(int64_t value) {
    number<uint32_t>(kTypeI32);
    number(narrow(value));
  }
  void operator()(double value) {
    number<uint32_t>(kTypeF32);
    number(static_cast<float>(value));
  }
  void operator()(bool value) {
    number<uint32_t>(kTypeBool);
    number<uint8_t>(value ? 1 : 0);
  }
  void operator()(const std::string& value) {
    number<uint32_t>(kTypeString);
    string(value);
  }
  void operator()(const std::vector<int64_t>& values) {
    array(kTypeI32, values.size());
    for (const int64_t value : values) number(narrow(value));
  }
  void operator()(const std::vector<uint8_t>& values) {
    array(kTypeU8, values.size());
    for (const uint8_t value : values) number(value);
  }
  void operator()(const std::vector<double>& values) {
    array(kTypeF32, values.size());
    for (const double value : values) number(static_cast<float>(value));
  }
  void operator()(const std::vector<std::string>& values) {
    array(kTypeString, values.size());
    for (const std::string& value : values) string(value);
  }

 private:
  static int32_t narrow(int64_t value) {
    TYTO_ASSERT(value >= INT32_MIN && value <= INT32_MAX);
    return static_cast<int32_t>(value);
  }
  void array(uint32_t type, uint64_t count) {
    number<uint32_t>(kTypeArray);
    number(type);
    number(count);
  }

  std::string text_;
};

}  // namespace

GgufWriter::GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
                       std::vector<TensorPlan> tensors, Replace replace)
    : file_(path, replace, {"a GGUF"}), tensors_(std::move(tensors)) {
  Header header;
  header.number<uint32_t>(0x46554747);
  header.number<uint32_t>(3);
  header.number<uint64_t>(tensors_.size());
  header.number<uint64_t>(metadata.size());
  for (const auto& [key, value] : metadata) {
    header.string(key);
    std::visit(header, value.value);
  }
  uint64_t offset = 0;
  for (const TensorPlan& tensor : tensors_) {
    header.string(tensor.name);
    header.number<uint32_t>(tensor.rows == 0 ? 1 : tensor.slices == 0 ? 2 : 3);
    header.number<uint64_t>(tensor.cols);
    if (tensor.rows != 0)
      header.number<uint64_t>(tensor.rows / std::max<uint64_t>(1, tensor.slices));
    if (tensor.slices != 0) header.number<uint64_t>(tensor.slices);
    header.number<uint32_t>(info(tensor.dtype).ggml_id);
    header.number<uint64_t>(offset);
    offset += round_up(tensor.bytes(), kAlignment);
  }
  file_.write(header.text());
  file_.pad_to(kAlignment);
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  TYTO_ASSERT(current_ < tensors_.size());
  const uint64_t expected = tensors_[current_].bytes();
  TYTO_ASSERT(bytes.size() <= expected - written_);
  file_.write(bytes);
  written_ += bytes.size();
  if (written_ < expected) return;
  file_.pad_to(kAlignment);
  ++current_;
  written_ = 0;
}

void GgufWriter::commit() {
  TYTO_ASSERT(current_ == tensors_.size());
  file_.commit();
}

}  // namespace tyto
