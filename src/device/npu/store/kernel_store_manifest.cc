#include "device/npu/store/kernel_store_manifest.h"
#include <algorithm>
#include <limits>
#include <set>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/dim_fields.h"
#include "device/npu/formats/q4nx_layout.h"

namespace tyto {
namespace {

constexpr uint64_t kVersion = 1;
constexpr uint64_t kManifestLimit = uint64_t{64} << 20;
constexpr uint64_t kU32 = std::numeric_limits<uint32_t>::max();

struct TextField {
  const char* name;
  std::string KernelEntry::* member;
};
constexpr TextField kTextFields[] = {
    {"name", &KernelEntry::name},
    {"program", &KernelEntry::program},
    {"entry", &KernelEntry::entry},
    {"shape", &KernelEntry::shape},
    {"platform", &KernelEntry::platform},
    {"flags", &KernelEntry::flags},
    {"toolchain", &KernelEntry::toolchain},
    {"source", &KernelEntry::source},
    {"imported_at", &KernelEntry::imported_at},
};

struct CountField {
  const char* name;
  uint32_t KernelEntry::* member;
  bool is_optional = false;  // stores of earlier versions have none
};
constexpr CountField kCountFields[] = {
    {"window", &KernelEntry::window},       {"arguments", &KernelEntry::arguments},
    {"launches", &KernelEntry::launches},   {"m_tile", &KernelEntry::m_tile, true},
    {"n_tile", &KernelEntry::n_tile, true},
};

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char character : text) {
    if (character == '"' || character == '\\')
      result += {'\\', character};
    else if (static_cast<unsigned char>(character) < 0x20)
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(character));
    else
      result += character;
  }
  return result + '"';
}

std::string to_json(const KernelEntry& entry) {
  std::string text = "  {";
  for (const TextField& field : kTextFields)
    text += fmt::format("\"{}\": {},\n   ", field.name, json_text(entry.*field.member));
  for (const CountField& field : kCountFields)
    text += fmt::format("\"{}\": {}, ", field.name, entry.*field.member);
  text += fmt::format("\"columns\": {}, \"run_bytes\": {},\n   \"dims\": {{",
                      entry.columns ? std::to_string(*entry.columns) : "null", entry.run_bytes);
  const char* separator = "";
  for (const DimField& field : kDimFields) {
    text += fmt::format("{}\"{}\": {}", separator, field.name, entry.dims.*field.member);
    separator = ", ";
  }
  text += "},\n   \"images\": [";
  separator = "";
  for (const StoredImage& image : entry.images) {
    text += fmt::format(
        "{}\n    {{\"file\": {}, \"kind\": \"{}\", \"length\": {}, \"bytes\": {}, \"hash\": {}, "
        "\"mtime_ns\": {}}}",
        separator, json_text(image.file()), to_string(image.kind), image.length, image.bytes,
        json_text(image.hash), image.mtime_ns);
    separator = ",";
  }
  return text + "]}";
}

std::string to_json(const KernelManifest& manifest) {
  std::string text = fmt::format("{{\"version\": {},\n \"entries\": [", kVersion);
  for (size_t i = 0; i < manifest.entries.size(); ++i)
    text += (i == 0 ? "\n" : ",\n") + to_json(manifest.entries[i]);
  return text + "]}\n";
}

ImageKind kind_from(const Json& field) {
  for (const ImageKind kind : {ImageKind::elf, ImageKind::xclbin, ImageKind::insts})
    if (to_string(kind) == field.as_string()) return kind;
  field.fail("no such kind of image");
}

StoredImage image_from(const Json& object) {
  StoredImage image;
  image.kind = kind_from(object.at("kind"));
  image.length = static_cast<uint32_t>(object.at("length").as_uint(kU32));
  image.bytes = object.at("bytes").as_uint(std::numeric_limits<int64_t>::max());
  image.hash = object.at("hash").as_string();
  image.mtime_ns = object.at("mtime_ns").as_int();
  // The name becomes a path, so it is nothing but the hash.
  const bool hexadecimal = image.hash.size() == 32 &&
                           image.hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!hexadecimal) object.at("hash").fail("not 32 hexadecimal digits");
  if (object.at("file").as_string() != image.file())
    object.at("file").fail("not the name that belongs to the hash");
  return image;
}

KernelEntry entry_from(const Json& object) {
  KernelEntry entry;
  for (const TextField& field : kTextFields)
    entry.*field.member = object.at(field.name).as_string();
  for (const CountField& field : kCountFields)
    if (!field.is_optional || object.find(field.name))
      entry.*field.member = static_cast<uint32_t>(object.at(field.name).as_uint(kU32));
  if (const auto columns = object.find("columns"))
    entry.columns = static_cast<uint32_t>(columns->as_uint(kU32));
  if (const auto bytes = object.find("run_bytes"))
    entry.run_bytes = bytes->as_uint(std::numeric_limits<int64_t>::max());
  const Json dims = object.at("dims");
  for (const DimField& field : kDimFields)
    if (!field.is_optional || dims.find(field.name))
      entry.dims.*field.member = static_cast<uint32_t>(dims.at(field.name).as_uint(kU32));
  object.at("images").for_each_element(
      [&](size_t, const Json& image) { entry.images.push_back(image_from(image)); });
  if (entry.name.empty()) object.at("name").fail("is empty");
  if (entry.images.empty()) object.at("images").fail("names no image");
  return entry;
}

KernelManifest from_json(std::string_view text, const std::string& name) {
  const Json document = Json::parse(text, name);
  const Json version = document.at("version");
  if (version.as_uint(kU32) != kVersion)
    version.fail(fmt::format("this Tyto reads version {}", kVersion));
  KernelManifest manifest;
  std::set<std::string> names;
  document.at("entries").for_each_element([&](size_t, const Json& object) {
    manifest.entries.push_back(entry_from(object));
    if (!names.insert(manifest.entries.back().name).second) object.at("name").fail("appears twice");
  });
  return manifest;
}

}  // namespace

const KernelEntry* KernelManifest::find(std::string_view name) const {
  for (const KernelEntry& entry : entries)
    if (entry.name == name) return &entry;
  return nullptr;
}

AirProgram program_of(const KernelEntry& entry) {
  if (entry.program == kInt8Gemm)
    return int8_gemm_program(entry.window, entry.m_tile, entry.n_tile);
  return entry.program == kFusedDecode ? fused_decode_program(entry.dims, entry.window)
                                       : air_program(entry.program, entry.dims);
}

std::filesystem::path manifest_path(const std::filesystem::path& store) {
  return store / "manifest.json";
}

std::filesystem::path image_path(const std::filesystem::path& store, const StoredImage& image) {
  return store / "images" / image.file();
}

KernelManifest read_manifest(const std::filesystem::path& store) {
  const std::filesystem::path path = manifest_path(store);
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found)
    return {};
  try {
    return from_json(read_text_file(path, kManifestLimit), path.string());
  } catch (const Error& damage) {
    throw Error(ErrorCode::input, "", damage.what(),
                "the images beside it are untouched; to rebuild it, move this file away and run "
                "`tyto kernels import` again for each build folder");
  }
}

void write_manifest(const std::filesystem::path& store, KernelManifest manifest) {
  std::sort(manifest.entries.begin(), manifest.entries.end(),
            [](const KernelEntry& a, const KernelEntry& b) { return a.name < b.name; });
  const std::string text = to_json(manifest);
  from_json(text, "new " + manifest_path(store).string());
  AtomicFile file(manifest_path(store), Replace::own_state);
  file.write(text);
  file.commit();
}

std::filesystem::path lock_path(const std::filesystem::path& store) {
  return store / ".lock";
}

}  // namespace tyto
