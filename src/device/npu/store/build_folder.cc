#include "device/npu/store/build_folder.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/spelling.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/int8_gemm.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// "llvm-aie: 21.0; clang: 123:456": shown to people and compared with nothing.
std::string toolchain_text(const Json& value) {
  switch (value.type()) {
    case Json::Type::string:
      return std::string(value.as_string());
    case Json::Type::integer:
      return std::to_string(value.as_int());
    case Json::Type::number:
      return fmt::format("{}", value.as_double());
    case Json::Type::boolean:
      return value.as_bool() ? "true" : "false";
    case Json::Type::null:
      return "null";
    case Json::Type::array:
    case Json::Type::object:
      break;
  }
  std::vector<std::string> parts;
  if (value.is(Json::Type::object))
    value.for_each_member([&](std::string_view key, const Json& member) {
      parts.push_back(fmt::format("{}: {}", key, toolchain_text(member)));
    });
  else
    value.for_each_element(
        [&](size_t, const Json& member) { parts.push_back(toolchain_text(member)); });
  return joined(parts, "; ");
}

// Caches whose names end in the length of the prompts they are for, then perhaps in more.
constexpr std::string_view kCachesByLength[] = {"_q4nx_cache_seq", "q4nx_kernel_cache_"};
constexpr std::string_view kCaches[] = {"prefill_kernel_cache", "decode_kernel_cache",
                                        "_fused_prefill"};

std::optional<uint32_t> length_in(const fs::path& folder) {
  const std::string name = folder.filename().string();
  for (const std::string_view prefix : kCachesByLength) {
    uint32_t length = 0;
    if (name.starts_with(prefix) &&
        std::from_chars(name.data() + prefix.size(), name.data() + name.size(), length).ec ==
            std::errc())
      return length;
  }
  return std::nullopt;
}

bool is_cache(const fs::path& folder) {
  const std::string name = folder.filename().string();
  return std::find(std::begin(kCaches), std::end(kCaches), name) != std::end(kCaches) ||
         length_in(folder).has_value();
}

// What goes wrong with one kernel, or with one list of them, leaves the others in the folder
// usable.
template <typename Function>
void attempt(BuildFolder& found, const std::string& name, const Function& find) {
  try {
    find();
  } catch (const Error& error) {
    found.refused.push_back({name, error.what(), error.hint});
  }
}

void find_program(BuildFolder& found, const fs::path& folder, std::string_view program,
                  const Json& record, const std::string& toolchain) {
  if (!is_air_program(program)) {
    found.notes.push_back(fmt::format("left out {} of {}: no argument list is known for it",
                                      program, folder.string()));
    return;
  }
  // The path was relative to wherever the build ran; the file lies beside its manifest.
  const fs::path file = fs::path(record.at("output_binary").as_string()).filename();
  if (file.empty()) record.at("output_binary").fail("names no file");
  FoundKernel kernel;
  kernel.program = program;
  kernel.entry = record.at("kernel").as_string();
  kernel.folder = folder;
  kernel.seq = length_in(folder);
  kernel.toolchain = toolchain;
  kernel.images.push_back(read_image_file(folder / file, ImageKind::elf, 0));
  // Control code is part of an ELF: words beside it are left over from an xclbin.
  if (record.find("insts"))
    found.notes.push_back(
        fmt::format("{} is an ELF: the instruction words that the manifest of {} names are not "
                    "needed",
                    file.string(), folder.string()));
  found.kernels.push_back(std::move(kernel));
}

void find_cache(BuildFolder& found, const fs::path& folder) {
  const Json manifest = Json::parse_file((folder / "manifest.json").string(), kBuildTextLimit);
  if (!manifest.find("entries") && manifest.find("gemm")) {
    found.notes.push_back(fmt::format(
        "left out {}: a chunked prefill (128 rows at a time, 4-bit weights), which Tyto does not "
        "run yet; `make compile` also builds images that it runs",
        folder.string()));
    return;
  }
  const auto recorded = manifest.find("_toolchain");
  const std::string toolchain = recorded ? toolchain_text(*recorded) : "unknown";
  manifest.at("entries").for_each_member([&](std::string_view program, const Json& record) {
    attempt(found, std::string(program),
            [&] { find_program(found, folder, program, record, toolchain); });
  });
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_folder(at->path())) folders.push_back(at->path());
  if (error) fail_input(folder.string(), "cannot list: {}", error.message());
  std::sort(folders.begin(), folders.end());
  return folders;
}

}  // namespace

FoundImage read_image_file(const fs::path& path, ImageKind kind, uint32_t length) {
  const std::string content = read_text_file(path, kImageLimit);
  const auto bytes = std::as_bytes(std::span(content));
  return {path,
          kind,
          length,
          content.size(),
          to_hex(hash_bytes(bytes)),
          inspect_image(bytes, kind, path.string())};
}

BuildFolder read_build_folder(const fs::path& folder) {
  if (!is_folder(folder)) fail_input(folder.string(), "not a folder");
  BuildFolder found;
  const auto find = [&](const fs::path& cache) {
    attempt(found, cache.filename().string(), [&] { find_cache(found, cache); });
  };
  if (is_there(folder / "manifest.json")) find(folder);
  for (const fs::path& root : {folder, folder / "build_peano", folder / "build_chess"})
    if (is_folder(root))
      for (const fs::path& below : folders_in(root))
        if (is_cache(below)) find(below);
  attempt(found, "decode_L", [&] { find_fused_decode(found, folder); });
  attempt(found, "decode_elf", [&] { find_fused_decode_elf(found, folder); });
  for (const fs::path& root : {folder, folder / "build"})
    if (is_folder(root)) attempt(found, "int8 GEMMs", [&] { find_int8_gemms(found, root); });
  if (!found.kernels.empty()) return found;
  if (!found.refused.empty()) {
    const RefusedKernel& first = found.refused.front();
    throw Error(ErrorCode::input, "", first.reason, first.next_step);
  }
  throw Error(ErrorCode::input, folder.string(),
              found.notes.empty() ? "no kernels: neither a manifest.json of a kernel cache, nor "
                                    "a decode_scratchpad.elf or decode_L<W>.xclbin templates, nor "
                                    "int8 GEMMs"
                                  : "no kernels that Tyto can use: " + joined(found.notes, "; "),
              "`tyto compile --device npu` says how to build them");
}

// Templates of the fused decode: decode_L<W> and decode_L<W-1> for each window W.

namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxTemplates = 4096;
constexpr const char* kBuildAgain = "`make compile-decode` there, or `make compile-decode-windows`";

fs::path template_path(const fs::path& folder, uint32_t length, ImageKind kind) {
  return folder / fmt::format("decode_L{}{}", length, extension(kind));
}

// The n of every decode_L<n>.xclbin and decode_L<n>.insts.bin.
std::set<uint32_t> find_templates(BuildFolder& found, const fs::path& folder) {
  constexpr std::string_view kPrefix = "decode_L";
  std::set<uint32_t> lengths;
  std::error_code listing;
  for (fs::directory_iterator at(folder, listing), last; !listing && at != last;
       at.increment(listing)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("decode_dyn_L") && name.ends_with(extension(ImageKind::xclbin)))
      found.notes.push_back(
          fmt::format("left out {}: its instruction words come from a C++ header that the build "
                      "wrote, which Tyto does not compile; `make compile-decode` builds templates",
                      name));
    if (!name.starts_with(kPrefix)) continue;
    uint32_t length = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, length);
    const std::string_view suffix(rest, static_cast<size_t>(end - rest));
    if (error != std::errc() || length == 0) continue;
    if (suffix == extension(ImageKind::xclbin) || suffix == extension(ImageKind::insts))
      lengths.insert(length);
    if (lengths.size() > kMaxTemplates)
      fail_input(folder.string(), "more than {} decode templates", kMaxTemplates);
  }
  if (listing) fail_input(folder.string(), "cannot list: {}", listing.message());
  return lengths;
}

std::set<uint32_t> stamped_windows(const fs::path& stamp) {
  std::set<uint32_t> windows;
  const std::string text = read_text_file(stamp, kBuildTextLimit);
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) ++at;
    if (at == end) return windows;
    uint32_t window = 0;
    const auto [rest, error] = std::from_chars(at, end, window);
    if (error != std::errc() || window < 2)
      fail_input(stamp.string(), "not a list of window lengths");
    windows.insert(window);
    at = rest;
  }
}

// `make clean` leaves the stamp where it is, and `make compile-decode` then builds one window.
std::set<uint32_t> built_windows(BuildFolder& found, const fs::path& stamp,
                                 const std::set<uint32_t>& templates) {
  std::set<uint32_t> built, missing;
  for (const uint32_t window : stamped_windows(stamp))
    (templates.contains(window) || templates.contains(window - 1) ? built : missing).insert(window);
  const auto text = [](uint32_t window) { return std::to_string(window); };
  if (built.empty() && templates.empty())
    throw Error(ErrorCode::input, stamp.string(),
                fmt::format("names windows {}, and no templates are there: `make clean` leaves "
                            "this file",
                            joined(missing, ", ", text)),
                kBuildAgain);
  if (!missing.empty())
    found.notes.push_back(
        fmt::format("{} also names windows {}, whose templates are not there; "
                    "`make compile-decode-windows` builds them",
                    stamp.string(), joined(missing, ", ", text)));
  return built;
}

// Every template belongs to the pair of one window; anything else is left over from another build.
std::set<uint32_t> windows_of(BuildFolder& found, const fs::path& folder,
                              const std::set<uint32_t>& templates) {
  const fs::path stamp = folder / ".decode_windows";
  const bool stamped = is_there(stamp);
  std::set<uint32_t> windows =
      stamped ? built_windows(found, stamp, templates) : std::set<uint32_t>();
  std::set<uint32_t> paired;
  for (auto at = templates.rbegin(); at != templates.rend(); ++at) {
    const uint32_t length = *at;
    if (paired.contains(length)) continue;
    if (!stamped && templates.contains(length - 1)) windows.insert(length);
    const std::string where = (folder / fmt::format("decode_L{}", length)).string();
    const bool is_reference = windows.contains(length + 1);
    if (!windows.contains(length) && !is_reference && stamped)
      throw Error(ErrorCode::input, where,
                  "not of a window in .decode_windows; left over from another build?",
                  "delete it, or build the windows again");
    if (!windows.contains(length) && !is_reference)
      throw Error(ErrorCode::input, where,
                  fmt::format("has no partner decode_L{}: instruction words are derived from two "
                              "builds",
                              length - 1),
                  kBuildAgain);
    paired.insert({length, length - 1});
  }
  return windows;
}

std::string decode_flags(const fs::path& folder) {
  const fs::path path = folder / ".decode_flags";
  if (!is_there(path)) return std::string(kFlagsNotRecorded);
  std::string text = read_text_file(path, kBuildTextLimit);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r'))
    text.pop_back();
  return text;
}

FoundKernel read_window(const fs::path& folder, uint32_t window, const std::string& flags) {
  FoundKernel kernel;
  kernel.program = kFusedDecode;
  kernel.folder = folder;
  kernel.window = window;
  kernel.flags = flags;
  for (const uint32_t length : {window, window - 1})
    for (const ImageKind kind : {ImageKind::xclbin, ImageKind::insts})
      kernel.images.push_back(read_image_file(template_path(folder, length, kind), kind, length));
  return kernel;
}

}  // namespace

void find_fused_decode(BuildFolder& found, const fs::path& folder) {
  const std::set<uint32_t> templates = find_templates(found, folder);
  if (templates.empty() && !is_there(folder / ".decode_windows")) return;
  const std::string flags = decode_flags(folder);
  for (const uint32_t window : windows_of(found, folder, templates))
    attempt(found, fmt::format("decode_L{}", window),
            [&] { found.kernels.push_back(read_window(folder, window, flags)); });
}

// The decode as one ELF for every length: decode_scratchpad.elf, what its scratchpad holds, and for
// how many positions it is built.

namespace {

constexpr const char* kElfStem = "decode_scratchpad";
constexpr uint32_t kPositionStep = 16;  // builds round up to it

uint32_t stamped_positions(const fs::path& stamp) {
  std::string text = read_text_file(stamp, kBuildTextLimit);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' '))
    text.pop_back();
  uint32_t positions = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, positions);
  if (error != std::errc() || rest != end || positions == 0)
    fail_input(stamp.string(), "not a number of positions");
  if (positions % kPositionStep != 0)
    throw Error(
        ErrorCode::input, stamp.string(),
        fmt::format("{} positions are not a multiple of {}, and the ELF's cache is laid out "
                    "for one",
                    positions, kPositionStep),
        "build again with a multiple as LBUILD");
  return positions;
}

}  // namespace

void find_fused_decode_elf(BuildFolder& found, const fs::path& folder) {
  const auto file = [&](std::string_view suffix) {
    return folder / fmt::format("{}{}", kElfStem, suffix);
  };
  constexpr std::string_view kParts[] = {".elf", ".params.txt", ".maxl"};
  const auto is_missing = [&](std::string_view part) { return !is_there(file(part)); };
  if (is_missing(kParts[0])) return;
  for (const std::string_view part : kParts)
    if (is_missing(part))
      throw Error(ErrorCode::input, file(kParts[0]).string(),
                  fmt::format("{} is not beside it", file(part).filename().string()),
                  "`make compile-decode-elf` writes all three");
  FoundKernel kernel;
  kernel.program = kFusedDecodeElf;
  kernel.folder = folder;
  kernel.window = stamped_positions(file(".maxl"));
  kernel.flags = kFlagsNotRecorded;
  kernel.images.push_back(read_image_file(file(".elf"), ImageKind::elf, 0));
  kernel.images.push_back(read_image_file(file(".params.txt"), ImageKind::params, 0));
  found.kernels.push_back(std::move(kernel));
}

// Folders of int8 GEMMs: what mlir-aie's whole-array example leaves, and those with a
// gemm_slots.json that describes them.

namespace {

namespace fs = std::filesystem;

constexpr const char* kSlotsFile = "gemm_slots.json";

FoundKernel read_slot(const fs::path& folder, const GemmSlot& slot, const fs::path& xclbin,
                      const fs::path& insts) {
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
  return kernel;
}

void find_described(BuildFolder& found, const fs::path& folder, const Json& record) {
  const auto count = [&](const char* field) {
    return static_cast<uint32_t>(record.at(field).as_uint(std::numeric_limits<uint32_t>::max()));
  };
  const auto file = [&](const char* field) {
    const fs::path name = fs::path(record.at(field).as_string());
    if (name.empty() || name != name.filename())
      record.at(field).fail("is not a file of this folder");
    return folder / name;
  };
  const GemmSlot slot{std::string(record.at("xclbin").as_string()), count("k"), count("m_tile"),
                      count("n_tile"), count("columns")};
  attempt(found, slot.image,
          [&] { found.kernels.push_back(read_slot(folder, slot, file("xclbin"), file("insts"))); });
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
  if (!insts.facts.instructions) return;  // the virtual NPU's have none
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
    attempt(found, xclbin.filename().string(), [&] {
      FoundKernel kernel =
          read_slot(folder, {xclbin.filename().string(), name.k, name.m, name.n, name.columns},
                    xclbin, insts);
      check_layouts(kernel.images.back(), name);
      found.kernels.push_back(std::move(kernel));
    });
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
