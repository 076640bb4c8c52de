// Kernels and runs.
#pragma once

#include <xrt/detail/ert.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_hw_context.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

namespace xrt {
inline namespace vnpu {

struct kernel_impl;
struct run_impl;

class kernel {
 public:
  kernel() = default;
  kernel(const hw_context& context, const std::string& name);

  int group_id(int argument) const;

  const std::shared_ptr<kernel_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 protected:
  explicit kernel(std::shared_ptr<kernel_impl> handle) : handle_(std::move(handle)) {}

 private:
  std::shared_ptr<kernel_impl> handle_;  // shared by copies and its runs
};

class run {
 public:
  run() = default;
  explicit run(const kernel& kernel);

  // An ext::bo would bind here and, before XRT 2.26, travel as a scalar: refused at compile time.
  template <typename T>
    requires(!std::is_same_v<std::remove_cvref_t<T>, bo>)
  void set_arg(int index, T&& scalar) {
    static_assert(!std::is_base_of_v<bo, std::remove_cvref_t<T>>, "pass buffers as xrt::bo");
    static_assert(std::is_trivially_copyable_v<std::remove_cvref_t<T>>);
    set_scalar(index, &scalar, sizeof(scalar));
  }
  void set_arg(int index, const bo& buffer);

  // The words that an ELF's control code reads from the host, in a buffer that XRT made with the
  // run.
  bo get_ctrl_scratchpad_bo() const;

  void start();
  ert_cmd_state wait(const std::chrono::milliseconds& timeout = std::chrono::milliseconds{
                         0}) const;  // 0 waits for ever
  ert_cmd_state state() const;

  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void set_scalar(int index, const void* value, size_t size);
  // Shared by copies; the last one aborts what is in flight, or gives it up (vxrt::set_hostile).
  std::shared_ptr<run_impl> handle_;
};

}  // namespace vnpu
}  // namespace xrt
