// The readers on fake /sys trees and a fake NVML.
#include "power/power.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/system_tree.h"

namespace tyto {
namespace {

using testing_support::AsNobody;
using testing_support::SystemTree;

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

void add_zone(const SystemTree& tree, const std::string& zone, const std::string& name,
              const std::string& energy) {
  const std::string folder = "sys/class/powercap/" + zone;
  tree.write(folder + "/name", name + "\n");
  tree.write(folder + "/energy_uj", energy + "\n");
  tree.write(folder + "/max_energy_range_uj", "65532610987\n");
}

void add_hwmon(const SystemTree& tree, const std::string& number, const std::string& driver,
               const std::string& file, const std::string& value, const std::string& label) {
  const std::string folder = "sys/class/hwmon/hwmon" + number;
  tree.write(folder + "/name", driver + "\n");
  tree.write(folder + "/" + file, value + "\n");
  if (!label.empty()) tree.write(folder + "/power1_label", label + "\n");
}

TEST(Rapl, PackageAndSubdomainsAreRailsOfTheirOwn) {
  const SystemTree tree;
  tree.write("sys/class/powercap/intel-rapl/enabled", "1\n");
  add_zone(tree, "intel-rapl:0", "package-0", "12345678");
  add_zone(tree, "intel-rapl:0:0", "core", "2000000");
  add_zone(tree, "intel-rapl-mmio:0", "package-0", "12345678");  // the same counter again
  const auto rails = rapl_rails(tree.root());
  ASSERT_EQ(rails.size(), 2u);
  EXPECT_EQ(rails[0].rail.label(), "rapl package-0");
  EXPECT_EQ(rails[0].rail.kind, RailKind::energy_counter);
  EXPECT_DOUBLE_EQ(rails[0].rail.range_joules, 65532.610987);
  EXPECT_EQ(rails[0].unavailable, "");
  EXPECT_DOUBLE_EQ(rails[0].read().value, 12.345678);
  EXPECT_EQ(rails[1].rail.label(), "rapl package-0/core");
  EXPECT_DOUBLE_EQ(rails[1].read().value, 2.0);
}

TEST(Rapl, WithoutZonesTheReasonSaysSo) {
  const SystemTree tree;
  const auto rails = rapl_rails(tree.root());
  ASSERT_EQ(rails.size(), 1u);
  EXPECT_CONTAINS(rails[0].unavailable, "no RAPL zone");
}

TEST(Rapl, AFileForRootAloneIsAPermissionReasonAndNotAMissingRail) {
  const SystemTree tree;
  add_zone(tree, "intel-rapl:0", "package-0", "12345678");
  tree.forbid("sys/class/powercap/intel-rapl:0/energy_uj");
  const AsNobody nobody;
  if (!nobody) GTEST_SKIP() << "this process may not become another user";
  const auto rails = rapl_rails(tree.root());
  ASSERT_EQ(rails.size(), 1u);
  EXPECT_EQ(rails[0].rail.name, "package-0");
  EXPECT_CONTAINS(rails[0].unavailable, "permission denied");
  EXPECT_CONTAINS(rails[0].unavailable, "energy_uj");
}

TEST(Rapl, WhatIsNotANumberIsNotRead) {
  const SystemTree tree;
  for (const char* text : {"", "twelve", "12 J", "-5", "1e3", "99999999999999999999999"}) {
    add_zone(tree, "intel-rapl:0", "package-0", text);
    EXPECT_CONTAINS(rapl_rails(tree.root())[0].unavailable, "not a number") << text;
  }
}

TEST(Amdgpu, TheAverageIsPreferredAndTheLabelNamesTheRail) {
  const SystemTree tree;
  add_hwmon(tree, "0", "k10temp", "temp1_input", "50000", "");
  add_hwmon(tree, "3", "amdgpu", "power1_average", "13042000", "PPT");
  tree.write("sys/class/hwmon/hwmon3/power1_input", "99000000\n");
  tree.link("sys/class/hwmon/hwmon3/device", "../../../0000:c5:00.0");
  add_hwmon(tree, "4", "amdgpu", "power1_input", "7000000", "");
  const auto rails = amdgpu_rails(tree.root());
  ASSERT_EQ(rails.size(), 2u);
  EXPECT_EQ(rails[0].rail.label(), "amdgpu PPT 0000:c5:00.0");
  EXPECT_EQ(rails[0].rail.kind, RailKind::sampled_power);
  EXPECT_DOUBLE_EQ(rails[0].read().value, 13.042);
  EXPECT_EQ(rails[1].rail.label(), "amdgpu power1");
  EXPECT_DOUBLE_EQ(rails[1].read().value, 7.0);
}

TEST(Amdgpu, ADriverWithoutAPowerFileSaysWhichFileIsMissing) {
  const SystemTree tree;
  EXPECT_CONTAINS(amdgpu_rails(tree.root())[0].unavailable, "no amdgpu");
  tree.write("sys/class/hwmon/hwmon0/name", "amdgpu\n");
  EXPECT_CONTAINS(amdgpu_rails(tree.root())[0].unavailable, "power1_input");
}

TEST(Amdxdna, ReadsTheNpusOwnSensor) {
  const SystemTree tree;
  add_hwmon(tree, "7", "amdxdna", "power1_input", "1570000", "NPU_power");
  const auto rails = amdxdna_rails(tree.root());
  ASSERT_EQ(rails.size(), 1u);
  EXPECT_EQ(rails[0].rail.label(), "amdxdna NPU_power");
  EXPECT_DOUBLE_EQ(rails[0].read().value, 1.57);
}

TEST(Amdxdna, TheReasonTellsNoNpuFromNoSensor) {
  const SystemTree tree;
  EXPECT_CONTAINS(amdxdna_rails(tree.root())[0].unavailable, "no NPU");
  tree.write("sys/bus/pci/drivers/amdxdna/bind", "");
  EXPECT_CONTAINS(amdxdna_rails(tree.root())[0].unavailable, "no NPU");
  tree.write("sys/bus/pci/drivers/amdxdna/0000:c5:00.1/vendor", "0x1022\n");
  EXPECT_CONTAINS(amdxdna_rails(tree.root())[0].unavailable, "no power sensor");
}

TEST(Amdxdna, ADriverThatHasNoValueIsNotBelieved) {
  const SystemTree tree;
  add_hwmon(tree, "7", "amdxdna", "power1_input", "4294967295000", "NPU_power");
  EXPECT_CONTAINS(amdxdna_rails(tree.root())[0].unavailable, "has no value");
}

TEST(Nvml, CountsEnergyWhereTheBoardDoesAndPowerWhereItDoesNot) {
  const auto rails = nvml_rails(TYTO_FAKE_NVML);
  ASSERT_EQ(rails.size(), 3u);
  EXPECT_EQ(rails[0].rail.label(), "nvml GPU 0 Fake 0");
  EXPECT_EQ(rails[0].rail.kind, RailKind::energy_counter);
  const double first = rails[0].read().value;
  EXPECT_DOUBLE_EQ(rails[0].read().value - first, 5.0);
  EXPECT_EQ(rails[1].rail.kind, RailKind::sampled_power);
  EXPECT_EQ(rails[1].unavailable, "");
  EXPECT_DOUBLE_EQ(rails[1].read().value, 30.0);
  EXPECT_CONTAINS(rails[2].unavailable, "GPU is lost");
}

TEST(Nvml, IsShutDownWithTheLastReader) {
  void* library = ::dlopen(TYTO_FAKE_NVML, RTLD_NOW);
  ASSERT_NE(library, nullptr);
  const auto open_sessions =
      reinterpret_cast<int (*)()>(::dlsym(library, "fake_nvml_open_sessions"));
  {
    const auto rails = nvml_rails(TYTO_FAKE_NVML);
    EXPECT_EQ(open_sessions(), 1);
  }
  EXPECT_EQ(open_sessions(), 0);
  ::dlclose(library);
}

TEST(Nvml, AbsentOrForeignLibrariesAreReasons) {
  EXPECT_CONTAINS(nvml_rails("libno-such-thing.so.1")[0].unavailable, "no libno-such-thing");
  EXPECT_CONTAINS(nvml_rails("libm.so.6")[0].unavailable, "lacks a function");
}

TEST(PowerRails, EverySourceIsThereEvenWhenItHasNothing) {
  const SystemTree tree;
  std::vector<std::string> sources;
  for (const RailReader& reader : power_rails({tree.root(), "libno-such-thing.so.1"})) {
    sources.push_back(reader.rail.source);
    EXPECT_NE(reader.unavailable, "");
  }
  EXPECT_EQ(sources, (std::vector<std::string>{"rapl", "amdgpu", "amdxdna", "nvml"}));
}

}  // namespace
}  // namespace tyto
