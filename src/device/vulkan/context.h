// Vulkan's functions, and one GPU opened with them: instance, logical device, queue, and the facts
// that kernels are chosen by.
#pragma once

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tyto::vulkan {

// Vulkan's functions as a table of pointers, found in the system's loader when the device is
// opened: a machine without Vulkan runs the same program. Tests put their own functions into the
// table.

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

// In the order in which one is taken that was not asked for by name: the GPU beside the processor's
// cores first, since that one is what this program is for; software never.
enum class GpuKind : uint8_t { integrated, discrete, virtual_gpu, other, software };
std::string_view name(GpuKind kind);

struct GpuFacts {
  std::string name;         // "AMD Radeon 890M (RADV GFX1150)"
  std::string driver;       // "radv, Mesa 25.0.7"
  std::string vulkan = {};  // the version it has, "1.3"
  GpuKind kind = GpuKind::other;
  uint32_t subgroup_size = 1;
  uint32_t compute_units = 1;       // or a guess, where the driver does not say
  uint32_t shared_bytes = 0;        // that a workgroup may have
  uint32_t most_invocations = 0;    // in a workgroup
  uint64_t largest_allocation = 0;  // bytes
  double timestamp_ns = 0;          // one tick's; 0: its queue has no timestamps
  uint32_t timestamp_bits = 0;      // that a timestamp of its queue has
  bool has_host_memory = false;     // all of its memory is mapped: nothing has to be copied
  bool multiplies_f16 = false;      // cooperative matrices 16 x 16 x 16 with f32 sums
  bool multiplies_bf16 = false;
  bool multiplies_bytes = false;  // four at a time, as fast as other instructions
  uint32_t matrix_layout = 0;  // how they lie in registers (shaders/coop_layout.comp); 0: unknown
};

// The GPUs that Vulkan lists, without opening one.
std::vector<GpuFacts> list_gpus(const std::string& library = kLoader);

// `wanted`: part of a GPU's name, or its number among `gpus`; empty: the first of the first kind. A
// software renderer is a CPU, and taken only where it is asked for. An Error where none fits.
size_t choose_gpu(std::span<const GpuFacts> gpus, const std::string& wanted);

// Used by one thread; shared by what was allocated in it.
class Context {
 public:
  // `wanted` is as choose_gpu() takes it, among list_gpus().
  explicit Context(const std::string& wanted);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  Api api;
  GpuFacts facts;
  VkInstance instance = VK_NULL_HANDLE;
  VkPhysicalDevice physical = VK_NULL_HANDLE;
  VkDevice device = VK_NULL_HANDLE;
  uint32_t queue_family = 0;
  VkQueue queue = VK_NULL_HANDLE;
  VkCommandPool commands = VK_NULL_HANDLE;
  VkPipelineLayout layout = VK_NULL_HANDLE;  // one block of push constants, for every kernel
  VkPhysicalDeviceMemoryProperties memory = {};
  // It failed or did not answer: nothing of it may be waited for any more.
  bool is_lost = false;

  // Hands one command buffer over; `fence` tells when it has ended.
  void submit(VkCommandBuffer commands, VkFence fence);
  // False: it has not ended yet. A GPU that was lost is an Error.
  bool wait(VkFence fence, uint64_t timeout_ns);
  VkCommandBuffer new_command_buffer();
  VkFence new_fence();

 private:
  void open(const std::string& wanted);
  void open_device();
};

constexpr uint32_t kPushConstantBytes = 128;  // the least that Vulkan guarantees

// Extensions that are younger than the headers of the oldest distribution we build on (Debian 12
// has 1.3.239). The numbers are Vulkan's registry's.

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
