#include "llama/forward.h"

#include <algorithm>
#include <cstring>

#include "llama/logits.h"
#include "model/model.h"
#include "program/top_k.h"
#include "tensor/compare.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// A device that refuses a weight knows it by its role; file and tensor are known here.
Stages open_stages(const Model& model, const DeviceOrder& devices, const ForwardOptions& options,
                   Trace& trace, const Progress& progress) try {
  TYTO_ASSERT(model.has_weights());
  return Stages(model, devices, options, trace, progress);
} catch (const Error& error) {
  if (error.code != ErrorCode::input) throw;
  if (const auto weight = non_finite_weight(model)) throw *weight;
  throw;
}

}  // namespace

Forward::Forward(const Model& model, std::span<Device* const> devices,
                 const ForwardOptions& options, Trace& trace, const Progress& progress)
    : model_(model),
      trace_(trace),
      logits_name_(trace.name({.label = "logits checked"})),
      candidates_name_(trace.name({.label = "candidates checked"})),
      hidden_name_(trace.name({.label = "hidden states"})),
      devices_(devices),
      options_(options),
      stages_(open_stages(model, devices_, options, trace, progress)),
      logits_(model.config.vocab) {
  for (const Device* device : devices_.all)
    if (const uint32_t most = fixed_shapes(device->info()).segments; most > 0)
      most_segments_ = std::min(most_segments_, most);
}

void Forward::run(std::span<const SequenceRows> rows, const OnLogits& on_logits) {
  put_tokens(rows);
  uint32_t total = 0, wanted = 0;
  for (const SequenceRows& item : rows) {
    total += item.count();
    wanted += item.logits;
  }
  const bool of_best = candidates_suffice(rows);
  if (options_.decodes && wanted == total && total == rows.size() && total <= stages_.head_rows()) {
    Stage& decode = stages_.decode(of_best);
    run_stage(decode);
    for (uint32_t i = 0; i < total; ++i) on_logits(i, 0, result(decode, i));
    return;
  }
  run_body(rows);
  show_hidden(rows);
  if (wanted == 0) return;
  Stage& head = stages_.head(of_best);
  run_head(head, rows, false, [&](size_t item, uint32_t position, uint32_t row) {
    on_logits(item, rows[item].end() - position - 1, result(head, row));
  });
}

// Also makes the segments of the body's call.
void Forward::put_tokens(std::span<const SequenceRows> rows) {
  TYTO_ASSERT(rows.size() <= most_segments_);
  segments_.clear();
  owners_.clear();
  uint32_t total = 0;
  std::byte* const ids = stages_.owned(Role::tokens);
  for (const SequenceRows& item : rows) {
    TYTO_ASSERT(item.count() > 0 && total + item.count() <= most_rows() &&
                item.logits <= item.count());
    std::memcpy(ids + total * sizeof(Token), item.tokens.data(), item.tokens.size_bytes());
    segments_.push_back({total, item.count(), item.position, item.pages, item.window_pages,
                         item.state_from, item.state_to, item.kept});
    owners_.push_back(&item);
    total += item.count();
  }
}

bool Forward::candidates_suffice(std::span<const SequenceRows> rows) const {
  return std::ranges::all_of(rows, [&](const SequenceRows& item) {
    return item.logits == 0 || (item.candidates > 0 && item.candidates <= stages_.candidates());
  });
}

void Forward::run_body(std::span<const SequenceRows> rows) {
  const uint32_t total = segments_.back().first_row + segments_.back().rows;
  Stage& body = stages_.body_for(total, rows.front().position);
  run_stage(body);
  residual_owner_ = body.x_device;
}

// The head takes the last `logits` rows of each item, or all rows, as many together as it has room
// for.
void Forward::run_head(Stage& head, std::span<const SequenceRows> rows, bool all,
                       const OnRow& on_row) {
  uint32_t first_row = 0;  // where the item begins in the body's result
  size_t item = 0;
  uint32_t done = 0;  // wanted rows of the item
  while (item < rows.size()) {
    segments_.clear();
    owners_.clear();
    for (uint32_t room = stages_.head_rows(); room > 0 && item < rows.size();) {
      const SequenceRows& of = rows[item];
      const bool is_wanted = !all || of.on_hidden != nullptr;
      const uint32_t wanted = !is_wanted ? 0 : all ? of.count() : of.logits;
      const uint32_t left = wanted - done, now = std::min(room, left);
      if (now > 0) {
        segments_.push_back(
            {.first_row = first_row + of.count() - left, .rows = now, .position = of.end() - left});
        owners_.push_back(&of);
      }
      room -= now;
      done = now == left ? 0 : done + now;
      if (now < left) break;
      first_row += of.count();
      ++item;
    }
    if (segments_.empty()) return;
    for (const Segment& kept : segments_) move_residual(kept, head.x_device);
    run_stage(head);
    uint32_t row = 0;
    for (size_t i = 0; i < segments_.size(); ++i)
      for (uint32_t r = 0; r < segments_[i].rows; ++r)
        on_row(static_cast<size_t>(owners_[i] - rows.data()), segments_[i].position + r, row++);
  }
}

// Only the rows that are asked for change devices.
void Forward::move_residual(const Segment& rows, Device* to) {
  if (residual_owner_ == to) return;
  const uint64_t row = row_bytes(devices_.first.activations, model_.config.emb);
  const uint64_t at = rows.first_row * row, bytes = rows.rows * row;
  const Buffer& from = stages_.residual_of(residual_owner_);
  const Buffer& target = stages_.residual_of(to);
  if (!devices_.is_host(residual_owner_)) residual_owner_->sync(from, Sync::from_device, at, bytes);
  if (from.data != target.data) std::memcpy(target.data + at, from.data + at, bytes);
  if (!devices_.is_host(to)) to->sync(target, Sync::to_device, at, bytes);
}

void Forward::show_hidden(std::span<const SequenceRows> rows) {
  if (std::ranges::none_of(rows, [](const auto& item) { return item.on_hidden != nullptr; }))
    return;
  std::vector<float> values(model_.config.emb);
  const DType type = devices_.first.activations;
  const uint64_t row_size = row_bytes(type, values.size());
  run_head(stages_.hidden(), rows, true, [&](size_t item, uint32_t position, uint32_t row) {
    Span span(trace_, EventKind::host, hidden_name_, position, 1);
    dequantize(type, {stages_.hidden_rows() + row * row_size, row_size}, values);
    if (!all_finite(values))
      fail_non_finite("hidden states", model_, failure_code(), devices_.first.name);
    (*rows[item].on_hidden)(position, values);
  });
}

Logits Forward::result(const Stage& stage, uint32_t row) {
  return stage.returns_top_k ? candidates(row) : logits(row);
}

// The check for numbers is what notices a damaged weight, and a device that completed and computed
// nonsense.
Logits Forward::logits(uint32_t row) {
  const size_t vocab = model_.config.vocab;
  const DType type = devices_.first.activations;
  const uint64_t bytes = row_bytes(type, vocab);
  const Role role = model_.config.logit_cap != 0 ? Role::logit_cap : Role::logits;
  const std::byte* const data = stages_.owned(role) + row * bytes;
  Span span(trace_, EventKind::host, logits_name_);
  if (!all_finite(type, {data, bytes}))
    fail_non_finite("logits", model_, failure_code(), devices_.first.name);
  if (type == DType::f32) return std::span(reinterpret_cast<const float*>(data), vocab);
  TYTO_ASSERT(type == DType::bf16);
  return {std::span(reinterpret_cast<const uint16_t*>(data), vocab), logits_};
}

// The device has looked at every logit for us; what it says of them is checked.
Logits Forward::candidates(uint32_t row) {
  const uint64_t words = TopKRow::words_for(stages_.candidates());
  const std::byte* const data = stages_.owned(Role::candidates) + row * words * sizeof(int32_t);
  const TopKRow picked{{reinterpret_cast<const int32_t*>(data), words}};
  Span span(trace_, EventKind::host, candidates_name_);
  if (picked.not_finite() != 0)
    fail_non_finite("logits", model_, failure_code(), devices_.first.name);
  if (const auto problem = problem_of(picked, model_.config.vocab))
    throw Error(failure_code(), devices_.first.name, *problem, "see --on-device-error");
  best_.clear();
  for (size_t i = 0; i < stages_.candidates(); ++i)
    best_.push_back({picked.index(i), picked.value(i)});
  return Logits(best_);
}

void Forward::run_stage(Stage& stage) {
  KvStore& kv = stages_.kv();
  for (const KvKind kind : {KvKind::full, KvKind::windowed}) {
    Device* const device = stage.kv_devices[static_cast<size_t>(kind)];
    if (device == nullptr) continue;
    stages_.bind_caches(stage, kv.caches_of(segments_.front().pages.front()));
    for (const Segment& segment : segments_) kv.bring(segment, kind, *device);
  }
  const Call call = call_of(segments_);
  const uint32_t position = segments_.front().position;
  for (size_t i = 0; i < stage.steps.size(); ++i) {
    Step& step = stage.steps[i];
    DispatchSpan span(trace_, step.label, position, call.rows);
    for (const HostCopy& copy : step.before)
      std::memcpy(copy.to, copy.from, call.rows * copy.row_bytes);
    Completion done;
    try {
      step.executable->submit(call);
      done = step.executable->wait(options_.timeout);
    } catch (...) {
      count_unfinished(step);
      throw;
    }
    for (const HostCopy& copy : step.after)
      std::memcpy(copy.to, copy.from, call.rows * copy.row_bytes);
    count(step, done, call.rows);
    span.completed(done);
    if (options_.observer)
      options_.observer({stage.part, stage.pieces, i, step.buffers, *step.device, call, position,
                         kv.shape().in_halves});
  }
}

void Forward::count(const Step& step, const Completion& done, uint32_t rows) {
  step.total->add(done);
  uint32_t first = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (std::vector<DeviceCounters>* const counters = owners_[i]->counters)
      entry_of(*counters, *step.total).add(share_of(done, first, segments_[i].rows, rows));
    first += segments_[i].rows;
  }
}

void Forward::count_unfinished(const Step& step) {
  ++step.total->submissions;
  for (const SequenceRows* rows : owners_)
    if (rows->counters != nullptr) ++entry_of(*rows->counters, *step.total).submissions;
}

}  // namespace tyto
