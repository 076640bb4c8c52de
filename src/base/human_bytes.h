// Numbers of bytes for people.
#pragma once

#include <cstdint>
#include <string>

namespace tyto {

// 1500 -> "1.5 kB": decimal, as disks and downloads are counted.
std::string human_bytes(uint64_t bytes);

}  // namespace tyto
