#include "base/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than sampling a token takes, too short to be noticed.
constexpr auto kSpinTime = std::chrono::microseconds(200);
constexpr int kPausesPerLook = 32;  // at the clock

// A thread takes this fraction of what is left of a share, so that long chunks come first and the
// last ones are as short as they can be: threads that are not equally fast end together.
constexpr size_t kTakes = 4;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits for a moment, or until done() if that is sooner; on a core of its own without giving it up.
template <typename Done>
void spin_or_yield(bool oversubscribed, const Done& done) {
  if (oversubscribed) return std::this_thread::yield();
  for (int i = 0; i < kPausesPerLook && !done(); ++i) pause();
}

// Cores this process may run on. Two hardware threads of one core share what matrix kernels need,
// so they count once.
unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = "only " + std::to_string(cpu);
    cores.insert(siblings);
  }
  return static_cast<unsigned>(std::max<size_t>(1, cores.size()));
}

unsigned usable_threads() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

// Which of `count` things are thread `index`'s own.
IndexRange part_of(size_t count, size_t threads, size_t index) {
  const size_t each = count / threads, larger = count % threads;
  const size_t begin = index * each + std::min(index, larger);
  return {begin, begin + each + (index < larger ? 1 : 0)};
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = usable_cores();
  oversubscribed_ = threads > usable_threads();
  read_ahead_budget_ = read_ahead_budget();
  shares_ = std::make_unique<Share[]>(threads);
  seats_ = std::make_unique<Seat[]>(threads);
  try {
    for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::exception& error) {
    stop();  // a thread that is still joinable when destroyed ends the program
    throw Error(ErrorCode::usage, "threads",
                fmt::format("cannot start {} threads: {}", threads, error.what()));
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Loop& loop, const LoopReads* next) {
  if (loop.count == 0) return;
  const size_t grain = std::max<size_t>(loop.grain, 1);
  if (workers_.empty() || loop.count <= grain) return loop.call(loop.body, 0, loop.count);
  current_ = loop;
  current_.grain = grain;
  tells_next_ = next != nullptr;
  if (tells_next_) next_ = *next;
  share_out((loop.count - 1) / grain + 1);
  const uint64_t open = loop_.load(std::memory_order_relaxed) + 1;
  loop_.store(open);  // publishes all of the above to those who come in
  if (sleepers_.load() != 0) {
    {
      const std::lock_guard lock(mutex_);
    }  // else one about to sleep could miss it
    wake_.notify_all();
  }
  take_part(0);
  loop_.store(open + 1);
  wait_for_workers();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

void ThreadPool::share_out(size_t grains) {
  for (size_t i = 0; i < threads(); ++i) {
    const IndexRange part = part_of(grains, threads(), i);
    shares_[i].next.store(part.begin, std::memory_order_relaxed);
    shares_[i].end = part.end;
  }
}

void ThreadPool::wait_for_workers() {
  const auto all_out = [&] {
    for (size_t i = 0; i < workers_.size(); ++i)
      if (seats_[i].inside.load() != 0) return false;
    return true;
  };
  if (all_out()) return;
  const auto give_up_core = Clock::now() + kSpinTime;
  for (bool oversubscribed = oversubscribed_; !all_out();) {
    spin_or_yield(oversubscribed, all_out);
    // Another process may have taken the core that a worker needs to finish.
    oversubscribed = oversubscribed || Clock::now() > give_up_core;
  }
}

void ThreadPool::take_part(size_t first_share) noexcept try {
  run_chunks(first_share);
} catch (...) {
  const std::lock_guard lock(mutex_);
  if (!thrown_) thrown_ = std::current_exception();
}

void ThreadPool::run_chunks(size_t first_share) {
  const auto [count, grain, body, call] = current_;
  for (size_t i = 0; i < threads(); ++i) {
    Share& share = shares_[(first_share + i) % threads()];
    for (size_t at = share.next.load(std::memory_order_relaxed); at < share.end;) {
      const size_t taken = std::max<size_t>(1, (share.end - at) / kTakes);
      if (!share.next.compare_exchange_weak(at, at + taken, std::memory_order_relaxed)) continue;
      const size_t begin = at * grain;
      call(body, begin, begin + std::min(count - begin, taken * grain));
      at = share.next.load(std::memory_order_relaxed);
    }
  }
}

// Until another loop than `seen` is open; false: the pool stops.
bool ThreadPool::wait_for_loop(uint64_t seen, ReadAhead& ahead) {
  const auto is_new = [&] {
    const uint64_t loop = loop_.load();
    return loop % 2 == 1 && loop != seen;
  };
  while (!oversubscribed_ && !ahead.done() && !is_new() && !stopping_) ahead.fetch_some();
  const auto sleep_after = Clock::now() + kSpinTime;
  while (!is_new() && !stopping_) {
    if (Clock::now() < sleep_after) {
      spin_or_yield(oversubscribed_, is_new);
      continue;
    }
    std::unique_lock lock(mutex_);
    ++sleepers_;
    wake_.wait(lock, [&] { return stopping_ || is_new(); });
    --sleepers_;
  }
  return !stopping_;
}

// Takes note of what the next loop will read, from inside the current one.
void ThreadPool::expect(size_t index, ReadAhead& ahead) const {
  if (!tells_next_) return;
  const size_t grain = std::max<size_t>(next_.grain, 1);
  const IndexRange grains = part_of((next_.count + grain - 1) / grain, threads(), index);
  ahead.begin(next_, {grains.begin * grain, std::min(grains.end * grain, next_.count)},
              read_ahead_budget_);
}

void ThreadPool::work(size_t index) {
  std::atomic<uint64_t>& seat = seats_[index - 1].inside;
  ReadAhead ahead;
  for (uint64_t seen = 0; wait_for_loop(seen, ahead);) {
    const uint64_t loop = loop_.load();
    if (loop % 2 == 0) continue;
    seat.store(loop);
    if (loop_.load() == loop) {
      take_part(index);
      expect(index, ahead);
    }
    seat.store(0);
    seen = loop;
  }
}

namespace {

constexpr size_t kLine = 64;
constexpr size_t kLinesAtOnce = 16;

// More than any model has matrices; beyond it are those of models that were closed.
constexpr size_t kMostFollowers = 8192;

constexpr size_t kLeastCache = size_t{256} << 10;  // any x86 core that has AVX2 has as much

}  // namespace

LoopReads ReadOrder::after(const LoopReads& reads) {
  if (followers_.size() > kMostFollowers) followers_.clear();
  const std::byte* key = reads.arrays.front().base;
  if (last_ != nullptr) followers_[last_] = reads;
  last_ = key;
  const auto known = followers_.find(key);
  return known == followers_.end() ? LoopReads{} : known->second;
}

void ReadAhead::begin(const LoopReads& reads, const IndexRange& range, size_t budget) {
  reads_ = reads;
  range_ = range;
  array_ = offset_ = 0;
  left_ = budget;
}

void ReadAhead::fetch_some() {
  constexpr int kSecondLevel = 2;
  for (size_t step = 0; step < kLinesAtOnce && !done(); ++step) {
    const LoopReads::Array& array = reads_.arrays[array_];
    const bool is_read = array.first <= range_.begin && range_.begin < array.end;
    if (!is_read || offset_ >= array.bytes) {
      offset_ = 0;
      if (++array_ < reads_.arrays.size()) continue;
      array_ = 0;
      ++range_.begin;
      continue;
    }
    const size_t at = (range_.begin - array.first) * array.bytes + offset_;
    __builtin_prefetch(array.base + at, 0, kSecondLevel);
    offset_ += kLine;
    left_ -= std::min(left_, kLine);
  }
}

size_t read_ahead_budget() {
  const long cache = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return std::max(kLeastCache, cache > 0 ? static_cast<size_t>(cache) : 0) / 2;
}

}  // namespace tyto
