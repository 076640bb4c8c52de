// Folders of int8 GEMMs: what mlir-aie's whole-array example leaves, and those that somebody has
// described in a gemm_slots.json.
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "device/npu/formats/air_abi.h"
#include "device/npu/formats/int8_gemm.h"
#include "device/npu/store/build_folder.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSlotsFile = "gemm_slots.json";

void add_slot(BuildFolder& found, const fs::path& folder, const GemmSlot& slot,
              const fs::path& xclbin, const fs::path& insts) {
  check_slots({&slot, 1});
  FoundKernel kernel;
  kernel.program = kInt8Gemm;
  kernel.folder = folder;
  kernel.window = slot.k;
  kernel.m_tile = slot.m_tile;
  kernel.n_tile = slot.n_tile;
  kernel.columns = slot.columns;
  kernel.images.push_back(read_image_file(xclbin, ImageKind::xclbin, slot.k));
  kernel.images.push_back(read_image_file(insts, ImageKind::insts, slot.k));
  found.kernels.push_back(std::move(kernel));
}

void find_described(BuildFolder& found, const fs::path& folder, const Json& record) {
  const auto count = [&](const char* field) {
    return static_cast<uint32_t>(record.at(field).as_uint(std::numeric_limits<uint32_t>::max()));
  };
  const auto file = [&](const char* field) {
    const fs::path name = fs::path(record.at(field).as_string());
    if (name.empty() || name != name.filename()) record.at(field).fail("is no file of this folder");
    return folder / name;
  };
  const GemmSlot slot{std::string(record.at("xclbin").as_string()), count("k"), count("m_tile"),
                      count("n_tile"), count("columns")};
  add_slot(found, folder, slot, file("xclbin"), file("insts"));
}

// final_<M>x<K>x<N>_<m>x<k>x<n>_<columns>c.xclbin: the product's extents, those of a core's tiles.
struct WholeArrayName {
  uint32_t m = 0, k = 0, n = 0, tile_m = 0, tile_k = 0, tile_n = 0, columns = 0;
};

std::optional<WholeArrayName> whole_array_name(std::string_view stem) {
  WholeArrayName name;
  const std::pair<uint32_t*, char> fields[] = {
      {&name.m, 'x'},      {&name.k, 'x'},      {&name.n, '_'},      {&name.tile_m, 'x'},
      {&name.tile_k, 'x'}, {&name.tile_n, '_'}, {&name.columns, 'c'}};
  for (const auto& [value, separator] : fields) {
    const char* const end = stem.data() + stem.size();
    const auto [rest, error] = std::from_chars(stem.data(), end, *value);
    if (error != std::errc() || *value == 0 || rest == end || *rest != separator)
      return std::nullopt;
    stem.remove_prefix(static_cast<size_t>(rest + 1 - stem.data()));
  }
  return stem.empty() ? std::optional(name) : std::nullopt;
}

// Where the second column's part of a matrix begins, the first one's being at 0.
std::optional<uint64_t> second_part(const Transaction& instructions, uint32_t argument) {
  std::optional<uint64_t> smallest;
  for (const AddressPatch& patch : instructions.patches)
    if (patch.argument == argument && patch.offset != 0)
      smallest = std::min(smallest.value_or(patch.offset), patch.offset);
  return smallest;
}

// A file's name tells neither how B lies nor C: the columns' offsets do.
void check_layouts(const FoundImage& insts, const WholeArrayName& name) {
  const std::string where = insts.path.string();
  if (!insts.facts.instructions) return;  // of the virtual NPU
  const Transaction& instructions = *insts.facts.instructions;
  if (!instructions.not_read.empty() || name.columns < 2)
    throw Error(ErrorCode::input, where,
                "whether B lies column by column cannot be told: " +
                    (name.columns < 2 ? "it has one column" : instructions.not_read),
                "build with n_aie_cols of 2 or more, or describe it in a gemm_slots.json");
  const uint64_t by_column = uint64_t{name.tile_n} * name.k, in_c = uint64_t{name.tile_n} * 4;
  const uint64_t b = second_part(instructions, 1).value_or(0);
  if (b != by_column)
    throw Error(ErrorCode::input, where,
                fmt::format("the second column's part of B begins at byte {}, where columns of B "
                            "lie one after another at {}",
                            b, by_column),
                "build again with dtype_in=i8 and b_col_maj=1");
  const uint64_t c = second_part(instructions, 2).value_or(0);
  if (c != in_c)
    throw Error(ErrorCode::input, where,
                fmt::format("the second column's part of C begins at byte {}, where rows of 32-bit "
                            "sums lie one after another at {}",
                            c, in_c),
                "build again with dtype_out=i32 and c_col_maj=0");
}

void find_whole_array(BuildFolder& found, const fs::path& folder) {
  constexpr std::string_view kPrefix = "final_";
  std::map<std::string, WholeArrayName> names;  // sorted, by stem
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const fs::path& path = at->path();
    const std::string stem = path.stem().string();
    if (path.extension() != extension(ImageKind::xclbin) || !stem.starts_with(kPrefix)) continue;
    const std::string suffix = stem.substr(kPrefix.size());
    if (const auto name = whole_array_name(suffix)) names[suffix] = *name;
  }
  if (error) fail_input(folder.string(), "cannot list: {}", error.message());
  for (const auto& [suffix, name] : names) {
    const fs::path xclbin = folder / fmt::format("final_{}.xclbin", suffix);
    fs::path insts = folder / fmt::format("insts_{}.bin", suffix);
    if (!is_there(insts)) insts.replace_extension(".txt");
    add_slot(found, folder, {xclbin.filename().string(), name.k, name.m, name.n, name.columns},
             xclbin, insts);
    check_layouts(found.kernels.back().images.back(), name);
  }
}

}  // namespace

void find_int8_gemms(BuildFolder& found, const fs::path& folder) {
  const fs::path path = folder / kSlotsFile;
  if (!is_there(path)) return find_whole_array(found, folder);
  const Json slots = Json::parse_file(path.string(), kBuildTextLimit).at("slots");
  slots.for_each_element(
      [&](size_t, const Json& record) { find_described(found, folder, record); });
}

}  // namespace tyto
