#include "device/npu/formats/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "base/joined.h"
#include "base/round_up.h"
#include "device/npu/formats/q4nx_layout.h"

namespace tyto {
namespace {

bool is_weight(const AirArgument& argument) {
  return argument.role == AirRole::weight && argument.layout != AirLayout::rope_per_head;
}

uint64_t weight_bytes(std::string_view program, const AirDims& dims) {
  uint64_t bytes = 0;
  for (const AirArgument& argument : air_program(program, dims).arguments)
    if (is_weight(argument)) bytes += argument.bytes();
  return bytes;
}

// All images draw on the same buffers: of each size as many as the image that needs most of them.
uint64_t scratch_bytes(const std::vector<std::string_view>& programs, const AirDims& dims) {
  std::map<uint64_t, size_t> most;  // buffers by size
  for (std::string_view program : programs) {
    std::map<uint64_t, size_t> needed;
    for (const AirArgument& argument : air_program(program, dims).arguments)
      if (argument.role == AirRole::scratch) ++needed[argument.bytes()];
    for (const auto& [bytes, count] : needed) most[bytes] = std::max(most[bytes], count);
  }
  uint64_t total = 0;
  for (const auto& [bytes, count] : most) total += bytes * count;
  return total;
}

uint64_t table_bytes(const AirDims& dims) {
  uint64_t bytes = 0;
  for (std::string_view program : {"rms_gemms_rope", "rms_gemv_rope"})
    for (const AirArgument& argument : air_program(program, dims).arguments)
      if (argument.layout == AirLayout::rope_per_head) bytes += argument.bytes();
  return bytes;
}

// x, q, k, v and attention's result: what passes from one image to the next.
uint64_t activation_bytes(const AirDims& dims) {
  return uint64_t{dims.seq} * 2 * (dims.emb + 2 * dims.q_dim() + 2 * dims.kv_dim());
}

uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return UINT64_MAX;
}

std::string gib(uint64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
}

std::string mib(uint64_t bytes) {
  return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / (1 << 20));
}

constexpr uint64_t kHeapStep = 32 << 10;  // where the driver lets a piece of the heap begin

}  // namespace

std::vector<MemoryItem> npu_memory(const AirDims& dims, NpuWeights weights, Fusion fusion,
                                   uint32_t kv_positions, uint32_t sequences) {
  const uint64_t layers = dims.layers;
  if (weights == NpuWeights::int8) {
    const uint64_t layer =
        dims.emb * (2 * dims.q_dim() + 2 * dims.kv_dim()) + uint64_t{3} * dims.emb * dims.hidden;
    return {{"int8 weights", layers * layer + uint64_t{dims.vocab} * dims.emb}};
  }
  const bool is_fused = weights == NpuWeights::q4nx && kv_positions > 0;
  const auto caches = [&](uint64_t bytes_of_one) {
    return MemoryItem{sequences == 1 ? "KV cache" : fmt::format("{} KV caches", sequences),
                      sequences * bytes_of_one};
  };
  std::vector<std::string_view> programs = {"rms_gemms_rope", "o_ffn"};
  std::vector<MemoryItem> items = {
      {"prefill weights",
       layers * (weight_bytes("rms_gemms_rope", dims) + weight_bytes("o_ffn", dims))},
      {"LM head", weight_bytes("lm_head_gemv", dims)},
  };
  if (is_fused) {
    const Q4nxLayout layout = q4nx_layout(dims, kv_positions);
    items.push_back({"q4nx weights", layout.weight_elements * 2});
    items.push_back(caches(layout.kv_elements * 2));
  } else if (fusion == Fusion::block) {
    programs.insert(programs.end(), {"rms_gemv_rope", "o_gemv_ffn"});
    items.push_back({"decode weights", layers * (weight_bytes("rms_gemv_rope", dims) +
                                                 weight_bytes("o_gemv_ffn", dims))});
  } else {
    items.push_back({"decode weights", layers * weight_bytes("o_ffn", dims) +
                                           layers * weight_bytes("rms_gemv_rope", dims)});
    if (kv_positions > 0) items.push_back(caches(layers * 2 * kv_positions * dims.kv_dim() * 2));
  }
  items.push_back({"rotation tables", table_bytes(dims)});
  items.push_back({"scratch", scratch_bytes(programs, dims)});
  items.push_back({"activations", activation_bytes(dims)});
  return items;
}

uint64_t total_bytes(const std::vector<MemoryItem>& items) {
  uint64_t total = 0;
  for (const MemoryItem& item : items) total += item.bytes;
  return total;
}

uint64_t pinnable_bytes() {
  rlimit limit = {};
  const bool is_limited = ::geteuid() != 0 && ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
                          limit.rlim_cur != RLIM_INFINITY;
  return std::min<uint64_t>(available_bytes(), is_limited ? limit.rlim_cur : UINT64_MAX);
}

void check_memory(const std::vector<MemoryItem>& items, uint64_t limit, const std::string& device) {
  const uint64_t total = total_bytes(items);
  if (total <= limit) return;
  const std::string sum = joined(items, " + ", [](const MemoryItem& item) {
    return fmt::format("{} {}", item.what, gib(item.bytes));
  });
  throw Error(
      ErrorCode::device, device,
      fmt::format("the model would pin {} ({}), but {} can be pinned", gib(total), sum, gib(limit)),
      "raise memlock in /etc/security/limits.d, free memory, or take a smaller model or fewer "
      "sequences");
}

HeapPlan npu_heap(std::span<const ImageBytes> images) {
  HeapPlan plan;
  plan.images.assign(images.begin(), images.end());
  for (const ImageBytes& image : images) {
    plan.bytes += round_up(image.bytes, kHeapStep);
    plan.is_estimate |= image.is_estimate;
  }
  return plan;
}

void check_heap(const HeapPlan& plan, uint64_t limit, const std::string& device) {
  if (plan.bytes <= limit) return;
  const std::string sum = joined(plan.images, " + ", [](const ImageBytes& image) {
    return fmt::format("{} {}", image.what, mib(round_up(image.bytes, kHeapStep)));
  });
  throw Error(ErrorCode::device, device,
              fmt::format("runs of its images would take {} of the device's heap ({}{}), which "
                          "holds {}",
                          mib(plan.bytes), sum,
                          plan.is_estimate ? ", estimated by the sizes of files" : "", mib(limit)),
              "update the driver: since April 2026 xdna-driver lets the heap grow to 512 MiB; or "
              "import fewer decode windows");
}

}  // namespace tyto
