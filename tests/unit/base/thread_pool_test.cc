#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tyto {
namespace {

using Range = std::pair<size_t, size_t>;

// The ranges one loop was cut into, in order.
std::set<Range> ranges_of(ThreadPool& pool, size_t count, size_t grain) {
  std::mutex mutex;
  std::set<Range> ranges;
  pool.parallel_for(count, grain, [&](size_t begin, size_t end) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(ranges.insert({begin, end}).second);
  });
  return ranges;
}

void expect_partition(const std::set<Range>& ranges, size_t count, size_t grain) {
  size_t expected_begin = 0;
  for (const auto& [begin, end] : ranges) {
    ASSERT_EQ(begin, expected_begin) << "count " << count << " grain " << grain;
    ASSERT_LT(begin, end);
    ASSERT_EQ(begin % grain, 0u);
    ASSERT_TRUE(end == count || end % grain == 0);
    expected_begin = end;
  }
  ASSERT_EQ(expected_begin, count);
}

TEST(ThreadPool, CountsTheCaller) {
  for (const unsigned threads : {1u, 2u, 5u}) EXPECT_EQ(ThreadPool(threads).threads(), threads);
}

// Hardware threads of one core count once, so there may be fewer than the scheduler sees.
TEST(ThreadPool, DefaultsToTheUsableCores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const auto usable = static_cast<unsigned>(CPU_COUNT(&set));
  const unsigned threads = ThreadPool().threads();
  EXPECT_LE(threads, usable);
  EXPECT_GE(threads, (usable + 7) / 8);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
    if (CPU_ISSET(cpu, &set)) CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(ThreadPool().threads(), 1u);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (const unsigned threads : {1u, 2u, 3u, 4u, 7u}) {
    ThreadPool pool(threads);
    for (const size_t count : {1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 255, 1000, 4097}) {
      for (const size_t grain : {1, 2, 3, 8, 32, 99, 1000, 5000}) {
        // A plain counter per index: a race or a repeat shows, and so does a gap.
        std::vector<int> touched(count, 0);
        pool.parallel_for(count, grain, [&](size_t begin, size_t end) {
          for (size_t i = begin; i < end; ++i) ++touched[i];
        });
        ASSERT_EQ(touched, std::vector<int>(count, 1))
            << threads << " threads, count " << count << ", grain " << grain;
      }
    }
  }
}

TEST(ThreadPool, CutsAtMultiplesOfTheGrain) {
  for (const unsigned threads : {2u, 3u, 6u}) {
    ThreadPool pool(threads);
    for (size_t count = 1; count <= 200; count += 3)
      for (const size_t grain : {1, 2, 7, 16, 64, 199}) {
        const std::set<Range> ranges = ranges_of(pool, count, grain);
        ASSERT_NO_FATAL_FAILURE(expect_partition(ranges, count, grain));
        // Few, though the last ones are short.
        const size_t grains = (count - 1) / grain + 1;
        ASSERT_LE(ranges.size(), threads * (8 + 4 * size_t(std::bit_width(grains))));
      }
  }
}

TEST(ThreadPool, GrainZeroMeansOne) {
  ThreadPool pool(3);
  expect_partition(ranges_of(pool, 10, 0), 10, 1);
}

TEST(ThreadPool, HugeCountsDoNotOverflow) {
  constexpr size_t kHuge = std::numeric_limits<size_t>::max();
  ThreadPool pool(3);
  for (const size_t count : {kHuge, kHuge - 1, kHuge / 2 + 1})
    for (const size_t grain : {size_t{1}, size_t{4096}, kHuge / 3, kHuge / 2, count - 1}) {
      const std::set<Range> ranges = ranges_of(pool, count, grain);
      ASSERT_NO_FATAL_FAILURE(expect_partition(ranges, count, grain));
    }
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(3);
  pool.parallel_for(0, 1, [](size_t, size_t) { FAIL(); });
}

TEST(ThreadPool, SmallLoopsStayWithTheCaller) {
  ThreadPool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for(16, 16, [&](size_t begin, size_t end) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(Range(begin, end), Range(0, 16));
  });
}

// Two chunks that wait for each other can only finish on two threads.
TEST(ThreadPool, ReallyRunsInParallel) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> arrived = 0;
    pool.parallel_for(2, 1, [&](size_t, size_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
    });
    EXPECT_EQ(arrived, 2);
  }
}

// The loop's plain writes must be visible to the caller, and the caller's to the next loop.
TEST(ThreadPool, TenThousandLoopsInARow) {
  ThreadPool pool(3);
  constexpr size_t kCount = 64;
  std::vector<uint64_t> values(kCount, 0), mirrored(kCount, 0);
  for (uint64_t loop = 0; loop < 10'000; ++loop) {
    pool.parallel_for(kCount, 4, [&, loop](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) {
        ASSERT_EQ(values[i], loop);
        mirrored[kCount - 1 - i] = ++values[i];
      }
    });
    ASSERT_EQ(mirrored[loop % kCount], loop + 1);
    std::swap(values, mirrored);
  }
}

// Bodies live on the caller's stack and die with the call: a worker that came late to one loop must
// not touch it during the next. Alternating sizes and bodies make a stale one visible.
TEST(ThreadPool, NoWorkerKeepsAnOldBody) {
  ThreadPool pool(4);
  for (size_t loop = 0; loop < 3000; ++loop) {
    const size_t count = 2 + loop % 37;
    auto touched = std::make_unique<std::vector<int>>(count, 0);
    pool.parallel_for(count, 1, [cells = touched.get()](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) ++(*cells)[i];
    });
    ASSERT_EQ(*touched, std::vector<int>(count, 1));
  }
}

// Threads of this process, but for the caller, that run or want to.
size_t awake_threads() {
  size_t awake = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(::gettid())) continue;
    std::ifstream file(task.path() / "stat");
    std::string stat;
    if (!std::getline(file, stat)) continue;  // has just ended
    const size_t name_end = stat.rfind(')');
    awake += stat.size() > name_end + 2 && stat[name_end + 2] == 'R';
  }
  return awake;
}

// Whether all of them come to rest.
bool all_fall_asleep() {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (awake_threads() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  return awake_threads() == 0;
}

TEST(ThreadPool, WakesFromSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    ASSERT_TRUE(all_fall_asleep());
    std::atomic<int> arrived = 0;
    pool.parallel_for(3, 1, [&](size_t, size_t) {
      ++arrived;
      while (arrived < 3) std::this_thread::yield();  // needs all three
    });
    EXPECT_EQ(arrived, 3);
  }
}

TEST(ThreadPool, IdleWorkersSleep) {
  ThreadPool pool(4);
  for (int round = 0; round < 3; ++round) {
    pool.parallel_for(100, 1, [](size_t, size_t) {});
    ASSERT_TRUE(all_fall_asleep());
    for (int look = 0; look < 100; ++look) EXPECT_EQ(awake_threads(), 0u);
  }
}

TEST(ThreadPool, EndsWhileIdle) {
  for (int round = 0; round < 50; ++round) {
    const ThreadPool never_used(4);
  }
  for (int round = 0; round < 50; ++round) {
    ThreadPool pool(4);
    std::atomic<size_t> sum = 0;
    pool.parallel_for(100, 1, [&](size_t begin, size_t end) { sum += end - begin; });
    EXPECT_EQ(sum, 100u);
  }
  const ThreadPool asleep(4);
  EXPECT_TRUE(all_fall_asleep());
}

// Every thread begins with the same part each time, so that what it streams stays near it.
TEST(ThreadPool, PartsAreContiguousAndTheSameEachTime) {
  ThreadPool pool(4);
  const auto first = ranges_of(pool, 1000, 10);
  for (int round = 0; round < 20; ++round) EXPECT_EQ(ranges_of(pool, 1000, 10), first);
}

// More threads than cores, beside threads that never rest: slower, but every loop ends.
TEST(ThreadPool, EndsEveryLoopOnACrowdedMachine) {
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned i = 0; i < 2 * cores; ++i)
    others.emplace_back([&] {
      while (!stop) {
      }
    });
  {
    ThreadPool pool(4 * cores + 3);
    std::vector<int> touched(500, 0);
    for (int loop = 0; loop < 200; ++loop)
      pool.parallel_for(touched.size(), 1, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++touched[i];
      });
    EXPECT_EQ(touched, std::vector<int>(500, 200));
  }
  stop = true;
  for (std::thread& other : others) other.join();
}

// Whichever thread throws, and whatever: the caller gets it as it was.
TEST(ThreadPool, WhatABodyThrowsReachesTheCaller) {
  for (const unsigned threads : {1u, 4u}) {
    ThreadPool pool(threads);
    const auto caller = std::this_thread::get_id();
    for (const bool by_caller : {true, false}) {
      if (!by_caller && threads == 1) continue;
      const auto run = [&](const auto& thrown) {
        std::atomic<bool> has_thrown = false;
        pool.parallel_for(1000, 1, [&](size_t, size_t) {
          if ((std::this_thread::get_id() == caller) != by_caller) {
            while (!has_thrown) std::this_thread::yield();
            return;
          }
          has_thrown = true;
          throw thrown;
        });
      };
      try {
        run(Error(ErrorCode::deadline, "a place", "a fact", "a step"));
        ADD_FAILURE() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_EQ(error.code, ErrorCode::deadline);
        EXPECT_STREQ(error.what(), "a place: a fact");
        EXPECT_EQ(error.hint, "a step");
      }
      EXPECT_THROW(run(std::bad_alloc()), std::bad_alloc);
      EXPECT_THROW(run(7), int);
      expect_partition(ranges_of(pool, 1000, 10), 1000, 10);
    }
  }
}

TEST(ThreadPool, PoolsAreIndependent) {
  ThreadPool outer(2), inner(2);
  std::vector<int> touched(100, 0);
  for (int round = 0; round < 200; ++round)
    outer.parallel_for(2, 1, [&](size_t begin, size_t) {
      if (begin != 0) return;
      inner.parallel_for(touched.size(), 1, [&](size_t from, size_t to) {
        for (size_t i = from; i < to; ++i) ++touched[i];
      });
    });
  EXPECT_EQ(touched, std::vector<int>(100, 200));
}

}  // namespace
}  // namespace tyto
