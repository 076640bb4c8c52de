#include "device/npu/store/build_folder.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/joined.h"
#include "base/json.h"
#include "device/npu/formats/air_models.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// "llvm-aie: 21.0; clang: 123:456": nobody compares it, people read it.
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
constexpr std::string_view kCaches[] = {"prefill_kernel_cache", "decode_kernel_cache"};

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
  const auto recorded = manifest.find("_toolchain");
  const std::string toolchain = recorded ? toolchain_text(*recorded) : "unknown";
  manifest.at("entries").for_each_member([&](std::string_view program, const Json& record) {
    find_program(found, folder, program, record, toolchain);
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
  if (is_there(folder / "manifest.json")) find_cache(found, folder);
  for (const fs::path& root : {folder, folder / "build_peano", folder / "build_chess"})
    if (is_folder(root))
      for (const fs::path& below : folders_in(root))
        if (is_cache(below)) find_cache(found, below);
  find_fused_decode(found, folder);
  for (const fs::path& root : {folder, folder / "build"})
    if (is_folder(root)) find_int8_gemms(found, root);
  if (!found.kernels.empty()) return found;
  throw Error(ErrorCode::input, folder.string(),
              found.notes.empty() ? "no kernels: neither a manifest.json of a kernel cache, nor "
                                    "decode_L<W>.xclbin templates, nor int8 GEMMs"
                                  : "no kernels that Tyto can use: " + joined(found.notes, "; "),
              "`tyto compile --device npu` says how to build them");
}

}  // namespace tyto
