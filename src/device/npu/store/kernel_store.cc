#include "device/npu/store/kernel_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/ranges.h>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/round_up.h"
#include "base/spelling.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/int8_gemm.h"
#include "device/npu/formats/q4nx.h"
#include "device/npu/formats/transaction.h"
#include "device/npu/store/build_folder.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

// What will be recorded, and where the bytes of each image are now.
struct Planned {
  KernelEntry entry;
  std::vector<fs::path> sources;  // one for each of entry.images
};

// Images compiled for another prompt length are other kernels with the same file names.
std::string entry_name(const FoundKernel& found, const NamedDims& shape) {
  if (found.program == kInt8Gemm)
    return fmt::format("int8/gemm_k{}_m{}", found.window, found.m_tile);
  const bool usual = shape.dims.seq == kLlama32_1b.seq;
  const std::string program = found.program == kFusedDecode
                                  ? fmt::format("decode_L{}", found.window)
                              : found.program == kFusedDecodeElf ? "decode_elf"
                                                                 : found.program;
  return fmt::format("{}{}/{}", shape.name, usual ? "" : fmt::format("@{}", shape.dims.seq),
                     program);
}

KernelEntry described(const FoundKernel& found, const NamedDims& shape) {
  KernelEntry entry;
  entry.name = entry_name(found, shape);
  entry.program = found.program;
  entry.window = found.window;
  entry.m_tile = found.m_tile;
  entry.n_tile = found.n_tile;
  entry.columns = found.columns;
  entry.flags = found.flags;
  entry.toolchain = found.toolchain;
  entry.source = fs::absolute(found.folder).lexically_normal().string();
  const bool is_for_any = found.program == kInt8Gemm;  // they know nothing of a model
  entry.shape = is_for_any ? "any" : shape.name;
  entry.dims = is_for_any ? AirDims{} : shape.dims;
  for (const FoundImage& image : found.images)
    entry.images.push_back({image.kind, image.length, image.bytes, image.hash});
  return entry;
}

// A design's partition, the header of its words and the name of a GEMM's file count the same
// columns; a design may have more than the columns that a GEMM uses.
void check_columns(KernelEntry& entry, const FoundKernel& found) {
  for (size_t i = 0; i + 1 < found.images.size(); i += 2) {
    const FoundImage &design = found.images[i], &words = found.images[i + 1];
    if (!design.facts.xclbin || !words.facts.instructions) continue;
    const uint32_t columns = design.facts.xclbin->columns;
    if (words.facts.instructions->not_read.empty() && words.facts.instructions->columns != columns)
      fail_input(words.path.string(), "compiled for {} columns, and {} takes {}",
                 words.facts.instructions->columns, design.path.filename().string(), columns);
    if (found.columns && *found.columns > columns)
      fail_input(design.path.string(), "takes {} columns, and its name or description says {}",
                 columns, *found.columns);
    entry.columns = found.columns.value_or(columns);
  }
}

// The facts of its images, after those of an xclbin and its words were seen to go together.
void add_facts(KernelEntry& entry, const FoundKernel& found) {
  const bool is_virtual = found.images.front().facts.platform == kVirtualPlatform;
  entry.platform = found.images.front().facts.platform;
  for (const FoundImage& image : found.images) {
    if (image.kind != ImageKind::params && (image.facts.platform == kVirtualPlatform) != is_virtual)
      fail_input(image.path.string(), "{} image beside {}",
                 is_virtual ? "a real" : "a virtual NPU's",
                 found.images.front().path.filename().string());
    if (image.facts.elf) {
      entry.columns = image.facts.elf->columns;
      entry.run_bytes = image.facts.elf->instance_of(entry.entry)->run_bytes;
    }
    // A decode has a pair of images, one of which is loaded.
    if (image.facts.instructions && image.length == found.images.front().length) {
      entry.run_bytes += round_up(image.bytes, kHeapPiece);
      entry.platform = "aie2p";  // its header says so
    }
    if (image.facts.xclbin && image.length == found.images.front().length)
      entry.run_bytes += round_up(image.facts.xclbin->design_bytes, kHeapPiece);
  }
  check_columns(entry, found);
}

// A kernel as an entry, and what of its images was not expected.
struct Fitted {
  KernelEntry entry;
  std::vector<std::string> notes;
};

// Throws an Error where an image contradicts the shape.
Fitted fitted(const FoundKernel& found, const NamedDims& shape) {
  Fitted result{described(found, shape), {}};
  KernelEntry& entry = result.entry;
  const AirProgram program = program_of(entry);
  // A wrong instance name does not fail to load; the device hangs.
  if (!found.entry.empty() && found.entry != program.entry)
    fail_input((found.folder / "manifest.json").string(),
               "{}: \"{}\" is not \"{}\", the entry Tyto knows for this program", found.program,
               found.entry, program.entry);
  entry.entry = program.entry;
  entry.arguments = static_cast<uint32_t>(program.arguments.size());
  entry.launches = program.launches;
  std::vector<const FoundImage*> words;
  for (const FoundImage& image : found.images) {
    for (std::string& note : check_fit(image.facts, program, shape, image.path.string()))
      result.notes.push_back(std::move(note));
    if (image.kind == ImageKind::insts) words.push_back(&image);
  }
  if (found.program == kFusedDecode) {
    if (found.flags != kFlagsNotRecorded)
      check_q4nx_flags(found.flags, shape.dims, (found.folder / ".decode_flags").string());
    check_lengths(words[0]->facts, words[1]->facts, found.window, shape, words[0]->path.string());
  }
  if (found.program == kFusedDecodeElf)
    check_scratchpad(found.images[0].facts, *found.images[1].facts.parameters,
                     found.images[0].path.string());
  add_facts(entry, found);
  return result;
}

// What will be recorded of a folder for one shape, and what will not.
struct Fit {
  NamedDims shape;
  std::vector<Planned> taken;
  std::vector<RefusedKernel> refused;
  std::vector<std::string> notes;
  size_t exact = 0;  // kernels for this shape that touch all that they were expected to
};

// The entries of a shape, with the prompt's length that was given, or that a folder's name or an
// image tells.
Fit fitted_all(const BuildFolder& build, NamedDims shape, std::optional<uint32_t> seq) {
  Fit fit{shape, {}, {}, {}, 0};
  const uint32_t usual = shape.dims.seq;
  for (const FoundKernel& found : build.kernels) {
    const std::optional<AirDims>& made_for = found.images.front().facts.dims;
    const uint32_t of_image = made_for && made_for->seq != 0 ? made_for->seq : usual;
    shape.dims.seq = seq.value_or(found.seq.value_or(of_image));
    try {
      Fitted one = fitted(found, shape);
      fit.exact += one.notes.empty() && found.program != kInt8Gemm ? 1 : 0;
      fit.taken.push_back({std::move(one.entry), {}});
      for (const FoundImage& image : found.images) fit.taken.back().sources.push_back(image.path);
      fit.notes.insert(fit.notes.end(), one.notes.begin(), one.notes.end());
    } catch (const Error& error) {
      fit.refused.push_back({entry_name(found, shape), error.what(), error.hint});
    }
  }
  return fit;
}

// Images of the virtual NPU say what they are for.
std::optional<NamedDims> shape_in_images(const BuildFolder& build,
                                         std::span<const NamedDims> known) {
  for (const FoundKernel& found : build.kernels) {
    const std::optional<AirDims>& made_for = found.images.front().facts.dims;
    if (!made_for || *made_for == AirDims{}) continue;
    for (NamedDims shape : known) {
      shape.dims.seq = made_for->seq;
      if (shape.dims == *made_for) return shape;
    }
    return NamedDims{fmt::format("{}x{}", made_for->layers, made_for->emb), *made_for};
  }
  return std::nullopt;
}

// The one shape that most of the kernels were built for. Kernels that fall short of an argument's
// end could be another, smaller model's, and do not count.
Fit fitted_to_any(const BuildFolder& build, const fs::path& folder, const ImportOptions& options) {
  std::vector<NamedDims> shapes = options.shapes;
  if (shapes.size() > 1)
    if (const auto told = shape_in_images(build, shapes)) shapes = {*told};
  const auto of_models =
      std::count_if(build.kernels.begin(), build.kernels.end(),
                    [](const FoundKernel& found) { return found.program != kInt8Gemm; });
  if (of_models == 0) shapes.resize(1);
  std::vector<Fit> fits;
  for (const NamedDims& shape : shapes) fits.push_back(fitted_all(build, shape, options.seq));
  if (fits.size() == 1) return std::move(fits.front());
  size_t most = 0;
  for (const Fit& fit : fits) most = std::max(most, fit.exact);
  std::erase_if(fits, [&](const Fit& fit) { return fit.exact < most; });
  if (most * 2 <= static_cast<size_t>(of_models)) {
    const Fit& first = fits.front();
    throw Error(
        ErrorCode::input, folder.string(),
        fmt::format("fits no model that Tyto knows; {}: {}", first.shape.name,
                    first.refused.empty() ? first.notes.front() : first.refused.front().reason),
        "`--shape NAME` says why it is not that one");
  }
  if (fits.size() == 1) return std::move(fits.front());
  throw Error(ErrorCode::input, folder.string(),
              "its images do not tell for which of these it is: " +
                  joined(fits, ", ", [](const Fit& fit) { return fit.shape.name; }),
              "give --shape");
}

// What in the images could not be compared.
void note_unread(const BuildFolder& build, std::vector<std::string>& notes) {
  for (const FoundKernel& found : build.kernels)
    for (const FoundImage& image : found.images) {
      if (!image.facts.instructions) continue;
      const Transaction& instructions = *image.facts.instructions;
      if (!instructions.not_read.empty())
        notes.push_back(fmt::format("{}: which bytes it touches was not compared: {}",
                                    image.path.string(), instructions.not_read));
      if (!instructions.untranslated.empty())
        notes.push_back(fmt::format(
            "{}: offsets into data buffer {} are without 2147483648, and XRT's runs need it from "
            "the sixth buffer on; build with mlir-aie of July 2026 or newer, for XRT",
            image.path.string(), instructions.untranslated.front()));
    }
}

void check_names(Fit& fit, const fs::path& folder) {
  std::set<std::string> names;
  for (Planned& item : fit.taken) {
    if (!names.insert(item.entry.name).second)
      throw Error(ErrorCode::input, folder.string(), item.entry.name + " is in it twice",
                  "import one build at a time");
    item.entry.imported_at = utc_now();
  }
}

// What can be taken of a folder; an Error if that is nothing.
Fit fit_of(const BuildFolder& build, const fs::path& folder, const ImportOptions& options) {
  Fit fit = fitted_to_any(build, folder, options);
  fit.refused.insert(fit.refused.begin(), build.refused.begin(), build.refused.end());
  if (fit.taken.empty())
    throw Error(ErrorCode::input, "", fit.refused.front().reason, fit.refused.front().next_step);
  check_names(fit, folder);
  return fit;
}

int64_t mtime_ns(const fs::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) fail_input(path.string(), "cannot stat");
  return status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec;
}

bool holds(const fs::path& path, const StoredImage& image) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return false;
  const MappedFile file(path);
  return file.bytes().size() == image.bytes && to_hex(hash_bytes(file.bytes())) == image.hash;
}

// Copies of images that were not in the store; gone again unless kept.
struct NewFiles {
  std::vector<fs::path> paths;
  std::list<PartialPath> unrecorded;  // the same, until the manifest speaks of them
  bool keep = false;
  ~NewFiles() {
    std::error_code ignored;
    if (!keep)
      for (const fs::path& path : paths) fs::remove(path, ignored);
  }
};

void copy_image(const fs::path& store, const fs::path& source, StoredImage& image,
                NewFiles& created) {
  const fs::path target = image_path(store, image);
  if (!holds(target, image)) {
    const std::string content = read_text_file(source, kImageLimit);
    if (to_hex(hash_bytes(std::as_bytes(std::span(content)))) != image.hash)
      fail_input(source.string(), "changed while it was imported");
    AtomicFile file(target, Replace::own_state);
    file.write(content);
    created.paths.push_back(target);
    created.unrecorded.emplace_back(target.string());
    file.commit();
  }
  image.mtime_ns = mtime_ns(target);
}

}  // namespace

ImportReport import_kernels(const fs::path& store, const fs::path& folder,
                            const ImportOptions& options) {
  BuildFolder build = read_build_folder(folder);
  Fit fit = fit_of(build, folder, options);
  read_manifest(store);  // a damaged one is reported before anything is created

  std::error_code error;
  fs::create_directories(store / "images", error);
  if (error) fail_input((store / "images").string(), "cannot create: {}", error.message());
  const FileLock lock(lock_path(store));
  KernelManifest manifest = read_manifest(store);
  NewFiles created;
  std::vector<KernelEntry> replaced;
  ImportReport report;
  for (Planned& item : fit.taken) {
    for (size_t i = 0; i < item.sources.size(); ++i)
      copy_image(store, item.sources[i], item.entry.images[i], created);
    const auto old =
        std::find_if(manifest.entries.begin(), manifest.entries.end(),
                     [&](const KernelEntry& entry) { return entry.name == item.entry.name; });
    if (old != manifest.entries.end()) {
      replaced.push_back(std::move(*old));
      manifest.entries.erase(old);
    }
    manifest.entries.push_back(item.entry);
    report.entries.push_back(std::move(item.entry));
  }
  const auto gemms =
      std::count_if(manifest.entries.begin(), manifest.entries.end(),
                    [](const KernelEntry& entry) { return entry.program == kInt8Gemm; });
  if (gemms > static_cast<ptrdiff_t>(kMaxGemmSlots))
    throw Error(ErrorCode::input, folder.string(),
                fmt::format("with these there would be {} int8 GEMMs, and at most {} are used",
                            gemms, kMaxGemmSlots),
                "`tyto kernels rm` others first");
  created.unrecorded.clear();
  write_manifest(store, manifest);
  created.keep = true;
  report.images_written = created.paths.size();
  report.refused = std::move(fit.refused);
  report.notes = std::move(build.notes);
  report.notes.insert(report.notes.end(), fit.notes.begin(), fit.notes.end());
  note_unread(build, report.notes);
  delete_unused_images(store, replaced, manifest);
  return report;
}

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
  for (const ImageKind kind : kImageKinds)
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
  if (entry.program == kFusedDecodeElf) return fused_decode_elf_program(entry.dims, entry.window);
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

namespace {

struct FileState {
  uint64_t bytes;
  int64_t mtime_ns;
};

std::optional<FileState> state_of(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    fail_input(path.string(), "cannot stat: {}", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) fail_input(path.string(), "not a regular file");
  return FileState{static_cast<uint64_t>(status.st_size),
                   status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec};
}

std::optional<ImageProblem> problem_of(const KernelEntry& entry, const StoredImage& image,
                                       ImageFault fault, std::string reason) {
  return ImageProblem{entry.name, image.file(), fault, std::move(reason)};
}

// Why the image cannot be of its entry. What it is made for is compared with what is recorded,
// which an older Tyto may have recorded without looking.
std::optional<std::string> misfit(const KernelEntry& entry, const StoredImage& image,
                                  std::span<const std::byte> bytes) {
  try {
    check_fit(inspect_image(bytes, image.kind, image.file()), program_of(entry),
              {entry.shape, entry.dims}, image.file());
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

// The virtual NPU's images say at once what they are for.
std::optional<std::string> virtual_misfit(const std::filesystem::path& path,
                                          const KernelEntry& entry, const StoredImage& image) {
  if (entry.platform != kVirtualPlatform || image.kind == ImageKind::insts ||
      image.kind == ImageKind::params)
    return std::nullopt;
  return misfit(entry, image, MappedFile(path).bytes());
}

// Reads the file and compares it with what was imported.
std::optional<ImageProblem> compare_content(const std::filesystem::path& path,
                                            const KernelEntry& entry, const StoredImage& image,
                                            CheckReport& report) {
  const MappedFile file(path);
  ++report.hashed;
  report.bytes_read += file.bytes().size();
  if (to_hex(hash_bytes(file.bytes())) == image.hash) {
    const auto reason = misfit(entry, image, file.bytes());
    return reason ? problem_of(entry, image, ImageFault::stale, *reason) : std::nullopt;
  }
  try {
    inspect_image(file.bytes(), image.kind, image.file());
  } catch (const Error& error) {
    return problem_of(entry, image, ImageFault::foreign,
                      fmt::format("replaced by something else ({})", error.what()));
  }
  return problem_of(entry, image, ImageFault::stale, "the content is not what was imported");
}

std::optional<ImageProblem> check_image(const std::filesystem::path& store,
                                        const KernelEntry& entry, StoredImage& image, bool full,
                                        CheckReport& report) {
  const std::filesystem::path path = image_path(store, image);
  const std::optional<FileState> state = state_of(path);
  if (!state) return problem_of(entry, image, ImageFault::missing, "the file is not there");
  if (state->bytes < image.bytes)
    return problem_of(entry, image, ImageFault::truncated,
                      fmt::format("{} of {} bytes are left", state->bytes, image.bytes));
  const bool as_recorded = state->bytes == image.bytes && state->mtime_ns == image.mtime_ns;
  if (as_recorded && !full) {
    ++report.trusted;
    const auto reason = virtual_misfit(path, entry, image);
    return reason ? problem_of(entry, image, ImageFault::stale, *reason) : std::nullopt;
  }
  const auto problem = compare_content(path, entry, image, report);
  if (!problem) image.mtime_ns = state->mtime_ns;
  return problem;
}

// A manifest from an older Tyto may have been written for argument lists that have changed.
std::optional<ImageProblem> check_arguments(const KernelEntry& entry) {
  std::string reason;
  try {
    const AirProgram program = program_of(entry);
    if (program.arguments.size() == entry.arguments && program.entry == entry.entry)
      return std::nullopt;
    reason = fmt::format("recorded as {} with {} arguments, this Tyto has {} with {}", entry.entry,
                         entry.arguments, program.entry, program.arguments.size());
  } catch (const Error& error) {
    reason = error.what();
  }
  return ImageProblem{entry.name, entry.images.front().file(), ImageFault::stale, reason};
}

bool named_like_an_image(const std::string& name) {
  for (const ImageKind kind : kImageKinds) {
    if (name.size() != 32 + extension(kind).size() || !name.ends_with(extension(kind))) continue;
    return name.find_first_not_of("0123456789abcdef") == 32;
  }
  return false;
}

std::vector<std::string> files_in_images(const std::filesystem::path& store) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(store / "images", error), end; !error && at != end;
       at.increment(error))
    names.push_back(at->path().filename().string());
  if (error && error != std::errc::no_such_file_or_directory)
    fail_input((store / "images").string(), "cannot list: {}", error.message());
  std::sort(names.begin(), names.end());
  return names;
}

bool remove_file(const std::filesystem::path& path) {
  std::error_code error;
  const bool removed = std::filesystem::remove(path, error);
  if (error) fail_input(path.string(), "cannot delete: {}", error.message());
  return removed;
}

std::vector<int64_t> times_of(const KernelManifest& manifest) {
  std::vector<int64_t> times;
  for (const KernelEntry& entry : manifest.entries)
    for (const StoredImage& image : entry.images) times.push_back(image.mtime_ns);
  return times;
}

}  // namespace

std::string_view to_string(ImageFault fault) {
  constexpr std::string_view kNames[] = {"missing", "truncated", "stale", "foreign"};
  return kNames[static_cast<size_t>(fault)];
}

CheckReport check_entries(const std::filesystem::path& store, std::span<KernelEntry> entries,
                          bool full) {
  CheckReport report;
  for (KernelEntry& entry : entries) {
    if (auto problem = check_arguments(entry)) report.problems.push_back(std::move(*problem));
    for (StoredImage& image : entry.images) {
      ++report.images;
      if (auto problem = check_image(store, entry, image, full, report))
        report.problems.push_back(std::move(*problem));
    }
  }
  return report;
}

CheckReport check_store(const std::filesystem::path& store, bool full) {
  KernelManifest manifest = read_manifest(store);
  const std::vector<int64_t> old_times = times_of(manifest);
  CheckReport report = check_entries(store, manifest.entries, full);

  std::set<std::string> known;
  for (const KernelEntry& entry : manifest.entries)
    for (const StoredImage& image : entry.images) known.insert(image.file());
  for (const std::string& name : files_in_images(store))
    if (!known.contains(name))
      report.problems.push_back({"", name, ImageFault::foreign, "no entry names this file"});

  if (times_of(manifest) == old_times) return report;
  try {
    const FileLock lock(lock_path(store));
    // Only what was looked at: an import may have come between.
    KernelManifest current = read_manifest(store);
    for (KernelEntry& entry : current.entries) {
      const KernelEntry* checked = manifest.find(entry.name);
      if (checked == nullptr || checked->images.size() != entry.images.size()) continue;
      for (size_t i = 0; i < entry.images.size(); ++i)
        if (entry.images[i].hash == checked->images[i].hash)
          entry.images[i].mtime_ns = checked->images[i].mtime_ns;
    }
    write_manifest(store, std::move(current));
  } catch (const Error&) {
    // A store that cannot be written costs the next check its speed and nothing else.
  }
  return report;
}

void delete_unused_images(const std::filesystem::path& store, std::span<const KernelEntry> before,
                          const KernelManifest& after) {
  std::set<std::string> used;
  for (const KernelEntry& entry : after.entries)
    for (const StoredImage& image : entry.images) used.insert(image.file());
  for (const KernelEntry& entry : before)
    for (const StoredImage& image : entry.images)
      if (!used.contains(image.file())) remove_file(image_path(store, image));
}

void remove_kernel(const std::filesystem::path& store, std::string_view name) {
  const auto refuse = [&] {
    throw Error(ErrorCode::input, std::string(name), "no such kernel in " + store.string(),
                "`tyto kernels list` shows the names");
  };
  if (read_manifest(store).find(name) == nullptr) refuse();
  const FileLock lock(lock_path(store));
  KernelManifest manifest = read_manifest(store);
  const auto found =
      std::find_if(manifest.entries.begin(), manifest.entries.end(),
                   [&](const KernelEntry& candidate) { return candidate.name == name; });
  if (found == manifest.entries.end()) refuse();
  const KernelEntry removed = *found;
  manifest.entries.erase(found);
  write_manifest(store, manifest);
  delete_unused_images(store, {&removed, 1}, manifest);
}

size_t remove_all_kernels(const std::filesystem::path& store) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(store, ignored)) return 0;
  const FileLock lock(lock_path(store));
  remove_file(manifest_path(store));
  size_t removed = 0;
  for (const std::string& name : files_in_images(store))
    if (named_like_an_image(name) && remove_file(store / "images" / name)) ++removed;
  return removed;
}

namespace {

constexpr uint32_t kUsualPromptRows = 2048;  // the published builds'

// Whether images built for `built` run a model of these dimensions.
bool fits(const KernelEntry& entry, const AirDims& wanted) {
  return same_images(entry.program, entry.dims, wanted);
}

// The lengths of prompts that all prefill programs are there for, ascending.
std::vector<uint32_t> prompt_rows(const KernelManifest& manifest, AirDims dims) {
  std::map<uint32_t, size_t> programs;
  for (const KernelEntry& entry : manifest.entries) {
    dims.seq = entry.dims.seq;
    if (depends_on_prompt(entry.program) && fits(entry, dims)) ++programs[dims.seq];
  }
  std::vector<uint32_t> rows;
  for (const auto& [seq, count] : programs)
    if (count == count_programs(dims, AirPhase::prompt)) rows.push_back(seq);
  return rows;
}

// All that the image functions below look into.
struct Stored {
  std::filesystem::path store;
  KernelManifest manifest;
  AirDims dims;
  std::vector<std::string> gemms;  // names of the entries of int8 GEMMs that are good

  const KernelEntry* find(std::string_view program, uint32_t window) const {
    if (program == kInt8Gemm) return window < gemms.size() ? manifest.find(gemms[window]) : nullptr;
    AirDims wanted = dims;
    if (depends_on_prompt(program)) wanted.seq = std::exchange(window, 0);
    for (const KernelEntry& entry : manifest.entries)
      if (entry.program == program && entry.window == window && fits(entry, wanted)) return &entry;
    return nullptr;
  }
};

std::optional<std::string> why_not_good(const std::filesystem::path& store, KernelEntry entry) {
  const CheckReport report = check_entries(store, {&entry, 1}, false);
  if (report.problems.empty()) return std::nullopt;
  return fmt::format("the image of {} is {}: {}", entry.program,
                     to_string(report.problems.front().fault), report.problems.front().reason);
}

std::optional<std::string> why_no_image(const Stored& stored, std::string_view program,
                                        uint32_t window) {
  const KernelEntry* entry = stored.find(program, window);
  if (entry == nullptr)
    return fmt::format(
        "no image of {} for this model is in the kernel store (`tyto compile` says "
        "how to build it)",
        program);
  return why_not_good(stored.store, *entry);
}

// An image that contradicts its entry ends here: XRT would load it.
NpuImage read_image(const Stored& stored, std::string_view program, uint32_t window) {
  const KernelEntry* entry = stored.find(program, window);
  TYTO_ASSERT(entry != nullptr);
  NpuImage image;
  image.kernel = entry->entry;
  image.run_bytes = entry->run_bytes;
  const AirProgram abi = program_of(*entry);
  uint32_t longest = 0;
  ImageFacts of_elf;
  for (const StoredImage& part : entry->images) longest = std::max(longest, part.length);
  for (const StoredImage& part : entry->images) {
    const MappedFile file(image_path(stored.store, part));
    const bool is_base = part.length == longest;
    ImageFacts facts = inspect_image(file.bytes(), part.kind, file.path().string());
    check_fit(facts, abi, {entry->shape, stored.dims}, file.path().string());
    if (part.kind == ImageKind::params) {
      image.parameters = check_scratchpad(of_elf, *facts.parameters, file.path().string());
    } else if (part.kind == ImageKind::insts) {
      (is_base ? image.words : image.reference_words) = std::move(facts.words);
      (is_base ? image.length : image.reference_length) = part.length;
    } else if (is_base) {
      image.form = part.kind;
      image.bytes.assign(file.bytes().begin(), file.bytes().end());
      image.hash = hash_bytes(image.bytes);
      of_elf = std::move(facts);
    }
  }
  return image;
}

std::vector<uint32_t> windows(const Stored& stored) {
  std::vector<uint32_t> result;
  for (const KernelEntry& entry : stored.manifest.entries)
    if (entry.program == kFusedDecode && fits(entry, stored.dims) &&
        !why_no_image(stored, kFusedDecode, entry.window))
      result.push_back(entry.window);
  std::sort(result.begin(), result.end());
  return result;
}

// The largest, where there are several.
uint32_t decode_elf(const Stored& stored) {
  uint32_t positions = 0;
  for (const KernelEntry& entry : stored.manifest.entries)
    if (entry.program == kFusedDecodeElf && fits(entry, stored.dims) &&
        !why_no_image(stored, kFusedDecodeElf, entry.window))
      positions = std::max(positions, entry.window);
  return positions;
}

std::vector<GemmSlot> gemm_slots(Stored& stored) {
  std::vector<GemmSlot> slots;
  for (const KernelEntry& entry : stored.manifest.entries) {
    if (entry.program != kInt8Gemm || why_not_good(stored.store, entry)) continue;
    slots.push_back(
        {entry.name, entry.window, entry.m_tile, entry.n_tile, entry.columns.value_or(0)});
    stored.gemms.push_back(entry.name);
  }
  check_slots(slots);
  return slots;
}

}  // namespace

std::filesystem::path default_kernel_store() {
  return cache_folder() / "kernels";
}

AirDims air_dims(const ModelDims& model, uint32_t seq) {
  return {model.layers, model.emb,   model.heads, model.kv_heads, model.head_dim,
          model.hidden, model.vocab, seq,         model.qkv_bias, model.qk_norm};
}

namespace {

// The ELF where it is there and windows were not asked for; the other form where that is missing.
void choose_decode(const NpuSettings& settings, NpuKernels& kernels) {
  if (settings.decode == DecodeForm::elf && kernels.decode_elf == 0)
    throw Error(ErrorCode::usage, "--decode-images elf",
                "no decode as one ELF for every length is in the kernel store for this model",
                "`tyto compile --device npu` says how to build it; leave the flag out for windows");
  if (settings.decode == DecodeForm::windows) kernels.decode_elf = 0;
  if (kernels.decode_elf > 0) kernels.windows = {kernels.decode_elf};
}

}  // namespace

void describe_shapes(const DeviceEnv& env, NpuKernels& kernels) {
  const NpuSettings settings = npu_settings(env);
  DeviceInfo& info = kernels.info;
  FixedShapes& fixed = info.fixed.emplace();
  info.activations = DType::bf16;
  info.numerics = settings.block_float ? "bfp16" : "bf16";
  const auto form = env.settings.find("weights");
  info.weight_form = form == env.settings.end() ? "bf16" : form->second;
  if (settings.weights == NpuWeights::int8) {  // the host computes all but the projections
    info.activations = DType::f32;
    info.numerics = "int8";
    return;
  }
  if (env.model.layers > 0) {
    // Without any images each program says what is missing.
    if (kernels.prompt_rows.empty()) kernels.prompt_rows = {kUsualPromptRows};
    kernels.dims.seq = kernels.prompt_rows.back();
    choose_decode(settings, kernels);
    if (!env.model.beyond_images.empty()) kernels.windows.clear();
    fit_contexts(env, settings, kernels);
  }
  fixed.prompt_rows = kernels.prompt_rows;
  if (settings.weights != NpuWeights::q4nx || kernels.windows.empty()) return;
  const Q4nxLayout layout = q4nx_layout(kernels.dims, kernels.windows.back());
  fixed.most_positions = kernels.windows.back();
  fixed.kv = KvForm{DType::bf16, static_cast<uint32_t>(layout.kv_group_heads)};
}

NpuKernels stored_kernels(const std::filesystem::path& store, StoredFor whom, AirDims dims) {
  auto stored = std::make_shared<Stored>();  // shared by the functions below
  stored->store = store;
  stored->manifest = read_manifest(store);
  std::erase_if(stored->manifest.entries, [&](const KernelEntry& entry) {
    return (entry.platform == kVirtualPlatform) != (whom == StoredFor::virtual_npu);
  });
  stored->dims = dims;
  NpuKernels kernels;
  kernels.dims = dims;
  kernels.prompt_rows = prompt_rows(stored->manifest, dims);
  kernels.windows = windows(*stored);
  kernels.decode_elf = decode_elf(*stored);
  kernels.gemm_slots = gemm_slots(*stored);
  kernels.why_no_image = [stored](std::string_view program, uint32_t window) {
    return why_no_image(*stored, program, window);
  };
  kernels.is_recorded = [stored](std::string_view program, uint32_t window) {
    return stored->find(program, window) != nullptr;
  };
  kernels.image = [stored](std::string_view program, uint32_t window) {
    return read_image(*stored, program, window);
  };
  return kernels;
}

namespace {

// Beside the prompts': the LM head's image, and those that decode. Programs that are compiled here
// lie in one.
size_t other_images(const DeviceEnv& env, const NpuSettings& settings, const NpuKernels& kernels) {
  if (settings.weights == NpuWeights::q4nx) return 1 + kernels.windows.size();
  const size_t head = count_programs(kernels.dims, AirPhase::head);
  return head + (env.fusion == Fusion::block ? count_programs(kernels.dims, AirPhase::token) : 1);
}

}  // namespace

size_t count_programs(const AirDims& dims, AirPhase phase) {
  const std::vector<AirProgram> programs = air_model(dims).programs;
  return static_cast<size_t>(
      std::count_if(programs.begin(), programs.end(),
                    [&](const AirProgram& program) { return program.phase == phase; }));
}

std::vector<uint32_t> asked_rows(std::span<const uint32_t> there, std::span<const uint32_t> asked) {
  for (const uint32_t rows : asked)
    if (std::find(there.begin(), there.end(), rows) == there.end())
      throw Error(ErrorCode::usage, fmt::format("--prompt-rows {}", fmt::join(asked, ",")),
                  fmt::format("there are no prefill images of {} rows for this model", rows),
                  there.empty() ? std::string("`tyto compile --device npu` says how to build them")
                                : fmt::format("there are those of {}", fmt::join(there, ", ")));
  const std::span<const uint32_t> chosen = asked.empty() ? there : asked;
  return {chosen.begin(), chosen.end()};
}

void fit_contexts(const DeviceEnv& env, const NpuSettings& settings, NpuKernels& kernels) {
  std::vector<uint32_t>& rows = kernels.prompt_rows;
  if (rows.empty()) return;
  const size_t each = count_programs(kernels.dims, AirPhase::prompt);
  const auto others = [&] { return other_images(env, settings, kernels); };
  const auto left_out = [&](const std::string& images) {
    env.trace.fallback(
        fmt::format("{} not on {}: it has {} hardware contexts, too few for all images", images,
                    kernels.info.name, kMostContexts));
  };
  const bool has_windows = settings.weights == NpuWeights::q4nx;
  while (has_windows && kernels.windows.size() > 1 && others() + each > kMostContexts) {
    left_out(fmt::format("the decode for {} positions", kernels.windows.front()));
    kernels.windows.erase(kernels.windows.begin());
  }
  const size_t most = (kMostContexts - std::min(kMostContexts, others())) / each;
  if (rows.size() > std::max<size_t>(most, 1) && !settings.prompt_rows.empty())
    throw Error(ErrorCode::usage, fmt::format("--prompt-rows {}", fmt::join(rows, ",")),
                fmt::format("each takes {} contexts beside {} others, and there are {}", each,
                            others(), kMostContexts),
                fmt::format("give at most {} of them", std::max<size_t>(most, 1)));
  while (rows.size() > std::max<size_t>(most, 1)) {
    const auto dropped = rows.size() > 2 ? rows.end() - 2 : rows.begin();
    left_out(fmt::format("prefill images of {} rows", *dropped));
    rows.erase(dropped);
  }
}

}  // namespace tyto
