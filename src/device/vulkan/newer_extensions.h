// Extensions that are younger than the headers of the oldest distribution we build on (Debian 12
// has 1.3.239). The numbers are Vulkan's registry's.
#pragma once

#include "device/vulkan/api.h"

namespace tyto::vulkan {

constexpr char kCooperativeMatrix[] = "VK_KHR_cooperative_matrix";
constexpr char kBfloat16[] = "VK_KHR_shader_bfloat16";

struct CooperativeMatrixFeatures {
  VkStructureType type = static_cast<VkStructureType>(1000506000);
  void* next = nullptr;
  VkBool32 cooperative_matrix = VK_FALSE;
  VkBool32 robust_buffer_access = VK_FALSE;
};

struct CooperativeMatrixShape {
  VkStructureType type = static_cast<VkStructureType>(1000506001);
  void* next = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  uint32_t a = 0, b = 0, c = 0, result = 0;  // component types
  VkBool32 saturates = VK_FALSE;
  uint32_t scope = 0;
};
using GetCooperativeMatrixShapes = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*,
                                                        CooperativeMatrixShape*);
constexpr char kGetCooperativeMatrixShapes[] = "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR";

constexpr uint32_t kFloat16Component = 0, kFloat32Component = 1, kBfloat16Component = 1000141000;
constexpr uint32_t kSubgroupScope = 3;

struct Bfloat16Features {
  VkStructureType type = static_cast<VkStructureType>(1000141000);
  void* next = nullptr;
  VkBool32 bfloat16_type = VK_FALSE;
  VkBool32 bfloat16_dot_product = VK_FALSE;
  VkBool32 bfloat16_cooperative_matrix = VK_FALSE;
};

}  // namespace tyto::vulkan
