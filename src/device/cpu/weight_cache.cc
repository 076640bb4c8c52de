#include "device/cpu/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "device/cpu/huge_pages.h"
#include "trace/span.h"

namespace tyto::cpu {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".packed";

bool is_locked(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return false;
  const bool is_free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
  ::close(descriptor);
  return !is_free;
}

std::string why_stale(const PackedTables& tables) {
  const auto now = file_stamp(tables.source_path);
  if (!now) return "its weight file is gone";
  return *now == tables.source ? "" : "its weight file has changed";
}

std::optional<KeptFile> described(const fs::path& path) {
  const auto stamp = file_stamp(path);
  if (!stamp) return std::nullopt;
  KeptFile result{.path = path,
                  .bytes = stamp->size,
                  .used_ns = stamp->modified_ns,
                  .source = {},
                  .stale = {},
                  .is_in_use = is_locked(path)};
  try {
    const PackedTables tables = read_packed_tables(MappedFile(path));
    result.source = tables.source_path;
    result.stale = why_stale(tables);
  } catch (const Error& error) {
    result.stale = error.what();
  }
  return result;
}

}  // namespace

fs::path weight_cache_folder() {
  return cache_folder() / "packed-weights";
}

fs::path kept_path(const fs::path& folder, const FileStamp& source) {
  return folder / (to_hex(hash_bytes(std::as_bytes(std::span(&source, 1)))) + kEnding);
}

std::vector<KeptFile> kept_files(const fs::path& folder) {
  std::vector<KeptFile> result;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == kEnding)
      if (auto file = described(it->path())) result.push_back(*std::move(file));
  std::ranges::sort(result, {}, &KeptFile::used_ns);
  return result;
}

std::vector<KeptFile> make_room(const fs::path& folder, uint64_t wanted, uint64_t limit) {
  std::vector<KeptFile> files = kept_files(folder);
  std::ranges::stable_sort(files, std::ranges::greater(),
                           [](const KeptFile& file) { return !file.stale.empty(); });
  uint64_t kept = 0, held = wanted;
  for (const KeptFile& file : files) {
    kept += file.bytes;
    if (file.is_in_use) held += file.bytes;
  }
  if (held > limit)
    throw Error(ErrorCode::input, folder.string(),
                fmt::format("{} bytes are wanted or in use, and {} may be kept", held, limit),
                "allow more with --limit");
  std::vector<KeptFile> removed;
  for (const KeptFile& file : files) {
    if (kept + wanted <= limit) break;
    std::error_code error;
    if (file.is_in_use || !fs::remove(file.path, error)) continue;
    kept -= file.bytes;
    removed.push_back(file);
  }
  return removed;
}

std::vector<KeptFile> clear_kept(const fs::path& folder, bool only_stale) {
  std::vector<KeptFile> removed;
  for (const KeptFile& file : kept_files(folder)) {
    if (only_stale && file.stale.empty()) continue;
    std::error_code error;
    if (!fs::remove(file.path, error))
      fail_input(file.path.string(), "cannot be removed: {}", error.message());
    removed.push_back(file);
  }
  std::vector<fs::path> targets;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().stem().extension() == kEnding) targets.push_back(folder / it->path().stem());
  for (const fs::path& target : targets) remove_left_over(target);
  return removed;
}

KeptWeights::KeptWeights(std::span<const MappedFile> sources, Trace& trace) : trace_(trace) {
  for (const MappedFile& file : sources) sources_.push_back({&file, false, nullptr});
}

void KeptWeights::open(Source& source, ThreadPool& pool) try {
  source.is_looked_for = true;
  fs::path path;
  try {
    path = kept_path(weight_cache_folder(), source.file->stamp());
  } catch (const Error&) {
    return;  // no home, no cache
  }
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  SetupTimer timer(trace_, "packed weights read from the cache");
  auto packed = std::make_shared<const PackedFile>(path, *source.file, pool);
  if (!is_in_huge_pages(packed->body())) {
    trace_.fallback(
        fmt::format("weights packed again: {} is mapped in small pages, which slow every token",
                    path.string()));
    return;
  }
  source.packed = std::move(packed);
} catch (const Error& error) {
  trace_.fallback(fmt::format("weights packed again: {}", error.what()));
}

std::optional<PackedWeights> KeptWeights::find(const TensorView& view, ThreadPool& pool) {
  for (Source& source : sources_) {
    const auto bytes = source.file->bytes();
    if (bytes.empty() || view.bytes.data() < bytes.data() ||
        view.bytes.data() >= bytes.data() + bytes.size())
      continue;
    if (!source.is_looked_for) open(source, pool);
    const uint8_t* panels = source.packed ? source.packed->find(view) : nullptr;
    if (panels == nullptr) return std::nullopt;
    PackedWeights result;
    result.matrix = {view.dtype, view.rows, view.cols, panels};
    result.bytes = result.matrix.panel_count() * packed_layout(view.dtype).panel_size(view.cols);
    result.memory = std::const_pointer_cast<PackedFile>(source.packed);
    return result;
  }
  return std::nullopt;
}

}  // namespace tyto::cpu
