#include "device/npu/formats/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include "base/error.h"
#include "base/round_up.h"
#include "base/spelling.h"
#include "device/npu/formats/q4nx.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

bool is_weight(const AirArgument& argument) {
  return argument.role == AirRole::weight && argument.layout != AirLayout::rope_per_head;
}

uint64_t weight_bytes(const AirModel& model, AirPhase phase) {
  uint64_t bytes = 0;
  for (const AirProgram& program : model.programs)
    for (const AirArgument& argument : program.arguments)
      if (program.phase == phase && is_weight(argument)) bytes += argument.bytes();
  return bytes;
}

// What a program has for itself: what passes between its launches, and what the host turns for it.
bool is_scratch(const AirArgument& argument) {
  return argument.role == AirRole::scratch || argument.layout == AirLayout::heads_first;
}

// All images draw on the same buffers: of each size as many as the image that needs most of them.
uint64_t scratch_bytes(const AirModel& model, bool with_tokens) {
  std::map<uint64_t, size_t> most;  // buffers by size
  for (const AirProgram& program : model.programs) {
    if (program.phase == AirPhase::token && !with_tokens) continue;
    std::map<uint64_t, size_t> needed;
    for (const AirArgument& argument : program.arguments)
      if (is_scratch(argument)) ++needed[argument.bytes()];
    for (const auto& [bytes, count] : needed) most[bytes] = std::max(most[bytes], count);
  }
  uint64_t total = 0;
  for (const auto& [bytes, count] : most) total += bytes * count;
  return total;
}

uint64_t table_bytes(const AirModel& model) {
  uint64_t bytes = 0;
  for (const AirProgram& program : model.programs)
    for (const AirArgument& argument : program.arguments)
      if (argument.layout == AirLayout::rope_per_head) bytes += argument.bytes();
  return bytes;
}

// What passes from one of a prompt's images to the next: each slot of the forward pass once.
uint64_t activation_bytes(const AirModel& model) {
  std::map<Role, uint64_t> slots;
  for (const AirProgram& program : model.programs)
    for (const AirArgument& argument : program.arguments)
      if (program.phase == AirPhase::prompt && argument.role == AirRole::output)
        slots[argument.slot] = argument.bytes();
  uint64_t total = 0;
  for (const auto& [slot, bytes] : slots) total += bytes;
  return total;
}

uint64_t available_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  return UINT64_MAX;
}

std::string gib(uint64_t bytes) {
  return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

std::string mib(uint64_t bytes) {
  return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
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
  const AirModel model = air_model(dims);
  std::vector<MemoryItem> items = {
      {"prefill weights", layers * weight_bytes(model, AirPhase::prompt)},
      {"LM head", weight_bytes(model, AirPhase::head)},
  };
  if (is_fused) {
    const Q4nxLayout layout = q4nx_layout(dims, kv_positions);
    items.push_back({"q4nx weights", layout.weight_elements * 2});
    items.push_back(caches(layout.kv_elements * 2));
  } else {
    items.push_back({"decode weights", layers * weight_bytes(model, AirPhase::token)});
    if (kv_positions > 0) items.push_back(caches(layers * 2 * kv_positions * dims.kv_dim() * 2));
  }
  items.push_back({"rotation tables", table_bytes(model)});
  items.push_back({"scratch", scratch_bytes(model, !is_fused && fusion == Fusion::block)});
  items.push_back({"activations", activation_bytes(model)});
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
              "update the driver: since April 2026 xdna-driver lets the heap grow to 537 MB; or "
              "import fewer decode windows");
}

namespace {

constexpr uint64_t kValueBytes = sizeof(uint16_t);

}  // namespace

void to_heads_first(const HeadsFirst& form, const uint16_t* by_row, uint64_t rows,
                    uint16_t* by_head, ThreadPool& pool) {
  pool.parallel_for(form.cols / form.run, 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      uint16_t* const head = by_head + r * form.seq * form.run;
      for (uint64_t t = 0; t < rows; ++t)
        std::memcpy(head + t * form.run, by_row + t * form.cols + r * form.run,
                    form.run * kValueBytes);
      std::memset(head + rows * form.run, 0, (form.seq - rows) * form.run * kValueBytes);
    }
  });
}

void from_heads_first(const HeadsFirst& form, const uint16_t* by_head, uint64_t rows,
                      uint16_t* by_row, ThreadPool& pool) {
  pool.parallel_for(form.cols / form.run, 1, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r)
      for (uint64_t t = 0; t < rows; ++t)
        std::memcpy(by_row + t * form.cols + r * form.run, by_head + (r * form.seq + t) * form.run,
                    form.run * kValueBytes);
  });
}

void check_source(const WeightSource& source, uint64_t rows, uint64_t cols) {
  const TensorView& tensor = source.tensor;
  if (tensor.rows != rows || tensor.cols != cols)
    fail_input(source.name, "is {} x {}, not {} x {}", tensor.rows, tensor.cols, rows, cols);
  if (tensor.dtype == DType::i32) fail_input(source.name, "weights cannot be i32");
  if (cols % info(tensor.dtype).block_values != 0)
    fail_input(source.name, "{} columns are not whole blocks of {}", cols, info(tensor.dtype).name);
  if (tensor.bytes.size() != rows * tensor.row_stride())
    fail_input(source.name, "has {} bytes, not {}", tensor.bytes.size(),
               rows * tensor.row_stride());
}

void read_piece(const TensorView& tensor, uint64_t row, uint64_t first, std::span<float> out) {
  TYTO_ASSERT(first % kPieceValues == 0 && first + out.size() <= tensor.cols);
  const uint64_t begin = row * tensor.row_stride() + row_bytes(tensor.dtype, first);
  dequantize(tensor.dtype, tensor.bytes.subspan(begin, row_bytes(tensor.dtype, out.size())), out);
}

float largest_magnitude(std::span<const float> values) {
  // Without their signs, floats are ordered as integers are, NaN above infinity: a comparison that
  // compilers may reorder, and so turn into vector code.
  int32_t largest = 0;
  for (const float value : values) {
    const int32_t magnitude = std::bit_cast<int32_t>(value) & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  return std::bit_cast<float>(largest);
}

void keep_lowest(std::atomic<uint64_t>& lowest, uint64_t value) {
  uint64_t seen = lowest.load(std::memory_order_relaxed);
  while (value < seen && !lowest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

void fail_unusable(const WeightSource& source, uint64_t row) {
  float piece[kPieceValues];
  for (uint64_t first = 0; first < source.tensor.cols; first += kPieceValues) {
    const std::span values(piece, std::min(kPieceValues, source.tensor.cols - first));
    read_piece(source.tensor, row, first, values);
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::fabs(values[i]) <= kLargestWeight) continue;
      fail_input(source.name, "{} at row {}, column {} cannot be a weight", values[i], row,
                 first + i);
    }
  }
  assert_failed("a value of the row is unusable", __FILE__, __LINE__);
}

}  // namespace tyto
