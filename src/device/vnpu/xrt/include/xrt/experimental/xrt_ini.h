// Settings of xrt.ini from code: each only until it is used for the first time.
#pragma once

#include <string>

namespace xrt {
inline namespace vnpu {
namespace ini {

// "Debug.num_heap_pages": steps of the device heap that are reserved at once. Others are kept and
// have no effect here.
void set(const std::string& key, const std::string& value);
void set(const std::string& key, unsigned value);

}  // namespace ini
}  // namespace vnpu
}  // namespace xrt
