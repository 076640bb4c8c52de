#include "device/cpu/weight_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/round_up.h"
#include "device/cpu/packed_weights.h"
#include "trace/trace.h"

namespace tyto::cpu {
namespace {

// The number of kilobytes in a line like "FilePmdMapped:    2048 kB" of the text.
uint64_t kilobytes_of(std::string_view text, std::string_view field) {
  const size_t at = text.find(field);
  if (at == std::string_view::npos) return 0;
  const size_t digit = text.find_first_of("0123456789", at + field.size());
  uint64_t value = 0;
  if (digit != std::string_view::npos)
    std::from_chars(text.data() + digit, text.data() + text.size(), value);
  return value;
}

}  // namespace

std::shared_ptr<void> zeroed_huge_pages(size_t bytes) {
  const size_t size = round_up(bytes, kHugePage);
  // A page more than asked for, so that a huge page's boundary lies inside.
  void* memory = ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(ErrorCode::device, "cpu", fmt::format("cannot reserve {} bytes", size),
                "`--isa generic` runs the weights as the file has them");
  const std::shared_ptr<void> owner(memory, [size](void* p) { ::munmap(p, size + kHugePage); });
  void* aligned = reinterpret_cast<void*>(round_up(reinterpret_cast<uintptr_t>(memory), kHugePage));
  // Refused where the system has no huge pages: then small ones do.
  if (bytes >= kHugePage) (void)::madvise(aligned, size, MADV_HUGEPAGE);
  return {owner, aligned};
}

void ask_for_huge_pages(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  // Refused where the system has none for files.
  (void)::madvise(const_cast<std::byte*>(mapped.data()), mapped.size(), MADV_HUGEPAGE);
}

bool is_in_huge_pages(std::span<const std::byte> mapped) {
  constexpr size_t kMostText = 64 << 20;
  const std::string text = read_system_text("/proc/self/smaps", kMostText).text;
  uint64_t huge = 0;
  // The mapping may have become several, each of which begins with a line of its addresses.
  for (size_t at = 0; at < text.size();) {
    uintptr_t first = 0;
    std::from_chars(text.data() + at, text.data() + text.size(), first, 16);
    const size_t flags = text.find("\nVmFlags:", at);
    const size_t end = flags == std::string::npos ? text.size() : text.find('\n', flags + 1);
    const auto begin = reinterpret_cast<uintptr_t>(mapped.data());
    if (first >= begin && first < begin + mapped.size())
      huge += kilobytes_of(std::string_view(text).substr(at, end - at), "\nFilePmdMapped:") << 10;
    at = end == std::string::npos ? text.size() : end + 1;
  }
  return huge >= mapped.size() / 10 * 9;
}

namespace {

constexpr std::array<char, 8> kMagic = {'t', 'y', 't', 'o', 'p', 'k', '0', '1'};
constexpr uint64_t kAlignment = 4096;  // where each matrix begins
// Written at once: a write of whole huge pages is cached in such pages.
constexpr size_t kStageBytes = 16 * kHugePage;
constexpr size_t kSampleBytes = 512;

struct Trailer {
  std::array<char, 8> magic;
  uint64_t tables_bytes;
  Hash128 tables;  // those bytes'
};

struct Counts {
  uint64_t body_bytes, matrices, pages, path_bytes;
};

class TableWriter {
 public:
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void add(std::span<const T> values) {
    const auto bytes = std::as_bytes(values);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class TableReader {
 public:
  TableReader(std::span<const std::byte> bytes, std::string place)
      : rest_(bytes), place_(std::move(place)) {}

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  std::vector<T> read(uint64_t count) {
    if (count > rest_.size() / sizeof(T)) fail_input(place_, "its tables end too early");
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), rest_.data(), count * sizeof(T));
    rest_ = rest_.subspan(count * sizeof(T));
    return values;
  }
  bool is_done() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  std::string place_;
};

uint64_t packed_bytes(DType type, uint64_t rows, uint64_t cols) {
  const PackedLayout layout = packed_layout(type);
  return (rows + layout.panel_rows - 1) / layout.panel_rows * layout.panel_size(cols);
}

// From the beginning, the middle and the end.
Hash128 sample_of(std::span<const std::byte> bytes) {
  Hasher hasher;
  const size_t size = std::min(kSampleBytes, bytes.size());
  for (size_t at : {size_t{0}, (bytes.size() - size) / 2, bytes.size() - size})
    hasher.add(bytes.subspan(at, size));
  return hasher.hash();
}

std::vector<std::byte> table_bytes(const PackedTables& tables) {
  TableWriter out;
  const Counts counts{tables.body_bytes, tables.matrices.size(), tables.pages.size(),
                      tables.source_path.size()};
  out.add(std::span(&tables.source, 1));
  out.add(std::span(&counts, 1));
  out.add(std::span(tables.matrices));
  out.add(std::span(tables.pages));
  out.add(std::span(tables.source_path));
  return {out.bytes().begin(), out.bytes().end()};
}

// Packed panels in the order in which they come, hashed and written in whole huge pages.
class BodyWriter {
 public:
  BodyWriter(AtomicFile& file, ThreadPool& pool) : file_(file), pool_(pool), stage_(kStageBytes) {}

  uint64_t position() const { return file_.position() + used_; }

  void add(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const size_t piece = std::min(bytes.size(), kStageBytes - used_);
      std::memcpy(stage_.data() + used_, bytes.data(), piece);
      used_ += piece;
      bytes = bytes.subspan(piece);
      if (used_ == kStageBytes) flush();
    }
  }

  void pad_to(uint64_t alignment) {
    static constexpr std::array<std::byte, kAlignment> kZeros{};
    while (position() % alignment != 0)
      add(std::span(kZeros).first(
          std::min<uint64_t>(kZeros.size(), alignment - position() % alignment)));
  }

  std::vector<Hash128> finish() {
    pad_to(kHugePage);
    flush();
    return std::move(pages_);
  }

 private:
  void flush() {
    const size_t first = pages_.size(), count = used_ / kHugePage;
    pages_.resize(first + count);
    pool_.parallel_for(count, 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i)
        pages_[first + i] = hash_bytes(std::span(stage_).subspan(i * kHugePage, kHugePage));
    });
    file_.write(std::span(stage_).first(used_));
    used_ = 0;
  }

  AtomicFile& file_;
  ThreadPool& pool_;
  std::vector<std::byte> stage_;
  size_t used_ = 0;
  std::vector<Hash128> pages_;
};

// How this program lays out a type: the hash of a small matrix, packed. No version has to be
// raised by hand.
Hash128 layout_hash(DType type) {
  const uint64_t rows = packed_layout(type).panel_rows + 1;
  const uint64_t cols = 2 * std::max<uint64_t>(info(type).block_values, 64);
  std::vector<std::byte> bytes(rows * row_bytes(type, cols));
  uint32_t state = 1;  // any bytes do, as long as they are always the same
  for (std::byte& byte : bytes)
    byte = static_cast<std::byte>((state = state * 1664525 + 1013904223) >> 24);
  ThreadPool alone(1);
  const PackedWeights packed = pack_weights({type, rows, cols, bytes}, alone);
  return hash_bytes({reinterpret_cast<const std::byte*>(packed.matrix.panels), packed.bytes});
}

// Each made once.
class LayoutHashes {
 public:
  const Hash128& of(DType type) {
    const auto [place, is_new] = known_.try_emplace(type);
    if (is_new) place->second = layout_hash(type);
    return place->second;
  }

 private:
  std::map<DType, Hash128> known_;
};

void check_settled(const MappedFile& source) {
  const FileStamp now = source.stamp_now();
  if (now != source.stamp()) fail_input(source.path().string(), "changed while it was in use");
  if (!is_settled(now))
    throw Error(ErrorCode::input, source.path().string(),
                "changed within the last two seconds, or in the future",
                "wait until nothing writes it any more, and try again");
}

void check_matrix(const KeptMatrix& matrix, uint64_t body_bytes, const std::string& place) {
  const auto type = static_cast<DType>(matrix.type);
  const bool is_known = matrix.type <= UINT8_MAX && can_pack(type);
  constexpr uint64_t kMost = uint64_t{1} << 31;  // no product of two such overflows
  if (!is_known || matrix.rows == 0 || matrix.cols == 0 || matrix.rows > kMost ||
      matrix.cols > kMost || matrix.offset % kAlignment != 0 || matrix.offset > body_bytes ||
      packed_bytes(type, matrix.rows, matrix.cols) > body_bytes - matrix.offset)
    fail_input(place, "its tables name a matrix that is not there");
}

}  // namespace

PackedTables read_packed_tables(const MappedFile& file) {
  const std::string place = file.path().string();
  const auto bytes = file.bytes();
  Trailer trailer = {};
  if (bytes.size() < sizeof trailer) fail_input(place, "it is too short");
  std::memcpy(&trailer, bytes.data() + bytes.size() - sizeof trailer, sizeof trailer);
  const uint64_t before = bytes.size() - sizeof trailer;
  if (trailer.magic != kMagic || trailer.tables_bytes > before)
    fail_input(place, "its end is missing, or another version wrote it");
  const auto tables = bytes.subspan(before - trailer.tables_bytes, trailer.tables_bytes);
  if (hash_bytes(tables) != trailer.tables) fail_input(place, "its tables are damaged");
  TableReader in(tables, place);
  PackedTables result;
  result.source = in.read<FileStamp>(1).front();
  const Counts counts = in.read<Counts>(1).front();
  result.body_bytes = counts.body_bytes;
  result.matrices = in.read<KeptMatrix>(counts.matrices);
  result.pages = in.read<Hash128>(counts.pages);
  const auto path = in.read<char>(counts.path_bytes);
  result.source_path.assign(path.begin(), path.end());
  if (!in.is_done() || result.body_bytes != before - trailer.tables_bytes ||
      result.body_bytes != result.pages.size() * kHugePage)
    fail_input(place, "its tables do not fit its size");
  for (const KeptMatrix& matrix : result.matrices) check_matrix(matrix, result.body_bytes, place);
  return result;
}

PackedFile::PackedFile(const std::filesystem::path& path, const MappedFile& source,
                       ThreadPool& pool)
    : file_(path), tables_(read_packed_tables(file_)), source_(source.bytes()) {
  if (tables_.source != source.stamp()) fail_input(path.string(), "it is of another weight file");
  // `tyto cache` sees by these who uses it, and when it was last used; neither is needed to run.
  (void)::flock(file_.descriptor(), LOCK_SH | LOCK_NB);
  (void)::futimens(file_.descriptor(), nullptr);
  ask_for_huge_pages(body());
  std::atomic<bool> is_whole = true;
  pool.parallel_for(tables_.pages.size(), 4, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i)
      if (hash_bytes(body().subspan(i * kHugePage, kHugePage)) != tables_.pages[i])
        is_whole.store(false, std::memory_order_relaxed);
  });
  if (!is_whole) fail_input(path.string(), "its panels are damaged");
  LayoutHashes layouts;
  std::erase_if(tables_.matrices, [&](const KeptMatrix& matrix) {
    return matrix.layout != layouts.of(static_cast<DType>(matrix.type));
  });
}

const uint8_t* PackedFile::find(const TensorView& view) const {
  const std::byte* first = source_.data();
  if (view.bytes.data() < first || view.bytes.data() + view.bytes.size() > first + source_.size())
    return nullptr;
  const auto offset = static_cast<uint64_t>(view.bytes.data() - first);
  for (const KeptMatrix& matrix : tables_.matrices)
    if (matrix.source_offset == offset && matrix.type == static_cast<uint64_t>(view.dtype) &&
        matrix.rows == view.rows && matrix.cols == view.cols &&
        matrix.sample == sample_of(view.bytes))
      return reinterpret_cast<const uint8_t*>(body().data() + matrix.offset);
  return nullptr;
}

uint64_t packed_file_bytes(std::span<const TensorView> matrices) {
  uint64_t bytes = 0;
  for (const TensorView& view : matrices)
    bytes = round_up(bytes, kAlignment) + packed_bytes(view.dtype, view.rows, view.cols);
  return round_up(bytes, uint64_t{kHugePage});
}

uint64_t write_packed_file(const std::filesystem::path& path, const MappedFile& source,
                           std::span<const TensorView> matrices, ThreadPool& pool,
                           const Progress& progress) {
  check_settled(source);
  AtomicFile file(path, Replace::own_state);
  BodyWriter body(file, pool);
  PackedTables tables;
  tables.source = source.stamp();
  tables.source_path = std::filesystem::absolute(source.path()).string();
  LayoutHashes layouts;
  for (const TensorView& view : matrices) {
    TYTO_ASSERT(view.bytes.data() >= source.bytes().data());
    if (progress) progress("packing the weights", body.position(), packed_file_bytes(matrices));
    body.pad_to(kAlignment);
    tables.matrices.push_back(
        {.source_offset = static_cast<uint64_t>(view.bytes.data() - source.bytes().data()),
         .rows = view.rows,
         .cols = view.cols,
         .offset = body.position(),
         .type = static_cast<uint64_t>(view.dtype),
         .layout = layouts.of(view.dtype),
         .sample = sample_of(view.bytes)});
    const PackedWeights packed = pack_weights(view, pool);
    body.add({reinterpret_cast<const std::byte*>(packed.matrix.panels), packed.bytes});
  }
  tables.pages = body.finish();
  tables.body_bytes = body.position();
  const std::vector<std::byte> bytes = table_bytes(tables);
  file.write(bytes);
  const Trailer trailer{kMagic, bytes.size(), hash_bytes(bytes)};
  file.write(std::as_bytes(std::span(&trailer, 1)));
  check_settled(source);
  if (progress) progress("writing them to the disk", 0, 0);
  const uint64_t size = file.position();
  file.commit();
  return size;
}

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

std::shared_ptr<const PackedWeights> PackedStore::pack(const TensorView& view, ThreadPool& pool) {
  std::weak_ptr<const PackedWeights>& entry = by_address_[view.bytes.data()];
  std::shared_ptr<const PackedWeights> packed = entry.lock();
  if (packed != nullptr && packed->matrix.type == view.dtype && packed->matrix.rows == view.rows &&
      packed->matrix.k == view.cols)
    return packed;
  if (auto kept = kept_.find(view, pool)) {
    packed = std::make_shared<PackedWeights>(*std::move(kept));
  } else {
    packed = std::make_shared<PackedWeights>(pack_weights(view, pool));
    release_mapped_pages(view.bytes);  // the copy takes their place in memory
  }
  entry = packed;
  return packed;
}

}  // namespace tyto::cpu
