// The vectors that the kernels of this folder are written in. Each instruction set gives the same
// names: Vec is kLanes floats, IVec as many 32-bit integers or four times as many bytes.
// (TYTO_VNNI_256 is for the tests: AVX-VNNI's kernels on a processor that has its instructions in
// their AVX-512 encoding only.)
#pragma once

// Every function of the kernels is inlined into its table's entry and local to its instruction
// set's namespace: one that was emitted from a wide translation unit could otherwise be the copy
// the linker keeps for all.
#define TYTO_INLINE [[gnu::always_inline]] static inline

#if defined(__AVX512VNNI__) && !defined(TYTO_VNNI_256)
#define TYTO_SIMD_AVX512
#include "device/cpu/isa/simd_avx512.h"
#elif defined(__AVX2__)
#define TYTO_SIMD_AVX2
#include "device/cpu/isa/simd_avx2.h"
#else
#define TYTO_SIMD_GENERIC
#include "device/cpu/isa/simd_generic.h"
#endif

#ifdef TYTO_ISA
namespace tyto::cpu::TYTO_ISA {

constexpr size_t kVecBytes = 4 * kLanes;

// Within 2 units in the last place for results that are normal; inputs beyond them saturate, and a
// NaN stays one (the order of the arguments of min and max sees to that).
TYTO_INLINE Vec exp(Vec x) {
  x = min(broadcast(88.3f), max(broadcast(-87.3f), x));
  const Vec n = round(mul(x, broadcast(1.44269504f)));
  Vec r = fma(n, broadcast(-0.693359375f), x);  // ln 2 in two parts: the first product is exact
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.38888889e-3f);
  p = fma(p, r, broadcast(8.33333333e-3f));
  p = fma(p, r, broadcast(4.16666667e-2f));
  p = fma(p, r, broadcast(1.66666667e-1f));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  p = fma(p, r, broadcast(1.0f));
  return scale_by_power(p, n);
}

// As exact: exp(2x) - 1 is put together from what the same steps leave of it, so that nothing is
// lost near zero. Beyond 9 it is one.
TYTO_INLINE Vec tanh(Vec x) {
  x = min(broadcast(9.0f), max(broadcast(-9.0f), x));
  x = add(x, x);
  const Vec n = round(mul(x, broadcast(1.44269504f)));
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.38888889e-3f);
  p = fma(p, r, broadcast(8.33333333e-3f));
  p = fma(p, r, broadcast(4.16666667e-2f));
  p = fma(p, r, broadcast(1.66666667e-1f));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, r, broadcast(1.0f));
  const Vec power = scale_by_power(broadcast(1.0f), n);
  const Vec less_one = fma(power, mul(p, r), sub(power, broadcast(1.0f)));
  return div(less_one, add(less_one, broadcast(2.0f)));
}

}  // namespace tyto::cpu::TYTO_ISA
#endif
