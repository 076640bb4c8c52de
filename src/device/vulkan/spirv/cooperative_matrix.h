// GLSL's cooperative matrices of NVIDIA's extension, which Debian 12's compiler knows, as those of
// the extension of Khronos that drivers have (docs/decisions/011-spirv-of-cooperative-matrices.md).
// Runs when Tyto is built.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tyto::spirv {

// What a matrix of 16-bit components holds afterwards. The compiler has no name for bf16, so a
// shader says f16 and nothing in it may compute with that type.
enum class Component { f16, bf16 };

// Khronos' types say what a matrix is used for, NVIDIA's do not. So the constant that gives a
// matrix type its rows has a reserved number (constant_id) per use.
inline constexpr uint32_t kRowsOfA = 1000;
inline constexpr uint32_t kRowsOfB = 1001;
inline constexpr uint32_t kRowsOfSums = 1002;

// The module with every type, load, store and product rewritten; one without matrices stays as it
// is. Throws Error where it is no module, or one that this cannot be done to.
std::vector<uint32_t> with_khr_matrices(std::span<const uint32_t> module, Component component);

}  // namespace tyto::spirv
