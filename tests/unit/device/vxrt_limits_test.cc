// The limits of the real stack, the errors they give, faults on demand, and the counters.
#include <optional>
#include <thread>

#include "base/error.h"
#include "cost/cost_model.h"
#include "support/expect_error.h"
#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using std::chrono::milliseconds;
using VxrtLimits = VxrtTest;
using VxrtFaults = VxrtTest;

TEST_F(VxrtLimits, OneDevice) {
  EXPECT_EQ(error_of([] { xrt::device device(1); }), EINVAL);
  EXPECT_ERROR(reset({.machine = "phoenix"}), "machine phoenix: is not modelled");
}

TEST_F(VxrtLimits, SixteenContexts) {
  const xrt::device device(0);
  const xrt::elf elf = load_elf(block_image());
  std::vector<xrt::hw_context> contexts;
  for (int i = 0; i < 16; ++i) contexts.emplace_back(device, elf);
  EXPECT_EQ(error_of([&] { xrt::hw_context(device, elf); }), EINVAL);
  contexts.pop_back();
  EXPECT_EQ(error_of([&] { xrt::hw_context(device, elf); }), 0);
}

TEST_F(VxrtLimits, EightColumns) {
  Image image = block_image();
  image.columns = 9;
  const xrt::device device(0);
  EXPECT_EQ(error_of([&] { xrt::hw_context(device, load_elf(image)); }), ENOSPC);
}

TEST_F(VxrtLimits, KernelNames) {
  Rig rig;
  for (const char* name : {"main", "main:block"})
    EXPECT_EQ(error_of([&] { xrt::ext::kernel(rig.context, name); }), 0) << name;
  for (const char* name : {"other", "main:other", "block", ""})
    EXPECT_EQ(error_of([&] { xrt::ext::kernel(rig.context, name); }), EINVAL) << name;
  EXPECT_EQ(error_of([&] { xrt::kernel(rig.context, "main:block"); }), EINVAL);  // needs an xclbin
}

TEST_F(VxrtLimits, EveryRunOwnsControlCodeInTheHeap) {
  constexpr uint64_t kStep = 32 << 10;  // where buffers in the heap may begin
  set_limits({.heap_bytes = 3 * kStep});
  Rig rig;
  std::vector<xrt::run> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(rig.make_run());
  EXPECT_EQ(counters().heap_used_bytes, 3 * kStep);
  EXPECT_EQ(error_of([&] { rig.make_run(); }), ENOSPC);
  runs.pop_back();
  EXPECT_EQ(error_of([&] { rig.make_run(); }), 0);
}

// An image's control code is larger than the virtual one's file; by how much only an image tells.
TEST_F(VxrtLimits, TheHeapIs64MiBUnlessTheDriverLetsItGrow) {
  for (const auto& [heap, most] : {std::pair{kHeapBytes, 64u}, std::pair{kGrownHeapBytes, 512u}}) {
    set_limits({.heap_bytes = heap, .run_heap_bytes = 1 << 20});
    Rig rig;
    std::vector<xrt::run> runs;
    for (uint32_t i = 0; i < most; ++i) runs.push_back(rig.make_run());
    EXPECT_EQ(error_of([&] { rig.make_run(); }), ENOSPC) << most;
  }
  EXPECT_EQ(Limits{}.heap_bytes, uint64_t{64} << 20);
}

TEST_F(VxrtLimits, MemlockIsABudgetInPages) {
  set_limits({.memlock_bytes = 3 * 4096});
  const xrt::device device(0);
  xrt::bo first = xrt::ext::bo(device, 4097);
  EXPECT_EQ(counters().pinned_bytes, 8192u);
  EXPECT_EQ(error_of([&] { xrt::ext::bo(device, 4097); }), ENOMEM);
  EXPECT_EQ(error_of([&] { xrt::ext::bo(device, SIZE_MAX); }), ENOMEM);
  xrt::bo part(first, 100, 0);  // a window costs nothing
  EXPECT_EQ(counters().pinned_bytes, 8192u);
  first = {};
  EXPECT_EQ(counters().live_buffers, 1u);  // the window keeps it
  part = {};
  EXPECT_EQ(counters().pinned_bytes, 0u);
}

TEST_F(VxrtLimits, BufferKindsAndRanges) {
  const xrt::device device(0);
  using flags = xrt::bo::flags;
  for (flags bad : {flags::normal, flags::device_only, flags::p2p, flags::svm, flags::carveout})
    EXPECT_EQ(error_of([&] { xrt::bo(device, 4096, bad, 0); }), EINVAL);
  for (flags good : {flags::host_only, flags::cacheable})
    EXPECT_EQ(error_of([&] { xrt::bo(device, 4096, good, 0); }), 0);
  EXPECT_EQ(error_of([&] { xrt::ext::bo(device, 0); }), EINVAL);

  alignas(4096) static char memory[8192];
  EXPECT_EQ(error_of([&] { xrt::ext::bo(device, memory, 8192); }), 0);
  EXPECT_EQ(error_of([&] { xrt::ext::bo(device, memory + 64, 4096); }), EINVAL);
  EXPECT_EQ(error_of([&] { xrt::ext::bo(device, memory, 100); }), EINVAL);

  xrt::bo buffer = xrt::ext::bo(device, 100);
  EXPECT_EQ(error_of([&] { buffer.sync(XCL_BO_SYNC_BO_TO_DEVICE, 60, 41); }), EINVAL);
  EXPECT_EQ(error_of([&] { buffer.sync(XCL_BO_SYNC_BO_TO_DEVICE, SIZE_MAX, 41); }), EINVAL);
  EXPECT_EQ(error_of([&] { xrt::bo(buffer, 50, 51); }), EINVAL);
  EXPECT_EQ(error_of([&] { xrt::bo(xrt::device(), 10, flags::host_only, 0); }), EINVAL);
}

TEST_F(VxrtLimits, ASlotBeyondTheDmaSpanEndsAsError) {
  set_limits({.slot_span_bytes = kWidth * kWidth * 2 - 1});
  Rig rig;
  xrt::run run = rig.make_run();
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ERROR);
  EXPECT_NE(counters().last_error.find("spans"), std::string::npos);
}

TEST_F(VxrtLimits, ArgumentBuffersPerRun) {
  set_limits({.argument_buffers = 4});
  Rig rig;
  xrt::run run = rig.make_run();
  run_to_completion(run);
  run.set_arg(2, rig.x);
  EXPECT_EQ(error_of([&] { run.start(); }), EINVAL);
  EXPECT_EQ(error_of([&] { run.set_arg(-1, rig.x); }), EINVAL);
  EXPECT_EQ(error_of([&] { run.set_arg(100000, rig.x); }), EINVAL);
}

TEST_F(VxrtLimits, FourRunsInFlightThenSubmissionWaits) {
  Rig rig;
  std::vector<xrt::run> runs;
  for (int i = 0; i < 6; ++i) runs.push_back(rig.make_run());
  pause();
  std::thread submitter([&] {
    for (xrt::run& run : runs) run.start();
  });
  while (counters().in_flight < 4) std::this_thread::yield();
  EXPECT_EQ(runs[5].state(), ERT_CMD_STATE_NEW);
  resume();
  submitter.join();
  for (xrt::run& run : runs) EXPECT_EQ(run.wait(), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(counters().most_in_flight, 4u);
}

TEST_F(VxrtLimits, ModelledTimeIsKeptAndALongRunTimesOut) {
  reset({.threads = 2, .time_model = [](const Program& program, const Call& call) {
           return 1000 * program.launches.size() + call.rows;
         }});
  Rig rig;
  xrt::run run = rig.make_run(2);
  run_to_completion(run);
  EXPECT_EQ(counters().total.busy_ns, 3002u);
  inject(parse_fault("slow×2.5"));
  run_to_completion(run);
  EXPECT_EQ(counters().total.busy_ns, 3002u + 7505u);
  inject(parse_fault("slowx1e6"));  // 3 s: over the 2 s of hang detection
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(counters().total.errors, 1u);
}

TEST_F(VxrtLimits, TheClockIsTheCostModels) {
  Rig rig;
  xrt::run run = rig.make_run(1);
  run_to_completion(run);
  const Program program = block_program(DType::bf16);
  double kernels = 0;
  for (const Launch& launch : program.launches) kernels += launch_ms(program, launch, {1, 0, 0});
  EXPECT_EQ(counters().total.busy_ns, static_cast<uint64_t>(elf_ms(3, kernels) * 1e6));
}

// An xclbin is driven by instruction words.
TEST_F(VxrtLimits, XclbinFlow) {
  Image image = block_image();
  image.form = ImageForm::xclbin;
  EXPECT_ERROR(load_elf(image), "is an xclbin image");
  EXPECT_ERROR(load_xclbin(block_image()), "is an ELF image");
  Rig rig;
  const xrt::xclbin xclbin = load_xclbin(image);
  EXPECT_EQ(error_of([&] { xrt::hw_context(rig.device, xclbin.get_uuid()); }), EINVAL);
  rig.device.register_xclbin(xclbin);
  const xrt::hw_context context(rig.device, xclbin.get_uuid());
  const xrt::kernel kernel(context, "MLIR_AIE");

  xrt::bo words(rig.device, 16, xrt::bo::flags::cacheable,
                static_cast<xrt::memory_group>(kernel.group_id(1)));
  put(words, std::vector<uint32_t>{kInstructionMagic, kRows, 0, 0});
  xrt::run run(kernel);
  run.set_arg(0, 3);
  run.set_arg(1, words);
  run.set_arg(2, 4);
  run.set_arg(3, rig.x);
  run.set_arg(4, rig.norm);
  run.set_arg(6, rig.weight);
  run.set_arg(7, rig.delta);
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ERROR);  // the words were not synced
  words.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_COMPLETED);
  EXPECT_NE(download(rig.delta), std::vector<uint16_t>(kRows * kWidth));
  run.set_arg(0, 2);
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ERROR);
}

TEST_F(VxrtFaults, NamesOfFaultsAreReadAndCheckedWhole) {
  EXPECT_EQ(parse_fault("timeout@3").kind, FaultKind::timeout);
  EXPECT_EQ(parse_fault("timeout@3").at, 3u);
  EXPECT_EQ(parse_fault("hang").at, 1u);
  EXPECT_EQ(parse_fault("context-lost").kind, FaultKind::context_lost);
  EXPECT_EQ(parse_fault("slow×4").factor, 4);
  for (const char* bad : {"", "timeout@", "timeout@0", "timeout@x", "timeout@-1", "slow", "slowx",
                          "slowx0", "slowxnan", "boom", "hang@1x"})
    EXPECT_ERROR(parse_fault(bad), "is not known") << bad;
}

TEST_F(VxrtFaults, TheNthRunEndsAsAskedAndTheNextIsFine) {
  const std::pair<const char*, ert_cmd_state> table[] = {{"timeout@2", ERT_CMD_STATE_TIMEOUT},
                                                         {"error@2", ERT_CMD_STATE_ERROR},
                                                         {"hang@2", ERT_CMD_STATE_TIMEOUT}};
  for (const auto& [text, expected] : table) {
    Rig rig;
    xrt::run run = rig.make_run();
    inject(parse_fault(text));
    const Counters before = counters();
    for (ert_cmd_state state : {ERT_CMD_STATE_COMPLETED, expected, ERT_CMD_STATE_COMPLETED}) {
      run.start();
      EXPECT_EQ(run.wait(), state) << text;
    }
    EXPECT_EQ(counters().total.errors - before.total.errors, 1u);
    EXPECT_NE(counters().last_error, "");
    EXPECT_EQ(counters().total.completions - before.total.completions, 2u);
  }
}

TEST_F(VxrtFaults, AHangTakesTheContextsOtherRunsDown) {
  Rig rig, other(block_image("other"));
  xrt::run a = rig.make_run(), b = rig.make_run(), c = other.make_run();
  inject(parse_fault("hang"));
  pause();
  a.start();
  b.start();
  c.start();
  resume();
  EXPECT_EQ(a.wait(), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(b.wait(), ERT_CMD_STATE_ABORT);
  EXPECT_EQ(c.wait(), ERT_CMD_STATE_COMPLETED);
  EXPECT_GE(counters().total.busy_ns, 2'000'000'000u);
  b.start();
  EXPECT_EQ(b.wait(), ERT_CMD_STATE_COMPLETED);
}

TEST_F(VxrtFaults, AHangWithoutDetectionLastsUntilAborted) {
  set_hostile(false);
  set_limits({.hang_ns = 0});
  Rig rig;
  xrt::run run = rig.make_run();
  inject(parse_fault("hang"));
  run.start();
  // The device's thread takes it up when the system lets it run.
  for (int i = 0; i < 10'000 && run.state() != ERT_CMD_STATE_RUNNING; ++i)
    EXPECT_EQ(run.wait(milliseconds(5)), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(run.state(), ERT_CMD_STATE_RUNNING);
  run = rig.make_run();  // the last owner of a run in flight aborts it
  EXPECT_EQ(counters().in_flight, 0u);
  inject(parse_fault("hang"));
  run.start();
  EXPECT_EQ(run.wait(milliseconds(5)), ERT_CMD_STATE_TIMEOUT);
  set_limits({});  // power cycle
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ABORT);
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_ABORT);  // its context is gone
}

TEST_F(VxrtFaults, ALostContextStaysLost) {
  Rig rig;
  xrt::run run = rig.make_run();
  inject(parse_fault("context-lost"));
  for (int i = 0; i < 2; ++i) {
    run.start();
    EXPECT_EQ(run.wait(), ERT_CMD_STATE_ABORT);
  }
  Rig fresh;
  xrt::run again = fresh.make_run();
  again.start();
  EXPECT_EQ(again.wait(), ERT_CMD_STATE_COMPLETED);
}

TEST_F(VxrtFaults, OutOfMemoryAtTheNthAllocation) {
  Rig rig;
  inject(parse_fault("oom@2"));
  EXPECT_EQ(error_of([&] { xrt::ext::bo(rig.device, 4096); }), 0);
  EXPECT_EQ(error_of([&] { xrt::ext::bo(rig.device, 4096); }), ENOMEM);
  inject(parse_fault("oom"));
  EXPECT_EQ(error_of([&] { rig.make_run(); }), ENOMEM);
  EXPECT_EQ(error_of([&] { rig.make_run(); }), 0);
}

TEST_F(VxrtFaults, CorruptOutputIsNaN) {
  Rig rig;
  xrt::run run = rig.make_run();
  inject(parse_fault("corrupt@1"));
  run.start();
  EXPECT_EQ(run.wait(), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(download(rig.delta), std::vector<uint16_t>(kRows * kWidth, 0xffff));
  EXPECT_NE(download(rig.weight)[0], 0xffff);
}

}  // namespace
}  // namespace tyto::vxrt
