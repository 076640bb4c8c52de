#include "llama/forward.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/error.h"
#include "llama/candidate_check.h"
#include "llama/host_norm.h"
#include "llama/non_finite_results.h"
#include "llama/placement.h"
#include "model/non_finite.h"
#include "program/launch_names.h"
#include "tensor/finite.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// Rows of logits computed together: 16 rows of a 128k vocabulary are 8 MB.
constexpr uint32_t kHeadRows = 16;

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

}  // namespace

Forward::Forward(const Model& model, std::span<Device* const> devices,
                 const ForwardOptions& options, Trace& trace, const Progress& progress)
    : model_(model),
      trace_(trace),
      logits_name_(trace.name({.label = "logits checked"})),
      candidates_name_(trace.name({.label = "candidates checked"})),
      cache_name_(trace.name({.label = "KV cache to the other device"})),
      hidden_name_(trace.name({.label = "hidden states"})),
      devices_(devices.begin(), devices.end()),
      options_(options),
      first_(devices.front()->info()),
      context_(checked_context(model.config, first_, options.context)),
      frequencies_(rope_frequencies(model.config)),
      candidates_(std::min(first_.candidates, model.config.vocab)),
      logits_(model.config.vocab) {
  TYTO_ASSERT(model.has_weights());
  for (const Device* device : devices_) {
    const DeviceInfo info = device->info();
    if (info.shares_host_memory) hosts_.insert(device);
    if (info.segments > 0) most_segments_ = std::min(most_segments_, info.segments);
  }
  choose_shapes(options);
  try {
    build(progress);
  } catch (const Error& error) {
    // A device that refuses a weight knows it by its role; file and tensor are known here.
    if (error.code != ErrorCode::input) throw;
    if (const auto weight = non_finite_weight(model_)) throw *weight;
    throw;
  }
}

void Forward::choose_shapes(const ForwardOptions& options) {
  if (first_.kv && options.kv_type && *options.kv_type != first_.kv->type)
    throw Error(ErrorCode::usage, fmt::format("--kv-type {}", info(*options.kv_type).name),
                fmt::format("the kernels of {} keep the cache as {}", first_.name,
                            info(first_.kv->type).name),
                "leave it out");
  const uint32_t liked = options.prefill_chunk > 0 ? options.prefill_chunk : first_.rows_at_once;
  chunk_ = has_fixed_rows() ? first_.prompt_rows.back() : std::min(liked, context_);
  head_rows_ = has_fixed_rows() ? 1 : std::min(kHeadRows, chunk_);
  kv_.type = first_.kv ? first_.kv->type : options.kv_type.value_or(DType::f16);
  kv_.group = first_.kv ? first_.kv->group : 1;
  const Config& config = model_.config;
  if (config.head_dim % info(kv_.type).block_values != 0)
    throw Error(ErrorCode::unsupported, fmt::format("--kv-type {}", info(kv_.type).name),
                fmt::format("its blocks of {} do not fit into heads of {}",
                            info(kv_.type).block_values, config.head_dim),
                "use f16");
  choose_caches();
}

// How far the weights of all stages are, in bytes that have to be brought into a form: the host's
// kernels share one, a device's have one for prompts and one for tokens.
struct Forward::Loading {
  const Forward& forward;
  const Progress& progress;
  uint64_t done = 0, total = 0;
  std::set<std::tuple<const Device*, bool, const std::byte*>> seen = {};

  uint64_t new_work(const Piece& piece, Part part, const ForwardProgram& program) {
    const Device* device = forward.devices_[piece.device];
    const bool is_for_tokens = !forward.is_host(device) && part != Part::body;
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

void Forward::build(const Progress& progress) {
  // A prompt's kernels are for blocks, whatever a token is stitched to.
  const Fusion prompt_fusion = has_fixed_rows() ? Fusion::block : fusion();
  const std::vector<uint32_t> counts =
      has_fixed_rows() ? first_.prompt_rows : std::vector<uint32_t>{chunk_};
  std::vector<Planned> later, first;
  for (const uint32_t rows : counts) {
    later.push_back(plan(Part::body, prompt_fusion, {.rows = rows}));
    if (has_fixed_rows())
      first.push_back(plan(Part::body, prompt_fusion, {.rows = rows, .from_start = true}));
  }
  Planned head = plan(Part::head, prompt_fusion, {.rows = head_rows_});
  std::optional<Planned> decode;
  if (options_.decodes) decode = plan(Part::whole, fusion(), {.rows = head_rows_});
  std::vector<Planned> of_best;
  if (candidates_ > 0) {
    const ForwardShape shape{.rows = head_rows_, .candidates = candidates_};
    of_best.push_back(plan(Part::head, prompt_fusion, shape));
    if (options_.decodes) of_best.push_back(plan(Part::whole, fusion(), shape));
  }
  Loading loading{*this, progress};
  for (const auto* planned : {&later, &first, &of_best})
    for (const Planned& each : *planned) loading.expect(each);
  loading.expect(head);
  if (decode) loading.expect(*decode);
  loading.seen.clear();
  loading.show();
  // Largest first: later parts bind the front of buffers that are already there.
  prefills_.resize(counts.size());
  for (size_t i = counts.size(); i-- > 0;) {
    prefills_[i] = {.rows = counts[i], .later = prepare(std::move(later[i]), loading)};
    if (has_fixed_rows()) prefills_[i].first = prepare(std::move(first[i]), loading);
  }
  head_ = prepare(std::move(head), loading);
  if (decode) decode_ = prepare(std::move(*decode), loading);
  for (Planned& planned : of_best) {
    Stage& stage = planned.stage.part == Part::head ? head_of_best_ : decode_of_best_;
    stage = prepare(std::move(planned), loading);
  }
  if (has_fixed_rows()) find_pass_costs();
}

void Forward::find_pass_costs() {
  const auto is_hosts = [&](const Piece& piece) { return is_host(devices_[piece.device]); };
  for (const Prefill& prefill : prefills_)
    pass_costs_.kernels.push_back({prefill.rows,
                                   modelled_ms(prefill.first.pieces, prefill.rows, is_hosts),
                                   modelled_ms(prefill.later.pieces, prefill.rows, is_hosts)});
  pass_costs_.attention_ms = host_attention_ms(prefills_.back().later.pieces, is_hosts);
}

// Also decides who allocates each slot: a host device reads any device's memory, so the others come
// first.
Forward::Planned Forward::plan(Part part, Fusion fusion, ForwardShape shape) {
  shape.context = kv_.is_one_piece ? kv_.page : context_;
  shape.kv_type = kv_.type;
  shape.activations = first_.activations;
  shape.body_rows = chunk_;
  shape.kv_page = kv_.is_one_piece ? 0 : kv_.page;
  shape.kv_pages = kv_.pages;
  shape.window_pages = kv_.windowed.pages;
  shape.kv_group = kv_.group;
  Planned planned{forward_program(model_, frequencies_, part, shape),
                  {.part = part, .picks = shape.candidates > 0}};
  const Program& program = planned.forward.program;
  const std::vector<uint8_t> placement = place(program, devices_, trace_);
  rotating_ = rotating_device(program, placement, devices_, rotating_);
  kv_.in_halves = rotating_ != nullptr && rotating_->info().rotates_halves;
  std::vector<std::vector<DispatchBlock>> blocks;
  for (const Device* device : devices_) blocks.push_back(device->info().blocks);
  planned.stage.pieces = stitch(program, fusion, placement, blocks);
  for (const Piece& piece : planned.stage.pieces)
    for (const Slot& slot : piece.program.slots) {
      Device*& owner =
          owners_.try_emplace({slot.role, slot.layer}, devices_[piece.device]).first->second;
      if (is_host(owner)) owner = devices_[piece.device];
      if (!is_host(devices_[piece.device])) planned.stage.apart.insert({slot.role, slot.layer});
      uint64_t& most = most_rows_[{slot.role, slot.layer}];
      most = std::max(most, slot.rows);
    }
  return planned;
}

Forward::Stage Forward::prepare(Planned planned, Loading& loading) {
  const std::vector<DispatchLabel> labels = device_labels(devices_, trace_);
  Stage stage = std::move(planned.stage);
  for (const Piece& piece : stage.pieces) {
    stage.steps.push_back(make_step(stage, piece, planned.forward, labels));
    for (const Slot& slot : piece.program.slots) {
      if (slot.kind == SlotKind::kv)
        stage.kv_devices[static_cast<size_t>(kind_of(slot.layer))] = devices_[piece.device];
      if (slot.role == Role::x) stage.x_device = devices_[piece.device];
    }
    loading.done += loading.new_work(piece, stage.part, planned.forward);
    loading.show();
  }
  return stage;
}

Forward::Step Forward::make_step(const Stage& stage, const Piece& piece,
                                 const ForwardProgram& forward,
                                 const std::vector<DispatchLabel>& labels) {
  Step step{.device = devices_[piece.device], .label = labels[piece.device]};
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
    if (is_host(step.device) || step.device == &owner) continue;
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
Device* Forward::owner_in(const Stage& stage, const Slot& slot, Device& user) const {
  constexpr Role kOutlivesStages[] = {Role::x, Role::tokens, Role::logits, Role::logit_cap,
                                      Role::candidates};
  if (!is_host(&user)) return &user;
  const SlotKey key{slot.role, slot.layer};
  Device* const owner = owners_.at(key);
  const bool is_hosts = slot.kind != SlotKind::kv && !stage.apart.contains(key) &&
                        std::ranges::find(kOutlivesStages, slot.role) == std::end(kOutlivesStages);
  if (!is_hosts || is_host(owner)) return owner;
  return *std::ranges::find_if(devices_, [&](const Device* each) { return is_host(each); });
}

Buffer& Forward::buffer(const Slot& slot, Device* owner) {
  const SlotKey key{slot.role, slot.layer};
  if (slot.kind == SlotKind::kv) return cache(slot, *owner);
  const auto [entry, is_new] = buffers_.try_emplace({key, owner});
  if (!is_new) {
    TYTO_ASSERT(slot.bytes() <= entry->second.size);
    return entry->second;
  }
  SetupTimer timer(trace_, "activations and KV cache");
  Slot largest = slot;
  if (is_host(owner)) largest.rows = most_rows_.at(key);
  return entry->second = owner->alloc(largest);
}

const std::byte* Forward::result_row(Role role, uint64_t bytes, uint32_t row) const {
  const SlotKey key{role, kNoLayer};
  return buffers_.at({key, owners_.at(key)}).data + row * bytes;
}

// The check for numbers is what notices a damaged weight, and a device that completed and computed
// nonsense.
Logits Forward::logits(uint32_t row) {
  const size_t vocab = model_.config.vocab;
  const uint64_t bytes = row_bytes(first_.activations, vocab);
  const std::byte* data =
      result_row(model_.config.logit_cap != 0 ? Role::logit_cap : Role::logits, bytes, row);
  Span span(trace_, EventKind::host, logits_name_);
  if (!all_finite(first_.activations, {data, bytes}))
    fail_non_finite("logits", model_, failure_code(), first_.name);
  if (first_.activations == DType::f32)
    return std::span(reinterpret_cast<const float*>(data), vocab);
  TYTO_ASSERT(first_.activations == DType::bf16);
  return {std::span(reinterpret_cast<const uint16_t*>(data), vocab), logits_};
}

// The device has looked at every logit for us; what it says of them is checked.
Logits Forward::candidates(uint32_t row) {
  const uint64_t words = TopKRow::words_for(candidates_);
  const std::byte* data = result_row(Role::candidates, words * sizeof(int32_t), row);
  const TopKRow picked{{reinterpret_cast<const int32_t*>(data), words}};
  Span span(trace_, EventKind::host, candidates_name_);
  if (picked.not_finite() != 0) fail_non_finite("logits", model_, failure_code(), first_.name);
  if (const auto problem = problem_of(picked, model_.config.vocab))
    throw Error(failure_code(), first_.name, *problem, "see --on-device-error");
  best_.clear();
  for (size_t i = 0; i < candidates_; ++i) best_.push_back({picked.index(i), picked.value(i)});
  return Logits(best_);
}

void Forward::run(std::span<const BatchRows> rows, const OnLogits& on_logits) {
  TYTO_ASSERT(rows.size() <= most_segments_);
  segments_.clear();
  uint32_t total = 0, wanted = 0;
  const SlotKey key{Role::tokens, kNoLayer};
  std::byte* const ids = buffers_.at({key, owners_.at(key)}).data;
  for (const BatchRows& item : rows) {
    const auto count = static_cast<uint32_t>(item.tokens.size());
    TYTO_ASSERT(count > 0 && total + count <= chunk_ && item.logits <= count);
    std::memcpy(ids + total * sizeof(Token), item.tokens.data(), item.tokens.size_bytes());
    segments_.push_back(
        {{total, count, item.position, item.pages, item.window_pages}, item.counters});
    total += count;
    wanted += item.logits;
  }
  const bool is_decode =
      options_.decodes && wanted == total && total == rows.size() && total <= head_rows_;
  const bool is_few = candidates_suffice(rows);
  if (is_decode) {
    Stage& decode = is_few ? decode_of_best_ : decode_;
    run_stage(decode, segments_);
    for (uint32_t i = 0; i < total; ++i) on_logits(i, 0, result(decode, i));
    return;
  }
  Stage& body = body_for(total, rows.front().position);
  run_stage(body, segments_);
  x_home_ = body.x_device;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].on_hidden != nullptr) show_hidden(segments_[i].segment, *rows[i].on_hidden);
  if (wanted > 0) run_head(is_few ? head_of_best_ : head_, rows, on_logits);
}

bool Forward::candidates_suffice(std::span<const BatchRows> rows) const {
  return std::all_of(rows.begin(), rows.end(), [&](const BatchRows& item) {
    return item.logits == 0 || (item.candidates > 0 && item.candidates <= candidates_);
  });
}

// The smallest that holds the rows.
Forward::Stage& Forward::body_for(uint32_t rows, uint32_t position) {
  const auto fits = [&](const Prefill& prefill) { return prefill.rows >= rows; };
  Prefill& prefill = *std::find_if(prefills_.begin(), prefills_.end(), fits);
  return position == 0 && !prefill.first.steps.empty() ? prefill.first : prefill.later;
}

// In groups of as many rows as the head takes at once.
void Forward::run_head(Stage& head, std::span<const BatchRows> rows, const OnLogits& on_logits) {
  size_t item = 0;
  uint32_t done = 0;  // logits of that item
  while (item < rows.size()) {
    kept_.clear();
    for (uint32_t room = head_rows_; room > 0 && item < rows.size();) {
      const Segment& segment = segments_[item].segment;
      const uint32_t left = rows[item].logits - done, now = std::min(room, left);
      if (now > 0)
        kept_.push_back(
            {{segment.first_row + segment.rows - left, now, segment.end() - left, {}, {}},
             rows[item].counters,
             item,
             left});
      room -= now;
      done = now == left ? 0 : done + now;
      if (now == left) ++item;
    }
    if (kept_.empty()) return;
    for (const Row& kept : kept_) move_residual(kept.segment, head.x_device);
    run_stage(head, kept_);
    uint32_t row = 0;
    for (const Row& kept : kept_)
      for (uint32_t i = 0; i < kept.segment.rows; ++i)
        on_logits(kept.item, kept.left - i - 1, result(head, row++));
  }
}

size_t Forward::event_count(size_t prompt, size_t tokens) const {
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

Buffer& Forward::residual_of(Device* device) {
  const SlotKey key{Role::x, kNoLayer};
  return buffers_.at({key, is_host(device) ? owners_.at(key) : device});
}

// Of the body's result just the rows that are asked for change devices.
void Forward::move_residual(const Segment& rows, Device* to_device) {
  if (x_home_ == to_device) return;
  const uint64_t row = row_bytes(first_.activations, model_.config.emb);
  const uint64_t at = rows.first_row * row, bytes = rows.rows * row;
  const Buffer &from = residual_of(x_home_), &to = residual_of(to_device);
  if (!is_host(x_home_)) x_home_->sync(from, Sync::from_device, at, bytes);
  if (from.data != to.data) std::memcpy(to.data + at, from.data + at, bytes);
  if (!is_host(to_device)) to_device->sync(to, Sync::to_device, at, bytes);
}

// The final norm is done here for every device: what is fused with the head cannot be asked for it.
void Forward::show_hidden(const Segment& segment, const OnHidden& on_hidden) {
  Span span(trace_, EventKind::host, hidden_name_, segment.position, segment.rows);
  const Buffer& x = residual_of(x_home_);
  std::vector<float> values(model_.config.emb);
  const uint64_t row = row_bytes(first_.activations, values.size());
  if (!is_host(x_home_))
    x_home_->sync(x, Sync::from_device, segment.first_row * row, segment.rows * row);
  for (uint32_t i = 0; i < segment.rows; ++i) {
    dequantize(first_.activations, x.bytes().subspan((segment.first_row + i) * row, row), values);
    const std::vector<float> normed = host_final_norm(model_, values);
    if (!all_finite(normed)) fail_non_finite("hidden states", model_, failure_code(), first_.name);
    on_hidden(segment.position + i, normed);
  }
}

void Forward::run_stage(Stage& stage, const std::vector<Row>& rows) {
  call_segments_.clear();
  for (const Row& row : rows) call_segments_.push_back(row.segment);
  const Call call = call_of(call_segments_);
  for (const KvKind kind : {KvKind::full, KvKind::windowed}) {
    Device* const device = stage.kv_devices[static_cast<size_t>(kind)];
    if (device == nullptr) continue;
    bind_caches(stage, caches_of(call_segments_.front().pages.front()));
    for (const Segment& segment : call_segments_) move_pages(segment, kind, *device);
  }
  for (size_t i = 0; i < stage.steps.size(); ++i) run_step(stage, i, call, rows);
}

void Forward::run_step(Stage& stage, size_t index, const Call& call, const std::vector<Row>& rows) {
  Step& step = stage.steps[index];
  const uint32_t position = call_segments_.front().position;
  DispatchSpan span(trace_, step.label, position, call.rows);
  for (const HostCopy& copy : step.before)
    std::memcpy(copy.to, copy.from, call.rows * copy.row_bytes);
  Completion done;
  try {
    step.executable->submit(call);
    done = step.executable->wait(options_.timeout);
  } catch (...) {
    ++step.total->submissions;  // that was never completed
    for (const Row& row : rows)
      if (row.counters != nullptr) ++entry_of(*row.counters, *step.total).submissions;
    throw;
  }
  for (const HostCopy& copy : step.after)
    std::memcpy(copy.to, copy.from, call.rows * copy.row_bytes);
  step.total->add(done);
  uint32_t first = 0;
  for (const Row& row : rows) {
    if (row.counters != nullptr)
      entry_of(*row.counters, *step.total).add(share_of(done, first, row.segment.rows, call.rows));
    first += row.segment.rows;
  }
  span.completed(done);
  if (options_.observer)
    options_.observer({stage.part, stage.pieces, index, step.buffers, *step.device, call, position,
                       kv_.in_halves});
}

}  // namespace tyto
