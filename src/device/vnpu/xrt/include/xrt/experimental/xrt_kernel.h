// Run lists: runs of one context submitted as chains.
#pragma once

#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <string>
#include <utility>

namespace xrt {
inline namespace vnpu {

struct runlist_impl;

class runlist {
 public:
  class command_error : public std::exception {
   public:
    command_error(xrt::run run, ert_cmd_state state, std::string what)
        : run_(std::move(run)), state_(state), what_(std::move(what)) {}
    xrt::run get_run() const { return run_; }
    ert_cmd_state get_command_state() const { return state_; }
    const char* what() const noexcept override { return what_.c_str(); }

   private:
    xrt::run run_;
    ert_cmd_state state_;
    std::string what_;
  };
  class aie_error : public command_error {
   public:
    using command_error::command_error;
  };

  runlist() = default;
  explicit runlist(const hw_context& context);

  void add(const run& run);
  void add(run&& run);
  void execute();
  std::cv_status wait(const std::chrono::milliseconds& timeout) const;
  void wait() const { wait(std::chrono::milliseconds{0}); }
  ert_cmd_state state() const;
  int poll() const;
  void reset();

 private:
  std::shared_ptr<runlist_impl> handle_;  // shared by copies; the last one aborts
};

}  // namespace vnpu
}  // namespace xrt
