// Working memory of the kernels: grows, is never cleared, and begins at a cache line.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace tyto::cpu {

template <typename T>
class ScratchBuffer {
 public:
  // Whatever was there is lost when it grows.
  T* at_least(size_t count) {
    if (count > size_) {
      values_.reset();
      values_.reset(static_cast<T*>(::operator new(count * sizeof(T), kLine)));
      size_ = count;
    }
    return values_.get();
  }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(T* values) const { ::operator delete(values, kLine); }
  };
  std::unique_ptr<T, Free> values_;
  size_t size_ = 0;
};

}  // namespace tyto::cpu
