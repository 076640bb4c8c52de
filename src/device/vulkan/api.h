// Vulkan's functions as a table of pointers, found in the system's loader when the device is
// opened: a machine without Vulkan runs the same program. Tests put their own functions into the
// table.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <memory>
#include <string>
#include <string_view>

namespace tyto::vulkan {

// X(name) for each function, by what it is looked up with.
#define TYTO_VULKAN_INSTANCE_FUNCTIONS(X)     \
  X(vkDestroyInstance)                        \
  X(vkEnumeratePhysicalDevices)               \
  X(vkGetPhysicalDeviceProperties2)           \
  X(vkGetPhysicalDeviceFeatures2)             \
  X(vkGetPhysicalDeviceMemoryProperties)      \
  X(vkGetPhysicalDeviceQueueFamilyProperties) \
  X(vkEnumerateDeviceExtensionProperties)     \
  X(vkCreateDevice)                           \
  X(vkGetDeviceProcAddr)

#define TYTO_VULKAN_DEVICE_FUNCTIONS(X) \
  X(vkDestroyDevice)                    \
  X(vkGetDeviceQueue)                   \
  X(vkDeviceWaitIdle)                   \
  X(vkCreateBuffer)                     \
  X(vkDestroyBuffer)                    \
  X(vkGetBufferMemoryRequirements)      \
  X(vkGetBufferDeviceAddress)           \
  X(vkAllocateMemory)                   \
  X(vkFreeMemory)                       \
  X(vkBindBufferMemory)                 \
  X(vkMapMemory)                        \
  X(vkCreateShaderModule)               \
  X(vkDestroyShaderModule)              \
  X(vkCreatePipelineLayout)             \
  X(vkDestroyPipelineLayout)            \
  X(vkCreatePipelineCache)              \
  X(vkDestroyPipelineCache)             \
  X(vkGetPipelineCacheData)             \
  X(vkCreateComputePipelines)           \
  X(vkDestroyPipeline)                  \
  X(vkCreateCommandPool)                \
  X(vkDestroyCommandPool)               \
  X(vkAllocateCommandBuffers)           \
  X(vkFreeCommandBuffers)               \
  X(vkBeginCommandBuffer)               \
  X(vkEndCommandBuffer)                 \
  X(vkCmdBindPipeline)                  \
  X(vkCmdPushConstants)                 \
  X(vkCmdDispatch)                      \
  X(vkCmdPipelineBarrier)               \
  X(vkCmdCopyBuffer)                    \
  X(vkCmdFillBuffer)                    \
  X(vkCmdResetQueryPool)                \
  X(vkCmdWriteTimestamp)                \
  X(vkCreateQueryPool)                  \
  X(vkDestroyQueryPool)                 \
  X(vkGetQueryPoolResults)              \
  X(vkCreateFence)                      \
  X(vkDestroyFence)                     \
  X(vkResetFences)                      \
  X(vkWaitForFences)                    \
  X(vkGetFenceStatus)                   \
  X(vkQueueSubmit)

struct Api {
#define TYTO_DECLARE(name) PFN_##name name = nullptr;
  PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr = nullptr;
  TYTO_DECLARE(vkCreateInstance)
  TYTO_DECLARE(vkEnumerateInstanceVersion)
  TYTO_VULKAN_INSTANCE_FUNCTIONS(TYTO_DECLARE)
  TYTO_VULKAN_DEVICE_FUNCTIONS(TYTO_DECLARE)
#undef TYTO_DECLARE
};

// The functions that need no instance, from the loader. An Error where the machine has none. The
// library stays loaded for the life of the process: drivers do not survive being unloaded.
inline constexpr const char* kLoader = "libvulkan.so.1";
Api load_api(const std::string& library = kLoader);
void load_instance_functions(Api& api, VkInstance instance);
void load_device_functions(Api& api, VkDevice device);

// A structure that says what it is, all else zero.
template <typename Structure>
Structure structure(VkStructureType type, void* next = nullptr) {
  Structure result{};
  result.sType = type;
  result.pNext = next;
  return result;
}

// Throws a device Error unless a call succeeded; `what` says what was tried.
void check(VkResult result, std::string_view what);
// As Vulkan's headers name it, without its prefix: "DEVICE_LOST".
std::string_view name(VkResult result);

}  // namespace tyto::vulkan
