#include "device/cpu/inner_loops.h"

namespace tyto::cpu {

const InnerLoops& best_inner_loops() {
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("f16c");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (has_avx2 && has_avx512) return avx512::inner_loops();
  return has_avx2 ? avx2::inner_loops() : generic::inner_loops();
}

}  // namespace tyto::cpu
