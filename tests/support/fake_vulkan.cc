// A stand-in for libvulkan.so.1 with two devices. FAKE_VULKAN_FAULT makes listing them go wrong.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {

int vkCreateInstance(const void* info, const void*, void** instance) {
  uint32_t type = 0;
  std::memcpy(&type, info, sizeof(type));
  static int the_instance = 0;
  *instance = &the_instance;
  return type == 1 ? 0 : -3;
}

int vkEnumeratePhysicalDevices(void*, uint32_t* count, void** devices) {
#if defined(FAKE_VULKAN_CRASHES)
  std::abort();  // a sanitizer would make an exit of a segmentation fault
#elif defined(FAKE_VULKAN_EXITS)
  ::_exit(3);
#elif defined(FAKE_VULKAN_HANGS)
  ::sleep(1000);
#elif defined(FAKE_VULKAN_REFUSES)
  return -9;
#endif
  static int all[2] = {0, 1};
  *count = 2;
  devices[0] = &all[0];
  devices[1] = &all[1];
  return 0;
}

void vkGetPhysicalDeviceProperties(void* device, void* properties) {
  const int index = *static_cast<int*>(device);
  const uint32_t numbers[5] = {(1u << 22) | (3u << 12), 0, 0x1002, 0x150e, index == 0 ? 1u : 4u};
  std::memset(properties, 0x5a, 824);  // the structure's whole size
  std::memcpy(properties, numbers, sizeof(numbers));
  std::strcpy(static_cast<char*>(properties) + 20, index == 0 ? "Fake Radeon" : "Fake pipe");
}
}
