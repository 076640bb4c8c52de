
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/thread_pool.h"

namespace tyto {
namespace {

LoopReads reads_at(const std::byte* base, size_t count = 4, size_t bytes = 64) {
  return {.count = count, .grain = 1, .arrays = {{{base, bytes, 0, count}}}};
}

TEST(ReadOrder, ExpectsWhatFollowedLastTime) {
  const std::byte memory[3] = {};
  const LoopReads a = reads_at(memory), b = reads_at(memory + 1), c = reads_at(memory + 2);
  ReadOrder order;
  EXPECT_EQ(order.after(a).count, 0u);
  EXPECT_EQ(order.after(b).count, 0u);
  EXPECT_EQ(order.after(a).arrays[0].base, memory + 1);
  EXPECT_EQ(order.after(c).count, 0u);  // b is forgotten
  EXPECT_EQ(order.after(a).arrays[0].base, memory + 2);
}

// More loops than any model has must not be remembered forever.
TEST(ReadOrder, ForgetsWhatIsTooMuch) {
  const std::vector<std::byte> memory(40'000);
  ReadOrder order;
  for (const std::byte& base : memory) order.after(reads_at(&base));
  EXPECT_EQ(order.after(reads_at(&memory[0])).count, 0u);
}

size_t steps_until_done(ReadAhead& ahead) {
  size_t steps = 0;
  for (; !ahead.done(); ++steps) ahead.fetch_some();
  return steps;
}

TEST(ReadAhead, EndsWithItsRangeOrItsBudget) {
  const std::vector<std::byte> memory(1 << 20);
  const LoopReads reads = reads_at(memory.data(), 1024, 1024);
  ReadAhead ahead;
  EXPECT_TRUE(ahead.done());
  ahead.begin(reads, {0, 1024}, 1 << 20);
  const size_t all = steps_until_done(ahead);
  ahead.begin(reads, {0, 1024}, 1 << 18);
  const size_t quarter = steps_until_done(ahead);
  EXPECT_GT(all, 3 * quarter);
  EXPECT_LT(all, 5 * quarter);
  ahead.begin(reads, {512, 768}, 1 << 20);
  EXPECT_LE(steps_until_done(ahead), quarter + 1);
  ahead.begin(reads, {7, 7}, 1 << 20);
  EXPECT_TRUE(ahead.done());
}

// Models close: what is expected may be gone when a thread asks for it.
TEST(ReadAhead, AddressesNeedNotBeMapped) {
  ReadAhead ahead;
  ahead.begin(reads_at(reinterpret_cast<const std::byte*>(4096), 100, 4096), {0, 100}, 1 << 20);
  EXPECT_GT(steps_until_done(ahead), 0u);
}

// Nothing to read, arrays that do not reach an index, blocks that are no multiple of a line.
TEST(ReadAhead, OddShapesEnd) {
  const std::vector<std::byte> memory(1 << 16);
  for (const size_t bytes : {0, 1, 63, 65, 1000}) {
    LoopReads reads{.count = 50, .grain = 1, .arrays = {}};
    reads.arrays[1] = {memory.data(), bytes, 10, 20};
    reads.arrays[2] = {memory.data() + 30000, bytes, 0, 30};
    ReadAhead ahead;
    ahead.begin(reads, {0, 50}, 1 << 20);
    EXPECT_LT(steps_until_done(ahead), 10'000u);
  }
}

// What loops read changes nothing in what they compute.
TEST(ThreadPool, LoopsThatSayWhatTheyReadCoverEveryIndexOnce) {
  const std::vector<int> values(64 << 10, 1);
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  for (const unsigned threads : {1u, 2u, 3u, 7u}) {
    ThreadPool pool(threads);
    for (size_t loop = 0; loop < 300; ++loop) {
      const size_t count = 1 + loop % 64, each = values.size() / 64;
      std::vector<int> sums(count, 0);
      LoopReads reads = reads_at(bytes + loop % 3 * 64, count, each * sizeof(int));
      reads.grain = loop % 5;
      pool.parallel_for(reads, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i)
          sums[i] += std::accumulate(values.begin() + static_cast<ptrdiff_t>(i * each),
                                     values.begin() + static_cast<ptrdiff_t>((i + 1) * each), 0);
      });
      ASSERT_EQ(sums, std::vector<int>(count, static_cast<int>(each)));
    }
  }
}

}  // namespace
}  // namespace tyto
