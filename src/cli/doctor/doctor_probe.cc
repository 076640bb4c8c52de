#include "cli/doctor/doctor_probe.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "device/device.h"
#include "device/npu/store/kernel_store.h"
#include "model/model.h"
#include "tensor/compare.h"
#include "tensor/float16.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimeout{20000};
constexpr float kEps = 1e-5f;

// y = rmsnorm(x) * weight^T. One token, as in decode.
struct TestProgram {
  Program program;
  std::vector<uint16_t> matrix;  // [rows, cols], bf16
  std::vector<float> gain;       // [cols]
  std::vector<float> x;          // [cols]
  uint64_t rows = 0, cols = 0;
};
enum : uint16_t { kX, kGain, kNormed, kMatrix, kY };

// Small numbers of both signs that repeat in neither direction of the matrix.
float value_at(uint64_t index) {
  return static_cast<float>(static_cast<int>(index * 2654435761u >> 7 & 0xff) - 128) / 128.0f;
}

TestProgram test_program(uint64_t rows, uint64_t cols, DType activations) {
  TestProgram test;
  test.rows = rows;
  test.cols = cols;
  test.program.name = "doctor";
  test.program.slots = {
      {"x", SlotKind::input, activations, 1, cols},
      {"gain", SlotKind::weight, DType::f32, 1, cols},
      {"normed", SlotKind::scratch, activations, 1, cols},
      {"matrix", SlotKind::weight, DType::bf16, rows, cols},
      {"y", SlotKind::output, activations, 1, rows},
  };
  Launch norm{Kernel::rmsnorm, "norm", {{kX}, {kGain}, {kNormed, false, true}}};
  norm.shape.eps = kEps;
  const Launch matmul{Kernel::matmul, "matmul", {{kNormed}, {kMatrix}, {kY, false, true}}};
  test.program.launches = {norm, matmul};
  test.matrix.resize(rows * cols);
  for (size_t i = 0; i < test.matrix.size(); ++i) test.matrix[i] = f32_to_bf16(value_at(i));
  for (uint64_t i = 0; i < cols; ++i) {
    test.gain.push_back(1 + value_at(i * 3 + 1) / 4);
    test.x.push_back(bf16_to_f32(f32_to_bf16(value_at(i * 5 + 2))));
  }
  return test;
}

std::vector<float> plain_loops(const TestProgram& test) {
  double squares = 0;
  for (float value : test.x) squares += double{value} * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(test.cols) + kEps);
  std::vector<float> y(test.rows);
  for (uint64_t row = 0; row < test.rows; ++row) {
    double sum = 0;
    for (uint64_t i = 0; i < test.cols; ++i)
      sum += test.x[i] * scale * test.gain[i] * bf16_to_f32(test.matrix[row * test.cols + i]);
    y[row] = static_cast<float>(sum);
  }
  return y;
}

// The program on the device, ready to be called again and again.
class Loaded {
 public:
  Loaded(Device& device, const TestProgram& test) : test_(test) {
    for (const Launch& launch : test.program.launches)
      if (const auto reason = device.why_not(test.program, launch))
        throw Error(ErrorCode::device, device.info().name + ": " + launch.name, *reason);
    const TensorView gain{DType::f32, 1, test.cols, std::as_bytes(std::span(test.gain))};
    const TensorView matrix{DType::bf16, test.rows, test.cols,
                            std::as_bytes(std::span(test.matrix))};
    std::vector<TensorView> weights(test.program.slots.size());
    weights[kGain] = gain;
    weights[kMatrix] = matrix;
    executable_ = device.load(test.program, weights);
    buffers_.resize(weights.size());
    for (uint16_t slot : {kX, kNormed, kY}) {
      buffers_[slot] = device.alloc(test.program.slots[slot]);
      executable_->bind(slot, buffers_[slot]);
    }
    write_input();
  }

  Completion call() {
    executable_->submit(call_of(1));
    return executable_->wait(kTimeout);
  }

  std::vector<float> output() {
    const Slot& slot = test_.program.slots[kY];
    const Buffer& y = buffers_[kY];
    std::vector<float> values(test_.rows);
    for (uint64_t i = 0; i < test_.rows; ++i) {
      uint16_t half = 0;
      if (slot.dtype == DType::f32)
        std::memcpy(&values[i], y.data + i * 4, 4);
      else
        std::memcpy(&half, y.data + i * 2, 2), values[i] = bf16_to_f32(half);
    }
    return values;
  }

 private:
  void write_input() {
    const Slot& slot = test_.program.slots[kX];
    for (uint64_t i = 0; i < test_.cols; ++i) {
      const uint16_t half = f32_to_bf16(test_.x[i]);
      if (slot.dtype == DType::f32)
        std::memcpy(buffers_[kX].data + i * 4, &test_.x[i], 4);
      else
        std::memcpy(buffers_[kX].data + i * 2, &half, 2);
    }
  }

  const TestProgram& test_;
  std::unique_ptr<Executable> executable_;
  std::vector<Buffer> buffers_;
};

void check_numbers(Device& device, DeviceProbe& probe) {
  const DeviceInfo info = device.info();
  const DType activations = info.activations;
  const TestProgram test = test_program(192, 256, activations);
  Loaded loaded(device, test);
  loaded.call();
  const Comparison comparison = compare(loaded.output(), plain_loops(test));
  // bf16 keeps eight bits: the norm and the result are each rounded once, plus room for the sums.
  probe.allowed_error = activations != DType::f32 ? 1.0 / 64
                        : info.rounds_to_bf16     ? 1.0 / 256
                                                  : 1e-5;
  probe.worst_error = comparison.finite ? comparison.max_abs_error / comparison.max_abs_reference
                                        : std::numeric_limits<double>::infinity();
}

// GB/s of matrix, by the device's own busy time: modelled on a virtual device, measured otherwise.
void measure_rate(Device& device, DeviceProbe& probe) {
  constexpr uint64_t kRows = 8192, kCols = 4096;  // 64 MiB: more than any cache of such a machine
  constexpr auto kLeastTime = std::chrono::milliseconds(200);
  const TestProgram test = test_program(kRows, kCols, device.info().activations);
  Loaded loaded(device, test);
  loaded.call();
  const auto start = Clock::now();
  double seconds = 0, calls = 0;
  do {
    seconds += static_cast<double>(loaded.call().device_ns) * 1e-9;
    ++calls;
  } while (!probe.is_virtual && Clock::now() - start < kLeastTime);
  if (seconds > 0) probe.gb_per_s = calls * kRows * kCols * 2e-9 / seconds;
}

// What a healthy device reaches; wide, because machines differ. An NPU's port to memory carries 33
// (one matrix) to 66 GB/s in published measurements; a CPU anything from one slow core to a server.
struct Range {
  double least, most;
};
Range expected_rate(const DeviceInfo& device) {
  return device.shares_host_memory ? Range{2, 1000} : Range{15, 80};
}

}  // namespace

DeviceProbe probe_device(const DeviceEntry& entry, const DeviceEnv& env) {
  DeviceEnv single_operators = env;  // the test program is no block of a model
  single_operators.fusion = Fusion::op;
  DeviceProbe probe;
  probe.name = entry.name;
  std::unique_ptr<Device> device;
  try {
    device = entry.open(single_operators);
  } catch (const Error& error) {
    probe.open_error = error.what();
    return probe;
  }
  const DeviceInfo info = device->info();
  probe.description = info.description;
  probe.is_virtual = info.is_virtual;
  probe.expected_least = expected_rate(info).least;
  probe.expected_most = expected_rate(info).most;
  try {
    check_numbers(*device, probe);
    if (probe.worst_error <= probe.allowed_error) measure_rate(*device, probe);
  } catch (const Error& error) {
    probe.dispatch_error = error.what();
  }
  return probe;
}

std::vector<DeviceProbe> probe_devices() {
  ThreadPool pool;
  std::vector<DeviceProbe> probes;
  for (const DeviceEntry& entry : device_table()) {
    Trace trace;
    probes.push_back(probe_device(entry, {pool, trace}));
  }
  return probes;
}

KernelCacheFacts probe_kernel_cache(const std::filesystem::path& store) {
  KernelCacheFacts facts;
  facts.folder = store.string();
  try {
    const CheckReport report = check_store(store, false);
    facts.images = report.images;
    for (const ImageProblem& problem : report.problems)
      facts.problems.push_back(fmt::format("{} {}: {}", to_string(problem.fault),
                                           problem.entry.empty() ? problem.file : problem.entry,
                                           problem.reason));
  } catch (const Error& error) {
    facts.problems.push_back(error.what());
  }
  return facts;
}

ModelFacts probe_model(const std::string& name) {
  ModelFacts facts;
  facts.name = name;
  try {
    const Model model = open_model(find_model(name));
    facts.format = model.format;
    facts.weight_bytes = model.weight_bytes();
  } catch (const Error& error) {
    facts.error = error.what();
    facts.hint = error.hint;
  }
  return facts;
}

}  // namespace tyto
