// A device whose memory the host does not see: the cpu's kernels, and bytes that move when they are
// told to.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "llama/kv_store.h"

namespace tyto::testing_support {

using Takes = std::function<bool(const Launch&)>;  // which launches a device accepts
using Shadow = std::vector<std::byte>;             // the device's copy of a buffer

// What was never brought there must not look like zeros: a NaN of every type.
constexpr std::byte kPoison{0x7f};

inline Shadow& shadow_of(const Buffer& buffer) {
  return *static_cast<Shadow*>(buffer.handle.get());
}

inline void move_rows(const Program& program, const std::vector<Buffer>& buffers, uint32_t rows,
                      Sync direction) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    const Slot& slot = program.slots[i];
    const bool in = slot.kind == SlotKind::input || slot.kind == SlotKind::inout;
    const bool out = slot.kind == SlotKind::output || slot.kind == SlotKind::inout;
    const size_t bytes = rows * row_bytes(slot.dtype, slot.cols);
    if (direction == Sync::to_device && in)
      std::memcpy(shadow_of(buffers[i]).data(), buffers[i].data, bytes);
    if (direction == Sync::from_device && out)
      std::memcpy(buffers[i].data, shadow_of(buffers[i]).data(), bytes);
  }
}

class ApartExecutable : public Executable {
 public:
  ApartExecutable(Program program, std::unique_ptr<Executable> inner)
      : program_(std::move(program)), inner_(std::move(inner)), buffers_(program_.slots.size()) {}

  void bind(uint16_t slot, const Buffer& buffer) override {
    buffers_[slot] = buffer;
    inner_->bind(slot, {.data = shadow_of(buffer).data(), .size = buffer.size});
  }
  void submit(const Call& call) override {
    rows_ = call.rows;
    move_rows(program_, buffers_, rows_, Sync::to_device);
    poison_pages(call);
    inner_->submit(call);
  }
  Completion wait(std::chrono::milliseconds timeout) override {
    const Completion done = inner_->wait(timeout);
    move_rows(program_, buffers_, rows_, Sync::from_device);
    return done;
  }

 private:
  // The host's copy of the pages that a call works on is old from here on.
  void poison_pages(const Call& call) {
    for (const Launch& launch : program_.launches) {
      if (launch.kernel != Kernel::kv_append || launch.shape.page == 0) continue;
      for (const Arg& arg : launch.args) {
        const Slot& slot = program_.slots[arg.slot];
        if (slot.kind != SlotKind::kv) continue;
        const size_t bytes = size_t{launch.shape.kv_heads} * launch.shape.page *
                             row_bytes(slot.dtype, launch.shape.head_dim);
        for (const Segment& segment : call.segments())
          for (uint32_t i = 0; i * launch.shape.page < segment.end(); ++i)
            if (const KvPage page = segment.pages_of(launch.shape.window)[i]; page != kNoPage)
              std::memset(buffers_[arg.slot].data + page * bytes, static_cast<int>(kPoison), bytes);
      }
    }
  }

  const Program program_;
  std::unique_ptr<Executable> inner_;
  std::vector<Buffer> buffers_;
  uint32_t rows_ = 0;
};

class ApartDevice : public Device {
 public:
  ApartDevice(std::string name, const DeviceEnv& env, Takes takes)
      : name_(std::move(name)), inner_(open_device("cpu", env)), takes_(std::move(takes)) {}

  DeviceInfo info() const override { return {.name = name_, .description = "memory of its own"}; }
  std::optional<Refusal> why_not(const Program&, const Launch& launch) const override {
    return takes_(launch) ? std::nullopt : std::optional<Refusal>("not its work");
  }
  Buffer alloc(const Slot& slot, uint32_t sequence) override {
    Buffer buffer = inner_->alloc(slot, sequence);
    kept_.push_back(buffer);
    buffer.handle = std::make_shared<Shadow>(buffer.size, kPoison);
    return buffer;
  }
  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    synced_bytes += bytes;
    std::byte* device = shadow_of(buffer).data() + offset;
    if (direction == Sync::to_device)
      std::memcpy(device, buffer.data + offset, bytes);
    else
      std::memcpy(buffer.data + offset, device, bytes);
  }
  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    return std::make_unique<ApartExecutable>(program, inner_->load(program, weights));
  }

  size_t synced_bytes = 0;  // either way, outside of calls

 private:
  std::string name_;
  std::unique_ptr<Device> inner_;
  Takes takes_;
  std::vector<Buffer> kept_;  // the host's copies
};

}  // namespace tyto::testing_support
