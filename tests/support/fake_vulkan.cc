// A stand-in for libvulkan.so.1 with two devices; FAKE_VULKAN_... makes listing them go wrong.
#define VK_NO_PROTOTYPES
#include <unistd.h>
#include <vulkan/vulkan_core.h>

#include <cstdlib>
#include <cstring>

namespace {

int all[2] = {0, 1};

VkResult version(uint32_t* version) {
  *version = VK_API_VERSION_1_3;
  return VK_SUCCESS;
}

VkResult create_instance(const VkInstanceCreateInfo* info, const VkAllocationCallbacks*,
                         VkInstance* instance) {
  static int the_instance = 0;
  *instance = reinterpret_cast<VkInstance>(&the_instance);
  return info->sType == VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO ? VK_SUCCESS
                                                               : VK_ERROR_INITIALIZATION_FAILED;
}

void destroy_instance(VkInstance, const VkAllocationCallbacks*) {}

VkResult physical_devices(VkInstance, uint32_t* count, VkPhysicalDevice* devices) {
#if defined(FAKE_VULKAN_CRASHES)
  std::abort();  // a sanitizer would make an exit of a segmentation fault
#elif defined(FAKE_VULKAN_EXITS)
  ::_exit(3);
#elif defined(FAKE_VULKAN_HANGS)
  ::sleep(1000);
#elif defined(FAKE_VULKAN_REFUSES)
  return VK_ERROR_INCOMPATIBLE_DRIVER;
#endif
  *count = 2;
  for (int i = 0; devices != nullptr && i < 2; ++i)
    devices[i] = reinterpret_cast<VkPhysicalDevice>(&all[i]);
  return VK_SUCCESS;
}

void properties(VkPhysicalDevice device, VkPhysicalDeviceProperties2* properties) {
  const bool is_first = *reinterpret_cast<int*>(device) == 0;
  VkPhysicalDeviceProperties& own = properties->properties;
  own.apiVersion = VK_API_VERSION_1_3;
  own.deviceType = is_first ? VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU : VK_PHYSICAL_DEVICE_TYPE_CPU;
  std::strcpy(own.deviceName, is_first ? "Fake Radeon" : "Fake pipe");
}

VkResult extensions(VkPhysicalDevice, const char*, uint32_t* count, VkExtensionProperties*) {
  *count = 0;
  return VK_SUCCESS;
}

void memory(VkPhysicalDevice, VkPhysicalDeviceMemoryProperties* memory) {
  *memory = {};
}

void not_for_listing() {
  std::abort();
}

}  // namespace

extern "C" PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance, const char* name) {
  const auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  const auto as_any = [](auto* function) { return reinterpret_cast<PFN_vkVoidFunction>(function); };
  if (is("vkEnumerateInstanceVersion")) return as_any(version);
  if (is("vkCreateInstance")) return as_any(create_instance);
  if (is("vkDestroyInstance")) return as_any(destroy_instance);
  if (is("vkEnumeratePhysicalDevices")) return as_any(physical_devices);
  if (is("vkGetPhysicalDeviceProperties2")) return as_any(properties);
  if (is("vkEnumerateDeviceExtensionProperties")) return as_any(extensions);
  if (is("vkGetPhysicalDeviceMemoryProperties")) return as_any(memory);
  if (is("vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")) return nullptr;
  return not_for_listing;
}
