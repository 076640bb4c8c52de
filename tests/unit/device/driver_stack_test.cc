#include "device/npu/driver_stack.h"

#include <gtest/gtest.h>

#include "device/npu/npu_device.h"
#include "device/vnpu/machine/control.h"
#include "device/vnpu/vnpu_device.h"
#include "support/expect_error.h"
#include "support/system_tree.h"

namespace tyto {
namespace {

using testing_support::SystemTree;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// New enough in everything.
DriverStack new_stack() {
  DriverStack stack;
  stack.kernel = "7.0.0-12-generic";
  stack.module = "amdxdna";
  stack.is_kernels_own = stack.module_installed = true;
  stack.interface = Version{0, 16};
  stack.firmware = "1.1.2.64";
  stack.xrt_library = "/opt/xilinx/xrt/lib/libxrt_coreutil.so.2";
  stack.xrt_version = "2.26.0";
  return stack;
}

// "kernel!" for a fault that is certain, "kernel?" for one that is not.
std::string faults_of(const DriverStack& stack) {
  std::string text;
  for (const VersionFault& fault : version_faults(stack)) {
    EXPECT_NE(fault.found, "");
    EXPECT_NE(fault.needed, "");
    EXPECT_NE(fault.fix, "");
    text += fault.what + (fault.is_certain ? "!" : "?");
  }
  return text;
}

TEST(DriverStack, VersionsAreFourNumbers) {
  EXPECT_EQ(version_of("6.14.0-27-generic"), (Version{6, 14, 0, 0}));
  EXPECT_EQ(version_of("1.0.20.31"), (Version{1, 0, 20, 31}));
  EXPECT_EQ(version_of("2.20"), (Version{2, 20, 0, 0}));
  EXPECT_EQ(version_of("2."), (Version{2, 0, 0, 0}));
  EXPECT_EQ(version_of("none"), Version{});
  EXPECT_EQ(version_of(""), Version{});
  EXPECT_LT(version_of("2.20.114"), version_of("2.20.115"));
  EXPECT_LT(version_of("2.9.0"), version_of("2.20.0"));
}

TEST(DriverStack, RevisionsTellTheMachine) {
  const auto machine = [](uint16_t device, uint8_t revision) {
    PciNpu npu;
    npu.device = device;
    npu.revision = revision;
    return machine_with(npu);
  };
  EXPECT_EQ(machine(0x17f0, 0x10), "strix");
  EXPECT_EQ(machine(0x17f0, 0x11), "strix-halo");
  EXPECT_EQ(machine(0x17f0, 0x20), "krackan");
  EXPECT_EQ(machine(0x17f0, 0x77), "");
  EXPECT_EQ(machine(0x1502, 0x10), "") << "XDNA1";
}

TEST(DriverStack, WhatIsNewEnoughHasNoFault) {
  EXPECT_EQ(faults_of(new_stack()), "");
  EXPECT_EQ(faults_of({}), "") << "what is not there is not old";
}

TEST(DriverStack, XrtReadsTheImagesSince2_20_115) {
  DriverStack stack = new_stack();
  for (const char* old : {"2.17.0", "2.19.194", "2.20.0", "2.20.114"}) {
    stack.xrt_version = old;
    EXPECT_EQ(faults_of(stack), "XRT!") << old;
  }
  for (const char* fit : {"2.20.115", "2.21.0", "3.0.0", ""}) {
    stack.xrt_version = fit;
    EXPECT_EQ(faults_of(stack), "") << fit;
  }
}

TEST(DriverStack, WhatTheDriverSaysOfItselfCountsMoreThanTheKernelsNumber) {
  DriverStack stack = new_stack();
  stack.interface = Version{0, 5};
  EXPECT_EQ(faults_of(stack), "kernel!");
  stack.is_kernels_own = false;
  EXPECT_EQ(faults_of(stack), "driver!");
  stack.interface = Version{0, 6};
  EXPECT_EQ(faults_of(stack), "");
  stack.interface = Version{1, 0};  // the older driver outside the kernel
  EXPECT_EQ(faults_of(stack), "");
  stack.kernel = "6.14.0-27-generic";
  stack.interface = Version{0, 6};  // brought back by a distribution
  stack.is_kernels_own = true;
  EXPECT_EQ(faults_of(stack), "");
}

TEST(DriverStack, AKernelsOwnDriverIsAsOldAsTheKernel) {
  DriverStack stack = new_stack();
  stack.interface.reset();
  for (const char* old : {"6.14.0-27-generic", "6.17.3", "6.18.1"}) {
    stack.kernel = old;
    EXPECT_EQ(faults_of(stack), "kernel!") << old;
  }
  stack.kernel = "6.19.2";  // takes the command in lists only
  EXPECT_EQ(faults_of(stack), "kernel?");
  stack.kernel = "7.0.0";
  EXPECT_EQ(faults_of(stack), "");
  stack.kernel = "6.14.0";
  stack.is_kernels_own = false;
  EXPECT_EQ(faults_of(stack), "");
}

TEST(DriverStack, FirmwareIsJudgedByItsReleases) {
  DriverStack stack = new_stack();
  const std::pair<const char*, const char*> cases[] = {
      {"1.0.0.63", "firmware!"}, {"1.0.20.30", "firmware!"}, {"1.0.20.31", "firmware?"},
      {"1.1.0.59", "firmware?"}, {"1.1.2.65", ""},           {"255.0.11.69", ""}};
  for (const auto& [version, expected] : cases) {
    stack.firmware = version;
    EXPECT_EQ(faults_of(stack), expected) << version;
  }
}

TEST(DriverStack, InOneLineHasEveryVersion) {
  DriverStack stack = new_stack();
  EXPECT_EQ(driver_text(stack),
            "amdxdna of the kernel, firmware 1.1.2.64, XRT 2.26.0, Linux 7.0.0-12-generic");
  stack.is_kernels_own = false;
  stack.module_version = "2.21.0";
  stack.xrt_version = "";
  EXPECT_EQ(driver_text(stack),
            "amdxdna 2.21.0, firmware 1.1.2.64, XRT unknown, Linux 7.0.0-12-generic");
}

TEST(DriverStack, EveryAcceleratorHasItsDriver) {
  const SystemTree tree;
  EXPECT_TRUE(read_accel_devices(tree.root()).empty());
  for (const char* node : {"accel0", "accel1", "accel2"})
    tree.write(std::string("dev/accel/") + node, "");
  tree.link("sys/class/accel/accel0/device/driver", "../../../bus/pci/drivers/intel_vpu");
  tree.link("sys/class/accel/accel1/device/driver", "../../../bus/pci/drivers/amdxdna_legacy");
  const auto devices = read_accel_devices(tree.root());
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[0].driver, "intel_vpu");
  EXPECT_FALSE(devices[0].is_npu());
  EXPECT_TRUE(devices[1].is_npu());
  EXPECT_EQ(devices[2].driver, "");
  EXPECT_FALSE(devices[2].is_npu());
}

TEST(DriverStack, AModuleAddedToAKernelIsNotTheKernels) {
  const SystemTree tree;
  tree.write("proc/sys/kernel/osrelease", "6.14.2\n");
  tree.write("sys/module/amdxdna/version", "0.1\n");
  const std::string modules = "lib/modules/6.14.2/";
  tree.write(modules + "kernel/drivers/accel/amdxdna/amdxdna.ko.zst", "");
  EXPECT_TRUE(read_driver_stack(tree.root()).is_kernels_own);
  tree.write(modules + "updates/dkms/amdxdna.ko.zst", "");
  const DriverStack stack = read_driver_stack(tree.root());
  EXPECT_FALSE(stack.is_kernels_own);
  EXPECT_TRUE(stack.module_installed);
  EXPECT_EQ(stack.module, "amdxdna");
  EXPECT_EQ(stack.interface, std::nullopt);
}

TEST(DriverStack, ARefusalSaysWhatIsTooOldAndWhatToDo) {
  const Error plain = refusal("npu: o_ffn@0", "Operation not supported", {});
  EXPECT_STREQ(plain.what(), "npu: o_ffn@0: Operation not supported");
  EXPECT_EQ(plain.hint, "");
  DriverStack stack = new_stack();
  stack.kernel = "6.17.0";
  stack.interface = Version{0, 1};
  stack.firmware = "1.0.0.63";
  const Error told = refusal("npu: o_ffn@0", "Operation not supported", version_faults(stack));
  EXPECT_STREQ(told.what(),
               "npu: o_ffn@0: Operation not supported; too old here: the amdxdna of Linux 6.17.0 "
               "(needed: 6.19), firmware 1.0.0.63 (needed: 1.0.20.31)");
  EXPECT_CONTAINS(told.hint, "Linux 7.0");
}

// The runtime, with an image that has no such kernel, which XRT finds out.
TEST(DriverStack, TheRuntimesRefusalNamesTheVersions) {
  ThreadPool pool(1);
  Trace trace;
  NpuKernels kernels;
  kernels.info.name = "vnpu";
  kernels.dims = {1, 64, 1, 1, 64, 64, 64, 64};
  kernels.why_no_image = [](std::string_view, uint32_t) { return std::nullopt; };
  kernels.image = [dims = kernels.dims](std::string_view program, uint32_t) {
    NpuImage image = virtual_image(dims, program, 0, 0);
    image.kernel = "main:another";
    return image;
  };
  kernels.version_faults = [] {
    DriverStack stack = new_stack();
    stack.xrt_version = "2.19.194";
    return version_faults(stack);
  };
  const auto device = on_vxrt::open_npu({pool, trace}, std::move(kernels));
  Program head;
  head.name = "head";
  head.slots = {{"x", SlotKind::input, DType::bf16, 1, 64, Role::head_normed},
                {"weight", SlotKind::weight, DType::bf16, 64, 64, Role::lm_head},
                {"logits", SlotKind::output, DType::bf16, 1, 64, Role::logits}};
  head.launches = {{.kernel = Kernel::matmul,
                    .name = "head",
                    .args = {{0}, {1}, {2, false, true}},
                    .role = Role::lm_head,
                    .block = Block::lm_head}};
  const std::vector<std::byte> zeros(64 * 64 * 2);
  const std::vector<TensorView> weights = {{}, {DType::bf16, 64, 64, zeros}, {}};
  try {
    device->load(head, weights);
    ADD_FAILURE() << "a kernel that is not there was loaded";
  } catch (const Error& error) {
    EXPECT_CONTAINS(std::string(error.what()), "vnpu: lm_head_gemv@0: ");
    EXPECT_CONTAINS(std::string(error.what()), "too old here: XRT 2.19.194 (needed: 2.20.115)");
    EXPECT_CONTAINS(error.hint, "install XRT");
  }
}

TEST(DriverStack, TheRuntimeOpensTheDeviceOfAnAddress) {
  ThreadPool pool(1);
  Trace trace;
  const auto open = [&](const std::string& address) {
    NpuKernels kernels;
    kernels.info.name = "vnpu";
    kernels.address = address;
    return on_vxrt::open_npu({pool, trace}, std::move(kernels));
  };
  EXPECT_NO_THROW(open(vxrt::kAddress));
  EXPECT_ERROR(open("0000:c5:00.1"), "no device at 0000:c5:00.1");
}

}  // namespace
}  // namespace tyto
