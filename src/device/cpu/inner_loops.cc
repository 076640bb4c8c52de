#include "device/cpu/inner_loops.h"

namespace tyto::cpu {
namespace {

const InnerLoops& choose() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (has_avx2 && has_avx512) return avx512::inner_loops();
  return has_avx2 ? avx2::inner_loops() : generic::inner_loops();
}

}  // namespace

const InnerLoops& best_inner_loops() {
  static const InnerLoops& chosen = choose();
  return chosen;
}

}  // namespace tyto::cpu
