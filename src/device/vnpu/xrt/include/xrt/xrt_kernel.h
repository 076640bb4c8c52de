// Kernels and runs.
#pragma once

#include <xrt/detail/ert.h>
#include <xrt/experimental/xrt_fence.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_hw_context.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

namespace xrt {
inline namespace vnpu {

class run;
struct kernel_impl;
struct run_impl;

class kernel {
 public:
  kernel() = default;
  kernel(const hw_context& context, const std::string& name);

  int group_id(int argument) const;
  template <typename... Args>
  run operator()(Args&&... args);

  const std::shared_ptr<kernel_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 protected:
  explicit kernel(std::shared_ptr<kernel_impl> handle) : handle_(std::move(handle)) {}

 private:
  std::shared_ptr<kernel_impl> handle_;  // shared by copies and its runs
};

class run {
 public:
  class command_error : public std::exception {
   public:
    command_error(ert_cmd_state state, std::string what) : state_(state), what_(std::move(what)) {}
    ert_cmd_state get_command_state() const { return state_; }
    const char* what() const noexcept override { return what_.c_str(); }

   private:
    ert_cmd_state state_;
    std::string what_;
  };
  class aie_error : public command_error {
   public:
    using command_error::command_error;
  };

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

  void start();
  ert_cmd_state wait(const std::chrono::milliseconds& timeout = std::chrono::milliseconds{
                         0}) const;  // 0 waits for ever
  ert_cmd_state wait(unsigned timeout_ms) const;
  std::cv_status wait2(const std::chrono::milliseconds& timeout) const;
  void wait2() const { wait2(std::chrono::milliseconds{0}); }
  ert_cmd_state state() const;
  ert_cmd_state abort();
  // In the queue of the run's context: before its next commands, and after those so far.
  void submit_wait(const fence& fence);
  void submit_signal(const fence& fence);

  const std::shared_ptr<run_impl>& get_handle() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void set_scalar(int index, const void* value, size_t size);
  std::shared_ptr<run_impl> handle_;  // shared by copies and run lists; the last one aborts
};

template <typename... Args>
run kernel::operator()(Args&&... args) {
  run result(*this);
  int index = 0;
  (result.set_arg(index++, std::forward<Args>(args)), ...);
  result.start();
  return result;
}

}  // namespace vnpu
}  // namespace xrt
