// Mesa's llvmpipe as the vulkan device of tests, under Vulkan's validation layer. The layer prints
// what it finds, and ctest fails a test that prints that (tests/CMakeLists.txt).
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "device/device.h"

// Mesa's driver and the compiler in it leave memory behind at their end, and a GPU that was lost is
// left to driver, loader and layer as it is: it cannot be waited for. What Tyto leaves counts.
extern "C" __attribute__((used)) inline const char* __lsan_default_suppressions() {
  return "leak:libvulkan_lvp.so\nleak:libLLVM\nleak:libVkLayer_khronos\nleak:libvulkan.so\n";
}

namespace tyto::testing_support {

// Settings for DeviceEnv; the loader reads the variables when a GPU is opened. Mesa keeps what it
// compiled for the next test: that takes nearly all of their time.
inline DeviceSettings software_gpu() {
  const auto cache = std::filesystem::temp_directory_path() / "tyto-test-cache";
  ::setenv("VK_ICD_FILENAMES", "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json", 1);
  ::setenv("VK_INSTANCE_LAYERS", "VK_LAYER_KHRONOS_validation", 1);
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  // LeakSanitizer knows a leak by its library only while that is loaded, and the loader unloads
  // them.
  for (const char* library : {"libvulkan_lvp.so", "libVkLayer_khronos_validation.so"})
    ::dlopen(library, RTLD_NOW | RTLD_NODELETE);
  return {{"gpu", "llvmpipe"}};
}

// The loader passes over a layer that is not installed, so a silent one may be none.
inline void expect_validated() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line))
    if (line.find("VkLayer_khronos_validation") != std::string::npos) return;
  ADD_FAILURE() << "a GPU is open without Vulkan's validation layer (vulkan-validationlayers)";
}

}  // namespace tyto::testing_support
