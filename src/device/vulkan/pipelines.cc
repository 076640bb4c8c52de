#include "device/vulkan/pipelines.h"

#include <algorithm>
#include <span>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/file.h"

namespace tyto::vulkan {
namespace {

const Shader* find_shader(std::string_view name) {
  const auto all = shaders();
  const auto found = std::ranges::find(all, name, &Shader::name);
  return found == all.end() ? nullptr : &*found;
}

// A driver looks at the header and ignores what another one, or another version, has left; a file
// that cannot be read is as none.
std::string kept(const std::filesystem::path& file) {
  constexpr uint64_t kMostBytes = uint64_t{256} << 20;
  std::error_code ignored;
  if (file.empty() || !std::filesystem::is_regular_file(file, ignored)) return {};
  try {
    return read_replaceable_file(file, kMostBytes);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Pipelines::Pipelines(std::shared_ptr<Context> context, std::filesystem::path file)
    : context_(std::move(context)), file_(std::move(file)) {
  const std::string before = kept(file_);
  auto create = structure<VkPipelineCacheCreateInfo>(VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO);
  create.initialDataSize = before.size();
  create.pInitialData = before.data();
  const Api& api = context_->api;
  if (api.vkCreatePipelineCache(context_->device, &create, nullptr, &cache_) != VK_SUCCESS) {
    create.initialDataSize = 0;
    check(api.vkCreatePipelineCache(context_->device, &create, nullptr, &cache_),
          "making a pipeline cache");
  }
}

Pipelines::~Pipelines() {
  if (context_->is_lost) return;
  const Api& api = context_->api;
  for (const auto& [key, pipeline] : pipelines_)
    api.vkDestroyPipeline(context_->device, pipeline, nullptr);
  for (const auto& [name, module] : modules_)
    api.vkDestroyShaderModule(context_->device, module, nullptr);
  api.vkDestroyPipelineCache(context_->device, cache_, nullptr);
}

bool Pipelines::has(const std::string& shader) {
  return find_shader(shader) != nullptr;
}

VkShaderModule Pipelines::module(const std::string& shader) {
  VkShaderModule& module = modules_[shader];
  if (module != VK_NULL_HANDLE) return module;
  const Shader* found = find_shader(shader);
  TYTO_ASSERT(found != nullptr);
  auto create = structure<VkShaderModuleCreateInfo>(VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO);
  create.codeSize = found->words.size_bytes();
  create.pCode = found->words.data();
  check(context_->api.vkCreateShaderModule(context_->device, &create, nullptr, &module),
        "loading kernel " + shader);
  return module;
}

VkPipeline Pipelines::get(const PipelineKey& key) {
  VkPipeline& pipeline = pipelines_[key];
  if (pipeline != VK_NULL_HANDLE) return pipeline;
  std::vector<VkSpecializationMapEntry> entries;
  for (uint32_t i = 0; i < key.constants.size(); ++i)
    entries.push_back({i, i * static_cast<uint32_t>(sizeof(uint32_t)), sizeof(uint32_t)});
  const VkSpecializationInfo constants{static_cast<uint32_t>(entries.size()), entries.data(),
                                       key.constants.size() * sizeof(uint32_t),
                                       key.constants.data()};
  auto create =
      structure<VkComputePipelineCreateInfo>(VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO);
  create.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  create.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
  create.stage.module = module(key.shader);
  create.stage.pName = "main";
  create.stage.pSpecializationInfo = &constants;
  create.layout = context_->layout;
  check(context_->api.vkCreateComputePipelines(context_->device, cache_, 1, &create, nullptr,
                                               &pipeline),
        "compiling kernel " + key.shader);
  has_new_ = true;
  return pipeline;
}

void Pipelines::save() {
  if (file_.empty() || !has_new_ || context_->is_lost) return;
  has_new_ = false;
  const Api& api = context_->api;
  size_t size = 0;
  if (api.vkGetPipelineCacheData(context_->device, cache_, &size, nullptr) != VK_SUCCESS) return;
  std::vector<std::byte> bytes(size);
  if (api.vkGetPipelineCacheData(context_->device, cache_, &size, bytes.data()) != VK_SUCCESS)
    return;
  try {
    std::filesystem::create_directories(file_.parent_path());
    AtomicFile out(file_, Replace::own_state);
    out.write(std::span(bytes).first(size));
    out.commit();
  } catch (const std::exception&) {
  }
}

}  // namespace tyto::vulkan
