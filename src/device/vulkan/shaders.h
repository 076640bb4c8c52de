// The kernels' SPIR-V, compiled from shaders/*.comp when Tyto is built.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tyto::vulkan {

struct Shader {
  std::string_view name;  // file, and variant where there are several: "gemv_q4_0"
  std::span<const uint32_t> words;
};

std::span<const Shader> shaders();

}  // namespace tyto::vulkan
