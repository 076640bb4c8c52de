// Runs, and what they are given. Included only by files that are compiled once per provider of the
// XRT names.
#pragma once

#include <xrt/xrt_bo.h>
#include <xrt/xrt_kernel.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tyto::TYTO_XRT_PROVIDER {

// What an executable gives its kernel, by position.
class Arguments {
 public:
  enum class Kind : uint8_t { none, buffer, number };
  struct Value {
    Kind kind = Kind::none;
    xrt::bo buffer = {};
    uint32_t number = 0;
    bool operator==(const Value&) const = default;
  };
  void set(size_t index, xrt::bo buffer) { at(index) = {Kind::buffer, std::move(buffer), 0}; }
  void set(size_t index, uint32_t number) { at(index) = {Kind::number, {}, number}; }
  const std::vector<Value>& values() const { return values_; }

 private:
  Value& at(size_t index) {
    if (values_.size() <= index) values_.resize(index + 1);
    return values_[index];
  }
  std::vector<Value> values_;
};

// A run of an ELF has a copy of the image's control code in the device's heap, which is small: a
// kernel has one run for all dispatches. Executables take turns with it, and arguments are set
// where they differ from those before.
class KernelRun {
 public:
  explicit KernelRun(const xrt::kernel& kernel) : kernel_(kernel), run_(kernel) {}
  ~KernelRun() { drop(); }
  KernelRun(const KernelRun&) = delete;
  KernelRun& operator=(const KernelRun&) = delete;

  // Must not be in flight: XRT refuses to patch control code that is being executed.
  void start(const Arguments& arguments);
  ert_cmd_state wait(std::chrono::milliseconds timeout);
  // Their executable is about to go, and the buffers with it. XRT knows no way to take an argument
  // back, so if they are the last that were given the run goes too; the next start makes another.
  void release(const Arguments& arguments);

 private:
  void drop();

  xrt::kernel kernel_;
  xrt::run run_;
  // As last set. Keeps the buffers for as long as the run knows their addresses.
  std::vector<Arguments::Value> given_;
  const Arguments* holder_ = nullptr;  // who was the last to start
  bool in_flight_ = false;
  std::chrono::steady_clock::time_point started_ = {};
};

}  // namespace tyto::TYTO_XRT_PROVIDER
