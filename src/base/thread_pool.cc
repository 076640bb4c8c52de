#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <system_error>

#include "base/error.h"

namespace tyto {
namespace {

// Tens of microseconds: longer than the gap between two launches of one token, shorter than anyone
// notices.
constexpr int kSpins = 4000;

// Chunks per thread: enough to even out a core that is busy elsewhere.
constexpr size_t kChunksPerThread = 4;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
}

}  // namespace

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = usable_cores();
  try {
    for (unsigned i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
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

void ThreadPool::run_loop(size_t count, size_t grain,
                          const std::function<void(size_t, size_t)>& body) {
  if (count == 0) return;
  grain = std::max<size_t>(grain, 1);
  if (workers_.empty() || count <= grain) {
    body(0, count);
    return;
  }
  const size_t grains = (count - 1) / grain + 1;
  const size_t grains_per_chunk = (grains - 1) / (threads() * kChunksPerThread) + 1;
  body_ = &body;
  count_ = count;
  chunk_ = grains_per_chunk * grain;
  chunks_ = (grains - 1) / grains_per_chunk + 1;
  next_.store(0, std::memory_order_relaxed);
  gate_.fetch_sub(kShut, std::memory_order_release);  // publishes the loop to those who enter
  {
    const std::lock_guard lock(mutex_);  // else a worker about to sleep could miss it
    generation_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  run_chunks();
  gate_.fetch_add(kShut, std::memory_order_relaxed);
  for (int spins = 0; gate_.load(std::memory_order_acquire) != kShut;) {
    if (spins < kSpins) {
      pause();
      ++spins;
    } else {
      std::this_thread::yield();  // another process has our core: let the worker finish
    }
  }
}

void ThreadPool::run_chunks() noexcept {
  for (;;) {
    const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= chunks_) return;
    const size_t begin = index * chunk_;
    (*body_)(begin, begin + std::min(chunk_, count_ - begin));
  }
}

void ThreadPool::work() {
  uint64_t seen = 0;
  for (;;) {
    for (int spins = 0; spins < kSpins && generation_.load(std::memory_order_acquire) == seen;
         ++spins)
      pause();
    if (generation_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopping_ || generation_.load() != seen; });
    }
    if (stopping_) return;
    seen = generation_.load(std::memory_order_acquire);
    if ((gate_.fetch_add(1, std::memory_order_acquire) & kShut) == 0) run_chunks();
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace tyto
