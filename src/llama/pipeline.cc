#include "llama/pipeline.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "program/kernel_spec.h"
#include "tensor/quant.h"

namespace tyto {
namespace {

// Rows of logits computed together when every position is asked for: 16 rows of a 128k vocabulary
// are 8 MB.
constexpr uint32_t kHeadRows = 16;

uint32_t checked_context(const Config& config, uint32_t wanted) {
  if (wanted > config.context)
    throw Error(ErrorCode::usage, fmt::format("-c {}", wanted),
                fmt::format("the model was made for {} positions", config.context),
                "give a smaller -c, or none for the model's own");
  return wanted == 0 ? config.context : wanted;
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

}  // namespace

Pipeline::Pipeline(const Model& model, std::span<Device* const> devices,
                   const PipelineOptions& options, Trace& trace)
    : model_(model),
      devices_(devices.begin(), devices.end()),
      context_(checked_context(model.config, options.context)),
      chunk_(std::min(options.prefill_chunk, context_)),
      timeout_(options.timeout),
      frequencies_(rope_frequencies(model.config)),
      activations_(devices_.front()->info().activations) {
  TYTO_ASSERT(!devices_.empty() && model.has_weights() && chunk_ > 0);
  const auto program = [&](Part part, uint32_t tokens) {
    return forward_program(model, frequencies_, part,
                           {tokens, context_, options.kv_type, activations_, chunk_});
  };
  // Largest first: later parts bind the front of buffers that are already there.
  prefill_ = prepare(program(Part::body, chunk_), options.fusion, trace);
  head_ = prepare(program(Part::head, std::min(kHeadRows, chunk_)), options.fusion, trace);
  decode_ = prepare(program(Part::whole, 1), options.fusion, trace);
}

std::vector<Step> Pipeline::prepare(const ForwardProgram& forward, Fusion fusion, Trace& trace) {
  const std::vector<uint8_t> placement = place(forward.program, devices_, trace);
  const std::vector<Piece> pieces = stitch(forward.program, fusion, placement);
  for (const Piece& piece : pieces)  // the cpu reads any device's memory, so the others come first
    for (const Slot& slot : piece.program.slots) {
      Device*& owner = owners_.try_emplace(slot.name, devices_[piece.device]).first->second;
      if (!buffers_.contains(slot.name) && owner == devices_.back()) owner = devices_[piece.device];
    }
  std::vector<Step> steps;
  for (const Piece& piece : pieces) {
    Step step{.name = piece.program.name, .device = devices_[piece.device]};
    step.executable = load(piece, forward, step);
    steps.push_back(std::move(step));
  }
  return steps;
}

std::unique_ptr<Executable> Pipeline::load(const Piece& piece, const ForwardProgram& forward,
                                           Step& step) {
  auto executable = step.device->load(piece.program);
  for (size_t i = 0; i < piece.program.slots.size(); ++i) {
    const Slot& slot = piece.program.slots[i];
    const Buffer& bound = buffer(slot, forward.weights[piece.whole_slots[i]], *step.device);
    executable->bind(static_cast<uint16_t>(i), bound);
    const Step::Transfer transfer{bound, row_bytes(slot.dtype, slot.cols)};
    if (goes_to_device(slot.kind)) step.uploads.push_back(transfer);
    if (goes_to_host(slot.kind)) step.downloads.push_back(transfer);
  }
  return executable;
}

Buffer& Pipeline::buffer(const Slot& slot, const TensorView& contents, Device& user) {
  if (slot.kind == SlotKind::weight) {
    const auto [entry, is_new] = weights_.try_emplace({slot.name, &user});
    if (is_new) entry->second = user.alloc(slot, &contents);
    return entry->second;
  }
  const auto found = buffers_.find(slot.name);
  if (found != buffers_.end()) {
    TYTO_ASSERT(slot.bytes() <= found->second.size);
    return found->second;
  }
  if (slot.kind == SlotKind::kv) kv_bytes_ += slot.bytes();
  return buffers_.emplace(slot.name, owners_.at(slot.name)->alloc(slot)).first->second;
}

std::span<const float> Pipeline::logits(uint32_t row) {
  const size_t vocab = model_.config.vocab;
  const std::byte* data = buffers_.at("logits").data + row * row_bytes(activations_, vocab);
  if (activations_ == DType::f32) return {reinterpret_cast<const float*>(data), vocab};
  logits_.resize(vocab);
  dequantize(activations_, {data, row_bytes(activations_, vocab)}, logits_);
  return logits_;
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

std::span<const float> Pipeline::run(std::span<const Token> tokens, const Progress& progress) {
  TYTO_ASSERT(!tokens.empty());
  check_room(tokens.size());
  if (tokens.size() == 1) {
    std::memcpy(buffers_.at("tokens").data, tokens.data(), sizeof(Token));
    run_steps(decode_, {.tokens = 1, .position = position_});
    ++position_;
    return logits(0);
  }
  uint32_t last_rows = 0;
  for (size_t done = 0; done < tokens.size(); done += last_rows) {
    last_rows = static_cast<uint32_t>(std::min<size_t>(chunk_, tokens.size() - done));
    run_body(tokens.subspan(done, last_rows));
    if (progress) progress("prefill", done + last_rows, tokens.size());
  }
  run_steps(head_, {.tokens = 1, .first_row = last_rows - 1});
  return logits(0);
}

void Pipeline::run_all_logits(std::span<const Token> tokens,
                              const std::function<void(uint32_t, std::span<const float>)>& visit,
                              const Progress& progress) {
  check_room(tokens.size());
  for (size_t done = 0; done < tokens.size();) {
    const auto rows = static_cast<uint32_t>(std::min<size_t>(chunk_, tokens.size() - done));
    const uint32_t first_position = position_;
    run_body(tokens.subspan(done, rows));
    for (uint32_t row = 0; row < rows;) {
      const uint32_t now = std::min({kHeadRows, chunk_, rows - row});
      run_steps(head_, {.tokens = now, .first_row = row});
      for (uint32_t i = 0; i < now; ++i) visit(first_position + row + i, logits(i));
      row += now;
    }
    done += rows;
    if (progress) progress("prefill", done, tokens.size());
  }
}

void Pipeline::rewind(uint32_t position) {
  TYTO_ASSERT(position <= position_);
  position_ = position;  // later positions are overwritten before anything attends to them
}

void Pipeline::run_body(std::span<const Token> tokens) {
  std::memcpy(buffers_.at("tokens").data, tokens.data(), tokens.size_bytes());
  const auto rows = static_cast<uint32_t>(tokens.size());
  run_steps(prefill_, {.tokens = rows, .position = position_});
  position_ += rows;
}

void Pipeline::run_steps(std::vector<Step>& steps, const Call& call) {
  for (Step& step : steps) run_step(step, call);
}

void Pipeline::run_step(Step& step, const Call& call) {
  for (const Step::Transfer& upload : step.uploads)
    step.device->sync(upload.buffer, Sync::to_device, 0, call.tokens * upload.bytes_per_token);
  step.executable->submit(call);
  step.executable->wait(timeout_);
  for (const Step::Transfer& download : step.downloads)
    step.device->sync(download.buffer, Sync::from_device, 0,
                      call.tokens * download.bytes_per_token);
}

}  // namespace tyto
