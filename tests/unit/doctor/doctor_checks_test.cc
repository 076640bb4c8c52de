// Recorded machines, each broken in one place: the doctor must find that place, name it first, and
// find nothing else broken.
#include "doctor/checks.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "unit/doctor/recorded_machine.h"

namespace tyto {
namespace {

using testing_support::AsNobody;
using testing_support::SystemTree;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

class Doctor : public testing::Test {
 protected:
  Doctor() { write_healthy_machine(tree_); }

  // What is not read from the tree: what the driver answers, a build with XRT, a kernel cache with
  // images, a model that opens.
  void look() {
    facts_ = read_system_facts(tree_.root());
    facts_.stack.interface = interface_;
    for (AccelNode& node : facts_.nodes) node.contexts = contexts_;
    facts_.build_has_xrt = build_has_xrt_;
    facts_.kernel_cache = cache_;
    facts_.model.name = "owlet";
    checks_ = examine(facts_);
  }

  const Check& check(const std::string& name) const {
    for (const Check& candidate : checks_)
      if (candidate.name == name) return candidate;
    ADD_FAILURE() << "no check " << name;
    return checks_.front();
  }

  // Exactly this check is not ok (what hangs on it is skipped), and its fix says this.
  void expect_only(CheckState state, const std::string& name, const std::string& detail,
                   const std::string& fix) {
    look();
    for (const Check& candidate : checks_) {
      if (candidate.name == name) continue;
      EXPECT_LE(candidate.state, CheckState::skipped) << candidate.name << candidate.detail;
    }
    EXPECT_EQ(to_string(check(name).state), to_string(state)) << check(name).detail;
    EXPECT_CONTAINS(check(name).detail, detail);
    EXPECT_CONTAINS(check(name).fix, fix);
    EXPECT_EQ(first_to_repair(checks_), &check(name));
    EXPECT_EQ(worst(checks_), state);
  }

  SystemTree tree_;
  std::optional<Version> interface_ = Version{0, 16};
  std::optional<ContextCount> contexts_ = ContextCount{0, 16};
  bool build_has_xrt_ = true;
  KernelCacheFacts cache_{
      .folder = "kernels", .images = 6, .elfs = 6, .problems = {}, .largest_model = {}, .heap = {}};
  SystemFacts facts_;
  std::vector<Check> checks_;
};

TEST_F(Doctor, AHealthyMachineIsInOrder) {
  look();
  for (const Check& candidate : checks_)
    EXPECT_EQ(to_string(candidate.state), "ok") << candidate.name << ": " << candidate.detail;
  EXPECT_EQ(first_to_repair(checks_), nullptr);
  EXPECT_EQ(worst(checks_), CheckState::ok);
  EXPECT_EQ(facts_.cpu.threads, 24u);
  EXPECT_CONTAINS(check("processor").detail, "AVX2, AVX-512, VNNI, BF16");
  EXPECT_CONTAINS(check("NPU").detail, "NPU Strix (XDNA2) at 0000:c5:00.1");
  EXPECT_CONTAINS(check("driver").detail, "amdxdna 0.1, interface 0.16");
  EXPECT_CONTAINS(check("firmware").detail, "1.1.2.64");
  EXPECT_CONTAINS(check("device node").detail, "/dev/accel/accel0");
  EXPECT_CONTAINS(check("XRT").detail, "2.26.0");
  EXPECT_CONTAINS(check("energy").detail, "rapl package-0");
  EXPECT_CONTAINS(check("contexts").detail, "0 of 16 taken");
  EXPECT_CONTAINS(check("device heap").detail, "537 MB");
  EXPECT_CONTAINS(check("memlock of services").detail, "tyto.service: unlimited");
  EXPECT_EQ(check("this build").detail, "has XRT");
}

TEST_F(Doctor, NoModule) {
  write_npu(tree_, "0x17f0", "0x10", "");
  tree_.remove("sys/module");
  tree_.remove("lib/modules");
  tree_.remove("dev/accel");
  expect_only(CheckState::fail, "driver", "no amdxdna module", "linux-modules-extra");
  EXPECT_EQ(check("device node").state, CheckState::skipped);
}

TEST_F(Doctor, ModuleInstalledAndNotLoaded) {
  write_npu(tree_, "0x17f0", "0x10", "");
  tree_.remove("sys/module");
  tree_.remove("dev/accel");
  expect_only(CheckState::fail, "driver", "not loaded", "sudo modprobe amdxdna");
}

TEST_F(Doctor, ModuleBuiltIntoTheKernelIsInstalled) {
  write_npu(tree_, "0x17f0", "0x10", "");
  tree_.remove("sys/module");
  tree_.remove(kModules + "kernel");
  tree_.write(kModules + "modules.builtin",
              "kernel/fs/ext4/ext4.ko\nkernel/drivers/accel/amdxdna/amdxdna.ko\n");
  expect_only(CheckState::fail, "driver", "not loaded", "sudo modprobe amdxdna");
}

TEST_F(Doctor, TheOtherDriverIsADriver) {
  write_npu(tree_, "0x17f0", "0x10", "amdxdna_legacy");
  tree_.remove("sys/module");
  tree_.write("sys/module/amdxdna_legacy/version", "2.20\n");
  look();
  EXPECT_EQ(check("driver").state, CheckState::ok);
  EXPECT_CONTAINS(check("driver").detail, "amdxdna_legacy 2.20");
  EXPECT_EQ(worst(checks_), CheckState::ok);
}

TEST_F(Doctor, ModuleWithoutDeviceNode) {
  tree_.remove("dev/accel");
  expect_only(CheckState::fail, "device node", "no /dev/accel/accel*", "--device /dev/accel");
}

TEST_F(Doctor, AnotherMakersNodeIsNotOurs) {
  tree_.remove("sys/class/accel");
  tree_.link("sys/class/accel/accel0/device/driver", "../../../bus/pci/drivers/intel_vpu");
  expect_only(CheckState::fail, "device node", "no /dev/accel/accel*", "modprobe");
  EXPECT_CONTAINS(check("device node").detail, "/dev/accel/accel0 is intel_vpu's");
}

TEST_F(Doctor, TheNpuNeedNotBeAccel0) {
  tree_.remove("sys/class/accel");
  tree_.link("sys/class/accel/accel0/device/driver", "../../../bus/pci/drivers/intel_vpu");
  tree_.write("dev/accel/accel1", "");
  tree_.permit("dev/accel/accel1");
  tree_.link("sys/class/accel/accel1/device/driver", "../../../bus/pci/drivers/amdxdna");
  look();
  EXPECT_EQ(worst(checks_), CheckState::ok);
  EXPECT_EQ(check("device node").detail, "/dev/accel/accel1; /dev/accel/accel0 is intel_vpu's");
}

TEST_F(Doctor, NodeWithoutPermissionIsNeverNoNpu) {
  tree_.forbid("dev/accel/accel0");
  const AsNobody nobody;
  if (!nobody) GTEST_SKIP() << "this process may not become another user";
  expect_only(CheckState::fail, "device node", "is there, but opening it is forbidden",
              "/dev/accel/accel*");
  EXPECT_EQ(check("NPU").state, CheckState::ok);
  EXPECT_EQ(facts_.nodes[0].open_error, EACCES);
}

TEST_F(Doctor, ANodeOfTheGroupRenderWantsTheUserInIt) {
  write_process(tree_, "27");
  look();
  facts_.nodes = {{.path = "/dev/accel/accel0",
                   .driver = "amdxdna",
                   .open_error = EACCES,
                   .owner = "root",
                   .group = "render",
                   .mode = 0660,
                   .power_mode = {},
                   .contexts = {}}};
  checks_ = examine(facts_);
  EXPECT_EQ(check("device node").state, CheckState::fail);
  EXPECT_CONTAINS(check("device node").detail, "root:render, mode 0660");
  EXPECT_CONTAINS(check("device node").fix, "sudo usermod -aG render $USER");
  facts_.groups.push_back("render");  // already a member: something else forbids it
  checks_ = examine(facts_);
  EXPECT_CONTAINS(check("device node").fix, "container");
}

TEST_F(Doctor, MemlockOf64KiB) {
  write_memlock(tree_, "65536");
  expect_only(CheckState::fail, "memlock", "65.5 kB", "/etc/security/limits.d/99-amdxdna.conf");
  EXPECT_CONTAINS(check("memlock").detail, "5.6 GB");
}

TEST_F(Doctor, MemlockThatHoldsASmallModelOnly) {
  write_memlock(tree_, "4294967296");
  expect_only(CheckState::warn, "memlock", "4.3 GB", "99-amdxdna.conf");
  write_memlock(tree_, "5600000000");
  look();
  EXPECT_EQ(check("memlock").state, CheckState::ok);
}

TEST_F(Doctor, MemlockDoesNotBindWhoMayLockAnything) {
  write_memlock(tree_, "65536");
  tree_.write("proc/self/status",
              "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n");
  look();
  EXPECT_EQ(check("memlock").state, CheckState::ok);
  EXPECT_TRUE(facts_.is_root);
}

TEST_F(Doctor, XrtMissing) {
  tree_.remove("opt/xilinx");
  expect_only(CheckState::fail, "XRT", "no libxrt_coreutil.so.2", "install XRT");
  EXPECT_EQ(check("XRT plug-in").state, CheckState::skipped);
}

TEST_F(Doctor, XrtWithoutPlugin) {
  tree_.remove("opt/xilinx/xrt/lib/libxrt_driver_xdna.so.2");
  tree_.write("usr/lib/libxrt_driver_xdna.so.2", "");  // elsewhere: XRT does not look there
  expect_only(CheckState::fail, "XRT plug-in", "no libxrt_driver_xdna.so.2 beside", "xrt_plugin");
}

TEST_F(Doctor, ALinkToNowhereIsNoLibrary) {
  tree_.remove("opt/xilinx/xrt/lib/libxrt_coreutil.so.2.26.0");
  expect_only(CheckState::fail, "XRT", "no libxrt_coreutil.so.2", "install XRT");
}

TEST_F(Doctor, XrtTooOldForElfImages) {
  write_xrt(tree_, "2.19.194");
  expect_only(CheckState::fail, "XRT",
              "2.19.194, /opt/xilinx/xrt/lib/libxrt_coreutil.so.2; too old", "2.20.115");
  EXPECT_CONTAINS(check("XRT").detail, "need 2.20.115");
  write_xrt(tree_, "2.20.115");
  look();
  EXPECT_EQ(check("XRT").state, CheckState::ok);
}

TEST_F(Doctor, ABuildWithoutXrtIsNotAMachineWithoutXrt) {
  build_has_xrt_ = false;
  expect_only(CheckState::fail, "this build", "has no XRT", "build Tyto again");
  EXPECT_EQ(check("XRT").state, CheckState::ok);
}

TEST_F(Doctor, AKernelWhoseDriverDoesNotKnowTheCommand) {
  tree_.write("proc/sys/kernel/osrelease", "6.17.0-5-generic\n");
  tree_.write("lib/modules/6.17.0-5-generic/kernel/drivers/accel/amdxdna/amdxdna.ko.zst", "");
  interface_.reset();
  expect_only(CheckState::fail, "kernel", "Linux 6.17.0-5-generic; too old", "Linux 7.0");
  EXPECT_CONTAINS(check("kernel").detail, "need 6.19");
  interface_ = Version{0, 6};  // the distribution has put a newer driver there
  look();
  EXPECT_EQ(worst(checks_), CheckState::ok);
}

// Runs of xclbins are plain commands, which every amdxdna takes.
TEST_F(Doctor, AnOlderKernelIsNoFailureWhereOnlyXclbinsAreStored) {
  tree_.write("proc/sys/kernel/osrelease", "6.17.0-5-generic\n");
  tree_.write("lib/modules/6.17.0-5-generic/kernel/drivers/accel/amdxdna/amdxdna.ko.zst", "");
  interface_.reset();
  cache_.elfs = 0;
  cache_.xclbins = 3;
  expect_only(CheckState::warn, "kernel", "3 kernels stored as xclbins", "Linux 7.0");
  EXPECT_CONTAINS(check("kernel").detail,
                  "too old for MLIR-AIR's ELF images (bf16, prompts of q4nx)");
  cache_.xclbins = 0;  // nothing yet: either could come
  expect_only(CheckState::warn, "kernel", "xclbins (int8, decode of q4nx) need less", "Linux 7.0");
}

TEST_F(Doctor, WithoutAnIommuThereIsNoPasid) {
  tree_.write("proc/cmdline", "quiet amd_iommu=off ttm.pages_limit=1\n");
  tree_.remove("sys/class/iommu/ivhd0");
  expect_only(CheckState::fail, "IOMMU", "turned off by amd_iommu=off", "take amd_iommu=off out");
  EXPECT_CONTAINS(check("IOMMU").detail, "no PASID");
  tree_.write("proc/cmdline", "quiet\n");
  expect_only(CheckState::fail, "IOMMU", "none in /sys/class/iommu", "BIOS");
}

TEST_F(Doctor, OfSeveralNpusTheFirstIsTakenAndNamed) {
  const std::string second = "sys/bus/pci/devices/0000:c6:00.1";
  for (const auto& [file, text] : {std::pair{"vendor", "0x1022"},
                                   {"device", "0x17f0"},
                                   {"class", "0x118000"},
                                   {"revision", "0x11"},
                                   {"vbnv", "NPU Halo"}})
    tree_.write(second + "/" + file, std::string(text) + "\n");
  look();
  EXPECT_CONTAINS(check("NPU").detail, "0000:c5:00.1");
  EXPECT_CONTAINS(check("NPU").detail, "the first of 2 (--npu-device)");
  const auto chosen = [&](const std::string& asked) {
    return choose_npu(facts_.npus, asked)->address;
  };
  EXPECT_EQ(chosen(""), "0000:c5:00.1");
  EXPECT_EQ(chosen("c6:00.1"), "0000:c6:00.1");
  EXPECT_EQ(chosen("0000:c6:00.1"), "0000:c6:00.1");
  EXPECT_EQ(chosen("Halo"), "0000:c6:00.1");
  EXPECT_ERROR(choose_npu(facts_.npus, "NPU"), "more than one NPU");
  EXPECT_ERROR(choose_npu(facts_.npus, "c7:00.1"), "no such NPU");
}

TEST_F(Doctor, ADriverOutsideTheKernelThatIsTooOld) {
  tree_.write(kModules + "updates/dkms/amdxdna.ko.zst", "");
  interface_ = Version{0, 1};
  expect_only(CheckState::fail, "driver", "interface 0.1; too old", "xdna-driver");
}

TEST_F(Doctor, FirmwareThatIsTooOld) {
  tree_.write("sys/bus/pci/devices/0000:c5:00.1/fw_version", "1.0.0.63\n");
  expect_only(CheckState::fail, "firmware", "1.0.0.63, running; too old", "linux-firmware");
  EXPECT_CONTAINS(check("firmware").detail, "need 1.0.20.31");
  tree_.write("sys/bus/pci/devices/0000:c5:00.1/fw_version", "1.0.20.31\n");
  expect_only(CheckState::warn, "firmware", "perhaps too old", "linux-firmware");
}

TEST_F(Doctor, ContextsThatOthersHold) {
  write_holder(tree_, 4321, "ollama", "/dev/accel/accel0",
               "drm-driver:\tamdxdna_accel_driver\namdxdna-heap-alloc:\t12 MiB\n");
  write_holder(tree_, 17, "cat", "/dev/accel/accel7", "");  // another node
  look();
  EXPECT_EQ(worst(checks_), CheckState::ok);
  EXPECT_CONTAINS(check("contexts").detail,
                  "open in ollama (process 4321, 12.6 MB of the device heap)");
  ASSERT_EQ(facts_.holders.holders.size(), 1u);
  contexts_ = ContextCount{11, 16};
  expect_only(CheckState::warn, "contexts", "11 of 16 taken", "end ollama (process 4321");
  contexts_ = ContextCount{10, 16};
  look();
  EXPECT_EQ(check("contexts").state, CheckState::ok);
  contexts_.reset();
  look();
  EXPECT_CONTAINS(check("contexts").detail, "does not say");
}

TEST_F(Doctor, ProcessesThatMayNotBeLookedIntoAreCounted) {
  write_holder(tree_, 4321, "secret", "/dev/accel/accel0", "");
  tree_.forbid("proc/4321/fd");
  contexts_ = ContextCount{16, 16};
  const AsNobody nobody;
  if (!nobody) GTEST_SKIP() << "this process may not become another user";
  expect_only(CheckState::warn, "contexts", "1 processes of others may not be looked into",
              "sudo tyto doctor");
}

TEST_F(Doctor, WhetherTheDeviceHeapGrowsAndWhatImagesTakeOfIt) {
  const std::pair<std::optional<Version>, const char*> cases[] = {
      {Version{0, 6}, "does not let it grow"},
      {Version{0, 10}, "not established"},
      {Version{0, 11}, "537 MB"},
      {Version{1, 0}, "does not let it grow"},
      {std::nullopt, "not established"}};
  for (const auto& [interface, said] : cases) {
    interface_ = interface;
    look();
    EXPECT_EQ(worst(checks_), CheckState::ok);
    EXPECT_CONTAINS(check("device heap").detail, said);
  }
  cache_.largest_model = "llama-3.2-1b";
  cache_.heap = {{}, uint64_t{80} << 20, true};
  expect_only(CheckState::warn, "device heap", "the images of llama-3.2-1b take about 83.9 MB",
              "April 2026");
  interface_ = Version{0, 16};
  look();
  EXPECT_EQ(worst(checks_), CheckState::ok);
}

TEST_F(Doctor, AServiceThatMayNotLockMemory) {
  tree_.write("etc/systemd/system/tyto.service", "[Service]\nExecStart=/usr/bin/tyto\n");
  expect_only(CheckState::fail, "memlock of services", "tyto.service: 8.4 MB",
              "systemctl edit tyto.service");
  tree_.write("etc/systemd/system.conf.d/90-limits.conf", "[Manager]\nDefaultLimitMEMLOCK=4G\n");
  expect_only(CheckState::warn, "memlock of services", "4.3 GB", "LimitMEMLOCK=infinity");
  EXPECT_CONTAINS(check("memlock of services").detail, "/etc/systemd/system.conf.d/90-limits.conf");
  tree_.write("etc/systemd/system.conf", "[Manager]\n#DefaultLimitMEMLOCK=1\n");
  tree_.write("etc/systemd/system/tyto.service.d/override.conf", "LimitMEMLOCK=64M:infinity\n");
  expect_only(CheckState::warn, "memlock of services", "67.1 MB", "LimitMEMLOCK=infinity");
  tree_.write("etc/systemd/system/tyto.service.d/override.conf", "LimitMEMLOCK=8G\n");
  look();
  EXPECT_EQ(worst(checks_), CheckState::ok);
}

TEST_F(Doctor, WithoutAServiceTheDefaultsAreTold) {
  tree_.remove("etc/systemd/system");
  tree_.write("usr/lib/systemd/user.conf", "DefaultLimitMEMLOCK=infinity\n");
  look();
  EXPECT_EQ(check("memlock of services").state, CheckState::skipped);
  EXPECT_CONTAINS(check("memlock of services").detail,
                  "services that set none get 8.4 MB (systemd's own default), those of users "
                  "unlimited (/usr/lib/systemd/user.conf)");
}

TEST_F(Doctor, XrtOfADistributionIsFoundToo) {
  tree_.remove("opt/xilinx");
  tree_.write("usr/lib/x86_64-linux-gnu/libxrt_coreutil.so.2", "");
  tree_.write("usr/lib/x86_64-linux-gnu/libxrt_driver_xdna.so.2", "");
  look();
  EXPECT_EQ(check("XRT").state, CheckState::ok);
  EXPECT_EQ(check("XRT plug-in").state, CheckState::ok);
}

TEST_F(Doctor, OldKernel) {
  write_npu(tree_, "0x17f0", "0x10", "");
  tree_.write("proc/sys/kernel/osrelease", "6.1.0-31-amd64\n");
  tree_.remove("sys/module");
  tree_.remove("lib/modules");
  tree_.remove("dev/accel");
  look();
  EXPECT_EQ(check("kernel").state, CheckState::fail);
  EXPECT_CONTAINS(check("kernel").detail, "6.1.0-31-amd64 is too old");
  EXPECT_EQ(first_to_repair(checks_), &check("kernel"));
  EXPECT_EQ(check("driver").state, CheckState::fail);

  tree_.write("proc/sys/kernel/osrelease", "6.11.7\n");
  look();
  EXPECT_EQ(check("kernel").state, CheckState::warn);
  EXPECT_CONTAINS(check("driver").fix, "xdna-driver");
}

TEST_F(Doctor, FirmwareMissing) {
  write_npu(tree_, "0x17f0", "0x10", "");  // the driver gave up
  tree_.remove("lib/firmware");
  tree_.write("lib/firmware/amdnpu/1502_00/npu.sbin", "");  // another chip's
  tree_.remove("dev/accel");
  look();
  EXPECT_EQ(check("firmware").state, CheckState::fail);
  EXPECT_CONTAINS(check("firmware").detail, "amdnpu/17f0_10");
  EXPECT_EQ(first_to_repair(checks_), &check("firmware"));
  EXPECT_CONTAINS(check("driver").detail, "did not take the NPU");
}

TEST_F(Doctor, KrackanUsesStrixFirmware) {
  write_npu(tree_, "0x17f0", "0x20", "");
  look();
  EXPECT_EQ(check("firmware").state, CheckState::ok);
  EXPECT_CONTAINS(check("NPU").detail, "Krackan Point");
}

TEST_F(Doctor, WrongNpuGeneration) {
  write_npu(tree_, "0x1502", "0x00", "amdxdna");
  expect_only(CheckState::warn, "NPU", "XDNA1", "--device cpu");
  for (const char* name : {"firmware", "driver", "device node", "contexts", "device heap",
                           "memlock", "memlock of services", "this build", "XRT", "XRT plug-in"})
    EXPECT_EQ(check(name).state, CheckState::skipped) << name;
}

TEST_F(Doctor, ANewerGenerationIsNotTakenForXdna2) {
  write_npu(tree_, "0x17f1", "0x10", "amdxdna");
  expect_only(CheckState::warn, "NPU", "newer than this Tyto", "--device cpu");
}

TEST_F(Doctor, NoNpuAtAll) {
  tree_.remove("sys/bus/pci/devices/0000:c5:00.1");
  tree_.remove("dev/accel");
  write_memlock(tree_, "65536");
  tree_.remove("opt");
  expect_only(CheckState::warn, "NPU", "none on the PCI bus", "BIOS");
}

TEST_F(Doctor, EveryRevisionHasItsName) {
  const std::pair<const char*, const char*> names[] = {
      {"0x10", "Strix Point"}, {"0x11", "Strix Halo"}, {"0x20", "Krackan Point"}};
  for (const auto& [revision, name] : names) {
    write_npu(tree_, "0x17f0", revision, "");
    EXPECT_EQ(product_of(read_system_facts(tree_.root()).npus[0]), std::string(name) + " (XDNA2)");
  }
}

TEST_F(Doctor, PowerSaver) {
  tree_.write("sys/firmware/acpi/platform_profile", "low-power\n");
  expect_only(CheckState::warn, "power profile", "low-power", "performance");
}

TEST_F(Doctor, OnBattery) {
  tree_.write("sys/class/power_supply/AC/online", "0\n");
  expect_only(CheckState::warn, "power profile", "on battery", "plug it in");
}

TEST_F(Doctor, TheNpusOwnPowersaverMode) {
  look();
  facts_.nodes[0].power_mode = 1;
  checks_ = examine(facts_);
  EXPECT_EQ(check("power profile").state, CheckState::warn);
  EXPECT_CONTAINS(check("power profile").fix, "xrt-smi configure -d 0000:c5:00.1");
}

TEST_F(Doctor, DamagedKernelCache) {
  cache_.problems = {"truncated llama-3.2-1b/o_ffn: 10 of 20 bytes are left", "second"};
  expect_only(CheckState::fail, "kernel images", "truncated llama-3.2-1b/o_ffn", "import");
  EXPECT_CONTAINS(check("kernel images").detail, "and 1 more");
}

TEST(DoctorCalibration, SaysWhatAutoGoesBy) {
  SystemFacts facts;
  EXPECT_NE(examine(facts).back().name, "calibration");  // there is none for a recorded machine
  facts.calibration = CalibrationFacts{};
  EXPECT_EQ(examine(facts).back().name, "calibration");
  EXPECT_EQ(examine(facts).back().state, CheckState::skipped);
  facts.calibration->measured = "llama 1.24B bf16 on 2026-11-16: cpu";
  EXPECT_EQ(examine(facts).back().state, CheckState::ok);
  EXPECT_EQ(examine(facts).back().detail, facts.calibration->measured);
  facts.calibration = CalibrationFacts{.measured = "", .problem = "c.json is of another machine"};
  EXPECT_EQ(examine(facts).back().state, CheckState::warn);
  EXPECT_CONTAINS(examine(facts).back().fix, "--calibrate");
}

TEST_F(Doctor, EmptyKernelCache) {
  cache_.images = 0;
  expect_only(CheckState::warn, "kernel images", "none", "tyto kernels import");
}

TEST_F(Doctor, EnergyCounterForRootAlone) {
  tree_.forbid("sys/class/powercap/intel-rapl:0/energy_uj");
  const AsNobody nobody;
  if (!nobody) GTEST_SKIP() << "this process may not become another user";
  expect_only(CheckState::warn, "energy", "rapl package-0 may not be read", "chmod a+r");
}

TEST_F(Doctor, VulkanHalfInstalled) {
  tree_.remove("usr/share/vulkan");
  expect_only(CheckState::warn, "Vulkan", "no driver", "mesa-vulkan-drivers");
  tree_.remove("usr/lib/x86_64-linux-gnu/libvulkan.so.1");
  expect_only(CheckState::warn, "Vulkan", "no libvulkan.so.1", "libvulkan1");
  tree_.remove("dev/dri");
  look();
  EXPECT_EQ(check("Vulkan").state, CheckState::skipped);
}

TEST_F(Doctor, VulkanThatGoesWrong) {
  look();
  facts_.vulkan.enumerated = true;
  facts_.vulkan.error = "crashed with signal 11";
  checks_ = examine(facts_);
  EXPECT_EQ(check("Vulkan").state, CheckState::warn);
  EXPECT_CONTAINS(check("Vulkan").detail, "crashed");
  facts_.vulkan.error.clear();
  facts_.vulkan.devices = {"Radeon 890M"};
  checks_ = examine(facts_);
  EXPECT_CONTAINS(check("Vulkan").detail, "Radeon 890M");
  EXPECT_EQ(check("Vulkan").state, CheckState::ok);
  facts_.vulkan.devices = {"llvmpipe (software, Vulkan 1.3)"};
  checks_ = examine(facts_);
  EXPECT_EQ(check("Vulkan").state, CheckState::warn);
  facts_.vulkan.render_nodes.clear();  // without a GPU it is as good as it gets
  checks_ = examine(facts_);
  EXPECT_EQ(check("Vulkan").state, CheckState::ok);
}

TEST_F(Doctor, OldProcessorAndLittleMemory) {
  tree_.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: Old\nflags\t\t: fpu sse2\n");
  expect_only(CheckState::warn, "processor", "Old, 1 thread", "AVX2");
  tree_.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: New\nflags\t\t: fma f16c avx2\n");
  tree_.write("proc/meminfo", "MemTotal: 4000000 kB\nMemAvailable: 1000000 kB\n");
  expect_only(CheckState::warn, "memory", "1.0 GB available", "end other programs");
}

TEST_F(Doctor, ModelThatDoesNotOpenOrFit) {
  look();
  facts_.model = {};
  facts_.model.name = "x.gguf";
  facts_.model.named = true;
  facts_.model.error = "x.gguf: no such file";
  checks_ = examine(facts_);
  EXPECT_EQ(check("model").state, CheckState::fail);
  EXPECT_CONTAINS(check("model").fix, "-m");
  facts_.model.hint = "hf download it";
  facts_.model.named = false;
  checks_ = examine(facts_);
  EXPECT_EQ(check("model").state, CheckState::warn);
  EXPECT_EQ(check("model").fix, "hf download it");
  facts_.model.error.clear();
  facts_.model.weight_bytes = uint64_t{1} << 40;
  checks_ = examine(facts_);
  EXPECT_EQ(check("model").state, CheckState::warn);
  EXPECT_CONTAINS(check("model").detail, "more than");
}

TEST_F(Doctor, AnEmptyTreeIsNoCrash) {
  const std::filesystem::path empty = tree_.root() / "empty";
  std::filesystem::create_directories(empty);
  checks_ = examine(read_system_facts(empty));
  EXPECT_EQ(worst(checks_), CheckState::warn);
}

DeviceProbe good_probe() {
  DeviceProbe probe;
  probe.name = "npu";
  probe.worst_error = 0.001;
  probe.allowed_error = 0.01;
  probe.gb_per_s = 40;
  probe.expected_least = 15;
  probe.expected_most = 80;
  return probe;
}

TEST_F(Doctor, DevicesThatComputeWrongOrSlowly) {
  look();
  const auto states = [&](const DeviceProbe& probe) {
    facts_.devices = {probe};
    checks_ = examine(facts_);
    std::string found;
    for (const Check& candidate : checks_)
      if (candidate.name.starts_with("npu")) found += std::string(to_string(candidate.state)) + " ";
    return found;
  };
  DeviceProbe probe = good_probe();
  EXPECT_EQ(states(probe), "ok ok ");
  probe.gb_per_s = 3;
  EXPECT_EQ(states(probe), "ok warn ");
  probe = good_probe();
  probe.worst_error = 0.5;
  EXPECT_EQ(states(probe), "fail ");
  EXPECT_CONTAINS(check("npu").detail, "WRONG");
  probe = good_probe();
  probe.dispatch_error = "npu: doctor: the dispatch timed out";
  EXPECT_EQ(states(probe), "fail ");
  probe.open_error = "no XRT";
  EXPECT_EQ(states(probe), "skipped ");
  probe = good_probe();
  probe.untried = "no images";
  EXPECT_EQ(states(probe), "skipped ");
  EXPECT_CONTAINS(check("npu").detail, "was not tried out: no images");
  probe = good_probe();
  probe.is_virtual = true;
  states(probe);
  EXPECT_CONTAINS(check("npu speed").detail, "modelled: 40.0 GB/s");
}

}  // namespace
}  // namespace tyto
