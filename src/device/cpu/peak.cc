#include "device/cpu/peak.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <string>
#include <vector>

#include "device/cpu/inner_loops.h"
#include "trace/event.h"

namespace tyto::cpu {
namespace {

constexpr size_t kBytes = size_t{128} << 20;  // more than the caches of most machines
constexpr int kPasses = 3;

double read_gb_s(ThreadPool& pool) {
  const std::vector<uint64_t> memory(kBytes / sizeof(uint64_t), 1);
  std::atomic<uint64_t> sum = 0;  // used, so that the reads are
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const uint64_t start = now_ns();
    pool.parallel_for(memory.size(), 1 << 16, [&](size_t begin, size_t end) {
      uint64_t part = 0;
      for (size_t i = begin; i < end; ++i) part += memory[i];
      sum += part;
    });
    best = std::max(best, static_cast<double>(kBytes) / static_cast<double>(now_ns() - start));
  }
  return sum > 0 ? best : 0;
}

double clock_ghz() {
  std::ifstream file("/proc/cpuinfo");
  double highest = 0;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("cpu MHz"))
      highest = std::max(highest, std::strtod(line.c_str() + line.find(':') + 1, nullptr));
  return highest / 1e3;
}

}  // namespace

DeviceLimits measure_peak(ThreadPool& pool) {
  const std::string_view isa = best_inner_loops().name;
  const double per_cycle = isa == "avx512" ? 64 : isa == "avx2" ? 32 : 8;  // two units, FMA
  const double ghz = clock_ghz();
  return {.gb_s = read_gb_s(pool),
          .gflops = per_cycle * ghz * pool.threads(),
          .source = fmt::format("memory: read of {} MiB, measured now; arithmetic: nominal, {} "
                                "threads x {} FLOP x {:.2f} GHz",
                                kBytes >> 20, pool.threads(), per_cycle, ghz)};
}

}  // namespace tyto::cpu
