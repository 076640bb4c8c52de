#include "model/damaged_files.h"

#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "model/weight_table.h"
#include "tensor/compare.h"

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

void refuse_lfs_pointer(std::span<const std::byte> bytes, const std::string& file) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("version https://git-lfs.github.com/spec/"))
    throw Error(ErrorCode::input, file, "is a git-LFS pointer, not the file itself",
                "run `git lfs pull` in its repository, or get the model with `tyto pull NAME`");
}

std::optional<Error> non_finite_value(const Model& model, const TensorView& weight) {
  const auto found = find_non_finite(weight);
  if (!found) return std::nullopt;
  return Error(ErrorCode::input, model.place_of(weight),
               fmt::format("{} at row {}, column {} cannot be a weight", found->value, found->row,
                           found->column),
               "the file is damaged, or was so before it was converted");
}

std::optional<Error> non_finite_weight(const Model& model) {
  for (const WeightSpec& spec : weight_specs(model.config, NameStyle::gguf))
    if (auto error = non_finite_value(model, view_of(model.weights, spec))) return error;
  return std::nullopt;
}

}  // namespace tyto
