// Compute pipelines, made when a form of call first needs them and kept for all programs; compiled
// kernels are kept on disk between runs.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/vulkan/context.h"

namespace tyto::vulkan {

// A kernel and the specialization constants 0, 1, 2, ... it is compiled with.
struct PipelineKey {
  std::string shader;
  std::vector<uint32_t> constants;
  auto operator<=>(const PipelineKey&) const = default;
};

class Pipelines {
 public:
  // `file` keeps what the driver compiled; empty: nothing is kept.
  Pipelines(std::shared_ptr<Context> context, std::filesystem::path file);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;
  Pipelines& operator=(const Pipelines&) = delete;

  VkPipeline get(const PipelineKey& key);
  // Whether this build has the kernel at all.
  static bool has(const std::string& shader);
  // Writes the file if something was compiled since. What cannot be written is compiled again next
  // time, so that is no error.
  void save();

 private:
  VkShaderModule module(const std::string& shader);

  std::shared_ptr<Context> context_;
  std::filesystem::path file_;
  VkPipelineCache cache_ = VK_NULL_HANDLE;
  std::map<std::string, VkShaderModule> modules_;
  std::map<PipelineKey, VkPipeline> pipelines_;
  bool has_new_ = false;
};

// The kernels' SPIR-V, compiled from shaders/*.comp when Tyto is built.

struct Shader {
  std::string_view name;  // file, and variant where there are several: "gemv_q4_0"
  std::span<const uint32_t> words;
};

std::span<const Shader> shaders();

}  // namespace tyto::vulkan
