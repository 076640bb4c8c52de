// xrt::runlist.
#include <fmt/format.h>
#include <xrt/experimental/xrt_kernel.h>

#include <algorithm>
#include <utility>

#include "device/vnpu/xrt/objects.h"

namespace xrt {
inline namespace vnpu {

struct runlist_impl {
  explicit runlist_impl(std::shared_ptr<hw_context_impl> of) : context(std::move(of)) {}
  ~runlist_impl() {
    for (tyto::vxrt::Command& chain : chains) tyto::vxrt::Machine::get().abort(chain);
    release();
  }
  runlist_impl(const runlist_impl&) = delete;
  runlist_impl& operator=(const runlist_impl&) = delete;

  void release() {
    for (const run& run : runs) run.get_handle()->is_in_list = false;
    runs.clear();
    chains.clear();
  }
  // Chains no longer than the driver takes; they fail together.
  void make_chains(size_t longest) {
    chains.clear();
    bytes.clear();
    for (size_t i = 0; i < runs.size(); ++i) {
      if (i % longest == 0) {
        chains.push_back({{}, &context->context, &failed});
        bytes.push_back(0);
      }
      chains.back().jobs.push_back(&runs[i].get_handle()->job);
      bytes.back() += runs[i].get_handle()->chain_bytes();
    }
  }

  std::shared_ptr<hw_context_impl> context;  // shared with the hw_context and its kernels
  std::vector<run> runs;
  std::vector<tyto::vxrt::Command> chains;
  std::vector<uint64_t> bytes;  // [chains]
  bool failed = false;
  bool is_running = false;  // from execute() until a wait() that saw the end
  ert_cmd_state last = ERT_CMD_STATE_NEW;
};

namespace {

using tyto::vxrt::Machine;

runlist_impl& impl(const std::shared_ptr<runlist_impl>& handle) {
  if (!handle) fail_usage("empty runlist");
  return *handle;
}

// The first run that did not complete, or the list's length.
size_t first_failure(const runlist_impl& list, ert_cmd_state& state, std::string& reason) {
  for (size_t i = 0; i < list.runs.size(); ++i) {
    state = Machine::get().state(list.runs[i].get_handle()->job, &reason);
    if (state != ERT_CMD_STATE_COMPLETED) return i;
  }
  return list.runs.size();
}

bool wait_all(const runlist_impl& list, const std::chrono::milliseconds& timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (const tyto::vxrt::Command& chain : list.chains) {
    int64_t left = 0;
    if (timeout.count() > 0)
      left = std::max<int64_t>(1, std::chrono::ceil<std::chrono::milliseconds>(
                                      deadline - std::chrono::steady_clock::now())
                                      .count());
    if (!Machine::get().wait(chain, left)) return false;
  }
  return true;
}

}  // namespace

runlist::runlist(const hw_context& context) {
  if (!context) fail_usage("runlist of no hw_context");
  handle_ = std::make_shared<runlist_impl>(context.get_handle());
}

void runlist::add(const run& run) {
  runlist_impl& list = impl(handle_);
  if (list.is_running) fail_usage("runlist is not idle");
  if (!run) fail_usage("empty run");
  run_impl& added = *run.get_handle();
  if (added.kernel->context != list.context) fail_usage("run is of another hw_context");
  if (added.is_in_list) fail_usage("run is in a runlist already");
  if (Machine::get().is_in_flight(added.command)) fail_usage("run is not idle");
  list.runs.push_back(run);
  added.is_in_list = true;
}

void runlist::add(run&& run) {
  add(std::as_const(run));
}

void runlist::execute() {
  runlist_impl& list = impl(handle_);
  if (list.is_running) fail_usage("runlist is not idle");
  if (list.runs.empty()) return;
  for (const run& run : list.runs) run.get_handle()->prepare();
  const tyto::vxrt::Limits limits = Machine::get().limits();
  for (const run& run : list.runs)
    Machine::get().set_state(run.get_handle()->job, ERT_CMD_STATE_NEW);
  list.make_chains(limits.chain_runs);
  list.failed = false;
  list.is_running = true;
  // When this throws the list stays running, and what was submitted is waited for.
  for (size_t i = 0; i < list.chains.size(); ++i) {
    if (list.bytes[i] > limits.chain_bytes)
      fail_usage(fmt::format("a chain of {} bytes, at most {}", list.bytes[i], limits.chain_bytes),
                 ENOSPC);
    Machine::get().submit(list.chains[i]);
  }
}

std::cv_status runlist::wait(const std::chrono::milliseconds& timeout) const {
  runlist_impl& list = impl(handle_);
  if (!list.is_running) return std::cv_status::no_timeout;
  if (!wait_all(list, timeout)) return std::cv_status::timeout;
  list.is_running = false;
  std::string reason;
  const size_t failed = first_failure(list, list.last, reason);
  if (failed < list.runs.size())
    throw aie_error(list.runs[failed], list.last,
                    fmt::format("run {} of {} ended in state {}: {}", failed, list.runs.size(),
                                static_cast<int>(list.last), reason));
  return std::cv_status::no_timeout;
}

ert_cmd_state runlist::state() const {
  const runlist_impl& list = impl(handle_);
  if (!list.is_running) return list.last;
  for (const tyto::vxrt::Command& chain : list.chains)
    if (Machine::get().is_in_flight(chain)) return ERT_CMD_STATE_RUNNING;
  ert_cmd_state state = ERT_CMD_STATE_COMPLETED;
  std::string reason;
  first_failure(list, state, reason);
  return state;
}

int runlist::poll() const {
  return state() == ERT_CMD_STATE_RUNNING ? 0 : 1;
}

void runlist::reset() {
  runlist_impl& list = impl(handle_);
  if (list.is_running) fail_usage("runlist is not idle");
  list.release();
  list.last = ERT_CMD_STATE_NEW;
}

}  // namespace vnpu
}  // namespace xrt
