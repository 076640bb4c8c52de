#include "model/cut_off.h"

#include <fmt/format.h>

#include "base/error.h"

namespace tyto {
namespace {

constexpr uint64_t kMoreThanAnyDisk = 1'000'000'000'000'000;

// It says "5.0 of at least 7.3 MB", in the unit of the larger number, or in a smaller one where it
// would look as if nothing was missing.
std::string sizes(uint64_t has, uint64_t least) {
  struct Unit {
    uint64_t bytes;
    const char* name;
  };
  constexpr Unit kUnits[] = {{1'000'000'000, "GB"}, {1'000'000, "MB"}, {1000, "kB"}};
  for (const auto& [bytes, name] : kUnits) {
    if (least < bytes || least - has < bytes / 5) continue;
    const auto in_units = [bytes = bytes](uint64_t size) {
      return fmt::format("{:.1f}", static_cast<double>(size) / static_cast<double>(bytes));
    };
    const std::string present = has < bytes / 20 ? "less than 0.1" : in_units(has);
    return fmt::format("{} of at least {} {}", present, in_units(least), name);
  }
  return fmt::format("{} of at least {} bytes", has, least);
}

}  // namespace

void fail_cut_off(const std::string& file, uint64_t has, uint64_t least) {
  constexpr const char* kAgain = "download it again";
  if (has == 0) throw Error(ErrorCode::input, file, "the file is empty", kAgain);
  if (least > kMoreThanAnyDisk)
    throw Error(ErrorCode::input, file,
                fmt::format("the file is damaged: by its header it would have {} bytes", least),
                kAgain);
  throw Error(ErrorCode::input, file, "the file is cut off: " + sizes(has, least), kAgain);
}

}  // namespace tyto
