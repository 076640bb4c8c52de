// The smaller corners of XRT's interface: fences, settings, errors, modules, chains.
#include <xrt/experimental/xrt_error.h>
#include <xrt/experimental/xrt_fence.h>
#include <xrt/experimental/xrt_ini.h>
#include <xrt/experimental/xrt_module.h>
#include <xrt/experimental/xrt_version.h>

#include <filesystem>

#include "unit/device/vxrt_fixture.h"

namespace tyto::vxrt {
namespace {

using std::chrono::milliseconds;
using VxrtApi = VxrtTest;

constexpr milliseconds kLong{60000};

TEST_F(VxrtApi, AContextWaitsForAnothersSignal) {
  Rig first, second(block_image("other"));
  xrt::fence fence(first.device, xrt::fence::access_mode::local);
  xrt::run waits = first.make_run(), signals = second.make_run();
  waits.submit_wait(fence);
  waits.start();
  EXPECT_EQ(waits.wait(milliseconds(20)), ERT_CMD_STATE_TIMEOUT);
  EXPECT_EQ(waits.state(), ERT_CMD_STATE_SUBMITTED);
  signals.start();  // another context is not held up
  EXPECT_EQ(signals.wait(kLong), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(waits.state(), ERT_CMD_STATE_SUBMITTED);
  signals.submit_signal(fence);
  EXPECT_EQ(waits.wait(kLong), ERT_CMD_STATE_COMPLETED);
}

// A signal stands behind the commands that came before it in its context.
TEST_F(VxrtApi, SignalsKeepTheirPlace) {
  Rig rig;
  xrt::fence fence(rig.device, xrt::fence::access_mode::local);
  xrt::run run = rig.make_run();
  pause();
  run.start();
  run.submit_signal(fence);
  EXPECT_EQ(fence.wait(milliseconds(5)), std::cv_status::timeout);
  resume();
  EXPECT_EQ(fence.wait(kLong), std::cv_status::no_timeout);
  EXPECT_EQ(run.state(), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(fence.wait(milliseconds(5)),
            std::cv_status::timeout);  // the next wait: the next signal
}

TEST_F(VxrtApi, TheHostSignalsAndTheNthWaitIsForTheNthSignal) {
  Rig rig;
  xrt::fence fence(rig.device, xrt::fence::access_mode::local);
  xrt::run a = rig.make_run(), b = rig.make_run();
  a.submit_wait(fence);
  a.start();
  b.submit_wait(fence);
  b.start();
  fence.signal();
  EXPECT_EQ(a.wait(kLong), ERT_CMD_STATE_COMPLETED);
  EXPECT_EQ(b.wait(milliseconds(20)), ERT_CMD_STATE_TIMEOUT);
  fence.signal();
  EXPECT_EQ(b.wait(kLong), ERT_CMD_STATE_COMPLETED);
}

TEST_F(VxrtApi, AFenceThatNeverComesHoldsNothingUpForGood) {
  {
    Rig rig;
    xrt::fence fence(rig.device, xrt::fence::access_mode::local);
    xrt::run run = rig.make_run();
    run.submit_wait(fence);
    run.start();
    EXPECT_EQ(run.abort(), ERT_CMD_STATE_ABORT);
    run.start();  // dropped in flight with its context
  }
  Rig rig;
  xrt::fence fence(rig.device, xrt::fence::access_mode::local);
  xrt::run run = rig.make_run();
  run.submit_wait(fence);
  run.start();
  reset({.threads = 2});  // power cycle
  EXPECT_EQ(run.wait(kLong), ERT_CMD_STATE_ABORT);
  EXPECT_EQ(error_of([] { xrt::fence(xrt::device(), xrt::fence::access_mode::local); }), EINVAL);
  EXPECT_EQ(error_of([&] { run.submit_wait(xrt::fence()); }), EINVAL);
}

TEST_F(VxrtApi, SettingsHoldUntilTheyAreUsed) {
  xrt::ini::set("Debug.num_heap_pages", 3);
  xrt::ini::set("Debug.force_driver_sync", "true");
  Rig rig;
  EXPECT_EQ(error_of([] { xrt::ini::set("Debug.num_heap_pages", 2); }), 0);  // no heap yet
  const xrt::run run = rig.make_run();
  EXPECT_EQ(counters().heap_reserved_bytes, 2 * (uint64_t{64} << 20));
  EXPECT_EQ(error_of([] { xrt::ini::set("Debug.num_heap_pages", 4); }), EINVAL);
}

TEST_F(VxrtApi, TheLastErrorOfTheDevice) {
  Rig rig;
  EXPECT_EQ(xrt::error(rig.device, XRT_ERROR_CLASS_AIE).get_error_code(), 0u);
  inject(parse_fault("error@1"));
  xrt::run run = rig.make_run();
  run.start();
  run.wait(kLong);
  const xrt::error error(rig.device, XRT_ERROR_CLASS_AIE);
  EXPECT_NE(error.get_error_code(), 0u);
  EXPECT_EQ(error.to_string(), "injected fault: error");
  EXPECT_EQ(xrt::error(rig.device, XRT_ERROR_CLASS_SYSTEM).get_error_code(), 0u);
}

TEST_F(VxrtApi, AFullElfIsNoModule) {
  Rig rig;
  const xrt::module module(rig.elf);
  EXPECT_EQ(error_of([&] { xrt::ext::kernel(rig.context, module, "main"); }), EINVAL);
}

TEST_F(VxrtApi, TheVersionItFollows) {
  EXPECT_GE(xrt::version::code(), 2u << 16 | 19);  // the ELF flow came with 2.19
  EXPECT_NE(xrt::device(0).get_info<xrt::info::device::host>().find("virtual"), std::string::npos);
}

// 24 runs of an xclbin with 20 arguments each are more than a chain's buffer holds.
TEST_F(VxrtApi, AChainIsFourKilobytes) {
  Program program;
  program.name = "wide";
  for (int i = 0; i < 17; ++i)
    program.slots.push_back({"v" + std::to_string(i), SlotKind::inout, DType::bf16, 1, 8});
  program.launches = {{Kernel::add, "add", "", {{0, true, true}, {1, true, false}}, {}}};
  Image image = make_image("wide", program);
  image.form = ImageForm::xclbin;
  const auto path = std::filesystem::temp_directory_path() /
                    ("tyto_chain_" + std::to_string(::getpid()) + ".xclbin");
  write_image(path, image);
  xrt::device device(0);
  const xrt::xclbin xclbin(path.string());
  std::filesystem::remove(path);
  device.register_xclbin(xclbin);
  const xrt::hw_context context(device, xclbin.get_uuid());
  const xrt::kernel kernel(context, "MLIR_AIE");
  xrt::bo words(device, 16, xrt::bo::flags::cacheable, 0);
  const uint32_t instructions[] = {kInstructionMagic, 1, 0, 0};
  words.write(instructions, 16, 0);
  words.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  xrt::bo data = xrt::ext::bo(device, 16);
  const auto run_of = [&](int arguments) {
    xrt::run run(kernel);
    run.set_arg(0, 3);
    run.set_arg(1, words);
    run.set_arg(2, 4);
    for (int i = 0; i < arguments; ++i) run.set_arg(3 + i, data);
    return run;
  };
  const auto execute = [&](int arguments) {
    xrt::runlist list(context);
    for (int i = 0; i < 24; ++i) list.add(run_of(arguments));
    const int error = error_of([&] { list.execute(); });
    // The list is running even so, and has to be waited for.
    EXPECT_EQ(error_of([&] { list.reset(); }), EINVAL);
    if (error != 0)
      EXPECT_THROW(list.wait(kLong), xrt::runlist::command_error);
    else
      list.wait(kLong);
    list.reset();
    return error;
  };
  EXPECT_EQ(execute(17), ENOSPC);  // 24 * (24 + 8 * 20) = 4416
  EXPECT_EQ(counters().total.submissions, 0u);
}

}  // namespace
}  // namespace tyto::vxrt
