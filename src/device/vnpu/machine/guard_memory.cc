#include "device/vnpu/machine/guard_memory.h"

#include <fmt/format.h>

#include <cstring>

namespace tyto::vxrt {
namespace {

constexpr std::byte kPoison[] = {std::byte{0xa5}, std::byte{0x7f}};

std::byte poison_at(uint64_t offset) {
  return kPoison[offset % sizeof kPoison];
}

}  // namespace

GuardMemory::GuardMemory(size_t argument, const Binding& buffer, uint64_t size, uint64_t bytes,
                         uint64_t reach)
    : argument_(argument), buffer_(buffer), size_(size), bytes_(bytes), memory_(reach) {}

void GuardMemory::fill() {
  if (bytes_ > 0) std::memcpy(memory_.data(), buffer_.data, bytes_);
  for (uint64_t i = bytes_; i < memory_.size(); ++i) memory_[i] = poison_at(i);
}

void GuardMemory::give_back() {
  was_reached_ = true;
  if (bytes_ > 0 && std::memcmp(memory_.data(), buffer_.data, bytes_) != 0) {
    std::memcpy(buffer_.data, memory_.data(), bytes_);
    buffer_.memory->touch(buffer_.offset, buffer_.offset + bytes_);
  }
  for (uint64_t i = bytes_; i < memory_.size(); ++i) written_ += memory_[i] != poison_at(i);
}

std::string GuardMemory::report() const {
  return fmt::format(
      "argument {} reached {} bytes beyond its buffer of {}, and wrote {} that are "
      "no buffer's",
      argument_, memory_.size() - size_, size_, written_);
}

}  // namespace tyto::vxrt
