#include "llama/stages.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

#include "base/error.h"
#include "cost/cost_model.h"
#include "program/kernels.h"

namespace tyto {
namespace {

// The cheapest passes for rows behind others.
struct Cover {
  double ms = 0;
  uint32_t largest = 0;  // rows of the largest kernels among them
};

// What the host attends to does not depend on how later rows are cut, and neither does the order of
// the passes matter: only the kernels' own time is left to choose by.
Cover cheapest_cover(const std::vector<PromptKernels>& kernels, uint32_t rows) {
  uint32_t unit = 0;
  for (const PromptKernels& each : kernels) unit = std::gcd(unit, each.rows);
  std::vector<Cover> best((rows + unit - 1) / unit + 1);  // [units]: the best for the first ones
  for (size_t i = 1; i < best.size(); ++i) {
    best[i].ms = std::numeric_limits<double>::infinity();
    for (const PromptKernels& each : kernels) {
      const Cover& before = best[i - std::min<size_t>(i, each.rows / unit)];
      const double ms = before.ms + each.later_ms;
      if (ms < best[i].ms) best[i] = {ms, std::max(each.rows, before.largest)};
    }
  }
  return best.back();
}

// Positions that rows [first, end) attend to, all together.
double positions_seen(double first, double end) {
  return (end * (end + 1) - first * (first + 1)) / 2;
}

}  // namespace

double modelled_ms(std::span<const Piece> pieces, uint32_t rows, const IsHosts& is_hosts) {
  double ms = 0;
  for (const Piece& piece : pieces) {
    if (is_hosts(piece)) continue;
    const Program& program = piece.program;
    double kernels_ms = 0;
    for (const Launch& launch : program.launches)
      kernels_ms += launch_ms(program, launch, call_of(rows));
    ms += elf_ms(static_cast<unsigned>(program.launches.size()), kernels_ms) +
          cost_parameters().native_host.dispatch_us / 1e3;
  }
  return ms;
}

double host_attention_ms(std::span<const Piece> pieces, const IsHosts& is_hosts) {
  const double flop_per_ms = cost_parameters().native_host.attention_gflops * 1e6;
  double ms = 0;
  for (const Piece& piece : pieces)
    for (const Launch& launch : piece.program.launches)
      if (launch.kernel == Kernel::attention && is_hosts(piece))
        ms += static_cast<double>(cost(piece.program, launch, call_of(1)).flops) / flop_per_ms;
  return ms;
}

uint32_t next_pass(const PassCosts& costs, uint32_t position, uint32_t rows) {
  TYTO_ASSERT(!costs.kernels.empty() && rows > 0);
  if (rows <= costs.kernels.front().rows) return rows;
  if (position > 0) return std::min(rows, cheapest_cover(costs.kernels, rows).largest);
  uint32_t chosen = 0;
  double least_ms = std::numeric_limits<double>::infinity();
  for (const PromptKernels& each : costs.kernels) {
    const uint32_t now = std::min(rows, each.rows);
    const double ms = each.first_ms + cheapest_cover(costs.kernels, rows - now).ms +
                      costs.attention_ms * positions_seen(now, rows);
    if (ms >= least_ms) continue;
    least_ms = ms;
    chosen = now;
  }
  return chosen;
}

namespace {

// Rows of logits computed together: 16 rows of a 128k vocabulary are 8 MB.
constexpr uint32_t kHeadRows = 16;

uint32_t checked_context(const Config& config, const DeviceInfo& device, uint32_t wanted) {
  if (wanted > config.context)
    throw Error(ErrorCode::usage, fmt::format("-c {}", wanted),
                fmt::format("the model was made for {} positions", config.context),
                "give a smaller -c, or none for the model's own");
  const uint32_t held = fixed_shapes(device).most_positions;
  const uint32_t most = held == 0 ? UINT32_MAX : held;
  if (wanted > most)
    throw Error(ErrorCode::usage, fmt::format("-c {}", wanted),
                fmt::format("the kernels of {} hold {} positions", device.name, most),
                "give a smaller -c, or none for the most there is");
  return wanted == 0 ? std::min(config.context, most) : wanted;
}

// [devices]; a step adds its own name.
std::vector<DispatchLabel> device_labels(const std::vector<Device*>& devices, Trace& trace) {
  std::vector<DispatchLabel> labels;
  for (const Device* device : devices) {
    const DeviceInfo info = device->info();
    labels.push_back(
        {.device = trace.device_index(info.name, info.is_virtual, info.shares_host_memory),
         .copies = !info.shares_host_memory,
         .is_virtual = info.is_virtual});
  }
  return labels;
}

uint32_t rows_of_pass(const DeviceInfo& first, const ForwardOptions& options, uint32_t context) {
  if (const FixedShapes fixed = fixed_shapes(first); !fixed.prompt_rows.empty())
    return fixed.prompt_rows.back();
  return std::min(options.prefill_chunk > 0 ? options.prefill_chunk : first.rows_at_once, context);
}

}  // namespace

Stages::Stages(const Model& model, const DeviceOrder& devices, const ForwardOptions& options,
               Trace& trace, const Progress& progress)
    : model_(model),
      devices_(devices),
      options_(options),
      trace_(trace),
      context_(checked_context(model.config, devices.first, options.context)),
      chunk_(rows_of_pass(devices.first, options, context_)),
      head_rows_(has_fixed_rows() ? 1 : std::min(kHeadRows, chunk_)),
      candidates_(std::min(devices.first.candidates, model.config.vocab)),
      frequencies_(rope_frequencies(model.config)),
      kv_(model.config, devices, kv_needs(), trace) {
  build(progress);
}

KvNeeds Stages::kv_needs() const {
  return {.context = context_,
          .pass_rows = chunk_,
          .sequences = options_.sequences,
          .type = options_.kv_type,
          .memory = options_.kv_memory,
          .shares = options_.kv_shares};
}

// How far the weights of all stages are, in bytes that have to be brought into a form: the host's
// kernels share one, a device's have one for prompts and one for tokens.
struct Stages::Loading {
  const Stages& stages;
  const Progress& progress;
  uint64_t done = 0, total = 0;
  std::set<std::tuple<const Device*, bool, const std::byte*>> seen = {};

  uint64_t new_work(const Piece& piece, Part part, const ForwardProgram& program) {
    const Device* device = stages.devices_.all[piece.device];
    const bool is_for_tokens = !stages.devices_.is_host(device) && part != Part::body;
    uint64_t bytes = 1;  // a program without weights is loaded, too
    for (size_t i = 0; i < piece.program.slots.size(); ++i) {
      if (piece.program.slots[i].kind != SlotKind::weight) continue;
      const std::span<const std::byte> weight = program.weights[piece.whole_slots[i]].bytes;
      if (seen.emplace(device, is_for_tokens, weight.data()).second) bytes += weight.size();
    }
    return bytes;
  }
  void expect(const Planned& planned) {
    for (const Piece& piece : planned.stage.pieces)
      total += new_work(piece, planned.stage.part, planned.forward);
  }
  void show() const {
    if (progress) progress("loading weights", done, total);
  }
};

void Stages::build(const Progress& progress) {
  // A prompt's kernels are for blocks, also where a token is stitched further.
  const Fusion prompt_fusion = has_fixed_rows() ? Fusion::block : fusion();
  std::vector<std::pair<Stage*, Planned>> planned;
  const auto add = [&](Stage& stage, Part part, const ForwardShape& shape) {
    planned.emplace_back(&stage, plan(part, part == Part::whole ? fusion() : prompt_fusion, shape));
  };
  const std::vector<uint32_t> counts =
      has_fixed_rows() ? devices_.first.fixed->prompt_rows : std::vector<uint32_t>{chunk_};
  prefills_.resize(counts.size());
  // Largest first: later parts bind the front of buffers that are already there.
  for (size_t i = counts.size(); i-- > 0;) {
    prefills_[i].rows = counts[i];
    add(prefills_[i].later, Part::body, {.rows = counts[i]});
    if (has_fixed_rows())
      add(prefills_[i].first, Part::body, {.rows = counts[i], .from_start = true});
  }
  add(head_, Part::head, {.rows = head_rows_});
  if (options_.decodes) add(decode_, Part::whole, {.rows = head_rows_});
  if (candidates_ > 0) {
    const ForwardShape shape{.rows = head_rows_, .candidates = candidates_};
    add(head_of_best_, Part::head, shape);
    if (options_.decodes) add(decode_of_best_, Part::whole, shape);
  }
  if (devices_.host() != nullptr) add(hidden_, Part::hidden, {.rows = head_rows_});
  Loading loading{*this, progress};
  for (const auto& [stage, each] : planned) loading.expect(each);
  loading.seen.clear();
  loading.show();
  std::vector<Stage*> stages;
  for (auto& [stage, each] : planned) {
    *stage = prepare(std::move(each), loading);
    stages.push_back(stage);
  }
  compile_forms(stages, progress);
  if (has_fixed_rows()) find_pass_costs();
}

// What the first token and the first whole chunk would compile is compiled here, where it is shown.
// The calls are those at the end of a context: their tables are the longest.
void Stages::compile_forms(std::span<Stage* const> stages, const Progress& progress) {
  std::vector<std::pair<Step*, uint32_t>> forms;  // with their rows
  for (Stage* stage : stages)
    for (Step& step : stage->steps)
      if (step.device->info().compiles_forms)
        forms.emplace_back(&step, stage->part == Part::body ? chunk_ : 1);
  for (size_t i = 0; i < forms.size(); ++i) {
    if (progress) progress("compiling kernels", i, forms.size());
    const auto& [step, rows] = forms[i];
    SetupTimer timer(trace_, "kernels on " + step->device->info().name);
    step->executable->prepare(call_of(rows, context_ - rows));
  }
  if (progress && !forms.empty()) progress("compiling kernels", forms.size(), forms.size());
}

void Stages::find_pass_costs() {
  const auto is_hosts = [&](const Piece& piece) {
    return devices_.is_host(devices_.all[piece.device]);
  };
  for (const Prefill& prefill : prefills_)
    pass_costs_.kernels.push_back({prefill.rows,
                                   modelled_ms(prefill.first.pieces, prefill.rows, is_hosts),
                                   modelled_ms(prefill.later.pieces, prefill.rows, is_hosts)});
  pass_costs_.attention_ms = host_attention_ms(prefills_.back().later.pieces, is_hosts);
}

// Also decides who allocates each slot: a host device reads any device's memory, so the others come
// first.
Stages::Planned Stages::plan(Part part, Fusion fusion, ForwardShape shape) {
  const KvShape& kv = kv_.shape();
  shape.context = kv.is_one_piece ? kv.page : context_;
  shape.kv_type = kv.type;
  shape.activations = devices_.first.activations;
  shape.body_rows = chunk_;
  shape.kv_page = kv.is_one_piece ? 0 : kv.page;
  shape.kv_pages = kv.pages;
  shape.window_pages = kv.windowed.pages;
  shape.kv_group = kv.group;
  shape.states = kv.state.states;
  Planned planned{forward_program(model_, frequencies_, part, shape),
                  {.part = part, .returns_top_k = shape.candidates > 0}};
  const Program& program = planned.forward.program;
  const std::vector<uint8_t> placement = this->placement(part, program);
  rotating_ = rotating_device(program, placement, devices_.all, rotating_);
  kv_.set_in_halves(rotating_ != nullptr && fixed_shapes(rotating_->info()).rotates_halves);
  std::vector<std::vector<DispatchBlock>> blocks;
  for (const Device* device : devices_.all) blocks.push_back(fixed_shapes(device->info()).blocks);
  planned.stage.pieces = stitch(program, fusion, placement, blocks);
  for (const Piece& piece : planned.stage.pieces)
    for (const Slot& slot : piece.program.slots) {
      const SlotKey key{slot.role, slot.layer};
      Device* const device = devices_.all[piece.device];
      Device*& owner = owners_.try_emplace(key, device).first->second;
      if (devices_.is_host(owner)) owner = device;
      if (!devices_.is_host(device)) planned.stage.device_slots.insert(key);
      uint64_t& most = most_rows_[key];
      most = std::max(most, slot.rows);
    }
  return planned;
}

std::vector<uint8_t> Stages::placement(Part part, const Program& program) {
  if (part != Part::hidden) return place(program, devices_.all, trace_);
  const auto host = std::ranges::find(devices_.all, devices_.host());
  return std::vector<uint8_t>(program.launches.size(),
                              static_cast<uint8_t>(host - devices_.all.begin()));
}

Stage Stages::prepare(Planned planned, Loading& loading) {
  const std::vector<DispatchLabel> labels = device_labels(devices_.all, trace_);
  Stage stage = std::move(planned.stage);
  for (const Piece& piece : stage.pieces) {
    stage.steps.push_back(make_step(stage, piece, planned.forward, labels));
    for (const Slot& slot : piece.program.slots) {
      if (slot.kind == SlotKind::kv)
        stage.kv_devices[static_cast<size_t>(kv_.kind_of(slot.layer))] = devices_.all[piece.device];
      if (slot.role == Role::x) stage.x_device = devices_.all[piece.device];
    }
    loading.done += loading.new_work(piece, stage.part, planned.forward);
    loading.show();
  }
  return stage;
}

Step Stages::make_step(const Stage& stage, const Piece& piece, const ForwardProgram& forward,
                       const std::vector<DispatchLabel>& labels) {
  Step step{.device = devices_.all[piece.device], .label = labels[piece.device]};
  const Program& program = piece.program;
  const DeviceInfo info = step.device->info();
  step.label.name = trace_.name(dispatch_name(program));
  step.total = &trace_.device(info.name);
  std::vector<TensorView> weights;
  for (uint16_t slot : piece.whole_slots) weights.push_back(forward.weights[slot]);
  {
    SetupTimer timer(trace_, "programs and weights on " + info.name);
    step.executable = step.device->load(program, weights);
  }
  step.buffers.resize(program.slots.size());
  for (uint16_t i = 0; i < program.slots.size(); ++i) {
    const Slot& slot = program.slots[i];
    if (slot.kind == SlotKind::weight) continue;
    const Buffer& bound = buffer(slot, owner_in(stage, slot, *step.device));
    step.executable->bind(i, bound);
    step.buffers[i] = bound;
    Device& owner = *owners_.at({slot.role, slot.layer});
    if (devices_.is_host(step.device) || step.device == &owner) continue;
    // The bytes that others read and write are in the owner's memory.
    const Buffer& shared = buffer(slot, &owner);
    const uint64_t row = row_bytes(slot.dtype, slot.cols);
    if (slot.kind == SlotKind::input || slot.kind == SlotKind::inout)
      step.before.push_back({shared.data, bound.data, row});
    if (slot.kind == SlotKind::output || slot.kind == SlotKind::inout)
      step.after.push_back({bound.data, shared.data, row});
  }
  return step;
}

// Whose memory a device uses for a slot. What the host alone uses in a stage lies in its own: a
// device that writes the same slot in another stage would find it in the host's cache lines, which
// may go over what it wrote.
Device* Stages::owner_in(const Stage& stage, const Slot& slot, Device& user) const {
  constexpr Role kOutlivesStages[] = {Role::x, Role::tokens, Role::logits, Role::logit_cap,
                                      Role::candidates};
  if (!devices_.is_host(&user)) return &user;
  const SlotKey key{slot.role, slot.layer};
  Device* const owner = owners_.at(key);
  if (slot.kind == SlotKind::state) return &user;  // who computes them has them
  const bool is_hosts = slot.kind != SlotKind::kv && !stage.device_slots.contains(key) &&
                        std::ranges::find(kOutlivesStages, slot.role) == std::end(kOutlivesStages);
  if (!is_hosts || devices_.is_host(owner)) return owner;
  return devices_.host();
}

Buffer& Stages::buffer(const Slot& slot, Device* owner) {
  const SlotKey key{slot.role, slot.layer};
  if (slot.kind == SlotKind::kv || slot.kind == SlotKind::state) {
    if (owner != owners_.at(key))
      throw Error(ErrorCode::unsupported, slot.name,
                  fmt::format("{} and {} would both keep it", owners_.at(key)->info().name,
                              owner->info().name));
    return slot.kind == SlotKind::kv ? kv_.allocate(slot, *owner)
                                     : kv_.allocate_state(slot, *owner);
  }
  const auto [entry, is_new] = buffers_.try_emplace({key, owner});
  if (!is_new) {
    TYTO_ASSERT(slot.bytes() <= entry->second.size);
    return entry->second;
  }
  SetupTimer timer(trace_, "activations and KV cache");
  Slot largest = slot;
  if (devices_.is_host(owner)) largest.rows = most_rows_.at(key);
  return entry->second = owner->alloc(largest);
}

std::byte* Stages::owned(Role role) const {
  const SlotKey key{role, kNoLayer};
  return buffers_.at({key, owners_.at(key)}).data;
}

Buffer& Stages::residual_of(Device* device) {
  const SlotKey key{Role::x, kNoLayer};
  return buffers_.at({key, devices_.is_host(device) ? owners_.at(key) : device});
}

const std::byte* Stages::hidden_rows() const {
  return buffers_.at({{Role::head_normed, kNoLayer}, devices_.host()}).data;
}

Stage& Stages::body_for(uint32_t rows, uint32_t position) {
  const auto fits = [&](const Prefill& prefill) { return prefill.rows >= rows; };
  Prefill& prefill = *std::find_if(prefills_.begin(), prefills_.end(), fits);
  return position == 0 && !prefill.first.steps.empty() ? prefill.first : prefill.later;
}

void Stages::bind_caches(Stage& stage, size_t caches) {
  if (stage.caches == caches) return;
  for (size_t i = 0; i < stage.steps.size(); ++i) {
    Step& step = stage.steps[i];
    const std::vector<Slot>& slots = stage.pieces[i].program.slots;
    for (uint16_t s = 0; s < slots.size(); ++s) {
      if (slots[s].kind != SlotKind::kv) continue;
      step.buffers[s] = kv_.cache(caches, {slots[s].role, slots[s].layer});
      step.executable->bind(s, step.buffers[s]);
    }
  }
  stage.caches = caches;
}

size_t Stages::event_count(size_t prompt, size_t tokens) const {
  const auto of = [](const Stage& stage) {
    size_t events = 2;  // the run and its logits
    for (const Piece& piece : stage.pieces) events += 5 + piece.program.launches.size();
    return events;
  };
  const Prefill& smallest = prefills_.front();
  const size_t passes = (prompt + smallest.rows - 1) / smallest.rows;
  return passes * std::max(of(smallest.first), of(smallest.later)) +
         std::max(of(head_), of(head_of_best_)) +
         tokens * std::max(of(decode_), of(decode_of_best_));
}

}  // namespace tyto
