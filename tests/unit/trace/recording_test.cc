#include <gtest/gtest.h>

#include "support/count_allocations.h"
#include "trace/trace.h"

namespace tyto {
namespace {

using testing_support::allocations;

struct World {
  Trace trace;
  DispatchLabel label{.name = trace.name({.label = "o_ffn", .layer = 3}),
                      .device = trace.device_index("d", true),
                      .is_virtual = true};

  void dispatch(uint64_t up, uint64_t down) {
    DispatchSpan span(trace, label, 7, 2);
    const uint64_t start = now_ns();
    span.completed({.start_ns = start,
                    .uploaded_ns = start + 10,
                    .submitted_ns = start + 30,
                    .completed_ns = start + 70,
                    .end_ns = start + 150,
                    .device_ns = 5000,
                    .launches = 8,
                    .bytes = 1000,
                    .flops = 2000,
                    .uploaded_bytes = up,
                    .downloaded_bytes = down});
  }
};

TEST(Recording, ATimerThatFindsNoMemoryEndsNothing) {
  Trace trace;
  {
    const SetupTimer timer(trace, "one");
    testing_support::failing = 0;
  }
  testing_support::failing = -1;
  EXPECT_TRUE(trace.setup_spans().empty());
}

TEST(Recording, NamesAreInternedOnce) {
  Trace trace;
  const uint16_t first = trace.name({.label = "q", .layer = 0});
  EXPECT_EQ(trace.name({.label = "q", .layer = 0}), first);
  EXPECT_NE(trace.name({.label = "q", .layer = 1}), first);
  EXPECT_NE(trace.name({.label = "q", .layer = 0, .op = Operator::projection}), first);
  EXPECT_EQ(trace.names().at(first).label, "q");
}

TEST(Recording, PartsOfADispatchFollowEachOtherWithoutGaps) {
  World world;
  world.trace.start(100);
  world.dispatch(64, 32);
  const auto events = world.trace.events();
  ASSERT_EQ(events.size(), 4u);
  const EventKind kinds[] = {EventKind::upload, EventKind::submit, EventKind::wait,
                             EventKind::download};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(events[i].kind, kinds[i]);
    EXPECT_EQ(events[i].dispatch, 1u);
    EXPECT_EQ(events[i].position, 7u);
    EXPECT_EQ(events[i].rows, 2u);
    if (i > 0) {
      EXPECT_EQ(events[i].start_ns, events[i - 1].end_ns);
    }
  }
  EXPECT_EQ(events[0].end_ns - events[0].start_ns, 10u);
  EXPECT_EQ(events[1].end_ns - events[1].start_ns, 20u);
  EXPECT_EQ(events[2].end_ns - events[2].start_ns, 40u);
  EXPECT_EQ(events[3].end_ns - events[3].start_ns, 80u);
  EXPECT_EQ(events[0].bytes, 64u);
  EXPECT_EQ(events[1].launches, 8u);
  EXPECT_EQ(events[1].bytes, 1000u);
  EXPECT_EQ(events[1].flops, 2000u);
  EXPECT_EQ(events[2].modelled_ns, 5000u);
  EXPECT_EQ(events[3].bytes, 32u);
  world.dispatch(0, 0);  // nothing moved: two parts
  EXPECT_EQ(world.trace.events().size(), 6u);
  EXPECT_EQ(world.trace.events()[5].dispatch, 2u);
}

TEST(Recording, ADeviceThatSharesTheHostsMemoryCopiesNothing) {
  World world;
  world.label.copies = false;
  world.trace.start(100);
  world.dispatch(64, 32);
  EXPECT_EQ(world.trace.events().size(), 2u);
}

TEST(Recording, ARealDevicesTimeIsNotModelled) {
  World world;
  world.label.is_virtual = false;
  world.trace.start(100);
  world.dispatch(64, 32);
  for (const Event& event : world.trace.events()) EXPECT_EQ(event.modelled_ns, 0u);
}

TEST(Recording, TokensEndWhereTheNextBegins) {
  World world;
  world.trace.start(100);
  world.trace.token_chosen();
  {
    Span span(world.trace, EventKind::host, 0);
  }
  world.trace.token_chosen();
  const auto events = world.trace.events();
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].token, 0u);
  EXPECT_EQ(events[1].token, 1u);
  EXPECT_EQ(events[2].token, 1u);
  EXPECT_EQ(events[2].start_ns, events[0].end_ns);
}

TEST(Recording, KeepsTheBeginningAndCountsWhatDidNotFit) {
  World world;
  world.trace.start(5);
  for (int i = 0; i < 4; ++i) world.dispatch(0, 0);
  EXPECT_EQ(world.trace.events().size(), 5u);
  EXPECT_EQ(world.trace.lost(), 3u);
  EXPECT_EQ(world.trace.events()[0].dispatch, 1u);
  world.trace.start(5);
  EXPECT_EQ(world.trace.events().size(), 0u);
  EXPECT_EQ(world.trace.lost(), 0u);
}

// `tyto profile` tokenizes while it records: the time to the first token includes that.
TEST(Recording, TheFirstRequestBeganWithTheRecording) {
  World world;
  for (int repetition = 0; repetition < 2; ++repetition) {
    world.trace.start(10);
    {
      Span tokenizing(world.trace, EventKind::host, 0);
    }
    world.trace.begin_request();
    world.trace.token_chosen();
    world.trace.begin_request();  // a second one begins by itself
    const uint64_t second = now_ns();
    world.trace.token_chosen();
    const auto events = world.trace.events();
    ASSERT_EQ(events.size(), 3u);
    EXPECT_LE(events[1].start_ns, events[0].start_ns);
    EXPECT_GE(events[2].start_ns, events[1].end_ns);
    EXPECT_LE(events[2].start_ns, second);
    EXPECT_EQ(events[2].token, 0u);
  }
}

TEST(Recording, OffItRecordsNothing) {
  World world;
  world.dispatch(64, 32);
  {
    Span span(world.trace, EventKind::host, 0);
  }
  world.trace.token_chosen();
  world.trace.start(10);
  world.trace.stop();
  world.dispatch(64, 32);
  EXPECT_EQ(world.trace.events().size(), 0u);
  EXPECT_EQ(world.trace.dispatch(), 0u);
}

TEST(Recording, AllocatesNothingAfterStart) {
  World world;
  world.trace.start(60'000);
  const uint64_t before = allocations;
  for (int i = 0; i < 10'000; ++i) {
    world.dispatch(64, 32);
    {
      Span span(world.trace, EventKind::host, 0);
    }
    world.trace.token_chosen();
  }
  EXPECT_EQ(allocations - before, 0u);
  EXPECT_EQ(world.trace.events().size(), 60'000u);
  EXPECT_EQ(world.trace.lost(), 0u);
}

}  // namespace
}  // namespace tyto
