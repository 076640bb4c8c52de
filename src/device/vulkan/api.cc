#include "device/vulkan/api.h"

#include <dlfcn.h>

#include "base/error.h"

namespace tyto::vulkan {
namespace {

template <typename Function>
void find(Function& function, PFN_vkVoidFunction found, const char* name) {
  if (found == nullptr)
    throw Error(ErrorCode::device, "vulkan", fmt::format("the driver has no {}", name),
                "Vulkan 1.2 is needed: update the driver");
  function = reinterpret_cast<Function>(found);
}

// What a person can do about it; empty: nothing that is known.
std::string_view next_step(VkResult result) {
  switch (result) {
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "use a smaller model, a smaller -c or fewer sequences";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "free some memory of this machine";
    case VK_ERROR_DEVICE_LOST:
      return "the kernel's log (dmesg) says why the GPU was reset";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
    case VK_ERROR_INITIALIZATION_FAILED:
      return "install the GPU's Vulkan driver (Debian: mesa-vulkan-drivers); tyto doctor shows "
             "what "
             "is there";
    default:
      return "";
  }
}

}  // namespace

Api load_api(const std::string& library) {
  void* const loaded = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)
    throw Error(ErrorCode::device, "vulkan",
                fmt::format("the Vulkan loader cannot be loaded: {}", ::dlerror()),
                "install it and the GPU's driver (Debian: libvulkan1 mesa-vulkan-drivers)");
  Api api;
  api.vkGetInstanceProcAddr =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(::dlsym(loaded, "vkGetInstanceProcAddr"));
  if (api.vkGetInstanceProcAddr == nullptr)
    throw Error(ErrorCode::device, "vulkan", library + " is not a Vulkan loader",
                "install the distribution's (Debian: libvulkan1)");
#define TYTO_FIND(function) \
  find(api.function, api.vkGetInstanceProcAddr(VK_NULL_HANDLE, #function), #function);
  TYTO_FIND(vkCreateInstance)
  TYTO_FIND(vkEnumerateInstanceVersion)
#undef TYTO_FIND
  return api;
}

void load_instance_functions(Api& api, VkInstance instance) {
#define TYTO_FIND(function) \
  find(api.function, api.vkGetInstanceProcAddr(instance, #function), #function);
  TYTO_VULKAN_INSTANCE_FUNCTIONS(TYTO_FIND)
#undef TYTO_FIND
}

void load_device_functions(Api& api, VkDevice device) {
#define TYTO_FIND(function) \
  find(api.function, api.vkGetDeviceProcAddr(device, #function), #function);
  TYTO_VULKAN_DEVICE_FUNCTIONS(TYTO_FIND)
#undef TYTO_FIND
}

void check(VkResult result, std::string_view what) {
  if (result == VK_SUCCESS) return;
  throw Error(ErrorCode::device, "vulkan", fmt::format("{} failed: {}", what, name(result)),
              std::string(next_step(result)));
}

std::string_view name(VkResult result) {
  switch (result) {
    case VK_SUCCESS:
      return "success";
    case VK_TIMEOUT:
      return "it did not end in time";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
      return "the host is out of memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
      return "the GPU is out of memory";
    case VK_ERROR_INITIALIZATION_FAILED:
      return "the driver could not be initialised";
    case VK_ERROR_DEVICE_LOST:
      return "the GPU was lost";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
      return "no driver fits";
    case VK_ERROR_FEATURE_NOT_PRESENT:
      return "a feature is missing";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
      return "an extension is missing";
    case VK_ERROR_TOO_MANY_OBJECTS:
      return "too many objects";
    default:
      return "an error that Vulkan gives no more about";
  }
}

}  // namespace tyto::vulkan
