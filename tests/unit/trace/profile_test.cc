// From a recording to a profile: the clock on which a virtual device's waits last as modelled.
#include "trace/profile.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

struct Recorded {
  Trace trace;
  Recorded() {
    trace.device("vnpu", true);
    trace.device("cpu");
    trace.start(100);
  }
  void push(EventKind kind, uint64_t start, uint64_t end, uint8_t device = 0,
            uint64_t modelled = 0) {
    trace.push({.start_ns = start,
                .end_ns = end,
                .modelled_ns = modelled,
                .dispatch = 1,
                .device = device,
                .kind = kind});
  }
};

const Receipt kVirtual = [] {
  Receipt receipt;
  receipt.devices = {{.device = "vnpu", .is_virtual = true, .submissions = 1, .completions = 1}};
  return receipt;
}();

TEST(ProfileClock, ADispatchToAVirtualDeviceLastsAsModelled) {
  Recorded recorded;
  recorded.push(EventKind::host, 1000, 1010);
  recorded.push(EventKind::submit, 1010, 1020);
  recorded.push(EventKind::wait, 1020, 5020, 0, 100);  // 4000 of simulation are 100
  recorded.push(EventKind::download, 5020, 5025);
  recorded.push(EventKind::run, 1005, 5030);
  recorded.push(EventKind::token, 1000, 5040);
  const ProfileRun run = collect_run(recorded.trace, kVirtual);
  const std::vector<std::pair<uint64_t, uint64_t>> expected = {{0, 10},    {10, 10}, {10, 110},
                                                               {110, 115}, {5, 120}, {0, 130}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(run.events[i].start_ns, expected[i].first) << i;
    EXPECT_EQ(run.events[i].end_ns, expected[i].second) << i;
  }
  EXPECT_DOUBLE_EQ(run.simulated_seconds, 4010e-9);
  ASSERT_TRUE(run.receipt.modelled.has_value());
  EXPECT_DOUBLE_EQ(run.receipt.modelled->prefill, 125e-9);  // from the run on
}

TEST(ProfileClock, AModelledTimeMayBeLongerThanTheSimulation) {
  Recorded recorded;
  recorded.push(EventKind::wait, 100, 110, 0, 1000);
  recorded.push(EventKind::host, 104, 105, 1);  // inside it: in proportion
  recorded.push(EventKind::host, 110, 120, 1);
  const ProfileRun run = collect_run(recorded.trace, kVirtual);
  EXPECT_EQ(run.events[0].end_ns, 1000u);
  EXPECT_EQ(run.events[1].start_ns, 400u);
  EXPECT_EQ(run.events[2].start_ns, 1000u);
  EXPECT_EQ(run.events[2].end_ns, 1010u);
}

TEST(ProfileClock, ARealDevicesTimePassesAsItDid) {
  Recorded recorded;
  recorded.push(EventKind::wait, 100, 110, 1);
  recorded.push(EventKind::launch, 102, 109, 1);
  const ProfileRun run = collect_run(recorded.trace, {});
  EXPECT_EQ(run.events[0].end_ns, 10u);
  EXPECT_EQ(run.events[1].start_ns, 2u);
  EXPECT_FALSE(run.receipt.modelled.has_value());
  EXPECT_DOUBLE_EQ(run.simulated_seconds, 0);
}

TEST(ProfileClock, ModelledLaunchesCountFromTheirWait) {
  Recorded recorded;
  recorded.push(EventKind::launch, 30, 80, 0, 50);  // relative to the dispatch, recorded before it
  recorded.push(EventKind::submit, 1000, 1010);
  recorded.push(EventKind::wait, 1010, 9999, 0, 100);
  const ProfileRun run = collect_run(recorded.trace, kVirtual);
  EXPECT_EQ(run.events[0].start_ns, 30u);
  EXPECT_EQ(run.events[0].end_ns, 80u);
}

TEST(ProfileClock, NothingRecordedIsAnEmptyRun) {
  Recorded recorded;
  EXPECT_TRUE(collect_run(recorded.trace, {}).events.empty());
}

}  // namespace
}  // namespace tyto
