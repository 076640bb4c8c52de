// Loops that do nothing but what a core does fastest, to measure by. Compiled once per instruction
// set (see src/CMakeLists.txt).
#include "device/cpu/inner_loops.h"
#include "device/cpu/isa/simd.h"

namespace tyto::cpu::TYTO_ISA {
namespace {

constexpr size_t kChains = 12;  // independent results: enough to hide an instruction's latency

// Keeps a value in its register and the compiler from seeing through it.
template <typename T>
TYTO_INLINE void keep_in_register(T& value) {
#if defined(TYTO_SIMD_GENERIC)
  asm volatile("" : "+m"(value));
#elif defined(TYTO_SIMD_AVX512)
  asm volatile("" : "+v"(value));
#else
  asm volatile("" : "+x"(value));
#endif
}

// Each chain has a name of its own: an array would be kept in memory, and its stores measured.
template <typename T, typename Step>
TYTO_INLINE void run_chains(size_t rounds, T start, const Step& step) {
  T a = start, b = start, c = start, d = start, e = start, f = start;
  T g = start, h = start, i = start, j = start, k = start, l = start;
  const auto turn = [&](auto&... chains) __attribute__((always_inline)) {
    static_assert(sizeof...(chains) == kChains);
    ((chains = step(chains), keep_in_register(chains)), ...);
  };
  for (size_t round = 0; round < rounds; ++round) turn(a, b, c, d, e, f, g, h, i, j, k, l);
}

void fma_rounds(size_t rounds) {
  Vec a = broadcast(1.0f), b = broadcast(1.0f);
  keep_in_register(a);
  keep_in_register(b);
  run_chains(rounds, zero(), [&](Vec v) __attribute__((always_inline)) { return fma(a, b, v); });
}

#if defined(TYTO_SIMD_GENERIC)

constexpr double kInt8PerRound = 0;
void int8_rounds(size_t) {}

#else

constexpr double kInt8PerRound = 2.0 * 4 * kLanes * kChains;

TYTO_INLINE IVec dot_step(IVec total, IVec codes, IVec x) {
#if defined(TYTO_SIMD_AVX512) || defined(__AVXVNNI__)
  return dot4(total, codes, x);
#else
  keep_in_register(codes);  // else the product, always the same, is computed once
  const IVec pairs = _mm256_maddubs_epi16(codes, x);
  return _mm256_add_epi32(total, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}

void int8_rounds(size_t rounds) {
  IVec a = broadcast_byte(1), b = broadcast_byte(1);
  keep_in_register(a);
  keep_in_register(b);
  run_chains(rounds, broadcast(int32_t{0}),
             [&](IVec v) __attribute__((always_inline)) { return dot_step(v, a, b); });
}

#endif

#if defined(__AVX512BF16__)

constexpr double kBf16PerRound = 2.0 * 2 * kLanes * kChains;

void bf16_rounds(size_t rounds) {
  IVec a = broadcast(int32_t{0x3f803f80}), b = broadcast(int32_t{0x3f803f80});
  keep_in_register(a);
  keep_in_register(b);
  run_chains(rounds, zero(), [&](Vec v) __attribute__((always_inline)) {
    return _mm512_dpbf16_ps(v, (__m512bh)a, (__m512bh)b);
  });
}

#else

constexpr double kBf16PerRound = 0;
void bf16_rounds(size_t) {}

#endif

// As the kernels read weights: asking for what lies ahead, since a core's own prefetching alone
// does not fill the bus.
void read_all(const void* memory, size_t bytes) {
  const float* values = static_cast<const float*>(memory);
  constexpr size_t kAtOnce = 8, kAhead = 16384 / sizeof(float), kLine = 64 / sizeof(float);
  for (size_t i = 0; i + kAtOnce * kLanes <= bytes / sizeof(float); i += kAtOnce * kLanes) {
    for (size_t line = 0; line < kAtOnce * kLanes; line += kLine)
      __builtin_prefetch(values + i + kAhead + line, 0, 2);
#pragma GCC unroll 8
    for (size_t v = 0; v < kAtOnce; ++v) {
      Vec value = load(values + i + v * kLanes);
      keep_in_register(value);
    }
  }
}

constexpr PeakLoops kLoops = {read_all,      fma_rounds,  2.0 * kLanes* kChains, int8_rounds,
                              kInt8PerRound, bf16_rounds, kBf16PerRound};

}  // namespace

const PeakLoops& peak_loops() {
  return kLoops;
}

}  // namespace tyto::cpu::TYTO_ISA
