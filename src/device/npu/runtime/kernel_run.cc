#include "device/npu/runtime/kernel_run.h"

#include <utility>

#include "base/error.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

// The driver looks for hangs every 2 s and ends what it finds.
constexpr std::chrono::seconds kHangNoticed{6};

// A wait that ran into its own timeout says TIMEOUT, too; the state tells them apart. A run whose
// state cannot be read has not ended.
bool is_over(const xrt::run& run) {
  try {
    const ert_cmd_state state = run.state();
    return state >= ERT_CMD_STATE_COMPLETED && state != ERT_CMD_STATE_SUBMITTED;
  } catch (const std::exception&) {
    return false;
  }
}

bool ends_in_time(const xrt::run& run) {
  try {
    (void)run.wait(kHangNoticed);
  } catch (const std::exception&) {  // said when it was waited for
  }
  return is_over(run);
}

}  // namespace

void KernelRun::start(const Arguments& arguments) {
  TYTO_ASSERT(!in_flight_);
  if (!run_) run_ = xrt::run(kernel_);
  holder_ = &arguments;
  given_.resize(arguments.values_.size());
  for (size_t i = 0; i < given_.size(); ++i) {
    const Arguments::Value& value = arguments.values_[i];
    if (given_[i] == value) continue;
    if (value.kind == Arguments::Kind::buffer) run_.set_arg(static_cast<int>(i), value.buffer);
    if (value.kind == Arguments::Kind::number) run_.set_arg(static_cast<int>(i), value.number);
    given_[i] = value;
  }
  run_.start();
  in_flight_ = true;
}

ert_cmd_state KernelRun::wait(std::chrono::milliseconds timeout) {
  const ert_cmd_state state = run_.wait(timeout);
  in_flight_ = state != ERT_CMD_STATE_COMPLETED && !is_over(run_);
  return state;
}

void KernelRun::release(const Arguments& arguments) {
  if (holder_ == &arguments) drop();
}

// XRT ends the process when a run is destroyed whose end nobody has seen. What does not end even
// after the driver should have noticed is therefore never destroyed, and neither is the memory that
// it may still write to.
void KernelRun::drop() {
  if (in_flight_ && !ends_in_time(run_)) {
    static auto* const hung = new std::vector<std::pair<xrt::run, std::vector<Arguments::Value>>>;
    hung->emplace_back(run_, given_);
  }
  run_ = {};
  given_.clear();
  holder_ = nullptr;
  in_flight_ = false;
}

}  // namespace tyto::TYTO_XRT_PROVIDER
