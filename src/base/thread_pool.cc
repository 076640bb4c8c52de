#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#include "base/error.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than sampling a token takes, shorter than anyone notices.
constexpr auto kSpinTime = std::chrono::microseconds(200);
constexpr int kPausesPerLook = 32;  // at the clock

// Chunks per thread: enough to even out a core that is busy elsewhere.
constexpr size_t kChunksPerThread = 4;

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

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = usable_cores();
  oversubscribed_ = threads > usable_threads();
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

void ThreadPool::run(size_t count, size_t grain, const void* body, Call call) {
  if (count == 0) return;
  grain = std::max<size_t>(grain, 1);
  if (workers_.empty() || count <= grain) return call(body, 0, count);
  const size_t grains = (count - 1) / grain + 1;
  const size_t grains_per_chunk = (grains - 1) / (threads() * kChunksPerThread) + 1;
  const size_t chunks = (grains - 1) / grains_per_chunk + 1;
  body_ = body;
  call_ = call;
  count_ = count;
  chunk_ = grains_per_chunk * grain;
  for (size_t i = 0; i < threads(); ++i) {
    shares_[i].next.store(i * chunks / threads(), std::memory_order_relaxed);
    shares_[i].end = (i + 1) * chunks / threads();
  }
  const uint64_t open = loop_.load(std::memory_order_relaxed) + 1;
  loop_.store(open);  // publishes all of the above to those who come in
  if (sleepers_.load() != 0) {
    {
      const std::lock_guard lock(mutex_);
    }  // else one about to sleep could miss it
    wake_.notify_all();
  }
  run_chunks(0);
  loop_.store(open + 1);
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

void ThreadPool::run_chunks(size_t first_share) noexcept {
  for (size_t i = 0; i < threads(); ++i) {
    Share& share = shares_[(first_share + i) % threads()];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const size_t index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= share.end) break;
      const size_t begin = index * chunk_;
      call_(body_, begin, begin + std::min(chunk_, count_ - begin));
    }
  }
}

// Until another loop than `seen` is open; false: the pool stops.
bool ThreadPool::wait_for_loop(uint64_t seen) {
  const auto is_new = [&] {
    const uint64_t loop = loop_.load();
    return loop % 2 == 1 && loop != seen;
  };
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

void ThreadPool::work(size_t index) {
  std::atomic<uint64_t>& seat = seats_[index - 1].inside;
  for (uint64_t seen = 0; wait_for_loop(seen);) {
    const uint64_t loop = loop_.load();
    if (loop % 2 == 0) continue;
    seat.store(loop);
    if (loop_.load() == loop) run_chunks(index);
    seat.store(0);
    seen = loop;
  }
}

}  // namespace tyto
