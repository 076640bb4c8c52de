#include "llama/pipeline.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "base/error.h"
#include "program/kernel_spec.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// Rows of logits computed together when every position is asked for: 16 rows of a 128k vocabulary
// are 8 MB.
constexpr uint32_t kHeadRows = 16;
constexpr const char* kResidual = "x";

uint32_t checked_context(const Config& config, const DeviceInfo& device, uint32_t wanted) {
  if (wanted > config.context)
    throw Error(ErrorCode::usage, fmt::format("-c {}", wanted),
                fmt::format("the model was made for {} positions", config.context),
                "give a smaller -c, or none for the model's own");
  const uint32_t most = device.most_positions == 0 ? UINT32_MAX : device.most_positions;
  if (wanted > most)
    throw Error(ErrorCode::usage, fmt::format("-c {}", wanted),
                fmt::format("the kernels of {} hold {} positions", device.name, most),
                "give a smaller -c, or none for the most there is");
  return wanted == 0 ? std::min(config.context, most) : wanted;
}

bool goes_to_device(SlotKind kind) {
  return kind == SlotKind::input || kind == SlotKind::inout;
}
bool goes_to_host(SlotKind kind) {
  return kind == SlotKind::output || kind == SlotKind::inout;
}

// Each launch to the first device that can run it; what another device refused is a fallback.
std::vector<uint8_t> place(const Program& program, const std::vector<Device*>& devices,
                           Trace& trace) {
  std::vector<uint8_t> placement;
  for (const Launch& launch : program.launches) {
    size_t chosen = devices.size();
    for (size_t d = 0; d < devices.size() && chosen == devices.size(); ++d) {
      const auto reason = devices[d]->why_not(program, launch);
      if (!reason)
        chosen = d;
      else
        trace.fallback(fmt::format("{} not on {}: {}", spec(launch.kernel).name,
                                   devices[d]->info().name, *reason));
    }
    if (chosen == devices.size())
      throw Error(ErrorCode::unsupported, launch.step, "no device can run it",
                  trace.fallbacks().back());
    placement.push_back(static_cast<uint8_t>(chosen));
  }
  return placement;
}

// From the exponents, whose bits are all set in what is infinite or not a number.
bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t is_bad = 0;
  for (float value : values)
    is_bad |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent ? 1u : 0u;
  return is_bad == 0;
}

// [devices]; a step adds its own name.
std::vector<DispatchLabel> device_labels(const std::vector<Device*>& devices, Trace& trace) {
  std::vector<DispatchLabel> labels;
  for (const Device* device : devices) {
    const DeviceInfo info = device->info();
    labels.push_back({.device = trace.device_index(info.name, info.is_virtual),
                      .copies = !info.shares_host_memory,
                      .counters = &trace.device(info.name)});
  }
  return labels;
}

}  // namespace

ModelDims model_dims(const Config& config, uint32_t context) {
  return {.layers = config.layers,
          .emb = config.emb,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .hidden = config.hidden,
          .vocab = config.vocab,
          .context = context == 0 ? config.context : context,
          .norm_eps = config.norm_eps};
}

Pipeline::Pipeline(const Model& model, std::span<Device* const> devices,
                   const PipelineOptions& options, Trace& trace)
    : model_(model),
      trace_(trace),
      run_name_(trace.name({.label = "run"})),
      logits_name_(trace.name({.label = "logits to f32"})),
      cache_name_(trace.name({.label = "KV cache to the other device"})),
      devices_(devices.begin(), devices.end()),
      options_(options),
      first_(devices.front()->info()),
      context_(checked_context(model.config, first_, options.context)),
      frequencies_(rope_frequencies(model.config)) {
  TYTO_ASSERT(model.has_weights() && options.prefill_chunk > 0);
  history_.reserve(context_);
  build();
}

void Pipeline::build() {
  first_ = devices_.front()->info();
  if (first_.kv && options_.kv_type && *options_.kv_type != first_.kv->type)
    throw Error(ErrorCode::usage, fmt::format("--kv-type {}", info(*options_.kv_type).name),
                fmt::format("the kernels of {} keep the cache as {}", first_.name,
                            info(first_.kv->type).name),
                "leave it out");
  const bool has_fixed_shapes = first_.prompt_rows > 0;
  chunk_ = has_fixed_shapes ? first_.prompt_rows : std::min(options_.prefill_chunk, context_);
  head_rows_ = has_fixed_shapes ? 1 : std::min(kHeadRows, chunk_);
  cache_rows_ = first_.most_positions > 0 ? first_.most_positions : context_;
  rope_device_ = nullptr;
  kv_home_ = nullptr;
  const auto program = [&](Part part, uint32_t tokens, bool from_start = false) {
    ForwardShape shape;
    shape.tokens = tokens;
    shape.context = cache_rows_;
    shape.kv_type = first_.kv ? first_.kv->type : options_.kv_type.value_or(DType::f16);
    shape.kv_group = first_.kv ? first_.kv->group : 1;
    shape.activations = first_.activations;
    shape.body_tokens = chunk_;
    shape.from_start = from_start;
    return forward_program(model_, frequencies_, part, shape);
  };
  // A prompt's kernels are for blocks, whatever a token is stitched to.
  const Fusion prompt_fusion = has_fixed_shapes ? Fusion::block : options_.fusion;
  const Plan prefill = plan(program(Part::body, chunk_), prompt_fusion);
  const Plan prompt =
      has_fixed_shapes ? plan(program(Part::body, chunk_, true), prompt_fusion) : Plan{};
  const Plan head = plan(program(Part::head, head_rows_), prompt_fusion);
  const Plan decode = plan(program(Part::whole, 1), options_.fusion);
  // Largest first: later parts bind the front of buffers that are already there.
  prefill_ = prepare(prefill);
  prompt_ = prepare(prompt);
  head_ = prepare(head);
  decode_ = prepare(decode);
  token_ids_ = buffers_.at("tokens").data;
  logits_data_ = buffers_.at("logits").data;
  logits_.resize(model_.config.vocab);
}

// Rows that a checkpoint keeps in pairs leave an NPU's projections in halves. Scores do not care as
// long as every position went the same way.
void Pipeline::check_rotation(const Program& program, const std::vector<uint8_t>& placement) {
  for (size_t i = 0; i < placement.size(); ++i) {
    const Launch& launch = program.launches[i];
    if (launch.kernel != Kernel::rope || !launch.shape.rope_pairs) continue;
    Device* device = devices_[placement[i]];
    if (rope_device_ != nullptr && rope_device_ != device)
      throw Error(ErrorCode::unsupported, launch.step,
                  fmt::format("{} and {} would rotate it, each in its own order",
                              rope_device_->info().name, device->info().name),
                  "use the model's safetensors files, or --device cpu");
    rope_device_ = device;
  }
}

// Also settles who allocates each slot: the cpu reads any device's memory, so the others come
// first.
Pipeline::Plan Pipeline::plan(ForwardProgram forward, Fusion fusion) {
  const std::vector<uint8_t> placement = place(forward.program, devices_, trace_);
  check_rotation(forward.program, placement);
  Plan plan{std::move(forward), {}};
  plan.pieces = stitch(plan.forward.program, fusion, placement);
  for (const Piece& piece : plan.pieces)
    for (const Slot& slot : piece.program.slots) {
      Device*& owner = owners_.try_emplace(slot.name, devices_[piece.device]).first->second;
      if (owner == devices_.back()) owner = devices_[piece.device];
    }
  return plan;
}

Pipeline::Stage Pipeline::prepare(const Plan& plan) {
  const std::vector<DispatchLabel> labels = device_labels(devices_, trace_);
  Stage stage;
  std::set<std::pair<std::string, Device*>>
      current;  // slots a device has as they were last written
  for (size_t index = 0; index < plan.pieces.size(); ++index) {
    const Piece& piece = plan.pieces[index];
    Step step{.name = piece.program.name, .device = devices_[piece.device]};
    step.label = labels[piece.device];
    step.label.name = trace_.name(event_name(step.name));
    step.launches = piece.program.launches.size();
    step.executable = load(piece, plan.forward, step);
    if (options_.observer) prepare_observation(plan, index, step);
    std::erase_if(step.uploads, [&](const Step::Transfer& upload) {
      return !current.emplace(upload.slot, step.device).second;
    });
    for (const Launch& launch : piece.program.launches)
      for (const Arg& arg : launch.args) {
        const Slot& slot = piece.program.slots[arg.slot];
        if (slot.kind == SlotKind::kv) stage.kv_device = step.device;
        if (slot.name == kResidual) stage.x_device = step.device;
        if (!arg.writes) continue;
        for (Device* other : devices_) current.erase({slot.name, other});
        current.emplace(slot.name, step.device);
      }
    stage.steps.push_back(std::move(step));
  }
  return stage;
}

std::unique_ptr<Executable> Pipeline::load(const Piece& piece, const ForwardProgram& forward,
                                           Step& step) {
  auto executable = [&] {
    SetupTimer timer(trace_, "programs on " + step.label.counters->device);
    return step.device->load(piece.program);
  }();
  for (size_t i = 0; i < piece.program.slots.size(); ++i) {
    const Slot& slot = piece.program.slots[i];
    const Buffer& bound = buffer(slot, forward.weights[piece.whole_slots[i]], *step.device);
    executable->bind(static_cast<uint16_t>(i), bound);
    const Step::Transfer transfer{slot.name, bound, row_bytes(slot.dtype, slot.cols)};
    if (goes_to_device(slot.kind)) step.uploads.push_back(transfer);
    if (goes_to_host(slot.kind)) step.downloads.push_back(transfer);
  }
  return executable;
}

Buffer& Pipeline::buffer(const Slot& slot, const TensorView& contents, Device& user) {
  if (slot.kind == SlotKind::weight) {
    const auto [entry, is_new] = weights_.try_emplace({slot.name, &user});
    if (is_new) {
      SetupTimer timer(trace_, "weights to buffers");
      entry->second = user.alloc(slot, &contents);
    }
    return entry->second;
  }
  const auto found = buffers_.find(slot.name);
  if (found != buffers_.end()) {
    TYTO_ASSERT(slot.bytes() <= found->second.size);
    return found->second;
  }
  SetupTimer timer(trace_, "activations and KV cache");
  Buffer& made = buffers_.emplace(slot.name, owners_.at(slot.name)->alloc(slot)).first->second;
  if (slot.kind == SlotKind::kv) {
    kv_bytes_ += slot.bytes();
    kv_.push_back(made);
  }
  return made;
}

// The check for numbers is what notices a device that completed and computed nonsense.
std::span<const float> Pipeline::logits(uint32_t row) {
  const size_t vocab = model_.config.vocab;
  const bool is_f32 = first_.activations == DType::f32;
  const std::byte* data = logits_data_ + row * row_bytes(first_.activations, vocab);
  std::span<const float> values(reinterpret_cast<const float*>(data), vocab);
  if (is_f32 && devices_.size() == 1) return values;
  Span span(trace_, EventKind::host, logits_name_);
  if (!is_f32) values = logits_;
  bool is_finite = true;
  constexpr size_t kAtOnce = 2048;  // what is converted is checked while the first cache has it
  for (size_t i = 0; i < vocab; i += kAtOnce) {
    const size_t count = std::min(kAtOnce, vocab - i);
    if (!is_f32)
      dequantize(first_.activations,
                 {data + row_bytes(first_.activations, i), row_bytes(first_.activations, count)},
                 std::span(logits_).subspan(i, count));
    is_finite &= all_finite(values.subspan(i, count));
  }
  if (!is_finite)
    throw Error(ErrorCode::device, first_.name, "the logits are not finite", "see --on-npu-error");
  return values;
}

void Pipeline::check_room(size_t tokens) const {
  if (tokens <= context_ - position_) return;
  throw Error(ErrorCode::input, "context",
              fmt::format("{} tokens after position {} do not fit in {} positions", tokens,
                          position_, context_),
              context_ < model_.config.context
                  ? fmt::format("the model allows -c up to {}", model_.config.context)
                  : "shorten the prompt");
}

// Runs `function`; after a device error once more, as the options say. The cache is as it was
// before when `function` begins again.
template <typename Function>
auto Pipeline::recovering(const Function& function) {
  const uint32_t before = position_;
  try {
    return function();
  } catch (const Error& error) {
    const bool may_recover = error.code == ErrorCode::device && devices_.size() > 1 &&
                             options_.on_error != OnDeviceError::fail;
    if (!may_recover) throw;
    rewind(before);
    recover(error);
  }
  return function();
}

void Pipeline::recover(const Error& error) {
  const bool goes_to_cpu = options_.on_error == OnDeviceError::cpu;
  recoveries_.push_back(fmt::format(
      "{}; {}", error.what(), goes_to_cpu ? "finished on the cpu" : "retried on new contexts"));
  trace_.fallback(recoveries_.back());
  for (Stage* stage : {&prompt_, &prefill_, &head_, &decode_}) *stage = {};  // runs go first
  if (goes_to_cpu) {
    devices_ = {devices_.back()};
    buffers_.clear();
    owners_.clear();
    kv_.clear();
    kv_bytes_ = 0;
  }
  build();
  replay();
}

// Fills the cache again: what a failed device left in it is not to be trusted.
void Pipeline::replay() {
  const std::vector<Token> tokens = history_;
  rewind(0);
  for (size_t done = 0; done < tokens.size(); done += chunk_)
    run_body(std::span(tokens).subspan(done, std::min<size_t>(chunk_, tokens.size() - done)));
}

std::span<const float> Pipeline::run(std::span<const Token> tokens, const Progress& progress) {
  TYTO_ASSERT(!tokens.empty());
  check_room(tokens.size());
  Span span(trace_, EventKind::run, run_name_, position_, static_cast<uint32_t>(tokens.size()));
  return recovering([&] { return run_tokens(tokens, progress); });
}

std::span<const float> Pipeline::run_tokens(std::span<const Token> tokens,
                                            const Progress& progress) {
  if (tokens.size() == 1) {
    std::memcpy(token_ids_, tokens.data(), sizeof(Token));
    run_stage(decode_, {.tokens = 1, .position = position_});
    const auto result = logits(0);
    history_.push_back(tokens.front());
    ++position_;
    return result;
  }
  uint32_t last_rows = 0;
  for (size_t done = 0; done < tokens.size(); done += last_rows) {
    last_rows = static_cast<uint32_t>(std::min<size_t>(chunk_, tokens.size() - done));
    run_body(tokens.subspan(done, last_rows));
    if (progress) progress("prefill", done + last_rows, tokens.size());
  }
  run_head({.tokens = 1, .first_row = last_rows - 1});
  return logits(0);
}

void Pipeline::run_all_logits(std::span<const Token> tokens,
                              const std::function<void(uint32_t, std::span<const float>)>& visit,
                              const Progress& progress) {
  check_room(tokens.size());
  for (size_t done = 0; done < tokens.size();) {
    const auto rows = static_cast<uint32_t>(std::min<size_t>(chunk_, tokens.size() - done));
    const uint32_t first_position = position_;
    uint32_t visited = 0;
    recovering([&] {
      run_body(tokens.subspan(done, rows));
      for (uint32_t row = visited; row < rows;) {
        const uint32_t now = std::min(head_rows_, rows - row);
        run_head({.tokens = now, .first_row = row});
        for (uint32_t i = 0; i < now; ++i) visit(first_position + row + i, logits(i));
        row += now;
        visited = row;
      }
    });
    done += rows;
    if (progress) progress("prefill", done, tokens.size());
  }
}

size_t Pipeline::event_count(size_t prompt, size_t tokens) const {
  const auto of = [](const Stage& stage) {
    size_t events = 2;  // the run and its logits
    for (const Step& step : stage.steps) events += 4 + step.launches;
    return events;
  };
  const size_t chunks = (prompt + chunk_ - 1) / chunk_;
  return chunks * of(prefill_) + of(head_) + tokens * of(decode_);
}

void Pipeline::rewind(uint32_t position) {
  TYTO_ASSERT(position <= position_);
  position_ = position;  // later positions are overwritten before anything attends to them
  history_.resize(position);
}

void Pipeline::run_body(std::span<const Token> tokens) {
  std::memcpy(token_ids_, tokens.data(), tokens.size_bytes());
  const auto rows = static_cast<uint32_t>(tokens.size());
  const bool from_start = position_ == 0 && !prompt_.steps.empty();
  Stage& body = from_start ? prompt_ : prefill_;
  run_stage(body, {.tokens = rows, .position = position_});
  x_home_ = body.x_device;
  history_.insert(history_.end(), tokens.begin(), tokens.end());
  position_ += rows;
}

// Of the body's result just the rows that are asked for change devices.
void Pipeline::run_head(const Call& call) {
  if (x_home_ != head_.x_device) {
    const bool to_host = head_.x_device == devices_.back();
    const uint64_t row = row_bytes(first_.activations, model_.config.emb);
    (to_host ? x_home_ : head_.x_device)
        ->sync(buffers_.at(kResidual), to_host ? Sync::from_device : Sync::to_device,
               call.first_row * row, call.tokens * row);
  }
  run_stage(head_, call);
}

// Of two devices that use the cache one is the cpu, whose copy is the host's. Only positions that
// are in use move: they lie at the front of each group of heads.
void Pipeline::move_cache(Device& to) {
  if (kv_home_ != nullptr && position_ > 0) {
    Span span(trace_, EventKind::host, cache_name_);
    const bool to_host = &to == devices_.back();
    Device& other = to_host ? *kv_home_ : to;
    const uint64_t groups = model_.config.kv_heads / (first_.kv ? first_.kv->group : 1);
    for (const Buffer& cache : kv_)
      for (uint64_t group = 0; group < groups; ++group)
        other.sync(cache, to_host ? Sync::from_device : Sync::to_device,
                   group * cache.size / groups, cache.size / groups / cache_rows_ * position_);
  }
  kv_home_ = &to;
}

void Pipeline::run_stage(Stage& stage, const Call& call) {
  if (stage.kv_device != nullptr && kv_home_ != stage.kv_device) move_cache(*stage.kv_device);
  for (Step& step : stage.steps) run_step(step, call);
}

void Pipeline::run_step(Step& step, const Call& call) {
  DispatchSpan span(trace_, step.label, call.position, call.tokens);
  uint64_t bytes = 0;
  for (const Step::Transfer& upload : step.uploads) {
    const uint64_t part = call.tokens * upload.bytes_per_token;
    step.device->sync(upload.buffer, Sync::to_device, 0, part);
    bytes += part;
  }
  span.uploaded(bytes);
  step.executable->submit(call);
  span.submitted();
  step.executable->wait(options_.timeout);
  span.completed();
  bytes = 0;
  for (const Step::Transfer& download : step.downloads) {
    const uint64_t part = call.tokens * download.bytes_per_token;
    step.device->sync(download.buffer, Sync::from_device, 0, part);
    bytes += part;
  }
  span.downloaded(bytes);
  if (options_.observer) show(step, call);
}

}  // namespace tyto
