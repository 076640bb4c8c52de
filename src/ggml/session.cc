#include "ggml/session.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/spelling.h"
#include "device/cpu/inner_loops.h"
#include "device/npu/formats/int8_gemm.h"
#include "ggml/lowering.h"
#include "ggml/offer.h"
#include "program/kernels.h"
#include "trace/counters.h"

namespace tyto::plugin {
namespace {

// K of the virtual NPU's GEMM images, at most as many as a device holds: the lengths of the common
// Llama models' rows. Others are padded to the next.
constexpr const char* kVirtualLengths = "512,1024,2048,3072,4096,5632,8192,14336";

constexpr uint32_t kArrayColumns = 8;
constexpr size_t kMostPlans = 4096;
constexpr size_t kEvents = 1 << 18;  // room in a trace

// A simulation of a large model takes its time; a device that is silent for so long is lost.
constexpr std::chrono::milliseconds kNpuTimeout{60'000}, kVirtualTimeout{600'000};

struct NotFinite {};  // a value that eight bits cannot hold

// Rows of f32 into the type the device takes; they may be apart in memory.
void write_rows(const ggml_tensor* tensor, const OperandRows& lie, uint32_t first, uint32_t rows,
                DType type, std::byte* out) {
  const uint64_t width = lie.width;
  uint32_t largest = 0;  // as integers, magnitudes have the order of the numbers
  for (uint32_t t = 0; t < rows; ++t) {
    const auto* row = reinterpret_cast<const float*>(static_cast<const std::byte*>(tensor->data) +
                                                     (first + t) * lie.distance);
    for (uint64_t i = 0; i < width; ++i)
      largest = std::max(largest, std::bit_cast<uint32_t>(row[i]) & 0x7fff'ffffu);
    cpu::best_inner_loops().narrow(type, row, out + t * row_bytes(type, width), width);
  }
  constexpr uint32_t kInfinity = 0x7f80'0000;
  if (largest >= kInfinity) throw NotFinite{};
}

DeviceEnv environment(ThreadPool& pool, Trace& trace, const Settings& settings, Fusion fusion) {
  DeviceEnv env{pool, trace};
  env.fusion = fusion;
  env.settings = {{"weights", "int8"},
                  {"int8-blocks", ""},
                  {"vnpu-machine", settings.machine},
                  {"gemm-lengths", kVirtualLengths},
                  {"vnpu-fault", settings.fault}};
  return env;
}

// Why products over K cannot run, whatever they are.
std::optional<std::string> why_no_product(const Device& device, uint64_t k) {
  Program program;
  program.slots = {{"x", SlotKind::input, DType::f32, 1, k},
                   {"w", SlotKind::weight, DType::bf16, 16, k},
                   {"y", SlotKind::output, DType::f32, 1, 16}};
  program.launches = {
      {Kernel::matmul, "product", {{0, true, false}, {1, true, false}, {2, false, true}}}};
  const auto refusal = device.why_not(program, program.launches.front());
  return refusal ? std::optional(refusal->reason) : std::nullopt;
}

// The longest row there is a kernel for; blocks are compiled for any that the sums hold.
uint64_t longest_k(const DeviceInfo& info, bool fuses) {
  if (fuses) return kMaxGemmK;
  uint64_t longest = 0;
  const FixedShapes fixed = fixed_shapes(info);
  for (const GemmImage& image : fixed.gemms) longest = std::max(longest, image.k);
  return longest;
}

// Graphs are also made to measure memory, before a model is loaded.
bool has_weights(const std::vector<ggml_tensor*>& run) {
  return std::all_of(run.begin(), run.end(), [](const ggml_tensor* node) {
    return node->op != GGML_OP_MUL_MAT || node->src[0]->data != nullptr;
  });
}

}  // namespace

Session::Session(const Settings& settings, bool is_virtual, ggml_backend_buffer_type_t memory)
    : settings_(settings),
      device_(open_device(
          is_virtual ? "vnpu" : "npu",
          environment(pool_, trace_, settings,
                      settings.fusion.value_or(is_virtual ? Fusion::block : Fusion::op)))),
      weights_(*device_) {
  offer_.settings = settings;
  offer_.memory = memory;
  offer_.fuses = settings.fusion.value_or(is_virtual ? Fusion::block : Fusion::op) == Fusion::block;
  offer_.longest_k = longest_k(device_->info(), offer_.fuses);
  offer_.k_multiple = offer_.fuses ? 4 : 1;
  timeout_ = is_virtual ? kVirtualTimeout : kNpuTimeout;
  activations_ = offer_.fuses ? DType::bf16 : DType::f32;
  if (const auto problem = why_no_product(*device_, std::min<uint64_t>(offer_.longest_k, 512)))
    throw Error(ErrorCode::device, device_->info().name, *problem,
                offer_.fuses ? "GGML_TYTO_FUSION=op runs single GEMMs"
                             : "`tyto kernels import` takes GEMM images");
  total_ = &trace_.device(device_->info().name, device_->info().is_virtual);
  if (!settings.trace_file.empty()) trace_.start(kEvents);
}

bool Session::supports(const ggml_tensor* op) {
  const auto reason = why_not(offer_, op);
  if (reason && (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID))
    ++counts_.declined[*reason];
  return !reason;
}

void Session::load_weight(const ggml_tensor* tensor) {
  weights_.at(tensor);
  if (is_weight_matrix(tensor) && !offer_.fuses) note_image(static_cast<uint64_t>(tensor->ne[0]));
}

// Images that do not fit beside each other are exchanged, which takes milliseconds.
void Session::note_image(uint64_t k) {
  const GemmImage* chosen = nullptr;
  const FixedShapes fixed = fixed_shapes(device_->info());
  for (const GemmImage& image : fixed.gemms)
    if (image.k >= k && (chosen == nullptr || image.k < chosen->k)) chosen = &image;
  if (chosen == nullptr || !images_.emplace(chosen->k, chosen->columns).second) return;
  uint32_t columns = 0;
  for (const auto& [length, wanted] : images_) columns += wanted;
  if (columns > kArrayColumns)
    notices_.push_back(
        fmt::format("GEMM images of K = {} take turns on the array's {} columns, and each turn "
                    "loads one again",
                    joined(images_, ", ",
                           [](const auto& image) {
                             return fmt::format("{} ({} columns)", image.first, image.second);
                           }),
                    kArrayColumns));
}

void Session::forget(const void* begin, const void* end) {
  if (!weights_.forget(begin, end)) return;
  plans_.clear();
  std::erase_if(programs_, [&](const auto& entry) {
    const auto& addresses = entry.second.addresses;
    const auto first = addresses.lower_bound(begin);
    return first != addresses.end() && *first < end;
  });
}

// Memory for values is shared by all programs: one dispatch runs at a time, and keeps nothing.
Buffer Session::value_buffer(const Slot& slot, std::map<uint64_t, size_t>& taken) {
  const size_t ordinal = taken[slot.cols]++;
  const auto [entry, is_new] = values_.try_emplace({slot.cols, ordinal});
  if (is_new) entry->second = device_->alloc(slot);
  return entry->second;
}

Session::Loaded& Session::loaded(const std::vector<ggml_tensor*>& run, const Uses& uses) {
  const IsNeeded is_needed = [&](const ggml_tensor* result) {
    return uses.is_needed_beyond(run, result);
  };
  std::vector<uint64_t> form = form_of(run, is_needed);
  const auto found = programs_.find(form);
  if (found != programs_.end()) return found->second;
  Loaded made;
  made.lowered = lower(run, activations_, is_needed);
  const Program& program = made.lowered.program;
  made.buffers.resize(program.slots.size());
  std::vector<TensorView> views(program.slots.size());
  for (const BoundWeight& bound : made.lowered.weights) {
    const ggml_tensor* tensor = bound.place.tensor(run);
    load_weight(tensor);
    Weight& weight = weights_.at(tensor);
    views[bound.slot] = view_of(tensor);
    made.addresses.insert(tensor->data);
    if (weight.macs_per_token > 0) made.weights.push_back(&weight);
  }
  for (const BoundOnes& bound : made.lowered.ones) {
    const Slot& slot = program.slots[bound.slot];
    auto& ones = ones_.try_emplace(slot.cols, slot.cols, 1.0f).first->second;
    views[bound.slot] = {DType::f32, 1, slot.cols, std::as_bytes(std::span(ones))};
  }
  std::map<uint64_t, size_t> taken;
  for (size_t i = 0; i < program.slots.size(); ++i)
    if (program.slots[i].kind != SlotKind::weight)
      made.buffers[i] = value_buffer(program.slots[i], taken);
  made.executable = device_->load(program, views);
  for (size_t i = 0; i < made.buffers.size(); ++i)
    if (program.slots[i].kind != SlotKind::weight)
      made.executable->bind(static_cast<uint16_t>(i), made.buffers[i]);
  const DeviceInfo info = device_->info();
  made.label = {.name = trace_.name(dispatch_name(program)),
                .device = trace_.device_index(info.name),
                .is_virtual = info.is_virtual};
  return programs_.emplace(std::move(form), std::move(made)).first->second;
}

void Session::prepare(ggml_cgraph* graph) {
  const Uses uses(graph);
  for (const Piece& piece : cut(offer_, graph))
    if (piece.on_device && has_weights(piece.nodes)) loaded(piece.nodes, uses);
}

// A graph that is computed again, token after token, is looked at once.
const std::vector<Session::Planned>& Session::plan(ggml_cgraph* graph) {
  const uint64_t number = number_of(graph);
  if (plans_.size() > kMostPlans) plans_.clear();
  if (number == 0) plans_.erase(number);
  const auto [entry, is_new] = plans_.try_emplace(number);
  if (!is_new) return entry->second;
  try {
    const Uses uses(graph);
    for (Piece& piece : cut(offer_, graph)) {
      Loaded* program = nullptr;
      try {
        if (piece.on_device) program = &loaded(piece.nodes, uses);
      } catch (const Error& error) {
        if (error.code == ErrorCode::device) throw;
        trace_.fallback(error.what());  // weights that eight bits cannot hold
      }
      entry->second.push_back({std::move(piece), program});
    }
  } catch (...) {
    plans_.erase(number);
    throw;
  }
  return entry->second;
}

void Session::compute(ggml_cgraph* graph) {
  for (const Planned& planned : plan(graph)) {
    if (planned.program == nullptr) {
      run_on_host(planned.piece.nodes,
                  planned.piece.on_device
                      ? "weights that eight bits cannot hold"
                      : "operations that were given to the device although it did not offer them");
      continue;
    }
    try {
      run_timed(*planned.program, planned.piece.nodes);
    } catch (const NotFinite&) {
      run_on_host(planned.piece.nodes, "activations that are not finite");
    }
  }
}

void Session::run_timed(Loaded& program, const std::vector<ggml_tensor*>& run) {
  const DeviceCounters& device = *total_;
  const auto not_ours = [&] { return device.waited_ns + device.submitting_ns; };
  const uint64_t begin_ns = now_ns(), before = not_ours(), dispatches = device.submissions;
  const uint64_t busy_before = device.busy_ns;
  run_on_device(program, run);
  const uint64_t host_ns = now_ns() - begin_ns - (not_ours() - before);
  const bool is_decode = tokens_of(run.front()) == 1;
  if (is_decode) counts_.decode_busy_ns += device.busy_ns - busy_before;
  if (std::exchange(program.is_new, false)) {
    counts_.first_ns += host_ns;
    return;
  }
  (is_decode ? counts_.decode_ns : counts_.batch_ns) += host_ns;
  (is_decode ? counts_.decode_dispatches : counts_.batch_dispatches) +=
      device.submissions - dispatches;
}

void Session::write_inputs(Loaded& program, const std::vector<ggml_tensor*>& run, uint32_t first,
                           uint32_t rows) {
  for (const BoundValue& input : program.lowered.inputs) {
    const ggml_tensor* tensor = input.place.tensor(run);
    write_rows(tensor, operand_rows(run[input.place.node], tensor), first, rows, activations_,
               program.buffers[input.slot].data);
  }
  for (const BoundRotation& bound : program.lowered.rotations) {
    const auto table = rotations_.rows(run[bound.rope]);
    const size_t width = program.lowered.program.slots[bound.slot].cols;
    cpu::best_inner_loops().narrow(activations_, table.data() + first * width,
                                   program.buffers[bound.slot].data, rows * width);
  }
}

void Session::run_rows(Loaded& program, const std::vector<ggml_tensor*>& run, uint32_t first,
                       uint32_t rows, std::span<float* const> results) {
  DispatchSpan span(trace_, program.label, first, rows);
  write_inputs(program, run, first, rows);
  Completion done;
  try {
    program.executable->submit(call_of(rows));
    done = program.executable->wait(timeout_);
  } catch (...) {
    ++total_->submissions;  // that was never completed
    throw;
  }
  total_->add(done);
  span.completed(done);
  for (size_t i = 0; i < program.lowered.outputs.size(); ++i) {
    const uint16_t slot = program.lowered.outputs[i].slot;
    const uint64_t width = program.lowered.program.slots[slot].cols;
    float* out = results[i] + first * width;
    cpu::best_inner_loops().widen(activations_, program.buffers[slot].data, out, rows * width);
  }
}

// ggml may give a result the memory of an input that is not needed any more, so of several
// dispatches the results are kept until all inputs have been read.
void Session::run_on_device(Loaded& program, const std::vector<ggml_tensor*>& run) {
  const auto tokens = static_cast<uint32_t>(tokens_of(run.front()));
  const auto& outputs = program.lowered.outputs;
  const bool is_one = tokens <= kMostRows;
  std::vector<std::vector<float>> kept(is_one ? 0 : outputs.size());
  results_.clear();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ggml_tensor* result = outputs[i].place.tensor(run);
    if (!is_one) kept[i].resize(static_cast<size_t>(ggml_nelements(result)));
    results_.push_back(is_one ? static_cast<float*>(result->data) : kept[i].data());
  }
  for (uint32_t first = 0; first < tokens; first += kMostRows)
    run_rows(program, run, first, std::min(kMostRows, tokens - first), results_);
  for (size_t i = 0; i < kept.size(); ++i)
    std::memcpy(outputs[i].place.tensor(run)->data, kept[i].data(), kept[i].size() * sizeof(float));
  for (Weight* weight : program.weights) weights_.count_tokens(*weight, tokens);
  counts_.products += program.weights.size();
  counts_.macs += program.lowered.macs_per_token * tokens;
}

void Session::run_on_host(const std::vector<ggml_tensor*>& nodes, const std::string& why) {
  uint64_t products = 0, macs = 0;
  for (const ggml_tensor* node : nodes) {
    if (node->op != GGML_OP_MUL_MAT) continue;
    ++products;
    macs += static_cast<uint64_t>(ggml_nelements(node) * node->src[0]->ne[0]);
  }
  if (settings_.require && products > 0)
    throw Error(ErrorCode::require, "GGML_TYTO_REQUIRE", "a product would run on the CPU: " + why);
  trace_.fallback("on the CPU: " + why);
  counts_.host_products += products;
  counts_.host_operations += nodes.size();
  counts_.host_macs += macs;
  host_.compute(nodes);
}

HostDelegate::~HostDelegate() {
  if (backend_ != nullptr) ggml_backend_free(backend_);
}

void HostDelegate::compute(const std::vector<ggml_tensor*>& nodes) {
  if (backend_ == nullptr)
    backend_ = ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr);
  if (backend_ == nullptr) throw Error(ErrorCode::device, "cpu", "ggml has no CPU backend here");
  if (threads_ > 0) {
    const ggml_backend_reg_t cpu = ggml_backend_dev_backend_reg(ggml_backend_get_device(backend_));
    const auto set = reinterpret_cast<ggml_backend_set_n_threads_t>(
        ggml_backend_reg_get_proc_address(cpu, "ggml_backend_set_n_threads"));
    if (set != nullptr) set(backend_, threads_);
  }
  const size_t bytes = ggml_graph_overhead_custom(nodes.size(), false) + 1024;
  const std::unique_ptr<ggml_context, void (*)(ggml_context*)> context(
      ggml_init({bytes, nullptr, true}), ggml_free);
  if (!context) throw Error(ErrorCode::device, "cpu", "no memory for a graph");
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), nodes.size(), false);
  for (ggml_tensor* node : nodes) ggml_graph_add_node(graph, node);
  if (ggml_backend_graph_compute(backend_, graph) != GGML_STATUS_SUCCESS)
    throw Error(ErrorCode::device, "cpu", "ggml's CPU backend failed");
}

Weight& Weights::at(const ggml_tensor* tensor) {
  const auto found = made_.find(tensor->data);
  if (found != made_.end()) return found->second;
  const uint64_t begin_ns = now_ns();
  const TensorView view = view_of(tensor);
  Weight weight;
  weight.form = device_.prepare(weight_role(tensor->name).name, view);
  if (is_weight_matrix(tensor)) {
    weight.macs_per_token = view.values();
    ++totals_.matrices;
    totals_.bytes += view.values();
    totals_.macs_per_token += view.values();
  }
  totals_.seconds += static_cast<double>(now_ns() - begin_ns) / 1e9;
  return made_.emplace(tensor->data, std::move(weight)).first->second;
}

bool Weights::forget(const void* begin, const void* end) {
  const auto first = made_.lower_bound(begin), last = made_.lower_bound(end);
  const bool is_any = first != last;
  made_.erase(first, last);
  return is_any;
}

void Weights::count_tokens(Weight& weight, uint64_t tokens) {
  weight.tokens += tokens;
  if (tokens == 1) ++weight.alone;
  // Layers see every token. The head sees a prompt's last one alone, which is not decoding.
  if (weight.tokens < totals_.most_tokens) return;
  totals_.most_tokens = weight.tokens;
  totals_.most_alone = weight.alone;
}

}  // namespace tyto::plugin
