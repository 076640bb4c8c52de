// A fixed set of threads that run one parallel loop at a time. Workers spin briefly between loops
// (a token is hundreds of short loops) and then sleep, so that an idle program uses no CPU.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tyto {

class ThreadPool {
 public:
  // `threads` counts the caller; 0 means one per core this process may run on. Throws when the
  // system refuses to start that many.
  explicit ThreadPool(unsigned threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned threads() const { return static_cast<unsigned>(workers_.size()) + 1; }

  // Calls body(begin, end) over disjoint ranges that cover [0, count) and returns when all are
  // done. Ranges begin at multiples of `grain` and, but for the last, have a multiple of it as
  // length. Each thread begins with a part of its own, the same one for the same count and grain,
  // and then helps the others. The body must not throw. Not reentrant; one caller at a time.
  template <typename Body>
  void parallel_for(size_t count, size_t grain, const Body& body) {
    run(count, grain, &body, [](const void* function, size_t begin, size_t end) {
      (*static_cast<const Body*>(function))(begin, end);
    });
  }

 private:
  using Call = void (*)(const void* body, size_t begin, size_t end);

  // One thread's part of the current loop: chunks from `next` to `end`, taken by anybody.
  struct alignas(64) Share {
    std::atomic<size_t> next = 0;
    size_t end = 0;
  };
  // The loop a worker is inside of, or 0. A loop waits for those inside alone, so a worker that the
  // system has not woken yet, or keeps from running, delays nobody.
  struct alignas(64) Seat {
    std::atomic<uint64_t> inside = 0;
  };

  void run(size_t count, size_t grain, const void* body, Call call);
  void run_chunks(size_t first_share) noexcept;
  void work(size_t index);
  bool wait_for_loop(uint64_t seen);
  void stop();

  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;  // [threads()], the caller's first
  std::unique_ptr<Seat[]> seats_;    // [workers_]
  bool oversubscribed_ = false;      // more threads than cores: waiting must let others run

  // The current loop: written while it is shut and nobody is inside, read only inside.
  const void* body_ = nullptr;
  Call call_ = nullptr;
  size_t count_ = 0;
  size_t chunk_ = 0;  // values per chunk

  // Odd while a loop is open, and then its number; even between loops. A worker marks its seat
  // before it checks that the loop is still open, and the caller closes the loop before it checks
  // the seats: these four are sequentially consistent, so that one of the two sees the other.
  alignas(64) std::atomic<uint64_t> loop_ = 0;
  alignas(64) std::atomic<unsigned> sleepers_ = 0;  // changed under the mutex
  std::atomic<bool> stopping_ = false;              // set under the mutex
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace tyto
