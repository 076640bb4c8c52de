#include "device/vulkan/context.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstring>

#include "base/error.h"
#include "base/spelling.h"

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

namespace {

constexpr uint32_t kVersion = VK_API_VERSION_1_2;

VkInstance new_instance(Api& api) {
  uint32_t version = 0;
  check(api.vkEnumerateInstanceVersion(&version), "asking for Vulkan's version");
  if (version < kVersion)
    throw Error(ErrorCode::device, "vulkan", "the loader is older than Vulkan 1.2",
                "update the distribution's Vulkan loader");
  auto application = structure<VkApplicationInfo>(VK_STRUCTURE_TYPE_APPLICATION_INFO);
  application.pApplicationName = "tyto";
  application.apiVersion = std::min<uint32_t>(version, VK_API_VERSION_1_3);
  auto create = structure<VkInstanceCreateInfo>(VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO);
  create.pApplicationInfo = &application;
  VkInstance instance = VK_NULL_HANDLE;
  check(api.vkCreateInstance(&create, nullptr, &instance), "starting Vulkan");
  load_instance_functions(api, instance);
  return instance;
}

// The first stays for the life of the process, and drivers with it: they leave memory and threads
// behind when they are unloaded.
void destroy_instance(const Api& api, VkInstance instance) {
  static std::atomic<bool> keeps_one = false;
  if (keeps_one.exchange(true)) api.vkDestroyInstance(instance, nullptr);
}

std::vector<VkPhysicalDevice> physical_devices(const Api& api, VkInstance instance) {
  uint32_t count = 0;
  check(api.vkEnumeratePhysicalDevices(instance, &count, nullptr), "listing GPUs");
  std::vector<VkPhysicalDevice> devices(count);
  check(api.vkEnumeratePhysicalDevices(instance, &count, devices.data()), "listing GPUs");
  return devices;
}

GpuKind kind_of(VkPhysicalDeviceType type) {
  switch (type) {
    case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
      return GpuKind::integrated;
    case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
      return GpuKind::discrete;
    case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
      return GpuKind::virtual_gpu;
    case VK_PHYSICAL_DEVICE_TYPE_CPU:
      return GpuKind::software;
    default:
      return GpuKind::other;
  }
}

bool has_extension(const Api& api, VkPhysicalDevice physical, const char* wanted) {
  uint32_t count = 0;
  check(api.vkEnumerateDeviceExtensionProperties(physical, nullptr, &count, nullptr),
        "listing extensions");
  std::vector<VkExtensionProperties> all(count);
  check(api.vkEnumerateDeviceExtensionProperties(physical, nullptr, &count, all.data()),
        "listing extensions");
  return std::ranges::any_of(all, [&](const VkExtensionProperties& extension) {
    return std::strcmp(extension.extensionName, wanted) == 0;
  });
}

// Whether it multiplies 16 x 16 x 16 of a component type into f32.
bool multiplies(const Api& api, VkInstance instance, VkPhysicalDevice physical,
                uint32_t component) {
  const auto list = reinterpret_cast<GetCooperativeMatrixShapes>(
      api.vkGetInstanceProcAddr(instance, kGetCooperativeMatrixShapes));
  if (list == nullptr || !has_extension(api, physical, kCooperativeMatrix)) return false;
  uint32_t count = 0;
  check(list(physical, &count, nullptr), "listing cooperative matrices");
  std::vector<CooperativeMatrixShape> shapes(count);
  check(list(physical, &count, shapes.data()), "listing cooperative matrices");
  return std::ranges::any_of(shapes, [&](const CooperativeMatrixShape& shape) {
    return shape.m == 16 && shape.n == 16 && shape.k == 16 && shape.a == component &&
           shape.b == component && shape.c == kFloat32Component &&
           shape.result == kFloat32Component && shape.scope == kSubgroupScope;
  });
}

bool is_all_mapped(const Api& api, VkPhysicalDevice physical) {
  VkPhysicalDeviceMemoryProperties memory;
  api.vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  constexpr VkMemoryPropertyFlags kMapped = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT |
                                            VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT |
                                            VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  return std::any_of(
      memory.memoryTypes, memory.memoryTypes + memory.memoryTypeCount,
      [&](const VkMemoryType& type) {
        return (type.propertyFlags & (kMapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT)) ==
               (kMapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT);
      });
}

// Whether dot products of four bytes are instructions.
bool multiplies_bytes(const Api& api, VkPhysicalDevice physical) {
  if (!has_extension(api, physical, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME)) return false;
  auto dot = structure<VkPhysicalDeviceShaderIntegerDotProductProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_PROPERTIES);
  auto all =
      structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, &dot);
  api.vkGetPhysicalDeviceProperties2(physical, &all);
  return dot.integerDotProduct4x8BitPackedSignedAccelerated == VK_TRUE &&
         dot.integerDotProduct4x8BitPackedMixedSignednessAccelerated == VK_TRUE;
}

// Core Vulkan has no word for it; makers do.
uint32_t compute_units(const Api& api, VkPhysicalDevice physical, GpuKind kind) {
  auto nvidia = structure<VkPhysicalDeviceShaderSMBuiltinsPropertiesNV>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
  auto amd = structure<VkPhysicalDeviceShaderCorePropertiesAMD>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD);
  auto all = structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2);
  if (has_extension(api, physical, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
    all.pNext = &nvidia;
    api.vkGetPhysicalDeviceProperties2(physical, &all);
    return std::max(1u, nvidia.shaderSMCount);
  }
  if (has_extension(api, physical, VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
    all.pNext = &amd;
    api.vkGetPhysicalDeviceProperties2(physical, &all);
    return std::max(1u, amd.shaderEngineCount * amd.shaderArraysPerEngineCount *
                            amd.computeUnitsPerShaderArray);
  }
  return kind == GpuKind::discrete ? 64 : kind == GpuKind::software ? 4 : 16;
}

GpuFacts facts_of(const Api& api, VkInstance instance, VkPhysicalDevice physical) {
  auto driver = structure<VkPhysicalDeviceDriverProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
  auto subgroup = structure<VkPhysicalDeviceSubgroupProperties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES, &driver);
  auto sizes = structure<VkPhysicalDeviceMaintenance3Properties>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_3_PROPERTIES, &subgroup);
  auto all = structure<VkPhysicalDeviceProperties2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                                    &sizes);
  api.vkGetPhysicalDeviceProperties2(physical, &all);
  const VkPhysicalDeviceProperties& own = all.properties;
  GpuFacts facts{.name = own.deviceName,
                 .driver = fmt::format("{} {}", driver.driverName, driver.driverInfo),
                 .vulkan = fmt::format("{}.{}", VK_API_VERSION_MAJOR(own.apiVersion),
                                       VK_API_VERSION_MINOR(own.apiVersion)),
                 .kind = kind_of(own.deviceType),
                 .subgroup_size = subgroup.subgroupSize,
                 .shared_bytes = own.limits.maxComputeSharedMemorySize,
                 .most_invocations = own.limits.maxComputeWorkGroupInvocations,
                 .largest_allocation = sizes.maxMemoryAllocationSize};
  facts.compute_units = compute_units(api, physical, facts.kind);
  facts.multiplies_bytes = multiplies_bytes(api, physical);
  facts.timestamp_ns = own.limits.timestampPeriod;
  facts.has_host_memory = (facts.kind == GpuKind::integrated || facts.kind == GpuKind::software) &&
                          is_all_mapped(api, physical);
  facts.multiplies_f16 = multiplies(api, instance, physical, kFloat16Component);
  facts.multiplies_bf16 = multiplies(api, instance, physical, kBfloat16Component) &&
                          has_extension(api, physical, kBfloat16);
  return facts;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

std::vector<GpuFacts> list(const Api& api, VkInstance instance) {
  std::vector<GpuFacts> gpus;
  for (VkPhysicalDevice device : physical_devices(api, instance))
    gpus.push_back(facts_of(api, instance, device));
  return gpus;
}

}  // namespace

size_t choose_gpu(std::span<const GpuFacts> gpus, const std::string& wanted) {
  std::vector<std::string_view> names;
  for (const GpuFacts& gpu : gpus) names.push_back(gpu.name);
  if (gpus.empty())
    throw Error(ErrorCode::device, "vulkan", "Vulkan lists no GPU",
                "install the GPU's driver (Debian: mesa-vulkan-drivers)");
  if (!wanted.empty()) {
    const bool is_number =
        std::ranges::all_of(wanted, [](unsigned char c) { return std::isdigit(c); });
    if (is_number && wanted.size() < 4 && std::stoul(wanted) < gpus.size())
      return std::stoul(wanted);
    for (size_t i = 0; i < gpus.size(); ++i)
      if (lower(gpus[i].name).find(lower(wanted)) != std::string::npos) return i;
    throw Error(ErrorCode::usage, "--gpu " + wanted, "no GPU has that name or number",
                "Vulkan lists: " + joined(names, ", "));
  }
  const auto first = std::ranges::min_element(gpus, {}, &GpuFacts::kind);
  if (first->kind != GpuKind::software) return static_cast<size_t>(first - gpus.begin());
  throw Error(
      ErrorCode::device, "vulkan",
      fmt::format("the only device is {}, which computes on the processor's cores", names[0]),
      "install the GPU's driver, or say --gpu llvmpipe to try it all the same");
}

std::string_view name(GpuKind kind) {
  switch (kind) {
    case GpuKind::integrated:
      return "integrated GPU";
    case GpuKind::discrete:
      return "discrete GPU";
    case GpuKind::virtual_gpu:
      return "virtual GPU";
    case GpuKind::software:
      return "software on the processor's cores";
    case GpuKind::other:
      break;
  }
  return "GPU";
}

std::vector<GpuFacts> list_gpus(const std::string& library) {
  Api api = load_api(library);
  VkInstance instance = new_instance(api);
  std::vector<GpuFacts> gpus = list(api, instance);
  destroy_instance(api, instance);
  return gpus;
}

Context::Context(const std::string& wanted) : api(load_api()) {
  instance = new_instance(api);
  try {
    open(wanted);
  } catch (...) {
    if (device != VK_NULL_HANDLE) api.vkDestroyDevice(device, nullptr);
    destroy_instance(api, instance);
    throw;
  }
}

void Context::open(const std::string& wanted) {
  const std::vector<GpuFacts> gpus = list(api, instance);
  const size_t chosen = choose_gpu(gpus, wanted);
  facts = gpus[chosen];
  physical = physical_devices(api, instance)[chosen];
  open_device();
  load_device_functions(api, device);
  api.vkGetDeviceQueue(device, queue_family, 0, &queue);
  api.vkGetPhysicalDeviceMemoryProperties(physical, &memory);
  auto pool = structure<VkCommandPoolCreateInfo>(VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO);
  pool.queueFamilyIndex = queue_family;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  check(api.vkCreateCommandPool(device, &pool, nullptr, &commands), "making a command pool");
  const VkPushConstantRange range{VK_SHADER_STAGE_COMPUTE_BIT, 0, kPushConstantBytes};
  auto create =
      structure<VkPipelineLayoutCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO);
  create.pushConstantRangeCount = 1;
  create.pPushConstantRanges = &range;
  check(api.vkCreatePipelineLayout(device, &create, nullptr, &layout), "making a pipeline layout");
}

// Every feature that the kernels need, and those that some variants need where they are there.
void Context::open_device() {
  uint32_t count = 0;
  api.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  api.vkGetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  const auto computes = std::ranges::find_if(families, [](const VkQueueFamilyProperties& family) {
    return (family.queueFlags & VK_QUEUE_COMPUTE_BIT) != 0;
  });
  if (computes == families.end())
    throw Error(ErrorCode::device, "vulkan", fmt::format("{} has no compute queue", facts.name));
  queue_family = static_cast<uint32_t>(computes - families.begin());
  facts.timestamp_bits = computes->timestampValidBits;
  if (facts.timestamp_bits == 0) facts.timestamp_ns = 0;

  CooperativeMatrixFeatures matrices;
  Bfloat16Features bfloat16;
  auto vulkan12 = structure<VkPhysicalDeviceVulkan12Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
  auto vulkan11 = structure<VkPhysicalDeviceVulkan11Features>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, &vulkan12);
  auto features =
      structure<VkPhysicalDeviceFeatures2>(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, &vulkan11);
  std::vector<const char*> extensions;
  auto dot = structure<VkPhysicalDeviceShaderIntegerDotProductFeatures>(
      VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES);
  if (facts.multiplies_bytes) {
    extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    features.pNext = &dot;
    dot.pNext = &vulkan11;
  }
  if (facts.multiplies_f16 || facts.multiplies_bf16) {
    extensions.push_back(kCooperativeMatrix);
    vulkan12.pNext = &matrices;
  }
  if (facts.multiplies_bf16) {
    extensions.push_back(kBfloat16);
    matrices.next = &bfloat16;
  }
  api.vkGetPhysicalDeviceFeatures2(physical, &features);
  if (vulkan12.bufferDeviceAddress == VK_FALSE)
    throw Error(ErrorCode::device, "vulkan",
                fmt::format("{} has no buffer device addresses", facts.name), "update its driver");
  features.features.robustBufferAccess = VK_FALSE;  // kernels check their edges themselves
  matrices.robust_buffer_access = VK_FALSE;

  const float priority = 1;
  auto queues = structure<VkDeviceQueueCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO);
  queues.queueFamilyIndex = queue_family;
  queues.queueCount = 1;
  queues.pQueuePriorities = &priority;
  auto create = structure<VkDeviceCreateInfo>(VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO, &features);
  create.queueCreateInfoCount = 1;
  create.pQueueCreateInfos = &queues;
  create.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  create.ppEnabledExtensionNames = extensions.data();
  check(api.vkCreateDevice(physical, &create, nullptr, &device), "opening " + facts.name);
}

// A GPU that does not answer cannot be waited for: what it holds is left to the driver.
Context::~Context() {
  if (is_lost) return;
  api.vkDestroyPipelineLayout(device, layout, nullptr);
  api.vkDestroyCommandPool(device, commands, nullptr);
  api.vkDestroyDevice(device, nullptr);
  destroy_instance(api, instance);
}

void Context::submit(VkCommandBuffer buffer, VkFence fence) {
  auto info = structure<VkSubmitInfo>(VK_STRUCTURE_TYPE_SUBMIT_INFO);
  info.commandBufferCount = 1;
  info.pCommandBuffers = &buffer;
  const VkResult result = api.vkQueueSubmit(queue, 1, &info, fence);
  if (result != VK_SUCCESS) is_lost = true;
  check(result, "submitting");
}

bool Context::wait(VkFence fence, uint64_t timeout_ns) {
  const VkResult result = api.vkWaitForFences(device, 1, &fence, VK_TRUE, timeout_ns);
  if (result == VK_TIMEOUT) return false;
  if (result != VK_SUCCESS) is_lost = true;
  check(result, "waiting for the GPU");
  return true;
}

VkCommandBuffer Context::new_command_buffer() {
  auto info =
      structure<VkCommandBufferAllocateInfo>(VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO);
  info.commandPool = commands;
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  VkCommandBuffer buffer = VK_NULL_HANDLE;
  check(api.vkAllocateCommandBuffers(device, &info, &buffer), "making a command buffer");
  return buffer;
}

VkFence Context::new_fence() {
  const auto info = structure<VkFenceCreateInfo>(VK_STRUCTURE_TYPE_FENCE_CREATE_INFO);
  VkFence fence = VK_NULL_HANDLE;
  check(api.vkCreateFence(device, &info, nullptr, &fence), "making a fence");
  return fence;
}

}  // namespace tyto::vulkan
