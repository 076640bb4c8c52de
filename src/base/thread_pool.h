// A fixed set of threads that run one parallel loop at a time. Workers spin briefly between loops
// (a token is hundreds of short loops) and then sleep, so that an idle program uses no CPU.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
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
  // length. The body must not throw. Not reentrant; one caller at a time.
  template <typename Body>
  void parallel_for(size_t count, size_t grain, const Body& body) {
    run_loop(count, grain, std::cref(body));  // a reference: no copy, nothing allocated
  }

 private:
  void run_loop(size_t count, size_t grain, const std::function<void(size_t, size_t)>& body);
  void work();
  void run_chunks() noexcept;
  void stop();

  std::vector<std::thread> workers_;

  // The current loop: written while the gate is shut and nobody is inside, read only inside.
  const std::function<void(size_t, size_t)>* body_ = nullptr;
  size_t count_ = 0;
  size_t chunk_ = 0;  // values per chunk
  size_t chunks_ = 0;
  std::atomic<size_t> next_ = 0;  // the first chunk nobody has taken

  // Workers inside the gate, plus kShut between loops. A loop waits for those inside alone, so one
  // that the system has not woken yet, or keeps from running, delays nobody.
  static constexpr uint32_t kShut = uint32_t{1} << 31;
  std::atomic<uint32_t> gate_ = kShut;

  std::atomic<uint64_t> generation_ = 0;  // bumped once per loop, under the mutex
  std::atomic<bool> stopping_ = false;    // set under the mutex
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace tyto
