#include "device/vnpu/machine/user_pages.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>

namespace tyto::vxrt {
namespace {

struct Mapping {
  uintptr_t begin = 0, end = 0;
  std::string flags;  // of the kernel's VMA: " rd mr mw me"

  bool has(const char* flag) const { return flags.find(std::string(" ") + flag) != flags.npos; }
};

std::optional<Mapping> next_mapping(std::ifstream& maps) {
  Mapping mapping;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " ", &begin, &end) == 2) {
      mapping.begin = begin;
      mapping.end = end;
    }
    if (!line.starts_with("VmFlags:")) continue;
    mapping.flags = line.substr(sizeof("VmFlags:") - 1);
    return mapping;
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> why_not_pinned(const void* pages, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pages);
  const uintptr_t end = begin + bytes;
  std::ifstream maps("/proc/self/smaps");
  while (const std::optional<Mapping> mapping = next_mapping(maps)) {
    if (mapping->end <= begin || mapping->begin >= end || mapping->has("wr")) continue;
    const bool is_whole = mapping->begin <= begin && mapping->end >= end;
    if (is_whole && !mapping->has("mw")) return std::nullopt;
    return "the pages are read-only, but their mapping may become writable";
  }
  return std::nullopt;
}

}  // namespace tyto::vxrt
