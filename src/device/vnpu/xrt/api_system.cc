// xrt::system, ini and error.
#include <xrt/experimental/xrt_error.h>
#include <xrt/experimental/xrt_ini.h>
#include <xrt/experimental/xrt_system.h>

#include "device/vnpu/machine/control.h"
#include "device/vnpu/xrt/objects.h"

namespace xrt {
inline namespace vnpu {

unsigned system::enumerate_devices() {
  return 1;
}

void ini::set(const std::string& key, const std::string& value) {
  tyto::vxrt::Machine::get().set_ini(key, value);
}

void ini::set(const std::string& key, unsigned value) {
  set(key, std::to_string(value));
}

error::error(const device& device, xrtErrorClass which) {
  if (!device) fail_usage("error of no device");
  if (which != XRT_ERROR_CLASS_AIE) return;
  text_ = tyto::vxrt::counters().last_error;
  code_ = text_.empty() ? 0 : 1;
}

}  // namespace vnpu
}  // namespace xrt
