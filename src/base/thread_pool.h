// A fixed set of threads that run one parallel loop at a time. Workers spin briefly between loops
// (a token is hundreds of short loops) and then sleep, so that an idle program uses no CPU.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace tyto {

// What a thread brings into its cache while it waits for the next parallel loop. Memory is what a
// token's time is made of, and it is idle whenever threads wait for each other or for a step that
// one of them does alone.

// What a parallel loop over [0, count) reads, so far as it is known before the loop begins.
struct LoopReads {
  // Index i, if inside [first, end), reads `bytes` bytes that follow those of index i - 1.
  struct Array {
    const std::byte* base = nullptr;  // where index `first` lies
    size_t bytes = 0;
    size_t first = 0;
    size_t end = 0;
  };
  size_t count = 0;
  size_t grain = 1;
  std::array<Array, 3> arrays;  // in the order in which an index reads them
};

struct IndexRange {
  size_t begin = 0;
  size_t end = 0;
};

// Loops come in the same order token after token: what followed last time is expected again.
class ReadOrder {
 public:
  // What came after `reads` when it came last; nothing (count 0) the first time.
  LoopReads after(const LoopReads& reads);

 private:
  std::unordered_map<const std::byte*, LoopReads> followers_;  // by the first array's base
  const std::byte* last_ = nullptr;
};

// One thread's way through what it expects to read. Addresses that are no longer mapped do no
// harm: the processor drops a prefetch that it cannot translate.
class ReadAhead {
 public:
  // At most `budget` bytes of what `range` reads; nothing of what was begun before.
  void begin(const LoopReads& reads, const IndexRange& range, size_t budget);
  bool done() const { return left_ == 0 || range_.begin >= range_.end; }
  void fetch_some();  // takes a fraction of a microsecond

 private:
  LoopReads reads_;
  IndexRange range_;  // what is left of it
  size_t array_ = 0;
  size_t offset_ = 0;  // in what index range_.begin reads of that array
  size_t left_ = 0;    // bytes
};

// Bytes that a thread may read ahead: half of its core's second-level cache.
size_t read_ahead_budget();

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
  // and then helps the others. The first thing that a body throws is thrown to the caller when all
  // threads are done; ranges may be left out then. Not reentrant; one caller at a time.
  template <typename Body>
  void parallel_for(size_t count, size_t grain, const Body& body) {
    run({count, grain, &body, call<Body>}, nullptr);
  }

  // The same for a loop that streams memory. Threads that have nothing to do until the next such
  // loop begin to read what it read the last time it came after this one.
  template <typename Body>
  void parallel_for(const LoopReads& reads, const Body& body) {
    const LoopReads next = order_.after(reads);
    run({reads.count, reads.grain, &body, call<Body>}, &next);
  }

 private:
  struct Loop {
    size_t count;
    size_t grain;
    const void* body;
    void (*call)(const void* body, size_t begin, size_t end);
  };
  template <typename Body>
  static void call(const void* body, size_t begin, size_t end) {
    (*static_cast<const Body*>(body))(begin, end);
  }

  // One thread's part of the current loop: grains from `next` to `end`, taken by any thread.
  struct alignas(64) Share {
    std::atomic<size_t> next = 0;
    size_t end = 0;
  };
  // The loop a worker is inside of, or 0. A loop waits for those inside alone, so a worker that the
  // system has not woken yet, or keeps from running, delays no other.
  struct alignas(64) Seat {
    std::atomic<uint64_t> inside = 0;
  };

  void run(const Loop& loop, const LoopReads* next);
  void share_out(size_t grains);
  void run_chunks(size_t first_share);
  void take_part(size_t first_share) noexcept;
  void wait_for_workers();
  void work(size_t index);
  bool wait_for_loop(uint64_t seen, ReadAhead& ahead);
  void expect(size_t index, ReadAhead& ahead) const;
  void stop();

  std::vector<std::thread> workers_;
  std::unique_ptr<Share[]> shares_;  // [threads()], the caller's first
  std::unique_ptr<Seat[]> seats_;    // [workers_]
  bool oversubscribed_ = false;      // more threads than cores: waiting must let others run

  size_t read_ahead_budget_ = 0;  // bytes
  ReadOrder order_;               // used by the caller

  // The current loop: written while it is shut and no thread is inside, read only inside.
  Loop current_ = {};
  bool tells_next_ = false;  // else threads still expect what they were told before
  LoopReads next_;
  std::exception_ptr thrown_;  // in the current loop; written under the mutex

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
