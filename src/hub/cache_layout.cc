#include "hub/cache_layout.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <system_error>

#include <openssl/evp.h>

#include "base/atomic_file.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kLongestRef = 4096;

std::optional<uint64_t> size_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return std::nullopt;
  const uint64_t size = fs::file_size(path, error);
  return error ? std::nullopt : std::optional(size);
}

}  // namespace

fs::path hub_cache_folder() {
  const auto folders = hugging_face_cache_folders();
  if (folders.empty())
    throw Error(ErrorCode::usage, "HOME", "is not set, and neither is HF_HOME",
                "set one of them, so that Tyto knows where the Hugging Face cache is");
  return fs::absolute(folders.front());
}

RepoCache::RepoCache(fs::path its_root, const std::string& repo)
    : root(std::move(its_root)), folder("models--" + repo) {
  folder.replace(folder.find('/'), 1, "--");
}

fs::path RepoCache::blob(const HubFile& file) const {
  return root / folder / "blobs" / file.hash;
}

fs::path RepoCache::incomplete(const HubFile& file) const {
  return blob(file).string() + ".incomplete";
}

fs::path RepoCache::lock(const HubFile& file) const {
  const fs::path locks = root / ".locks" / folder;
  make_folder(locks);
  return locks / (file.hash + ".lock");
}

fs::path RepoCache::snapshot(const std::string& commit) const {
  return root / folder / "snapshots" / commit;
}

fs::path RepoCache::pointer(const std::string& commit, const HubFile& file) const {
  return snapshot(commit) / file.path;
}

fs::path RepoCache::ref(const std::string& revision) const {
  return root / folder / "refs" / revision;
}

uint64_t bytes_there(const RepoCache& cache, const std::string& commit, const HubFile& file) {
  if (is_in_snapshot(cache, commit, file) || size_of(cache.blob(file)) == file.size)
    return file.size;
  return std::min(size_of(cache.incomplete(file)).value_or(0), file.size);
}

bool is_in_snapshot(const RepoCache& cache, const std::string& commit, const HubFile& file) {
  return size_of(cache.pointer(commit, file)) == file.size;
}

bool has_blob(const RepoCache& cache, const HubFile& file) {
  const fs::path blob = cache.blob(file);
  std::error_code error;
  if (!fs::exists(fs::symlink_status(blob, error))) return false;
  const auto size = size_of(blob);
  if (size == file.size) return true;
  throw Error(ErrorCode::input, blob.string(),
              size ? fmt::format("has {} bytes, and {} has {}", *size, file.path, file.size)
                   : "is not a file",
              "another program left it so; remove it and pull again");
}

void link_blob(const RepoCache& cache, const std::string& commit, const HubFile& file) {
  const fs::path pointer = cache.pointer(commit, file);
  make_folder(pointer.parent_path());
  const fs::path target = fs::relative(cache.blob(file), pointer.parent_path());
  std::error_code error;
  if (fs::is_symlink(pointer, error) && fs::read_symlink(pointer, error) == target) return;
  fs::create_symlink(target, pointer, error);
  if (error)
    throw Error(ErrorCode::input, pointer.string(),
                fmt::format("cannot be made a link to {}: {}", target.string(), error.message()),
                "if something else is there, remove it and pull again");
}

void write_ref(const RepoCache& cache, const std::string& revision, const std::string& commit) {
  if (revision == commit) return;
  const fs::path ref = cache.ref(revision);
  if (size_of(ref) == commit.size() && read_text_file(ref, kLongestRef) == commit) return;
  make_folder(ref.parent_path());
  AtomicFile file(ref, Replace::own_state);
  file.write(commit);
  file.commit();
}

uint64_t free_bytes(fs::path path) {
  std::error_code error;
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  struct statvfs about = {};
  if (::statvfs(path.c_str(), &about) != 0) return UINT64_MAX;
  return uint64_t{about.f_bavail} * about.f_frsize;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_input(folder.string(), "cannot make the folder: {}", error.message());
}

namespace {

constexpr size_t kLongestPath = 1000;
constexpr size_t kLongestName = 240;  // file systems take 255 bytes, and suffixes come to it

bool is_file_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
         name != ".git";
}

}  // namespace

bool stays_below(std::string_view path) {
  if (path.size() > kLongestPath) return false;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (!is_file_name(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return std::none_of(path.begin(), path.end(),
                      [](unsigned char c) { return std::iscntrl(c) != 0; });
}

std::string blob_hash(const std::filesystem::path& path, size_t digits,
                      const std::function<void(uint64_t bytes)>& on_bytes) {
  constexpr size_t kStep = 8 << 20;
  const auto free_context = [](EVP_MD_CTX* context) { EVP_MD_CTX_free(context); };
  const std::unique_ptr<EVP_MD_CTX, decltype(free_context)> context(EVP_MD_CTX_new(), free_context);
  if (context == nullptr) throw std::bad_alloc();
  const bool is_git = digits == 40;
  TYTO_ASSERT(EVP_DigestInit_ex(context.get(), is_git ? EVP_sha1() : EVP_sha256(), nullptr) == 1);
  const MappedFile file(path);
  if (is_git) {
    const std::string header = fmt::format("blob {}", file.bytes().size());
    EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1);
  }
  for (size_t at = 0; at < file.bytes().size(); at += kStep) {
    const auto bytes = file.bytes().subspan(at, std::min(kStep, file.bytes().size() - at));
    EVP_DigestUpdate(context.get(), bytes.data(), bytes.size());
    release_mapped_pages(bytes);
    if (on_bytes) on_bytes(at + bytes.size());
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> hash = {};
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), hash.data(), &size);
  std::string text;
  for (const unsigned char byte : std::span(hash).first(size)) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace tyto
