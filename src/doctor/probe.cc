#include "doctor/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <map>
#include <sstream>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "device/device.h"
#include "device/npu/store/kernel_store.h"
#include "device/vulkan/context.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "tensor/compare.h"
#include "tensor/float16.h"

namespace tyto {
namespace {

// Where an image does not say what a run of it holds, its file's size stands for it. Of the two
// templates of a decode only one is loaded.
ImageBytes held_by(const KernelEntry& entry) {
  if (entry.run_bytes > 0) return {entry.program, entry.run_bytes, false};
  uint32_t longest = 0;
  for (const StoredImage& image : entry.images) longest = std::max(longest, image.length);
  ImageBytes held{entry.program};
  for (const StoredImage& image : entry.images)
    if (image.length == longest) held.bytes += image.bytes;
  return held;
}

void plan_heap(const KernelManifest& manifest, KernelCacheFacts& facts) {
  std::map<std::string, std::vector<ImageBytes>> models;
  for (const KernelEntry& entry : manifest.entries) {
    if (entry.platform == kVirtualPlatform) continue;
    models[entry.shape].push_back(held_by(entry));
    ++(entry.images.front().kind == ImageKind::elf ? facts.elfs : facts.xclbins);
  }
  for (const auto& [model, images] : models) {
    const HeapPlan plan = npu_heap(images);
    if (plan.bytes <= facts.heap.bytes) continue;
    facts.largest_model = model;
    facts.heap = plan;
  }
}

}  // namespace

KernelCacheFacts probe_kernel_cache(const std::filesystem::path& store) {
  KernelCacheFacts facts;
  facts.folder = store.string();
  try {
    const CheckReport report = check_store(store, false);
    facts.images = report.images;
    plan_heap(read_manifest(store), facts);
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

// Vulkan's physical devices, listed in a process of its own.

namespace {

constexpr const char* kListGpus = "--list-gpus-for-doctor";
constexpr unsigned kLongestChild_s = 120;

// One line per device, or "!" and the reason.
std::string list_devices(const std::string& library) {
  try {
    std::string lines;
    for (const vulkan::GpuFacts& gpu : vulkan::list_gpus(library))
      lines += fmt::format("{} ({}, Vulkan {})\n", gpu.name, vulkan::name(gpu.kind), gpu.vulkan);
    return lines;
  } catch (const std::exception& error) {
    return fmt::format("!{}", error.what());
  }
}

// What the child wrote until it closed the pipe; false when the time was over.
bool read_all(int descriptor, std::chrono::milliseconds timeout, std::string& text) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd wait{descriptor, POLLIN, 0};
    const int ready = left.count() > 0 ? ::poll(&wait, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    std::array<char, 4096> piece;
    const ssize_t got = ::read(descriptor, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text.append(piece.data(), static_cast<size_t>(got));
  }
}

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
  }
}

// Starts this program as a process that writes its list into `descriptor` and has no other file of
// ours. Zero, or the reason why not.
int start_child(const std::string& library, int descriptor, pid_t& process) {
  std::string program = "tyto", word = kListGpus, argument = library;
  std::array<char*, 4> arguments = {program.data(), word.data(), argument.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, descriptor, STDOUT_FILENO);
  // Drivers talk.
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  const int error =
      ::posix_spawn(&process, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

void list_gpus_if_asked(int argc, char** argv) {
  if (argc != 3 || argv[1] != std::string_view(kListGpus)) return;
  ::alarm(kLongestChild_s);  // who asked may have ended
  write_all(STDOUT_FILENO, list_devices(argv[2]));
  ::_exit(0);  // without the destructors of drivers
}

void probe_vulkan(const std::string& library, VulkanFacts& vulkan,
                  std::chrono::milliseconds timeout) {
  vulkan.enumerated = true;
  std::array<int, 2> ends;
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    vulkan.error = std::strerror(errno);
    return;
  }
  pid_t process = -1;
  const int not_started = start_child(library, ends[1], process);
  ::close(ends[1]);
  std::string text;
  const bool over = not_started == 0 && read_all(ends[0], timeout, text);
  ::close(ends[0]);
  if (not_started != 0) {
    vulkan.error = fmt::format("cannot start a process to ask it: {}", std::strerror(not_started));
    return;
  }
  if (!over) ::kill(process, SIGKILL);
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  vulkan.broke_its_process = !over || !WIFEXITED(status) || WEXITSTATUS(status) != 0;
  if (!over)
    vulkan.error = fmt::format("gave no answer in {} ms", timeout.count());
  else if (WIFSIGNALED(status))
    vulkan.error = fmt::format("crashed with signal {}", WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    vulkan.error = fmt::format("ended the program with exit code {}", WEXITSTATUS(status));
  else if (text.starts_with("!"))
    vulkan.error = text.substr(1);
  std::istringstream lines(vulkan.error.empty() ? text : "");
  for (std::string line; std::getline(lines, line);) vulkan.devices.push_back(line);
}

// Dispatches on every device: does it compute, right, and how fast.

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kTimeout{20000};
constexpr uint64_t kLargeMatrix = uint64_t{64}
                                  << 20;  // bytes: more than any cache of such machines
constexpr float kEps = 1e-5f;

// y = x * matrix^T, or of rmsnorm(x) where there is a gain. One token, as in decode.
struct TestProgram {
  Program program;
  std::vector<uint16_t> matrix;  // [rows, cols], bf16
  std::vector<float> gain;       // [cols]; empty: no norm
  std::vector<float> x;          // [cols]
  uint64_t rows = 0, cols = 0;
};
enum : uint16_t { kX, kMatrix, kY, kGain, kNormed };

// Small numbers of both signs that repeat in neither direction of the matrix.
float value_at(uint64_t index) {
  return static_cast<float>(static_cast<int>(index * 2654435761u >> 7 & 0xff) - 128) / 128.0f;
}

// The head of a model: what lm_head_gemv computes.
TestProgram head_program(uint64_t rows, uint64_t cols, DType activations) {
  TestProgram test;
  test.rows = rows;
  test.cols = cols;
  test.program.name = "doctor";
  test.program.slots = {{"x", SlotKind::input, activations, 1, cols, Role::head_normed},
                        {"matrix", SlotKind::weight, DType::bf16, rows, cols, Role::lm_head},
                        {"y", SlotKind::output, activations, 1, rows, Role::logits}};
  Launch matmul{Kernel::matmul, "matmul", {{kX}, {kMatrix}, {kY, false, true}}};
  matmul.role = Role::lm_head;
  matmul.block = Block::lm_head;
  test.program.launches = {matmul};
  test.matrix.resize(rows * cols);
  for (size_t i = 0; i < test.matrix.size(); ++i) test.matrix[i] = f32_to_bf16(value_at(i));
  for (uint64_t i = 0; i < cols; ++i)
    test.x.push_back(bf16_to_f32(f32_to_bf16(value_at(i * 5 + 2))));
  return test;
}

// Two operators, no block of a model.
TestProgram operator_program(uint64_t rows, uint64_t cols, DType activations) {
  TestProgram test = head_program(rows, cols, activations);
  test.program.slots[kY].role = Role::none;
  test.program.slots.push_back({"gain", SlotKind::weight, DType::f32, 1, cols});
  test.program.slots.push_back({"normed", SlotKind::scratch, activations, 1, cols});
  Launch norm{Kernel::rmsnorm, "norm", {{kX}, {kGain}, {kNormed, false, true}}};
  norm.shape.eps = kEps;
  test.program.launches = {norm,
                           {Kernel::matmul, "matmul", {{kNormed}, {kMatrix}, {kY, false, true}}}};
  for (uint64_t i = 0; i < cols; ++i) test.gain.push_back(1 + value_at(i * 3 + 1) / 4);
  return test;
}

std::vector<float> plain_loops(const TestProgram& test) {
  std::vector<double> x(test.x.begin(), test.x.end());
  if (!test.gain.empty()) {
    double squares = 0;
    for (double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(test.cols) + kEps);
    for (uint64_t i = 0; i < test.cols; ++i) x[i] *= scale * test.gain[i];
  }
  std::vector<float> y(test.rows);
  for (uint64_t row = 0; row < test.rows; ++row) {
    double sum = 0;
    for (uint64_t i = 0; i < test.cols; ++i)
      sum += x[i] * bf16_to_f32(test.matrix[row * test.cols + i]);
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
        throw Error(ErrorCode::device, device.info().name + ": " + launch.name, reason->reason);
    const auto& slots = test.program.slots;
    std::vector<TensorView> weights(slots.size());
    weights[kMatrix] = {DType::bf16, test.rows, test.cols, std::as_bytes(std::span(test.matrix))};
    if (!test.gain.empty())
      weights[kGain] = {DType::f32, 1, test.cols, std::as_bytes(std::span(test.gain))};
    executable_ = device.load(test.program, weights);
    buffers_.resize(slots.size());
    for (uint16_t slot = 0; slot < slots.size(); ++slot) {
      if (slots[slot].kind == SlotKind::weight) continue;
      buffers_[slot] = device.alloc(slots[slot]);
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

// True: right.
bool check_numbers(Device& device, const TestProgram& test, DeviceProbe& probe) {
  const DeviceInfo info = device.info();
  Loaded loaded(device, test);
  loaded.call();
  const Comparison comparison = compare(loaded.output(), plain_loops(test));
  // bf16 keeps eight bits: the norm and the result are each rounded once, plus room for the sums.
  probe.allowed_error = info.activations != DType::f32 ? 1.0 / 64
                        : info.rounds_to_bf16          ? 1.0 / 256
                                                       : 1e-5;
  probe.worst_error = comparison.finite ? comparison.max_abs_error / comparison.max_abs_reference
                                        : std::numeric_limits<double>::infinity();
  return probe.worst_error <= probe.allowed_error;
}

// GB/s of matrix, by the device's own busy time: modelled on a virtual device, measured otherwise.
void measure_rate(Device& device, const TestProgram& test, DeviceProbe& probe) {
  constexpr auto kLeastTime = std::chrono::milliseconds(200);
  Loaded loaded(device, test);
  loaded.call();
  const auto start = Clock::now();
  double seconds = 0, calls = 0;
  do {
    seconds += static_cast<double>(loaded.call().device_ns) * 1e-9;
    ++calls;
  } while (!probe.is_virtual && Clock::now() - start < kLeastTime);
  const auto bytes = static_cast<double>(test.matrix.size() * sizeof(uint16_t));
  if (seconds > 0) probe.gb_per_s = calls * bytes * 1e-9 / seconds;
}

// What a healthy device reaches; wide, because machines differ. An NPU's port to memory carries 33
// (one matrix) to 66 GB/s in published measurements; a CPU anything from one slow core to a server.
struct TimeRange {
  double least, most;
};
TimeRange expected_rate(const DeviceInfo& device) {
  return device.shares_host_memory ? TimeRange{2, 1000} : TimeRange{15, 80};
}

// The smallest head in the store that this device would run.
std::optional<KernelEntry> stored_head(bool is_virtual) {
  std::optional<KernelEntry> smallest;
  const auto size = [](const KernelEntry& entry) {
    return uint64_t{entry.dims.vocab} * entry.dims.emb;
  };
  for (const KernelEntry& entry : read_manifest(default_kernel_store()).entries)
    if (entry.program == "lm_head_gemv" && (entry.platform == kVirtualPlatform) == is_virtual &&
        (!smallest || size(entry) < size(*smallest)))
      smallest = entry;
  return smallest;
}

DeviceEnv env_for(const DeviceEnv& env, const AirDims& dims) {
  DeviceEnv of_model = env;
  of_model.fusion = Fusion::block;
  ModelDims& model = of_model.model;
  model.layers = dims.layers;
  model.emb = dims.emb;
  model.heads = dims.heads;
  model.kv_heads = dims.kv_heads;
  model.head_dim = dims.head_dim;
  model.hidden = dims.hidden;
  model.vocab = dims.vocab;
  model.context = dims.seq;
  model.norm_eps = kEps;
  model.qkv_bias = dims.qkv_bias != 0;
  model.qk_norm = dims.qk_norm != 0;
  of_model.settings["prompt-rows"] = std::to_string(dims.seq);
  return of_model;
}

void try_image(Device& device, const KernelEntry& image, DeviceProbe& probe) {
  probe.computed = image.name;
  const TestProgram test =
      head_program(image.dims.vocab, image.dims.emb, device.info().activations);
  const bool is_large = test.matrix.size() * sizeof(uint16_t) >= kLargeMatrix;
  if (check_numbers(device, test, probe) && is_large) measure_rate(device, test, probe);
}

void try_operators(Device& device, DeviceProbe& probe) {
  probe.computed = "rmsnorm and matmul";
  const DType activations = device.info().activations;
  const TestProgram small = operator_program(192, 256, activations);
  if (!device.info().shares_host_memory &&
      device.why_not(small.program, small.program.launches[0])) {
    probe.untried = "the kernel store has no lm_head_gemv to try it with (`tyto kernels import`)";
    return;
  }
  if (check_numbers(device, small, probe))
    measure_rate(device, operator_program(8192, kLargeMatrix / 2 / 8192, activations), probe);
}

}  // namespace

DeviceProbe probe_device(const DeviceEntry& entry, const DeviceEnv& env) {
  DeviceProbe probe;
  probe.name = entry.name;
  std::unique_ptr<Device> device;
  std::optional<KernelEntry> image;
  try {
    DeviceEnv single_operators = env;
    single_operators.fusion = Fusion::op;
    device = entry.open(single_operators);
    if (!entry.is_host) image = stored_head(device->info().is_virtual);
    if (image) {
      device.reset();  // it may be one at a time
      device = entry.open(env_for(env, image->dims));
    }
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
    if (image)
      try_image(*device, *image, probe);
    else
      try_operators(*device, probe);
  } catch (const Error& error) {
    probe.dispatch_error = error.what();
  }
  return probe;
}

std::vector<DeviceProbe> probe_devices(const VulkanFacts& vulkan) {
  ThreadPool pool;
  std::vector<DeviceProbe> probes;
  for (const DeviceEntry& entry : device_table()) {
    if (entry.name == "vulkan" && vulkan.broke_its_process) {
      DeviceProbe& skipped = probes.emplace_back();
      skipped.name = entry.name;
      skipped.open_error = "its drivers: " + vulkan.error;
      continue;
    }
    Trace trace;
    probes.push_back(probe_device(entry, {pool, trace}));
  }
  return probes;
}

}  // namespace tyto
