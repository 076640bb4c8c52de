#include "doctor/probe.h"

#include <gtest/gtest.h>
#include <link.h>

#include <future>
#include <thread>

#include "base/error.h"
#include "device/device.h"
#include "device/npu/npu_settings.h"
#include "device/npu/store/kernel_store.h"
#include "device/vnpu/machine/control.h"
#include "device/vnpu/vnpu_device.h"
#include "support/system_tree.h"

namespace tyto {
namespace {

using testing_support::SystemTree;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// With a kernel store of its own, empty at first.
class Probe : public testing::Test {
 protected:
  void SetUp() override {
    vxrt::reset();
    ::setenv("XDG_CACHE_HOME", tree_.root().c_str(), 1);
  }
  void TearDown() override {
    vxrt::reset();
    ::unsetenv("XDG_CACHE_HOME");
  }

  // The image of a small model's head, as `tyto compile` would store it.
  void store_head() {
    const AirDims dims = {1, 64, 1, 1, 64, 64, 300, 64};
    const NpuImage image = virtual_image(dims, "lm_head_gemv", 0, 0);
    const auto* bytes = reinterpret_cast<const char*>(image.bytes.data());
    tree_.write("build/lm_head_gemv.elf", std::string(bytes, image.bytes.size()));
    tree_.write("build/manifest.json",
                R"({"_toolchain": {}, "entries": {"lm_head_gemv": {"output_binary":
                "lm_head_gemv.elf", "kernel": "main:lm_head_gemv", "insts": null}}})");
    import_kernels(default_kernel_store(), tree_.root() / "build", {{{"toy", dims}}});
  }

  // An NPU with nothing but what is in the store: it makes no images of its own.
  DeviceProbe probe_real_npu() {
    const DeviceEntry entry{"npu", "NPU", "", false, npu_setting_rows, [](const DeviceEnv& env) {
                              NpuKernels kernels =
                                  stored_kernels(default_kernel_store(), StoredFor::virtual_npu,
                                                 air_dims(env.model, 64));
                              kernels.info.name = "npu";
                              kernels.info.is_virtual = true;
                              describe_shapes(env, kernels);
                              return on_vxrt::open_npu(env, std::move(kernels));
                            }};
    return probe_device(entry, {pool_, trace_});
  }

  DeviceProbe probe(std::string_view name) {
    for (const DeviceEntry& entry : device_table())
      if (entry.name == name) return probe_device(entry, {pool_, trace_});
    ADD_FAILURE() << "no device " << name;
    return {};
  }

  SystemTree tree_;
  ThreadPool pool_{2};
  Trace trace_;
};

TEST_F(Probe, EveryDeviceOfThisBuildComputesRight) {
  for (const DeviceProbe& device : probe_devices({})) {
    const bool needs_hardware = device.name == "npu" || device.name == "vulkan";
    if (needs_hardware && !device.open_error.empty())
      continue;  // no XRT, no driver, or no hardware
    EXPECT_EQ(device.open_error, "") << device.name;
    EXPECT_EQ(device.dispatch_error, "") << device.name;
    EXPECT_GT(device.allowed_error, 0) << device.name;
    EXPECT_LE(device.worst_error, device.allowed_error) << device.name;
    EXPECT_GT(device.gb_per_s, 0) << device.name;
  }
}

// In software, which is on every machine that runs the tests.
TEST_F(Probe, AGpuComputesRight) {
  DeviceEnv env{pool_, trace_};
  env.settings["gpu"] = "llvmpipe";
  const DeviceProbe device = probe_device(device_entry("vulkan"), env);
  EXPECT_EQ(device.open_error, "");
  EXPECT_EQ(device.dispatch_error, "");
  EXPECT_GT(device.allowed_error, 0);
  EXPECT_LE(device.worst_error, device.allowed_error);
}

TEST_F(Probe, AHealthyNpuWithoutImagesIsNotBroken) {
  const DeviceProbe device = probe_real_npu();
  EXPECT_EQ(device.open_error, "");
  EXPECT_EQ(device.dispatch_error, "");
  EXPECT_CONTAINS(device.untried, "no lm_head_gemv");
}

TEST_F(Probe, AnNpuIsTriedWithTheImagesInTheStore) {
  store_head();
  for (const DeviceProbe& device : {probe_real_npu(), probe("vnpu")}) {
    EXPECT_EQ(device.open_error, "");
    EXPECT_EQ(device.dispatch_error, "");
    EXPECT_EQ(device.untried, "");
    EXPECT_CONTAINS(device.computed, "/lm_head_gemv");
    EXPECT_GT(device.worst_error, 0) << "logits are rounded to bf16";
    EXPECT_LE(device.worst_error, device.allowed_error);
    EXPECT_EQ(device.gb_per_s, 0) << "so small a matrix says nothing about the rate";
  }
  vxrt::inject(vxrt::parse_fault("corrupt@1"));
  const DeviceProbe wrong = probe_real_npu();
  EXPECT_GT(wrong.worst_error, wrong.allowed_error);
  vxrt::inject(vxrt::parse_fault("timeout@1"));
  EXPECT_CONTAINS(probe_real_npu().dispatch_error, "timed out");
}

TEST_F(Probe, TheVirtualNpusRateIsTheCostModels) {
  const DeviceProbe device = probe("vnpu");
  EXPECT_TRUE(device.is_virtual);
  EXPECT_GE(device.gb_per_s, device.expected_least);
  EXPECT_LE(device.gb_per_s, device.expected_most);
  vxrt::inject(vxrt::parse_fault("slowx4"));
  EXPECT_NEAR(probe("vnpu").gb_per_s, device.gb_per_s / 4, device.gb_per_s / 20);
}

TEST_F(Probe, WrongNumbersAreNoticed) {
  vxrt::inject(vxrt::parse_fault("corrupt@1"));
  const DeviceProbe device = probe("vnpu");
  EXPECT_GT(device.worst_error, device.allowed_error);
  EXPECT_EQ(device.gb_per_s, 0) << "a device that computes wrong is not measured";
}

TEST_F(Probe, ADispatchThatFailsIsSaidInTheDevicesWords) {
  vxrt::inject(vxrt::parse_fault("timeout@1"));
  EXPECT_CONTAINS(probe("vnpu").dispatch_error, "timed out");
}

TEST_F(Probe, ADeviceThatCannotBeOpenedIsNotUsable) {
  const DeviceEntry entry{"broken",
                          "NPU",
                          "",
                          false,
                          [] { return std::span<const DeviceSetting>(); },
                          [](const DeviceEnv&) -> std::unique_ptr<Device> {
                            throw Error(ErrorCode::device, "broken", "no such hardware");
                          }};
  EXPECT_CONTAINS(probe_device(entry, {pool_, trace_}).open_error, "no such hardware");
}

TEST(KernelCache, DamageIsFound) {
  const SystemTree tree;
  EXPECT_TRUE(probe_kernel_cache(tree.root() / "kernels").problems.empty());
  tree.write("kernels/images/stray.elf", "x");
  EXPECT_EQ(probe_kernel_cache(tree.root() / "kernels").problems.size(), 1u);
  tree.write("kernels/manifest.json", "{ not json");
  const KernelCacheFacts facts = probe_kernel_cache(tree.root() / "kernels");
  ASSERT_EQ(facts.problems.size(), 1u);
  EXPECT_CONTAINS(facts.problems[0], "manifest.json");
}

TEST(KernelCache, TheLargestModelsHeapIsAddedUp) {
  const SystemTree tree;
  KernelManifest manifest;
  const auto add = [&](const std::string& shape, const std::string& program, uint64_t bytes,
                       uint64_t run_bytes = 0) {
    KernelEntry entry;
    entry.name = shape + "/" + program;
    entry.program = program;
    entry.entry = "main:" + program;
    entry.shape = shape;
    entry.dims = kLlama32_1b;
    const AirProgram known = program_of(entry);
    entry.arguments = static_cast<uint32_t>(known.arguments.size());
    entry.launches = known.launches;
    entry.run_bytes = run_bytes;
    entry.platform = shape == "virtual" ? std::string(kVirtualPlatform) : "aie2p";
    entry.images = {{.bytes = bytes, .hash = std::string(32, 'a')}};
    manifest.entries.push_back(entry);
  };
  add("small", "o_ffn", 1000);
  add("large", "lm_head_gemv", 40000);  // two pieces of 32 KiB
  add("large", "o_gemv_ffn", 1000, 32769);
  add("virtual", "o_ffn", 1 << 30);
  write_manifest(tree.root(), manifest);
  const KernelCacheFacts facts = probe_kernel_cache(tree.root());
  EXPECT_EQ(facts.largest_model, "large");
  EXPECT_EQ(facts.heap.bytes, 4u * 32768);
  EXPECT_TRUE(facts.heap.is_estimate);
}

TEST(ModelProbe, OpensOrSaysWhyNot) {
  const ModelFacts shipped = probe_model(TYTO_SOURCE_DIR "/models/owlet");
  EXPECT_EQ(shipped.error, "");
  EXPECT_EQ(shipped.format, "safetensors");
  EXPECT_GT(shipped.weight_bytes, 1u << 20);
  EXPECT_CONTAINS(probe_model("/no/such/model.gguf").error, "model.gguf");
}

TEST(VulkanProbe, ListsDevices) {
  VulkanFacts vulkan;
  probe_vulkan(TYTO_FAKE_VULKAN, vulkan);
  EXPECT_TRUE(vulkan.enumerated);
  EXPECT_EQ(vulkan.error, "");
  EXPECT_FALSE(vulkan.broke_its_process);
  EXPECT_EQ(vulkan.devices, (std::vector<std::string>{
                                "Fake Radeon (integrated GPU, Vulkan 1.3)",
                                "Fake pipe (software on the processor's cores, Vulkan 1.3)"}));
}

// A server's other threads hold locks, here that of the dynamic loader: no child may wait for them.
TEST(VulkanProbe, AsksBesideThreadsThatHoldLocks) {
  struct Lock {
    std::promise<void> is_held, may_go;
  } lock;
  std::thread other([&] {
    const auto hold = [](dl_phdr_info*, size_t, void* of) {
      auto& held = *static_cast<Lock*>(of);
      held.is_held.set_value();
      held.may_go.get_future().wait();
      return 1;  // no more libraries
    };
    dl_iterate_phdr(hold, &lock);
  });
  lock.is_held.get_future().wait();
  VulkanFacts vulkan;
  probe_vulkan(TYTO_FAKE_VULKAN, vulkan, std::chrono::seconds(20));
  lock.may_go.set_value();
  other.join();
  EXPECT_EQ(vulkan.error, "");
  EXPECT_EQ(vulkan.devices.size(), 2u);
}

TEST(VulkanProbe, ALoaderThatGoesWrongIsAnErrorAndNotOurEnd) {
  const auto error_of = [](const char* library, std::chrono::milliseconds timeout,
                           bool breaks_its_process = true) {
    VulkanFacts vulkan;
    probe_vulkan(library, vulkan, timeout);
    EXPECT_TRUE(vulkan.devices.empty());
    EXPECT_EQ(vulkan.broke_its_process, breaks_its_process) << library;
    return vulkan.error;
  };
  constexpr std::chrono::seconds kLong{60};
  EXPECT_CONTAINS(error_of("/no/such/libvulkan.so.1", kLong, false), "cannot be loaded");
  EXPECT_CONTAINS(error_of("libm.so.6", kLong, false), "not a Vulkan loader");
  EXPECT_CONTAINS(error_of(TYTO_FAKE_VULKAN_REFUSES, kLong, false),
                  "listing GPUs failed: no driver fits");
  EXPECT_CONTAINS(error_of(TYTO_FAKE_VULKAN_CRASHES, kLong), "crashed with signal");
  EXPECT_CONTAINS(error_of(TYTO_FAKE_VULKAN_EXITS, kLong), "exit code 3");
  EXPECT_CONTAINS(error_of(TYTO_FAKE_VULKAN_HANGS, std::chrono::milliseconds(100)), "no answer");
}

}  // namespace
}  // namespace tyto

int main(int argc, char** argv) {
  tyto::list_gpus_if_asked(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
