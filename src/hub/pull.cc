#include "hub/pull.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "hub/cache_layout.h"
#include "hub/http.h"
#include "hub/hub_api.h"
#include "model/stores/repo_files.h"

namespace tyto {

// One file of a repository, from where its .incomplete ends.
//
// Bytes reach the disk in order, so that the .incomplete is always the file's beginning, whatever
// ends the program: going on is asking for the rest. Large files come in ranges over several
// connections, because hubs and the way to them limit a connection more than a client; later
// ranges wait in memory for the first (kMostPieces * kPieceBytes at most).

inline constexpr uint64_t kPieceBytes = 8 << 20;
inline constexpr size_t kMostPieces = 8;
inline constexpr size_t kConnections = 4;
// What is left of a file is fetched over one connection when it is no more than this.
inline constexpr uint64_t kSmallBytes = kPieceBytes * 2;

struct DownloadSource {
  const Hub& hub;
  std::string repo;
  std::string url;  // at the hub, which may redirect elsewhere
  HubFile file;
};

// Returns when `incomplete` has the size that the hub's list says; whether it has the content is
// for the caller to find out. `on_bytes` is told how much of the file there is; returned is how
// much of it was fetched now.
uint64_t download(HttpClient& client, const DownloadSource& source,
                  const std::filesystem::path& incomplete, const HubHooks& hooks,
                  const std::function<void(uint64_t bytes)>& on_bytes);

namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMostRedirects = 5;
constexpr std::chrono::milliseconds kStep(100);
constexpr uint64_t kMostIgnoredBytes = 1 << 20;  // the pages' that errors come with

struct Piece {
  HttpRange bytes;
  uint64_t received = 0;
  uint64_t to_skip = 0;     // where an answer begins with the file instead of with the range
  std::string buffer = {};  // what was received while another piece was first
  std::string url = {};     // where it is asked for; empty: where the download is
  unsigned redirects = 0;   // since it last began or failed
  bool is_running = false;
  bool has_begun = false;  // its present answer

  uint64_t position() const { return bytes.begin + received; }
  bool is_complete() const { return position() == bytes.end; }
};

// "bytes 100-199/5000"
struct ContentRange {
  uint64_t first = 0;
  uint64_t total = 0;
};

std::optional<ContentRange> content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  const size_t slash = text.find('/');
  if (!text.starts_with(kUnit) || slash == std::string_view::npos) return std::nullopt;
  ContentRange range;
  const auto number = [&](size_t begin, uint64_t& value) {
    const char* const end = text.data() + text.size();
    return std::from_chars(text.data() + begin, end, value).ec == std::errc();
  };
  if (!number(kUnit.size(), range.first) || !number(slash + 1, range.total)) return std::nullopt;
  return range;
}

class Download {
 public:
  Download(HttpClient& client, const DownloadSource& source,
           const std::filesystem::path& incomplete, const HubHooks& hooks)
      : client_(client),
        source_(source),
        path_(incomplete),
        hooks_(hooks),
        place_(source.repo + ": " + source.file.path),
        url_(source.url),
        attempts_(source.hub.retries) {
    open_file();
  }

  ~Download() {
    client_.cancel_all();
    ::close(descriptor_);
  }

  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  uint64_t run(const std::function<void(uint64_t bytes)>& on_bytes) {
    const uint64_t before = written_;
    while (written_ < size()) {
      start_requests();
      for (const auto& [id, answer] : client_.wait(kStep)) take_end(id, answer);
      check_interrupted(hooks_);
      on_bytes(std::accumulate(
          pieces_.begin(), pieces_.end(), written_,
          [](uint64_t sum, const Piece& piece) { return sum + piece.buffer.size(); }));
    }
    // A file of the right size is taken for whole from now on, even after the power went.
    if (::fdatasync(descriptor_) != 0) fail_to_write();
    return written_ - before;
  }

 private:
  uint64_t size() const { return source_.file.size; }

  void open_file() {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (descriptor_ < 0) fail_input(path_.string(), "cannot open: {}", std::strerror(errno));
    written_ = static_cast<uint64_t>(::lseek(descriptor_, 0, SEEK_END));
    if (written_ > size()) {
      if (::ftruncate(descriptor_, 0) != 0) fail_to_write();
      written_ = 0;
    }
    next_ = written_;
  }

  [[noreturn]] void fail_to_write() const {
    throw Error(ErrorCode::input, path_.string(),
                fmt::format("cannot write: {}; {} of {} bytes are there", std::strerror(errno),
                            written_, size()),
                "make room, and the same command goes on from there");
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count =
          ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(written_));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) fail_to_write();
      bytes.remove_prefix(static_cast<size_t>(count));
      written_ += static_cast<uint64_t>(count);
    }
  }

  void start_requests() {
    if (Clock::now() < not_before_) return;
    const size_t most = serves_ranges_ ? kConnections : 1;
    for (Piece& piece : pieces_)
      if (!piece.is_running && !piece.is_complete() && running_.size() < most) start(piece);
    while (running_.size() < most && pieces_.size() < kMostPieces && next_ < size()) {
      const uint64_t left = size() - next_;
      const uint64_t end = next_ + (left <= kSmallBytes ? left : kPieceBytes);
      pieces_.push_back({.bytes = {next_, end}});
      next_ = end;
      start(pieces_.back());
    }
  }

  void start(Piece& piece) {
    if (piece.url.empty()) piece.url = url_;
    HttpRequest request{.url = piece.url, .token = token_for(source_.hub, piece.url)};
    if (piece.position() > 0 || piece.bytes.end < size())
      request.range = {piece.position(), piece.bytes.end};
    piece.is_running = true;
    piece.has_begun = false;
    ignored_ = 0;
    const auto sink = [this, &piece](const HttpAnswer& head, std::span<const std::byte> bytes) {
      take(piece, head, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    };
    running_.emplace(client_.start(request, sink), &piece);
  }

  // Called inside a transfer.
  void take(Piece& piece, const HttpAnswer& head, std::string_view bytes) {
    if (head.status != 200 && head.status != 206) {
      ignored_ += bytes.size();
      if (ignored_ > kMostIgnoredBytes)
        fail_input(place_, "the answer {} comes with an endless page", head.status);
      return;
    }
    if (!piece.has_begun) begin(piece, head);
    const size_t skipped = std::min<uint64_t>(piece.to_skip, bytes.size());
    piece.to_skip -= skipped;
    bytes.remove_prefix(skipped);
    if (bytes.size() > piece.bytes.end - piece.position())
      fail_input(place_, "the hub sends more bytes than the {} that it lists", size());
    if (bytes.empty()) return;
    attempts_.start_anew();
    if (&piece == &pieces_.front()) {
      write(bytes);
    } else {
      piece.buffer.reserve(piece.bytes.end - piece.bytes.begin);
      piece.buffer.append(bytes);
    }
    piece.received += bytes.size();
  }

  void begin(Piece& piece, const HttpAnswer& head) {
    piece.has_begun = true;
    piece.redirects = 0;
    url_ = piece.url;
    if (head.status == 206) {
      const auto range = content_range(head.header("content-range"));
      if (!range || range->first != piece.position())
        fail_input(place_, "the answer has other bytes of the file than were asked for");
      check_size(std::to_string(range->total));
      serves_ranges_ = true;
      return;
    }
    if (pieces_.size() > 1) fail_input(place_, "the hub no longer answers with ranges");
    check_size(head.header("content-length"));
    piece.to_skip = piece.position();
    piece.bytes.end = next_ = size();
    serves_ranges_ = false;
  }

  void check_size(const std::string& said) const {
    if (!said.empty() && said != std::to_string(size()))
      fail_input(place_, "has {} bytes, but the hub lists {}", said, size());
  }

  void take_end(HttpClient::Id id, const HttpAnswer& answer) {
    Piece& piece = *running_.at(id);
    running_.erase(id);
    piece.is_running = false;
    if (piece.is_complete()) return write_first_pieces();
    if (answer.is_redirect()) return follow(piece, answer);
    const std::string url = std::exchange(piece.url, "");
    piece.redirects = 0;
    const bool is_elsewhere = url != source_.url;
    const bool is_short = answer.status < 300 && answer.failure.empty();
    // Addresses that the hub redirects to are signed for an hour or so.
    const bool is_expired = is_elsewhere && answer.status >= 400 && answer.status < 500;
    if (!is_short && !is_expired && !is_worth_a_retry(answer))
      refuse(source_.hub, source_.repo, source_.file.path, answer);
    if (is_expired && url_ == url) url_ = source_.url;
    if (Clock::now() < not_before_) return;  // several connections failed together, which is once
    HttpAnswer why = answer;
    if (is_short) why.failure = "the connection was closed too early";
    const auto wait = attempts_.after(why, place_);
    hooks_.note(fmt::format("{}: {}; trying again in {:.1f} s ({} of {})", place_, reason_of(why),
                            static_cast<double>(wait.count()) / 1000, attempts_.failures(),
                            attempts_.retries()));
    not_before_ = Clock::now() + wait;
  }

  void follow(Piece& piece, const HttpAnswer& answer) {
    if (++piece.redirects > kMostRedirects)
      fail_input(place_, "the hub redirects more than {} times", kMostRedirects);
    check_size(answer.header("x-linked-size"));
    const std::string hash = answer.header("x-linked-etag");
    if (source_.file.hash.size() == 64 && !hash.empty() &&
        hash.find(source_.file.hash) == std::string::npos)
      fail_input(place_, "the hub serves other content than it lists");
    piece.url = linked_url(piece.url, answer.header("location"));
  }

  void write_first_pieces() {
    while (!pieces_.empty()) {
      Piece& first = pieces_.front();
      write(first.buffer);
      first.buffer = {};
      if (!first.is_complete() || first.is_running) return;  // its request still refers to it
      pieces_.pop_front();
    }
  }

  HttpClient& client_;
  const DownloadSource& source_;
  std::filesystem::path path_;
  const HubHooks& hooks_;
  std::string place_;  // in errors
  std::string url_;    // where an answer with bytes began last; before that, the address at the hub
  Attempts attempts_;
  int descriptor_ = -1;
  uint64_t written_ = 0;
  uint64_t next_ = 0;        // where the next piece begins
  std::list<Piece> pieces_;  // in order; requests refer to them
  std::map<HttpClient::Id, Piece*> running_;
  bool serves_ranges_ = false;  // known once the first answer has come
  uint64_t ignored_ = 0;
  Clock::time_point not_before_;
};

}  // namespace

uint64_t download(HttpClient& client, const DownloadSource& source,
                  const std::filesystem::path& incomplete, const HubHooks& hooks,
                  const std::function<void(uint64_t bytes)>& on_bytes) {
  return Download(client, source, incomplete, hooks).run(on_bytes);
}

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A blob's, with the files that programs write on the way to it.
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

// Another process may be fetching the same file, for as long as it takes; but it must go on.
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
                fmt::format("\"{}\" is not a branch, tag or commit", printable_name(revision)));
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
