// Sync directions of XRT's C interface.
#pragma once

namespace xrt {
inline namespace vnpu {

enum xclBOSyncDirection {
  XCL_BO_SYNC_BO_TO_DEVICE = 0,
  XCL_BO_SYNC_BO_FROM_DEVICE = 1,
};

}  // namespace vnpu
}  // namespace xrt

using xrt::vnpu::XCL_BO_SYNC_BO_FROM_DEVICE;
using xrt::vnpu::XCL_BO_SYNC_BO_TO_DEVICE;
using xrt::vnpu::xclBOSyncDirection;
