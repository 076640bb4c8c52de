#include "device/npu/store/kernel_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/hash.h"

namespace tyto {
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
  if (entry.platform != kVirtualPlatform || image.kind == ImageKind::insts) return std::nullopt;
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
  for (const ImageKind kind : {ImageKind::elf, ImageKind::xclbin, ImageKind::insts}) {
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

}  // namespace tyto
