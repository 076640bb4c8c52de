#include "base/hash.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <xxhash.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"

namespace tyto {
namespace {

Hash128 value_of(const XXH128_hash_t& hash) {
  return {hash.high64, hash.low64};
}

}  // namespace

Hash128 hash_bytes(std::span<const std::byte> bytes) {
  return value_of(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

Hasher::Hasher()
    : state_(XXH3_createState(), [](XXH3_state_t* state) { (void)XXH3_freeState(state); }) {
  if (!state_) throw std::bad_alloc();
  (void)XXH3_128bits_reset(state_.get());
}

void Hasher::add(std::span<const std::byte> bytes) {
  (void)XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

Hash128 Hasher::hash() const {
  return value_of(XXH3_128bits_digest(state_.get()));
}

namespace {

namespace fs = std::filesystem;

constexpr size_t kPieceBytes = 4 << 20;
constexpr uint64_t kMostKeptBytes = 128 << 10;  // some 700 files
constexpr const char* kChanged = "changed while it was in use";

std::string key_of(const FileStamp& stamp) {
  return fmt::format(R"("device":{},"inode":{},"size":{},"mtime_ns":{},"ctime_ns":{})",
                     stamp.device, stamp.inode, stamp.size, stamp.modified_ns, stamp.changed_ns);
}

// The newest line counts.
std::optional<std::string> find_kept(const FileStamp& stamp, const fs::path& kept) try {
  const std::string lines = read_last_lines(kept, kMostKeptBytes);
  const std::string wanted = "{" + key_of(stamp) + ",\"hash\":\"";
  const size_t at = lines.rfind(wanted);
  if (at == std::string::npos || (at > 0 && lines[at - 1] != '\n')) return std::nullopt;
  const std::string_view rest = std::string_view(lines).substr(at);
  const Json line = Json::parse(rest.substr(0, rest.find('\n')), kept.string());
  std::string hash(line.at("hash").as_string());
  const bool is_hash =
      hash.size() == 32 && hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  return is_hash ? std::optional(hash) : std::nullopt;
} catch (const Error&) {
  return std::nullopt;  // not there, not readable, or damaged
}

void keep(const FileStamp& stamp, const std::string& hash, const fs::path& kept) try {
  const std::string line = fmt::format(R"({{{},"hash":"{}"}})", key_of(stamp), hash);
  std::error_code ignored;
  if (fs::exists(kept, ignored) && fs::file_size(kept, ignored) > kMostKeptBytes) {
    AtomicFile file(kept, Replace::own_state);  // what another process adds meanwhile is made again
    file.write(read_last_lines(kept, kMostKeptBytes / 2));
    file.commit();
  }
  append_line(kept, line);
} catch (const Error&) {
  // A cache that cannot be written is no reason to stop.
}

std::string read_and_hash(const MappedFile& file,
                          const std::function<void(uint64_t bytes)>& on_bytes) {
  Hasher hasher;
  std::vector<std::byte> piece(std::min(kPieceBytes, file.bytes().size()));
  uint64_t done = 0;
  if (on_bytes) on_bytes(0);  // something to look at while the first piece is read
  while (done < file.bytes().size()) {
    const ssize_t got =
        ::pread(file.descriptor(), piece.data(), piece.size(), static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail_input(file.path().string(), "{}", kChanged);
    hasher.add(std::span(piece).first(static_cast<size_t>(got)));
    done += static_cast<uint64_t>(got);
    if (on_bytes) on_bytes(static_cast<uint64_t>(got));
  }
  return to_hex(hasher.hash());
}

// Another name or other permissions are no other content.
void check_content(const MappedFile& file, const FileStamp& now) {
  if (now.size != file.stamp().size || now.modified_ns != file.stamp().modified_ns)
    fail_input(file.path().string(), "{}", kChanged);
}

}  // namespace

FileHash hash_of_file(const MappedFile& file, const fs::path& kept,
                      const std::function<void(uint64_t bytes)>& on_bytes) {
  const FileStamp before = file.stamp_now();
  check_content(file, before);
  const bool keeps = !kept.empty() && is_settled(before);
  if (keeps)
    if (auto hash = find_kept(before, kept)) return {*hash, true};
  FileHash result{read_and_hash(file, on_bytes)};
  const FileStamp after = file.stamp_now();
  check_content(file, after);
  if (keeps && after == before) keep(before, result.hash, kept);
  return result;
}

}  // namespace tyto
