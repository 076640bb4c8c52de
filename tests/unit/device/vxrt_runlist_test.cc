#include <xrt/experimental/xrt_kernel.h>

#include <optional>
#include <thread>

#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using std::chrono::milliseconds;
using VxrtRunlist = VxrtTest;

std::vector<xrt::run> add_runs(Rig& rig, xrt::runlist& list, size_t count) {
  std::vector<xrt::run> runs;
  for (size_t i = 0; i < count; ++i) {
    runs.push_back(rig.make_run());
    list.add(runs.back());
  }
  return runs;
}

TEST_F(VxrtRunlist, EqualsTheRunsOneByOne) {
  Rig one, listed;
  xrt::run run = one.make_run();
  for (int i = 0; i < 3; ++i) {
    run.start();
    run.wait2();
  }
  xrt::runlist list(listed.context);
  EXPECT_EQ(list.state(), ERT_CMD_STATE_NEW);
  add_runs(listed, list, 3);
  list.execute();
  list.wait();
  EXPECT_EQ(list.state(), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(list.poll(), 1);
  EXPECT_EQ(download(listed.x), download(one.x));
}

TEST_F(VxrtRunlist, ChainsOfTwentyFour) {
  Rig rig;
  xrt::runlist list(rig.context);
  add_runs(rig, list, 50);
  for (uint64_t time = 1; time <= 2; ++time) {  // a list can be executed again
    list.execute();
    list.wait();
    EXPECT_EQ(counters().total.submissions, 3 * time);
    EXPECT_EQ(counters().total.completions, 3 * time);
    EXPECT_EQ(counters().total.runs, 50 * time);
  }
}

TEST_F(VxrtRunlist, RulesOfUse) {
  Rig rig, other(block_image("other"));
  xrt::runlist list(rig.context);
  list.execute();  // empty: nothing to do
  EXPECT_EQ(list.wait(milliseconds(0)), std::cv_status::no_timeout);
  EXPECT_EQ(error_of([&] { list.add(other.make_run()); }), EINVAL);

  xrt::run run = rig.make_run();
  list.add(run);
  EXPECT_EQ(error_of([&] { list.add(run); }), EINVAL);
  EXPECT_EQ(error_of([&] { run.start(); }), EINVAL);
  pause();
  list.execute();
  EXPECT_EQ(list.state(), ERT_CMD_STATE_RUNNING);
  EXPECT_EQ(list.poll(), 0);
  EXPECT_EQ(error_of([&] { list.execute(); }), EINVAL);
  EXPECT_EQ(error_of([&] { list.add(rig.make_run()); }), EINVAL);
  EXPECT_EQ(error_of([&] { list.reset(); }), EINVAL);
  EXPECT_EQ(list.wait(milliseconds(2)), std::cv_status::timeout);
  resume();
  EXPECT_EQ(list.wait(milliseconds(60000)), std::cv_status::no_timeout);
  list.reset();
  run.start();  // free again
  run.wait2();
}

TEST_F(VxrtRunlist, TheFailingRunIsNamedAndLaterOnesAborted) {
  for (size_t fails : {1u, 25u}) {  // in the first chain, and in the second of three
    Rig rig;
    xrt::runlist list(rig.context);
    std::vector<xrt::run> runs = add_runs(rig, list, 50);
    inject({.kind = FaultKind::error, .at = fails + 1});
    list.execute();
    try {
      list.wait();
      ADD_FAILURE() << "no error";
    } catch (const xrt::runlist::command_error& error) {
      EXPECT_EQ(error.get_command_state(), ERT_CMD_STATE_ERROR);
      EXPECT_EQ(error.get_run().get_handle(), runs[fails].get_handle());
    }
    for (size_t i = 0; i < runs.size(); ++i)
      EXPECT_EQ(runs[i].state(), i < fails    ? ERT_CMD_STATE_COMPLETED
                                 : i == fails ? ERT_CMD_STATE_ERROR
                                              : ERT_CMD_STATE_ABORT);
    list.execute();  // idle again
    list.wait();
  }
}

TEST_F(VxrtRunlist, AHangInAChain) {
  Rig rig;
  xrt::runlist list(rig.context);
  std::vector<xrt::run> runs = add_runs(rig, list, 60);
  inject({.kind = FaultKind::hang, .at = 3});
  list.execute();
  EXPECT_THROW(list.wait(), xrt::runlist::aie_error);
  EXPECT_EQ(list.state(), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(runs[2].state(), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(runs[59].state(), ERT_CMD_STATE_ABORT);
  EXPECT_EQ(counters().total.errors, 3u);
}

TEST_F(VxrtRunlist, MayBeDroppedInFlight) {
  Rig rig;
  {
    xrt::runlist list(rig.context);
    add_runs(rig, list, 30);
    list.execute();
  }
  pause();
  xrt::run run = rig.make_run();
  {
    xrt::runlist list(rig.context);
    list.add(run);
    list.execute();
  }
  EXPECT_EQ(run.state(), ERT_CMD_STATE_ABORT);
}

}  // namespace
}  // namespace tyto::vxrt
