#include "device/cpu/measured_peak.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>

#include "device/cpu/packed_weights.h"
#include "device/cpu/weight_cache.h"

namespace tyto::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytesPerThread = size_t{64} << 20;
constexpr size_t kLeastBytes = size_t{256} << 20;
constexpr size_t kMostBytes = size_t{2} << 30;
constexpr size_t kRounds = 2'000'000;  // some ten milliseconds

// The first passes wake the threads and let cores find the clock that they keep under this load; a
// neighbour on the same machine may spoil a few.
constexpr int kLeastPasses = 7;
constexpr double kLeastSeconds = 0.2;

template <typename Body>
double fastest_seconds(const Body& body) {
  double best = 1e30, total = 0;
  for (int pass = 0; pass < kLeastPasses || total < kLeastSeconds; ++pass) {
    const auto start = Clock::now();
    body();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    total += seconds;
  }
  return best;
}

// The kernel tells the cache that one core can reach. glibc tells the sum over the processor's
// dies, which a virtual machine with two cores does not have.
size_t last_level_cache_bytes() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  size_t kib = 0;
  return file >> kib ? kib << 10 : 0;
}

// Several times the last-level cache, or what is left there of one pass would be counted as read
// from memory in the next: server processors have hundreds of megabytes of it.
size_t bytes_to_read(size_t threads) {
  const size_t beyond_cache = 4 * last_level_cache_bytes();
  return std::min(kMostBytes, std::max({kLeastBytes, kBytesPerThread * threads, beyond_cache}));
}

double read_gb_per_s(const PeakLoops& loops, ThreadPool& pool) {
  const size_t bytes = bytes_to_read(pool.threads());
  const std::shared_ptr<void> owner = zeroed_huge_pages(bytes);
  std::byte* memory = static_cast<std::byte*>(owner.get());
  constexpr size_t kPeakGrain = 1 << 20;
  // Touched by the threads that will read it.
  pool.parallel_for(bytes, kPeakGrain,
                    [&](size_t begin, size_t end) { std::memset(memory + begin, 1, end - begin); });
  const double seconds = fastest_seconds([&] {
    pool.parallel_for(bytes, kPeakGrain,
                      [&](size_t begin, size_t end) { loops.read(memory + begin, end - begin); });
  });
  return static_cast<double>(bytes) / seconds * 1e-9;
}

double gops(double per_round, void (*rounds)(size_t), ThreadPool& pool) {
  if (per_round == 0) return 0;
  const double seconds = fastest_seconds([&] {
    pool.parallel_for(pool.threads(), 1, [&](size_t begin, size_t end) {
      for (size_t i = begin; i < end; ++i) rounds(kRounds);
    });
  });
  return per_round * static_cast<double>(kRounds) * pool.threads() / seconds * 1e-9;
}

}  // namespace

MeasuredPeak measure_peak(const InnerLoops& loops, ThreadPool& pool) {
  const PeakLoops& peak = *loops.peak;
  return {.read_gb_per_s = read_gb_per_s(peak, pool),
          .fma_gflop_per_s = gops(peak.fma_per_round, peak.fma, pool),
          .bf16_gflop_per_s = gops(peak.bf16_per_round, peak.bf16, pool),
          .int8_gop_per_s = gops(peak.int8_per_round, peak.int8, pool)};
}

ArithmeticPeak arithmetic_peak(const MeasuredPeak& peak, const InnerLoops& loops, DType weights) {
  if (!is_float(weights) && can_pack(weights) && loops.packed != nullptr)
    return {"int8", peak.int8_gop_per_s};
  if (weights == DType::bf16 && peak.bf16_gflop_per_s > 0) return {"bf16", peak.bf16_gflop_per_s};
  return {"f32", peak.fma_gflop_per_s};
}

}  // namespace tyto::cpu
