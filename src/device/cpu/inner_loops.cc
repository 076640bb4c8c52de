#include "device/cpu/inner_loops.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "base/spelling.h"

namespace tyto::cpu {
namespace {

const InnerLoops& avxvnni_loops() {
  static const InnerLoops loops = [] {
    InnerLoops result = avx2::inner_loops();
    result.name = "avxvnni";
    result.packed = avxvnni::packed_loops();
    result.peak = &avxvnni::peak_loops();
    return result;
  }();
  return loops;
}

const InnerLoops& avx512_bf16_loops() {
  static const InnerLoops loops = [] {
    InnerLoops result = avx512::inner_loops();
    result.name = "avx512_bf16";
    result.floats = &avx512_bf16::float_loops();
    result.packed_floats = avx512_bf16::packed_float_loops();
    result.peak = &avx512_bf16::peak_loops();
    return result;
  }();
  return loops;
}

std::vector<const InnerLoops*> usable() {
  __builtin_cpu_init();
  std::vector<const InnerLoops*> result = {&generic::inner_loops()};
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return result;
  result.push_back(&avx2::inner_loops());
  if (__builtin_cpu_supports("avxvnni")) result.push_back(&avxvnni_loops());
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vnni"))
    return result;
  result.push_back(&avx512::inner_loops());
  if (!__builtin_cpu_supports("avx512bf16")) return result;
  // Intel's cores begin a vdpbf16ps (64 operations) every other cycle and two f32 FMAs (32 each) in
  // every one: 85 and 172 GFLOP/s measured on a core of Sapphire Rapids. AMD's do as many
  // vdpbf16ps as FMAs. The better one for bf16 weights is the last.
  result.insert(__builtin_cpu_is("intel") ? result.end() - 1 : result.end(), &avx512_bf16_loops());
  return result;
}

}  // namespace

std::span<const InnerLoops* const> usable_inner_loops() {
  static const std::vector<const InnerLoops*> all = usable();
  return all;
}

const InnerLoops& best_inner_loops() {
  return *usable_inner_loops().back();
}

const InnerLoops& inner_loops_named(std::string_view name) {
  for (const InnerLoops* loops : usable_inner_loops())
    if (loops->name == name) return *loops;
  throw Error(ErrorCode::usage, "--isa " + std::string(name), "not on this processor",
              "it has: " + joined(usable_inner_loops(), ", ", &InnerLoops::name));
}

const InnerLoops& chosen_inner_loops(std::string_view name) {
  return name.empty() ? best_inner_loops() : inner_loops_named(name);
}

}  // namespace tyto::cpu
