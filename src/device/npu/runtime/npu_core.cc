#include "device/npu/runtime/npu_core.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/round_up.h"
#include "cost/cost_model.h"
#include "device/npu/formats/air_binding.h"
#include "device/npu/formats/int8_gemm.h"
#include "tensor/quant.h"
#include "trace/trace.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

std::string_view name(ert_cmd_state state) {
  switch (state) {
    case ERT_CMD_STATE_TIMEOUT:
      return "timed out";
    case ERT_CMD_STATE_ABORT:
      return "was aborted";
    case ERT_CMD_STATE_ERROR:
      return "failed";
    default:
      return "did not complete";
  }
}

// The heap holds an xclbin's design and instruction words, which every dispatch reads.
ImageBytes run_bytes(const std::string& key, const NpuImage& image) {
  if (image.run_bytes > 0) return {key, image.run_bytes, false};
  return {key, image.bytes.size() + image.words.size() * sizeof(uint32_t), true};
}

DeviceCounters& counters(NpuCore& core) {
  return core.env.trace.device(core.name(), core.kernels.info.is_virtual);
}

// What tells two forms of a weight apart, beside the layout: the tensors, and where they begin.
uint64_t place_key(const AirPart& part) {
  uint64_t key = part.place.offset;
  for (const Pattern::Dim& dim : part.place.dims) key = key * 1'000'003 + dim.stride;
  return key;
}

}  // namespace

void Expansion::refresh(uint32_t tokens) {
  if (version == source->version) return;
  version = source->version;
  const size_t wide = row_bytes * copies;
  size_t first = tokens, end = 0;
  for (size_t t = 0; t < tokens; ++t) {
    const std::byte* row = source->host + t * row_bytes;
    std::byte* shown = rows.data() + t * row_bytes;
    if (std::memcmp(row, shown, row_bytes) == 0) continue;
    std::memcpy(shown, row, row_bytes);
    for (size_t copy = 0; copy < copies; ++copy)
      std::memcpy(host + t * wide + copy * row_bytes, row, row_bytes);
    first = std::min(first, t);
    end = t + 1;
  }
  if (first < end) bo.sync(XCL_BO_SYNC_BO_TO_DEVICE, (end - first) * wide, first * wide);
}

NpuCore::NpuCore(const DeviceEnv& environment, NpuKernels npu_kernels)
    : env(environment),
      settings(npu_settings(environment)),
      kernels(std::move(npu_kernels)),
      model(kernels.dims.layers == 0 ? AirModel{} : air_model(kernels.dims)),
      device(guarded(kernels.info.name, [&] {
        return kernels.address.empty() ? xrt::device(0) : xrt::device(kernels.address);
      })) {}

xrt::bo NpuCore::allocate(size_t bytes, const std::string& what) {
  if (*pinned_ + bytes > kernels.pinned_limit)
    throw Error(ErrorCode::device, name() + ": " + what,
                fmt::format("{} bytes pinned, {} more asked for, the limit is {}", *pinned_, bytes,
                            kernels.pinned_limit),
                "raise memlock: `tyto doctor` says how");
  // Kept as a plain xrt::bo: an ext::bo given to set_arg travels as a scalar before XRT 2.26.
  xrt::bo bo = guarded(name() + ": " + what, [&] { return xrt::bo(xrt::ext::bo(device, bytes)); });
  count_pinned(bytes);
  return bo;
}

void NpuCore::count_pinned(uint64_t bytes) {
  *pinned_ += bytes;
  counters(*this).pinned_bytes = *pinned_;
}

std::shared_ptr<NpuContext> NpuCore::open(std::string_view program, uint32_t window) {
  const std::string key = fmt::format("{}@{}", program, window);
  const auto found = contexts_.find(key);
  if (found != contexts_.end() && !found->second->failed) return found->second;
  return open_image(key, kernels.image(program, window));
}

std::shared_ptr<NpuContext> NpuCore::open_image(const std::string& key, NpuImage image) {
  // A device has only 16 contexts: the failed one, and unused ones, go before their successor.
  contexts_.erase(key);
  std::erase_if(contexts_, [](const auto& entry) { return entry.second.use_count() == 1; });
  check_heap_for(key, image);
  auto context = std::make_shared<NpuContext>();
  context->image = std::move(image);
  const auto make = [&] {
    const NpuImage& loaded = context->image;
    if (loaded.form == ImageKind::elf) {
      const xrt::elf elf(loaded.bytes.data(), loaded.bytes.size());
      context->context = xrt::hw_context(device, elf);
      if (!loaded.kernel.empty())
        context->kernel = xrt::ext::kernel(context->context, loaded.kernel);
    } else {
      const std::vector<char> bytes(
          reinterpret_cast<const char*>(loaded.bytes.data()),
          reinterpret_cast<const char*>(loaded.bytes.data()) + loaded.bytes.size());
      const xrt::xclbin xclbin(bytes);
      context->context = xrt::hw_context(device, device.register_xclbin(xclbin));
      context->kernel = xrt::kernel(context->context, loaded.kernel);
    }
  };
  guarded(name() + ": " + key, make, kernels.version_faults);
  contexts_[key] = context;
  env.trace.loaded(
      {name(), key, std::string(to_string(context->image.form)), to_hex(context->image.hash)});
  return context;
}

xrt::bo NpuCore::instructions(NpuContext& context) {
  if (context.instructions) return context.instructions;
  const std::vector<uint32_t>& words = context.image.words;
  xrt::bo made(device, words.size() * sizeof(uint32_t), xrt::bo::flags::cacheable,
               static_cast<xrt::memory_group>(context.kernel.group_id(1)));
  std::copy(words.begin(), words.end(), made.map<uint32_t*>());
  made.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  return context.instructions = made;
}

size_t NpuCore::join(NpuContext& context, bool is_of_tokens) {
  ++context.executables;
  context.is_of_tokens |= is_of_tokens;
  heap_is_shared_ = false;
  return context.next_place++;
}

void NpuCore::share_heap() {
  if (heap_is_shared_) return;
  heap_is_shared_ = true;
  const auto bytes_of = [](const NpuContext& context) {
    return round_up(run_bytes("", context.image).bytes, kHeapPiece);
  };
  std::vector<NpuContext*> sharing;
  uint64_t taken = 0;
  for (const auto& [key, context] : contexts_) {
    taken += bytes_of(*context) * (context->executables > 0 ? 1 : context->runs.size());
    if (context->executables > 0) sharing.push_back(context.get());
  }
  std::stable_sort(sharing.begin(), sharing.end(), [&](const NpuContext* a, const NpuContext* b) {
    if (a->is_of_tokens != b->is_of_tokens) return a->is_of_tokens;
    return bytes_of(*a) > bytes_of(*b);
  });
  uint64_t left = kernels.heap_limit - std::min(taken, kernels.heap_limit);
  for (NpuContext* context : sharing) {
    const uint64_t each = bytes_of(*context);
    const uint64_t more = std::min<uint64_t>(context->executables - 1, left / each);
    context->most_runs = 1 + more;
    left -= more * each;
    std::erase_if(context->runs, [&](const auto& run) { return run.first > more; });
  }
}

KernelRun& NpuCore::run_for(NpuContext& context, size_t place) {
  share_heap();
  const size_t shared = place % context.most_runs;
  if (shared == 0 || context.runs.contains(shared)) return context.run(shared);
  try {
    return context.run(shared);
  } catch (const std::exception& error) {
    env.trace.fallback(fmt::format("layers share {} runs of {} on {}: {}", shared,
                                   context.image.kernel, name(), error.what()));
    context.most_runs = shared;
    return context.run(place % shared);
  }
}

// Runs beyond the first of each image make room.
void NpuCore::check_heap_for(const std::string& key, const NpuImage& image) {
  heap_is_shared_ = false;
  for (const auto& [known, context] : contexts_)
    if (context->executables > 0)
      std::erase_if(context->runs, [](const auto& run) { return run.first > 0; });
  std::vector<ImageBytes> images;
  for (const auto& [known, context] : contexts_) images.push_back(run_bytes(known, context->image));
  images.push_back(run_bytes(key, image));
  check_heap(npu_heap(images), kernels.heap_limit, name());
}

// A group is a number with flags in its upper half, which XRT does not compare either.
void NpuContext::check_group(int argument, const xrt::bo& buffer) const {
  constexpr uint32_t kBank = 0xffff;
  const auto wanted = static_cast<uint32_t>(kernel.group_id(argument)) & kBank;
  const uint32_t found = buffer.get_memory_group() & kBank;
  if (wanted == found) return;
  throw Error(ErrorCode::device, image.kernel,
              fmt::format("argument {} is connected to memory group {}, its buffer lies in group "
                          "{}: XRT would work on a copy",
                          argument, wanted, found),
              "build the image with its arguments in the group of the host's memory");
}

// The pages of the model's file that hold the rows, without a copy. XRT wants whole pages; a window
// into them is what the kernel is given.
xrt::bo NpuCore::mapped(const TensorView& tensor, uint64_t first_row, uint64_t rows) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const std::byte* begin = tensor.bytes.data() + first_row * tensor.row_stride();
  const size_t bytes = rows * tensor.row_stride();
  const uintptr_t address = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first_page = address / page * page;
  const size_t whole = (address + bytes - first_page + page - 1) / page * page;
  // The driver pins read-only mappings as such; the const_cast is XRT's interface, not an intent.
  xrt::bo pages = xrt::ext::bo(device, reinterpret_cast<void*>(first_page), whole);
  // What else lies in the first and the last page is not ours to touch.
  pages.sync(XCL_BO_SYNC_BO_TO_DEVICE, bytes, address - first_page);
  count_pinned(whole);
  return {pages, bytes, address - first_page};
}

void NpuCore::upload(xrt::bo& weights, const std::string& what) {
  SetupTimer timer(env.trace, kernels.info.is_virtual ? "weights copied by the virtual NPU"
                                                      : "weights synced to the NPU");
  guarded(name() + ": " + what, [&] { weights.sync(XCL_BO_SYNC_BO_TO_DEVICE); });
}

xrt::bo NpuCore::weight(const AirArgument& argument, const std::vector<AirPart>& parts,
                        std::span<const TensorView> weights) {
  std::vector<Part> key;
  for (const AirPart& part : parts)
    key.emplace_back(weights[part.slot].bytes.data(), part.first_row, place_key(part));
  const auto [entry, is_new] = weights_.try_emplace({argument.layout, key});
  if (!is_new) return entry->second;
  try {
    const TensorView& first = weights[parts.front().slot];
    const bool as_in_file = parts.size() == 1 && parts[0].place == Pattern{} &&
                            first.dtype == argument.dtype &&
                            parts[0].rows * first.row_stride() == argument.bytes() &&
                            reinterpret_cast<uintptr_t>(first.bytes.data()) % 4 == 0 &&
                            argument.bytes() >= (size_t{64} << 10);
    if (as_in_file) {
      try {
        return entry->second = mapped(first, parts[0].first_row, parts[0].rows);
      } catch (const std::exception& error) {
        env.trace.fallback(
            fmt::format("weights are copied for {}: the mapped file cannot be used "
                        "in place ({})",
                        name(), error.what()));
      }
    }
    xrt::bo bo = allocate(argument.bytes(), argument.name);
    {
      SetupTimer timer(env.trace, kLayoutPhase);
      auto* memory = bo.map<uint16_t*>();
      for (const AirPart& part : parts)
        place_rows(weights[part.slot], part.first_row, part.rows, part.place,
                   {memory, argument.bytes() / 2}, env.pool);
    }
    upload(bo, argument.name);
    return entry->second = bo;
  } catch (...) {
    weights_.erase(entry);
    throw;
  }
}

std::shared_ptr<Expansion> NpuCore::expansion(const std::shared_ptr<NpuBuffer>& source,
                                              uint64_t rows, size_t row_bytes, size_t copies) {
  std::erase_if(expansions_, [](const auto& known) { return known.second.use_count() == 1; });
  for (const auto& [key, known] : expansions_)
    if (known->source == source && known->copies == copies &&
        known->rows.size() >= rows * row_bytes)
      return known;
  auto& entry = expansions_[{source.get(), rows, copies}];
  auto made = std::make_shared<Expansion>();
  made->source = source;
  made->row_bytes = row_bytes;
  made->copies = copies;
  made->bo = allocate(rows * row_bytes * copies, "rotation table");
  count_as_pinned_by(made->pinned, made->bo.size());
  made->host = made->bo.map<std::byte*>();
  made->rows.resize(rows * row_bytes);
  return entry = made;
}

// False where no GEMM image takes rows of that length.
bool NpuCore::place_codes(const WeightSource& source, Int8Weight& made) {
  const uint64_t rows = source.tensor.rows, k = source.tensor.cols;
  if (fuses_int8()) {
    made.extent = {.outputs = rows, .k = k, .padded_n = rows, .padded_k = k};
  } else {
    const SlotChoice choice = choose_slot(kernels.gemm_slots, k, 1);
    if (!choice.slot) return false;
    made.extent = weight_extent(kernels.gemm_slots, *choice.slot, rows, k);
  }
  const uint64_t bytes = made.extent.weight_bytes();
  made.codes = allocate(bytes, source.name);
  made.scales.resize(rows);
  {
    SetupTimer timer(env.trace, kLayoutPhase);
    quantize_gemm_weights(source, made.extent, {made.codes.map<int8_t*>(), bytes}, made.scales,
                          env.pool);
    if (!fuses_int8()) add_up_tiles(made);
  }
  upload(made.codes, source.name);
  if (fuses_int8()) {
    made.device_scales = allocate(rows * sizeof(float), source.name);
    std::copy(made.scales.begin(), made.scales.end(), made.device_scales.map<float*>());
    upload(made.device_scales, source.name);
  }
  return true;
}

void NpuCore::add_up_tiles(Int8Weight& made) {
  const uint64_t k = made.extent.padded_k;
  const int8_t* codes = made.codes.map<int8_t*>();
  for (const GemmSlot& slot : kernels.gemm_slots) {
    if (slot.k != k || made.tile_sums.contains(slot.n_tile)) continue;
    const uint64_t rows = slot.n_tile, tiles = made.extent.padded_n / rows;
    std::vector<int32_t>& sums = made.tile_sums[slot.n_tile];
    sums.resize(tiles * k);
    env.pool.parallel_for(tiles, 1, [&](size_t begin, size_t end) {
      for (size_t row = begin * rows; row < end * rows; ++row)
        for (uint64_t i = 0; i < k; ++i) sums[row / rows * k + i] += codes[row * k + i];
    });
  }
}

std::shared_ptr<Int8Weight> NpuCore::int8_weight(const WeightSource& source) {
  std::weak_ptr<Int8Weight>& entry = int8_weights_[source.tensor.bytes.data()];
  if (auto known = entry.lock()) return known;
  auto made = std::make_shared<Int8Weight>();
  const uint64_t pinned_before = *pinned_;
  const bool is_vector = source.tensor.rows == 1 && source.tensor.dtype == DType::f32;
  if (fuses_int8() && is_vector) {
    made->codes = allocate(source.tensor.cols * sizeof(uint16_t), source.name);
    place_rows(source.tensor, 0, 1, {}, {made->codes.map<uint16_t*>(), source.tensor.cols},
               env.pool);
    upload(made->codes, source.name);
  } else if (!place_codes(source, *made)) {
    return nullptr;
  }
  count_as_pinned_by(made->pinned, *pinned_ - pinned_before);
  entry = made;
  return made;
}

void NpuBuffer::sync(Sync direction, size_t first, size_t bytes) {
  bo.sync(direction == Sync::to_device ? XCL_BO_SYNC_BO_TO_DEVICE : XCL_BO_SYNC_BO_FROM_DEVICE,
          bytes, offset + first);
  if (direction != Sync::to_device) return;
  ++version;
  written = std::max(written, first + bytes);
}

size_t bound_slots(const Program& program) {
  return static_cast<size_t>(
      std::count_if(program.slots.begin(), program.slots.end(),
                    [](const Slot& slot) { return slot.kind != SlotKind::weight; }));
}

void Transfers::bind(uint16_t slot, const std::shared_ptr<NpuBuffer>& buffer) {
  const Slot& bound = program_.slots[slot];
  const Part part{buffer, row_bytes(bound.dtype, bound.cols), bound.bytes()};
  if (bound.kind == SlotKind::input || bound.kind == SlotKind::inout) uploads_.push_back(part);
  if (bound.kind == SlotKind::output || bound.kind == SlotKind::inout) downloads_.push_back(part);
  const auto writes = [&](const Launch& launch) {
    return std::any_of(launch.args.begin(), launch.args.end(),
                       [&](const Arg& arg) { return arg.writes && arg.slot == slot; });
  };
  if (std::any_of(program_.launches.begin(), program_.launches.end(), writes))
    results_.push_back(part);
}

uint64_t Transfers::upload_padded(uint32_t rows) {
  uint64_t bytes = 0;
  for (const Part& part : uploads_) {
    NpuBuffer& buffer = *part.buffer;
    const uint64_t used = rows * part.row_bytes;
    const uint64_t moved = std::max<uint64_t>(used, std::min<uint64_t>(buffer.written, part.bytes));
    std::memset(buffer.host + used, 0, moved - used);
    buffer.sync(Sync::to_device, 0, moved);
    if (buffer.written == moved) buffer.written = used;
    bytes += moved;
  }
  for (const Part& part : results_)
    part.buffer->written = std::max<size_t>(part.buffer->written, part.bytes);
  return bytes;
}

uint64_t Transfers::move(const std::vector<Part>& parts, Sync direction, uint32_t rows) {
  uint64_t bytes = 0;
  for (const Part& part : parts) {
    part.buffer->sync(direction, 0, rows * part.row_bytes);
    bytes += rows * part.row_bytes;
  }
  return bytes;
}

const AirModel& NpuCore::model_for(uint64_t rows) {
  AirDims dims = kernels.dims;
  if (prefill_rows(rows) > 0) dims.seq = prefill_rows(rows);
  const auto [entry, is_new] = models_.try_emplace(dims.seq);
  if (is_new) entry->second = air_model(dims);
  return entry->second;
}

xrt::bo NpuCore::scratch(size_t bytes, std::set<size_t>& taken) {
  size_t chosen = scratch_.size();
  for (size_t i = 0; i < scratch_.size(); ++i) {
    const bool is_better =
        chosen == scratch_.size() || scratch_[i].size() < scratch_[chosen].size();
    if (scratch_[i].size() >= bytes && !taken.contains(i) && is_better) chosen = i;
  }
  if (chosen == scratch_.size()) scratch_.push_back(allocate(bytes, "scratch"));
  taken.insert(chosen);
  return scratch_[chosen];
}

xrt::bo NpuCore::dead_page() {
  constexpr size_t kBytes = 4096;
  if (!dead_page_) dead_page_ = allocate(kBytes, "a dead argument");
  return dead_page_;
}

std::shared_ptr<ActivationCodes> NpuCore::activation_codes(uint32_t k, uint64_t rows) {
  auto& entry = activation_codes_[{k, rows}];
  if (entry) return entry;
  auto made = std::make_shared<ActivationCodes>();
  made->bo = allocate(rows * k, "activations");
  made->codes = made->bo.map<int8_t*>();
  std::memset(made->codes, 0, rows * k);
  made->bo.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  return entry = made;
}

const std::vector<float>& NpuCore::weight_sum(const TensorView& weight, uint64_t first_row,
                                              uint64_t rows) {
  const auto [entry, is_new] = weight_sums_.try_emplace({weight.bytes.data(), first_row});
  if (is_new) {
    SetupTimer timer(env.trace, "sums of weights for --guard");
    entry->second = sum_of_rows(weight, first_row, rows, env.pool);
  }
  return entry->second;
}

std::shared_ptr<ProgramSet> NpuCore::program_set() {
  if (!open_set_ || open_set_->context) open_set_ = std::make_shared<ProgramSet>();
  return open_set_;
}

std::shared_ptr<NpuContext> NpuCore::compiled(ProgramSet& set) {
  if (!set.context) {
    NpuImage image;
    image.bytes = kernels.compile(set.programs);
    image.hash = hash_bytes(image.bytes);
    set.context = open_image("programs " + to_hex(image.hash), std::move(image));
  }
  return set.context;
}

Program with_weights(Program program, DType type) {
  for (Slot& slot : program.slots)
    if (slot.kind == SlotKind::weight) slot.dtype = type;
  return program;
}

void Dispatcher::begin() {
  done_ = {.submissions = 0};
  done_.start_ns = now_ns();
}

void Dispatcher::uploaded(uint64_t bytes) {
  done_.uploaded_bytes = bytes;
  done_.uploaded_ns = done_.submitted_ns = now_ns();
}

void Dispatcher::start(KernelRun& run, const Arguments& arguments) {
  if (context_->failed)
    throw Error(ErrorCode::device, where_, "was used again after a failed dispatch");
  if (in_flight_ == 0) begin_of_next();
  const uint64_t before = now_ns();
  try {
    guarded(where_, [&] { run.start(arguments); }, core_.kernels.version_faults);
  } catch (...) {
    context_->failed = true;
    throw;
  }
  ++in_flight_;
  const uint64_t after = now_ns();
  done_.submitting_ns += after - before;
  if (done_.submissions == 0) done_.submitted_ns = after;
}

void Dispatcher::begin_of_next() {
  begun_ns_ = now_ns();
  modelled_before_ = core_.kernels.modelled_ns ? core_.kernels.modelled_ns() : 0;
}

void Dispatcher::finish(KernelRun& run, std::chrono::milliseconds timeout, const Call& call,
                        const Cost& work, uint64_t launches) {
  // XRT takes 0 for "for ever".
  const auto bounded =
      std::clamp(timeout, std::chrono::milliseconds(1), core_.kernels.longest_wait);
  context_->failed = true;  // unless it turns out otherwise
  --in_flight_;
  const uint64_t waiting_since = now_ns();
  const ert_cmd_state state = guarded(where_, [&] { return run.wait(bounded); });
  done_.waited_ns += now_ns() - waiting_since;
  if (state != ERT_CMD_STATE_COMPLETED)
    throw Error(ErrorCode::device, where_,
                fmt::format("the dispatch {} (state {})", name(state), static_cast<int>(state)),
                "see --on-device-error");
  context_->failed = false;
  ++done_.submissions;
  done_.launches += launches;
  done_.bytes += work.bytes;
  done_.flops += work.flops;
  const bool is_modelled = core_.kernels.modelled_ns != nullptr;
  const uint64_t took_ns =
      is_modelled ? core_.kernels.modelled_ns() - modelled_before_ : now_ns() - begun_ns_;
  done_.device_ns += took_ns;
  begin_of_next();  // what else is in flight runs one after the other
  Trace& trace = core_.env.trace;
  if (is_modelled && trace.recording())
    record_modelled_launches(trace, program_, launch_names_, call, trace.device_index(core_.name()),
                             took_ns);
}

void Dispatcher::downloading() {
  done_.completed_ns = now_ns();
}

Completion Dispatcher::end(uint64_t downloaded_bytes) {
  done_.downloaded_bytes = downloaded_bytes;
  done_.end_ns = now_ns();
  return done_;
}

void TurnedHeads::add(const AirArgument& argument, std::shared_ptr<NpuBuffer> rows,
                      xrt::bo turned) {
  const HeadsFirst form = {argument.rows, argument.cols, argument.run};
  TYTO_ASSERT(argument.dtype == DType::bf16 && turned.size() >= argument.bytes());
  (argument.role == AirRole::output ? outputs_ : inputs_)
      .push_back({form, std::move(rows), std::move(turned)});
}

uint64_t TurnedHeads::give(uint32_t rows) {
  uint64_t moved = 0;
  for (Part& part : inputs_) {
    part.rows->sync(Sync::from_device, 0, rows * row_bytes(part));
    to_heads_first(part.form, reinterpret_cast<const uint16_t*>(part.rows->host), rows,
                   part.turned.map<uint16_t*>(), pool_);
    const uint64_t turned = part.form.seq * row_bytes(part);  // its memory may be larger
    part.turned.sync(XCL_BO_SYNC_BO_TO_DEVICE, turned, 0);
    moved += rows * row_bytes(part) + turned;
  }
  return moved;
}

uint64_t TurnedHeads::take(uint32_t rows) {
  uint64_t moved = 0;
  for (Part& part : outputs_) {
    const uint64_t turned = part.form.seq * row_bytes(part);
    part.turned.sync(XCL_BO_SYNC_BO_FROM_DEVICE, turned, 0);
    from_heads_first(part.form, part.turned.map<const uint16_t*>(), rows,
                     reinterpret_cast<uint16_t*>(part.rows->host), pool_);
    part.rows->sync(Sync::to_device, 0, rows * row_bytes(part));
    moved += turned + rows * row_bytes(part);
  }
  return moved;
}

namespace {

constexpr std::chrono::milliseconds kHangNoticed{2500};  // the driver looks for hangs after 2 s

// A wait that ran into its own timeout says TIMEOUT, too; the state tells them apart.
bool has_ended(const xrt::run& run) try {
  const ert_cmd_state state = run.state();
  return state >= ERT_CMD_STATE_COMPLETED && state != ERT_CMD_STATE_SUBMITTED;
} catch (const std::exception&) {
  return false;  // nothing says so
}

bool ends_in_time(const xrt::run& run, std::chrono::steady_clock::time_point started) {
  const auto left = started + kHangNoticed - std::chrono::steady_clock::now();
  try {
    // XRT takes 0 for "for ever".
    (void)run.wait(std::max(std::chrono::duration_cast<std::chrono::milliseconds>(left),
                            std::chrono::milliseconds(1)));
  } catch (const std::exception&) {  // said when it was waited for
  }
  return has_ended(run);
}

// Runs that the device has not given back, and the memory that they may still write to. Never
// destroyed itself: the process may end before they do.
struct LostRuns {
  std::mutex mutex;
  std::vector<std::pair<xrt::run, std::vector<Arguments::Value>>> runs;
};

LostRuns& lost_runs() {
  static auto* const lost = new LostRuns;
  return *lost;
}

}  // namespace

namespace {

// XRT has it since 2025-04 (#8846), but not every XRT that this compiles with needs to.
template <typename Run>
concept HasScratchpad = requires(Run run) { run.get_ctrl_scratchpad_bo(); };

template <typename Run>
xrt::bo scratchpad_of(Run& run) {
  if constexpr (HasScratchpad<Run>)
    return run.get_ctrl_scratchpad_bo();
  else
    throw Error(ErrorCode::unsupported, "XRT", "this XRT does not give out a run's scratchpad",
                "build Tyto with XRT 2.20.115 or newer, or give --decode-images windows");
}

}  // namespace

bool knows_scratchpads() {
  return HasScratchpad<xrt::run>;
}

void KernelRun::tell(const DecodeParameters& parameters, uint32_t length) {
  TYTO_ASSERT(!in_flight_);
  if (!run_) run_ = xrt::run(kernel_);
  const size_t bytes = parameters.words * sizeof(uint32_t);
  if (!scratchpad_) {
    xrt::bo found = scratchpad_of(run_);
    if (found.size() < bytes)
      throw Error(ErrorCode::device, "scratchpad",
                  fmt::format("XRT gives {} bytes, the parameters take {}", found.size(), bytes),
                  "import the ELF again with the params.txt of its own build");
    std::memset(found.map<std::byte*>(), 0, found.size());
    scratchpad_ = found;
  }
  auto* const words = scratchpad_.map<uint32_t*>();
  const uint32_t mask = DecodeParameters::mask_word(length);
  words[parameters.append] = parameters.append_word(length);
  words[parameters.mask] = parameters.core_adds_up ? mask - mask_word_ : mask;
  mask_word_ = mask;
  scratchpad_.sync(XCL_BO_SYNC_BO_TO_DEVICE);
}

void KernelRun::start(const Arguments& arguments) {
  TYTO_ASSERT(!in_flight_);
  if (!run_) run_ = xrt::run(kernel_);
  holder_ = &arguments;
  given_.resize(arguments.values().size());
  for (size_t i = 0; i < given_.size(); ++i) {
    const Arguments::Value& value = arguments.values()[i];
    if (given_[i] == value) continue;
    if (value.kind == Arguments::Kind::buffer) run_.set_arg(static_cast<int>(i), value.buffer);
    if (value.kind == Arguments::Kind::number) run_.set_arg(static_cast<int>(i), value.number);
    given_[i] = value;
  }
  run_.start();
  in_flight_ = true;
  started_ = std::chrono::steady_clock::now();
}

ert_cmd_state KernelRun::wait(std::chrono::milliseconds timeout) {
  const ert_cmd_state state = run_.wait(timeout);
  in_flight_ = state != ERT_CMD_STATE_COMPLETED && !has_ended(run_);
  return state;
}

void KernelRun::release(const Arguments& arguments) {
  if (holder_ == &arguments) drop();
}

// XRT ends the process when a run is destroyed before its end was seen (2.23 and later), which is
// so for one that a wait gave up, and for those behind one that failed. The driver's hang detection
// ends them; what it does not end is never destroyed.
void KernelRun::drop() {
  LostRuns& lost = lost_runs();
  const std::lock_guard lock(lost.mutex);
  std::erase_if(lost.runs, [](const auto& entry) { return has_ended(entry.first); });
  if (in_flight_ && !ends_in_time(run_, started_)) lost.runs.emplace_back(run_, given_);
  run_ = {};
  scratchpad_ = {};
  given_.clear();
  holder_ = nullptr;
  in_flight_ = false;
}

namespace {

constexpr size_t kRowsAtOnce = 4;  // enough to be worth a thread's while

std::vector<float> row_of(const GuardedRows& rows, const std::byte* memory, uint64_t row) {
  std::vector<float> values(rows.cols);
  const std::byte* data = memory + rows.offset + row_bytes(rows.dtype, row * rows.stride);
  dequantize(rows.dtype, {data, row_bytes(rows.dtype, rows.cols)}, values);
  return values;
}

}  // namespace

// Nothing where all rows hold, else the first that does not and what its sums are.
std::optional<ProductGuard::Mismatch> ProductGuard::find_mismatch(Product& product, uint32_t rows) {
  const std::byte* x = product.x.bo.map<std::byte*>();
  const std::byte* y = product.y.bo.map<std::byte*>();
  std::optional<Mismatch> first;
  std::mutex mutex;
  pool_.parallel_for(rows, kRowsAtOnce, [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      const RowSum sum =
          row_sum(product.weight_sum, row_of(product.x, x, row), row_of(product.y, y, row));
      if (sum.holds()) continue;
      const std::lock_guard lock(mutex);
      if (!first || row < first->row) first = Mismatch{row, sum};
    }
  });
  return first;
}

uint64_t ProductGuard::check(uint32_t rows, const Dispatcher& dispatcher) {
  for (Product& product : products_) {
    guarded(dispatcher.where(), [&] {
      for (GuardedRows* side : {&product.x, &product.y})
        side->bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, row_bytes(side->dtype, rows * side->stride),
                      side->offset);
    });
    const std::optional<Mismatch> found = find_mismatch(product, rows);
    if (!found) continue;
    dispatcher.fail();
    throw Error(ErrorCode::device, dispatcher.where(),
                fmt::format("row {} of {} adds up to {:.6g} instead of {:.6g}, which rounding does "
                            "not explain (at most {:.3g})",
                            found->row, product.name, found->sum.found, found->sum.expected,
                            found->sum.tolerance),
                "see --on-device-error");
  }
  return products_.size() * rows;
}

}  // namespace tyto::TYTO_XRT_PROVIDER
