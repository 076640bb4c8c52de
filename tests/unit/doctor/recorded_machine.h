// A healthy Strix Point machine as files, to be broken in one place by each test.
#pragma once

#include "support/system_tree.h"

namespace tyto {

inline const std::string kRelease = "7.0.0-12-generic";
inline const std::string kModules = "lib/modules/" + kRelease + "/";

inline void write_npu(const testing_support::SystemTree& tree, const std::string& device,
                      const std::string& revision, const std::string& driver) {
  const std::string pci = "sys/bus/pci/devices/0000:c5:00.1";
  tree.remove(pci);
  tree.write(pci + "/vendor", "0x1022\n");
  tree.write(pci + "/device", device + "\n");
  tree.write(pci + "/class", "0x118000\n");
  tree.write(pci + "/revision", revision + "\n");
  if (driver.empty()) return;
  tree.link(pci + "/driver", "../../../../bus/pci/drivers/" + driver);
  tree.write(pci + "/vbnv", "NPU Strix\n");
  tree.write(pci + "/fw_version", "1.1.2.64\n");
}

// The whole of XRT; the number of a library is part of its file's name.
inline void write_xrt(const testing_support::SystemTree& tree, const std::string& version) {
  tree.remove("opt/xilinx");
  for (const std::string name : {"libxrt_coreutil.so.2", "libxrt_driver_xdna.so.2"}) {
    const std::string file = name.substr(0, name.size() - 1) + version;
    tree.write("opt/xilinx/xrt/lib/" + file, "");
    tree.link("opt/xilinx/xrt/lib/" + name, file);
  }
}

// A process that has a node open, with what its driver says of that.
inline void write_holder(const testing_support::SystemTree& tree, int pid,
                         const std::string& program, const std::string& node,
                         const std::string& fdinfo) {
  const std::string process = "proc/" + std::to_string(pid) + "/";
  tree.write(process + "comm", program + "\n");
  tree.link(process + "fd/0", "/dev/null");
  tree.link(process + "fd/7", node);
  tree.write(process + "fdinfo/0", "pos:\t0\n");
  tree.write(process + "fdinfo/7", fdinfo);
}

inline void write_memlock(const testing_support::SystemTree& tree, const std::string& limit) {
  tree.write("proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max open files            20000                20000                files     \n"
             "Max locked memory         " +
                 limit + "            " + limit + "            bytes     \n");
}

inline void write_process(const testing_support::SystemTree& tree, const std::string& groups) {
  tree.write("proc/self/status",
             "Name:\ttyto\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t" +
                 groups + " \nCapEff:\t0000000000000000\n");
}

inline void write_healthy_machine(const testing_support::SystemTree& tree) {
  std::string cpus;
  for (int i = 0; i < 24; ++i)
    cpus += "processor\t: " + std::to_string(i) +
            "\nmodel name\t: AMD Ryzen AI 9 HX 370 w/ Radeon 890M\n"
            "flags\t\t: fpu sse2 fma f16c avx2 avx512f avx512_vnni avx512_bf16\n\n";
  tree.write("proc/cpuinfo", cpus);
  tree.write("proc/meminfo",
             "MemTotal:       32000000 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n");
  tree.write("proc/sys/kernel/osrelease", kRelease + "\n");
  write_memlock(tree, "unlimited");
  write_process(tree, "27 993");
  tree.write("etc/group", "root:x:0:\nsudo:x:27:owl\nrender:x:993:owl\nowl:x:1000:\n");
  tree.write("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nowl:x:1000:1000::/home/owl:/bin/sh\n");

  write_npu(tree, "0x17f0", "0x10", "amdxdna");
  tree.write("sys/bus/pci/devices/0000:00:00.0/vendor", "0x1022\n");
  tree.write("sys/bus/pci/devices/0000:00:00.0/device", "0x1507\n");
  tree.write("sys/bus/pci/devices/0000:00:00.0/class", "0x060000\n");
  tree.write("sys/class/iommu/ivhd0/amd-iommu/cap", "0\n");
  tree.write("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/nvme0n1p2 quiet iommu=pt\n");
  tree.write("sys/module/amdxdna/version", "0.1\n");
  tree.write(kModules + "kernel/drivers/accel/amdxdna/amdxdna.ko.zst", "");
  tree.write("lib/firmware/amdnpu/17f0_10/npu.sbin.zst", "");
  tree.write("dev/accel/accel0", "");
  tree.permit("dev/accel/accel0");
  tree.link("sys/class/accel/accel0/device/driver", "../../../bus/pci/drivers/amdxdna");

  write_xrt(tree, "2.26.0");
  tree.write("etc/systemd/system/tyto.service", "[Service]\nLimitMEMLOCK=infinity\n");
  tree.write("sys/firmware/acpi/platform_profile", "performance\n");
  tree.write("sys/firmware/acpi/platform_profile_choices", "low-power balanced performance\n");
  tree.write("sys/class/power_supply/AC/type", "Mains\n");
  tree.write("sys/class/power_supply/AC/online", "1\n");
  tree.write("sys/class/powercap/intel-rapl:0/name", "package-0\n");
  tree.write("sys/class/powercap/intel-rapl:0/energy_uj", "123456\n");
  tree.write("dev/dri/renderD128", "");
  tree.write("usr/lib/x86_64-linux-gnu/libvulkan.so.1", "");
  tree.write("usr/share/vulkan/icd.d/radeon_icd.x86_64.json", "{}");
}

}  // namespace tyto
