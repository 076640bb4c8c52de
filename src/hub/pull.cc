#include "hub/pull.h"

#include <chrono>
#include <map>
#include <memory>
#include <system_error>

#include "base/error.h"
#include "base/file_use.h"
#include "base/utf8.h"
#include "hub/cache_layout.h"
#include "hub/download.h"
#include "hub/http.h"
#include "model/stores/repo_files.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// Of a blob and of whatever programs write on the way to it.
uint64_t bytes_of_blob(const fs::path& blob) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(blob.parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    std::error_code gone;
    const uint64_t size = fs::file_size(it->path(), gone);
    if (!gone && it->path().filename().string().starts_with(blob.filename().string()))
      bytes += size;
  }
  return bytes;
}

// Somebody else may be fetching the same file, for as long as it takes; but it must go on.
std::unique_ptr<FileLock> lock_blob(const RepoCache& cache, const HubFile& file,
                                    const HubHooks& hooks) {
  const fs::path path = cache.lock(file);
  auto lock = FileLock::try_take(path);
  if (!lock)
    hooks.note(
        fmt::format("{}: another program is fetching it; waiting until it is done", file.path));
  uint64_t bytes = 0;
  for (Clock::time_point since = Clock::now(); !lock; lock = FileLock::try_take(path)) {
    const uint64_t now = bytes_of_blob(cache.blob(file));
    if (now != bytes) since = Clock::now();
    bytes = now;
    if (Clock::now() - since > kLongestWait)
      throw Error(ErrorCode::input, path.string(),
                  fmt::format("another program holds it, and has written nothing for {} s",
                              kLongestWait.count()),
                  "end that program, or pull later");
    pause(std::chrono::milliseconds(200), hooks);
  }
  return lock;
}

void check_hash(const fs::path& incomplete, const std::string& repo, const HubFile& file,
                const HubHooks& hooks) {
  const std::string hash = blob_hash(incomplete, file.hash.size(), [&](uint64_t bytes) {
    check_interrupted(hooks);
    if (hooks.progress) hooks.progress("checking", bytes, file.size);
  });
  if (hash == file.hash) return;
  std::error_code ignored;
  fs::remove(incomplete, ignored);
  throw Error(
      ErrorCode::input, repo + ": " + file.path,
      fmt::format("has the hash {}, but the hub lists {}; it was thrown away", hash, file.hash),
      "pull again; when it happens twice the hub, or something on the way, is at fault");
}

// Returns how many bytes it fetched: none where another program was faster.
uint64_t fetch_blob(HttpClient& client, const DownloadSource& source, const RepoCache& cache,
                    const HubHooks& hooks, const std::function<void(uint64_t bytes)>& on_bytes) {
  const HubFile& file = source.file;
  if (has_blob(cache, file)) return 0;
  make_folder(cache.blob(file).parent_path());
  const auto lock = lock_blob(cache, file, hooks);
  if (has_blob(cache, file)) return 0;
  const fs::path incomplete = cache.incomplete(file);
  const uint64_t fetched = download(client, source, incomplete, hooks, on_bytes);
  check_hash(incomplete, source.repo, file, hooks);
  fs::rename(incomplete, cache.blob(file));
  return fetched;
}

void check_space(const PullPlan& plan) {
  if (plan.missing <= plan.free) return;
  throw Error(ErrorCode::input, plan.cache.string(),
              fmt::format("{} bytes are to be fetched, and {} are free", plan.missing, plan.free),
              "make room, or set HF_HOME to a folder on another disk");
}

}  // namespace

PullPlan plan_pull(const Hub& hub, const RepoName& name, const std::string& revision,
                   const HubHooks& hooks) {
  if (!stays_below(revision))
    throw Error(ErrorCode::usage, "--revision",
                fmt::format("\"{}\" is no branch, tag or commit", printable_name(revision)));
  const HubListing listing = list_files(hub, name.repo, revision, hooks);
  std::map<std::string, HubFile> by_path;
  std::vector<std::string> paths;
  for (const HubFile& file : listing.files)
    if (by_path.emplace(file.path, file).second) paths.push_back(file.path);
  PullPlan plan;
  plan.repo = name.repo;
  plan.revision = revision;
  plan.commit = listing.commit;
  plan.cache = hub_cache_folder();
  const RepoCache cache(plan.cache, plan.repo);
  for (const std::string& path : files_of_model(paths, name.asked)) {
    const HubFile& file = by_path.at(path);
    plan.files.push_back({file, bytes_there(cache, plan.commit, file)});
    plan.bytes += file.size;
    plan.missing += file.size - plan.files.back().there;
  }
  const HubFile& first = plan.files.front().file;
  const bool is_file = plan.files.size() == 1 || first.path.ends_with(".gguf");
  plan.model = is_file ? cache.pointer(plan.commit, first) : cache.snapshot(plan.commit);
  plan.free = free_bytes(plan.cache);
  return plan;
}

uint64_t pull(const Hub& hub, const PullPlan& plan, const HubHooks& hooks) {
  check_space(plan);
  const RepoCache cache(plan.cache, plan.repo);
  HttpClient client(hub.user_agent, hub.timeout);
  uint64_t done = plan.bytes - plan.missing;
  uint64_t fetched = 0;
  for (const auto& [file, there] : plan.files) {
    if (!is_in_snapshot(cache, plan.commit, file)) {
      const DownloadSource source{hub, plan.repo, file_url(hub, plan.repo, plan.commit, file.path),
                                  file};
      fetched += fetch_blob(client, source, cache, hooks, [&, there = there](uint64_t bytes) {
        if (hooks.progress) hooks.progress("fetching", done - there + bytes, plan.bytes);
      });
      link_blob(cache, plan.commit, file);
    }
    done += file.size - there;
  }
  write_ref(cache, plan.revision, plan.commit);
  return fetched;
}

}  // namespace tyto
