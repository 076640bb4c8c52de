// Command states of XRT, numbered as there. Declared inside the virtual NPU's namespace and brought
// out by name, so that a binary may also hold code compiled against the real header.
#pragma once

namespace xrt {
inline namespace vnpu {

enum ert_cmd_state {
  ERT_CMD_STATE_NEW = 1,
  ERT_CMD_STATE_RUNNING = 3,
  ERT_CMD_STATE_COMPLETED = 4,
  ERT_CMD_STATE_ERROR = 5,
  ERT_CMD_STATE_ABORT = 6,
  ERT_CMD_STATE_SUBMITTED = 7,
  ERT_CMD_STATE_TIMEOUT = 8,
};

}  // namespace vnpu
}  // namespace xrt

using xrt::vnpu::ert_cmd_state;
using xrt::vnpu::ERT_CMD_STATE_ABORT;
using xrt::vnpu::ERT_CMD_STATE_COMPLETED;
using xrt::vnpu::ERT_CMD_STATE_ERROR;
using xrt::vnpu::ERT_CMD_STATE_NEW;
using xrt::vnpu::ERT_CMD_STATE_RUNNING;
using xrt::vnpu::ERT_CMD_STATE_SUBMITTED;
using xrt::vnpu::ERT_CMD_STATE_TIMEOUT;
