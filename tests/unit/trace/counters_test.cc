#include "trace/counters.h"

#include <gtest/gtest.h>

#include <random>

namespace tyto {
namespace {

// Every number of a completion; the structured bindings do not compile when there is another one.
std::vector<uint64_t> numbers(const Completion& completion) {
  const auto& [start, uploaded, submitted, completed, end, device, submitting, waited, preparing,
               submissions, launches, bytes, flops, row_sums, uploaded_bytes, downloaded_bytes] =
      completion;
  return {start,      uploaded, submitted,      completed,       end,      device,
          submitting, waited,   preparing,      submissions,     launches, bytes,
          flops,      row_sums, uploaded_bytes, downloaded_bytes};
}

std::vector<uint64_t> numbers(const DeviceCounters& counters) {
  const auto& [device, is_virtual, is_host, submissions, completions, launches, busy_ns,
               submitting_ns, waited_ns, preparing_ns, bytes, flops, row_sums, pinned_bytes] =
      counters;
  return {submissions,  completions, launches, busy_ns,  submitting_ns, waited_ns,
          preparing_ns, bytes,       flops,    row_sums, pinned_bytes};
}

Completion distinct_completion(uint64_t from) {
  return {.start_ns = from + 1,
          .uploaded_ns = from + 2,
          .submitted_ns = from + 3,
          .completed_ns = from + 4,
          .end_ns = from + 5,
          .device_ns = from + 6,
          .submitting_ns = from + 7,
          .waited_ns = from + 8,
          .preparing_ns = from + 9,
          .submissions = from + 10,
          .launches = from + 11,
          .bytes = from + 12,
          .flops = from + 13,
          .row_sums = from + 14,
          .uploaded_bytes = from + 15,
          .downloaded_bytes = from + 16};
}

DeviceCounters distinct_counters(const std::string& device, uint64_t from) {
  return {.device = device,
          .is_virtual = true,
          .is_host = true,
          .submissions = from + 1,
          .completions = from + 2,
          .launches = from + 3,
          .busy_ns = from + 4,
          .submitting_ns = from + 5,
          .waited_ns = from + 6,
          .preparing_ns = from + 7,
          .bytes = from + 8,
          .flops = from + 9,
          .row_sums = from + 10,
          .pinned_bytes = from + 11};
}

TEST(Counters, ACompletionIsCountedInEveryField) {
  DeviceCounters counters = distinct_counters("d", 1000);
  counters.add(distinct_completion(0));
  EXPECT_EQ(counters.submissions, 1001u + 10);
  EXPECT_EQ(counters.completions, 1002u + 10);
  EXPECT_EQ(counters.launches, 1003u + 11);
  EXPECT_EQ(counters.busy_ns, 1004u + 6);
  EXPECT_EQ(counters.submitting_ns, 1005u + 7);
  EXPECT_EQ(counters.waited_ns, 1006u + 8);
  EXPECT_EQ(counters.preparing_ns, 1007u + 9);
  EXPECT_EQ(counters.bytes, 1008u + 12);
  EXPECT_EQ(counters.flops, 1009u + 13);
  EXPECT_EQ(counters.row_sums, 1010u + 14);
  EXPECT_EQ(counters.pinned_bytes, 1011u);
}

TEST(Counters, SumsAndDifferencesKeepEveryFieldButTheLevel) {
  DeviceCounters sum = distinct_counters("d", 1000);
  const DeviceCounters more = distinct_counters("d", 70);
  sum += more;
  for (size_t i = 0; i + 1 < numbers(sum).size(); ++i)
    EXPECT_EQ(numbers(sum)[i], 1000 + i + 1 + 70 + i + 1) << i;
  EXPECT_EQ(sum.pinned_bytes, 1011u);
  sum -= more;
  EXPECT_EQ(numbers(sum), numbers(distinct_counters("d", 1000)));
}

// What a window of two snapshots was: later less earlier holds only what happened between.
TEST(Counters, LaterLessEarlierIsWhatHappenedBetween) {
  DeviceCounters counters;
  counters.add(distinct_completion(100));
  const DeviceCounters before = counters;
  counters.add(distinct_completion(50));
  counters -= before;
  DeviceCounters expected;
  expected.add(distinct_completion(50));
  EXPECT_EQ(numbers(counters), numbers(expected));
}

TEST(Counters, AddingListsKeepsEveryFieldOfEveryDevice) {
  std::vector<DeviceCounters> sum = {distinct_counters("a", 1000)};
  add(sum, {distinct_counters("a", 30), distinct_counters("b", 500)});
  ASSERT_EQ(sum.size(), 2u);
  EXPECT_EQ(sum[0].device, "a");
  for (size_t i = 0; i + 1 < numbers(sum[0]).size(); ++i)
    EXPECT_EQ(numbers(sum[0])[i], 1000 + i + 1 + 30 + i + 1) << i;
  EXPECT_EQ(sum[0].pinned_bytes, 41u);  // a level: the newer one
  EXPECT_EQ(sum[1].device, "b");
  EXPECT_EQ(numbers(sum[1]), numbers(distinct_counters("b", 500)));
  EXPECT_TRUE(sum[1].is_virtual);
  EXPECT_TRUE(sum[1].is_host);
}

TEST(Counters, AnEntryIsMadeOnceAndSaysWhatItsDeviceIs) {
  std::vector<DeviceCounters> all;
  const DeviceCounters like{.device = "d", .is_virtual = true, .submissions = 7};
  entry_of(all, like).launches = 5;
  EXPECT_EQ(entry_of(all, like).launches, 5u);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].submissions, 0u);
  EXPECT_TRUE(all[0].is_virtual);
  EXPECT_FALSE(all[0].is_host);
}

TEST(Share, OfAllRowsIsTheWhole) {
  const Completion whole = distinct_completion(1'000'000);
  EXPECT_EQ(numbers(share_of(whole, 0, 7, 7)), numbers(whole));
}

TEST(Share, SharesOfRandomRowsAddUpToTheWhole) {
  std::mt19937_64 random(11);
  constexpr uint64_t Completion::* kShared[] = {
      &Completion::device_ns,    &Completion::submitting_ns,  &Completion::waited_ns,
      &Completion::preparing_ns, &Completion::bytes,          &Completion::flops,
      &Completion::row_sums,     &Completion::uploaded_bytes, &Completion::downloaded_bytes};
  for (int round = 0; round < 500; ++round) {
    Completion whole = distinct_completion(random() % 1000);
    for (const auto field : kShared) whole.*field = random() >> (random() % 64);
    std::vector<uint64_t> rows;
    uint64_t total = 0;
    for (uint64_t segments = 1 + random() % 9; rows.size() < segments; total += rows.back())
      rows.push_back(1 + random() % 300);
    Completion sum{.submissions = 0};
    uint64_t first = 0;
    for (const uint64_t count : rows) {
      const Completion share = share_of(whole, first, count, total);
      for (const auto field : kShared) {
        sum.*field += share.*field;
        const double fair = static_cast<double>(whole.*field) * static_cast<double>(count) /
                            static_cast<double>(total);
        EXPECT_NEAR(static_cast<double>(share.*field), fair, 1 + fair * 1e-9);
      }
      // Each took part in the submission, for all of its time.
      EXPECT_EQ(share.submissions, whole.submissions);
      EXPECT_EQ(share.launches, whole.launches);
      EXPECT_EQ(share.start_ns, whole.start_ns);
      EXPECT_EQ(share.end_ns, whole.end_ns);
      first += count;
    }
    for (const auto field : kShared) EXPECT_EQ(sum.*field, whole.*field);
  }
}

}  // namespace
}  // namespace tyto
