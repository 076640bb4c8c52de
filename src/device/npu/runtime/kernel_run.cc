#include "device/npu/runtime/kernel_run.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "base/error.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

constexpr std::chrono::milliseconds kHangNoticed{2500};  // the driver looks for hangs after 2 s

// A wait that ran into its own timeout says TIMEOUT, too; the state tells them apart.
bool has_ended(const xrt::run& run) try {
  const ert_cmd_state state = run.state();
  return state >= ERT_CMD_STATE_COMPLETED && state != ERT_CMD_STATE_SUBMITTED;
} catch (const std::exception&) {
  return false;  // nothing says so
}

bool ends_in_time(const xrt::run& run, std::chrono::steady_clock::time_point started) {
  const auto left = started + kHangNoticed - std::chrono::steady_clock::now();
  try {
    // XRT takes 0 for "for ever".
    (void)run.wait(std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                            std::chrono::milliseconds(1)));
  } catch (const std::exception&) {  // said when it was waited for
  }
  return has_ended(run);
}

// Runs that the device has not given back, and the memory that they may still write to. Never
// destroyed itself: the process may end before they do.
struct LostRuns {
  std::mutex mutex;
  std::vector<std::pair<xrt::run, std::vector<Arguments::Value>>> runs;
};

LostRuns& lost_runs() {
  static auto* const lost = new LostRuns;
  return *lost;
}

}  // namespace

void KernelRun::start(const Arguments& arguments) {
  TYTO_ASSERT(!in_flight_);
  if (!run_) run_ = xrt::run(kernel_);
  holder_ = &arguments;
  given_.resize(arguments.values().size());
  for (size_t i = 0; i < given_.size(); ++i) {
    const Arguments::Value& value = arguments.values()[i];
    if (given_[i] == value) continue;
    if (value.kind == Arguments::Kind::buffer) run_.set_arg(static_cast<int>(i), value.buffer);
    if (value.kind == Arguments::Kind::number) run_.set_arg(static_cast<int>(i), value.number);
    given_[i] = value;
  }
  run_.start();
  in_flight_ = true;
  started_ = std::chrono::steady_clock::now();
}

ert_cmd_state KernelRun::wait(std::chrono::milliseconds timeout) {
  const ert_cmd_state state = run_.wait(timeout);
  in_flight_ = state != ERT_CMD_STATE_COMPLETED && !has_ended(run_);
  return state;
}

void KernelRun::release(const Arguments& arguments) {
  if (holder_ == &arguments) drop();
}

// XRT ends the process when a run is destroyed before its end was seen (2.23 and later), which is
// so for one that a wait gave up, and for those behind one that failed. The driver's hang detection
// ends them; what it does not end is never destroyed.
void KernelRun::drop() {
  LostRuns& lost = lost_runs();
  const std::lock_guard lock(lost.mutex);
  std::erase_if(lost.runs, [](const auto& entry) { return has_ended(entry.first); });
  if (in_flight_ && !ends_in_time(run_, started_)) lost.runs.emplace_back(run_, given_);
  run_ = {};
  given_.clear();
  holder_ = nullptr;
  in_flight_ = false;
}

}  // namespace tyto::TYTO_XRT_PROVIDER
