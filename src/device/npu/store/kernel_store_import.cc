#include <sys/stat.h>

#include <algorithm>
#include <list>
#include <set>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/hash.h"
#include "base/joined.h"
#include "base/round_up.h"
#include "base/utc_time.h"
#include "device/npu/formats/air_models.h"
#include "device/npu/formats/int8_gemm.h"
#include "device/npu/formats/q4nx_layout.h"
#include "device/npu/store/build_folder.h"
#include "device/npu/store/kernel_store.h"

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
  if (found.program == kInt8Gemm) return fmt::format("int8/gemm_k{}", found.window);
  const bool usual = shape.dims.seq == kLlama32_1b.seq;
  return fmt::format("{}{}/{}", shape.name, usual ? "" : fmt::format("@{}", shape.dims.seq),
                     found.window != 0 ? fmt::format("decode_L{}", found.window) : found.program);
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

// The facts of its images, after those of an xclbin and its words were seen to go together.
void add_facts(KernelEntry& entry, const FoundKernel& found) {
  const bool is_virtual = found.images.front().facts.platform == kVirtualPlatform;
  entry.platform = found.images.front().facts.platform;
  for (const FoundImage& image : found.images) {
    if ((image.facts.platform == kVirtualPlatform) != is_virtual)
      fail_input(image.path.string(), "{} image beside {}",
                 is_virtual ? "a real" : "a virtual NPU's",
                 found.images.front().path.filename().string());
    if (image.facts.elf) {
      entry.columns = image.facts.elf->columns;
      entry.run_bytes = image.facts.elf->instance_of(entry.entry)->run_bytes;
    }
    if (image.facts.instructions) entry.run_bytes = round_up(image.bytes, kHeapPiece);
  }
}

// Throws an Error where an image contradicts the shape.
KernelEntry fitted(const FoundKernel& found, const NamedDims& shape) {
  KernelEntry entry = described(found, shape);
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
    check_fit(image.facts, program, shape, image.path.string());
    if (image.kind == ImageKind::insts) words.push_back(&image);
  }
  if (found.program == kFusedDecode) {
    if (found.flags != kFlagsNotRecorded)
      check_q4nx_flags(found.flags, shape.dims, (found.folder / ".decode_flags").string());
    check_lengths(words[0]->facts, words[1]->facts, found.window, shape, words[0]->path.string());
  }
  add_facts(entry, found);
  return entry;
}

// Of a shape, with the prompt's length that was given, or that a folder's name or an image tells.
std::vector<KernelEntry> fitted_all(const BuildFolder& build, NamedDims shape,
                                    std::optional<uint32_t> seq) {
  std::vector<KernelEntry> entries;
  const uint32_t usual = shape.dims.seq;
  for (const FoundKernel& found : build.kernels) {
    const std::optional<AirDims>& made_for = found.images.front().facts.dims;
    const uint32_t of_image = made_for && made_for->seq != 0 ? made_for->seq : usual;
    shape.dims.seq = seq.value_or(found.seq.value_or(of_image));
    entries.push_back(fitted(found, shape));
  }
  return entries;
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

std::vector<KernelEntry> fitted_to_any(const BuildFolder& build, const fs::path& folder,
                                       const ImportOptions& options) {
  std::vector<NamedDims> shapes = options.shapes;
  if (shapes.size() > 1)
    if (const auto told = shape_in_images(build, shapes)) shapes = {*told};
  if (shapes.size() == 1) return fitted_all(build, shapes.front(), options.seq);
  const bool is_for_any =
      std::all_of(build.kernels.begin(), build.kernels.end(),
                  [](const FoundKernel& found) { return found.program == kInt8Gemm; });
  std::vector<KernelEntry> entries;
  std::vector<std::string> names;
  std::string first_misfit;
  for (const NamedDims& shape : shapes) {
    try {
      std::vector<KernelEntry> candidate = fitted_all(build, shape, options.seq);
      if (names.empty()) entries = std::move(candidate);
      names.push_back(shape.name);
      if (is_for_any) return entries;
    } catch (const Error& error) {
      if (first_misfit.empty()) first_misfit = shape.name + ": " + error.what();
    }
  }
  if (names.size() == 1) return entries;
  if (names.empty())
    throw Error(ErrorCode::input, folder.string(), "fits no model that Tyto knows; " + first_misfit,
                "`--shape NAME` says why it is not that one");
  throw Error(ErrorCode::input, folder.string(),
              "its images do not tell for which of these it is: " + joined(names), "give --shape");
}

// What in the images could not be compared.
void note_unread(const BuildFolder& build, std::vector<std::string>& notes) {
  for (const FoundKernel& found : build.kernels)
    for (const FoundImage& image : found.images)
      if (image.facts.instructions && !image.facts.instructions->not_read.empty())
        notes.push_back(fmt::format("{}: which bytes it touches was not compared: {}",
                                    image.path.string(), image.facts.instructions->not_read));
}

std::vector<Planned> planned(const BuildFolder& build, const fs::path& folder,
                             const ImportOptions& options) {
  std::vector<KernelEntry> entries = fitted_to_any(build, folder, options);
  std::vector<Planned> plan;
  std::set<std::string> names;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!names.insert(entries[i].name).second)
      throw Error(ErrorCode::input, folder.string(), entries[i].name + " is in it twice",
                  "import one build at a time");
    entries[i].imported_at = utc_now();
    plan.push_back({std::move(entries[i]), {}});
    for (const FoundImage& image : build.kernels[i].images)
      plan.back().sources.push_back(image.path);
  }
  return plan;
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
  std::vector<Planned> plan = planned(build, folder, options);
  read_manifest(store);  // a damaged one is reported before anything is created

  std::error_code error;
  fs::create_directories(store / "images", error);
  if (error) fail_input((store / "images").string(), "cannot create: {}", error.message());
  const FileLock lock(lock_path(store));
  KernelManifest manifest = read_manifest(store);
  NewFiles created;
  std::vector<KernelEntry> replaced;
  ImportReport report;
  for (Planned& item : plan) {
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
                "`tyto kernels rm` those of another K first");
  created.unrecorded.clear();
  write_manifest(store, manifest);
  created.keep = true;
  report.images_written = created.paths.size();
  report.notes = std::move(build.notes);
  note_unread(build, report.notes);
  delete_unused_images(store, replaced, manifest);
  return report;
}

}  // namespace tyto
