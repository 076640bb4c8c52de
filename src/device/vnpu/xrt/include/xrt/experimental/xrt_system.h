// How many devices there are: one virtual NPU.
#pragma once

namespace xrt {
inline namespace vnpu {
namespace system {

unsigned enumerate_devices();

}  // namespace system
}  // namespace vnpu
}  // namespace xrt
