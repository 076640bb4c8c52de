// The CPU as a device that picks candidates, and what left it: rows of those, or of all logits.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "device/device.h"

namespace tyto::testing_support {

class PickingDevice : public Device {
 public:
  // `is_apart`: it says that its memory is its own, as a GPU's, whose errors can be recovered from.
  PickingDevice(const DeviceEnv& env, uint32_t candidates, bool is_apart = false)
      : inner_(open_device("cpu", env)), info_(inner_->info()) {
    info_.candidates = candidates;
    if (!is_apart) return;
    info_.name = "picking";
    info_.shares_host_memory = false;
  }

  DeviceInfo info() const override { return info_; }
  std::optional<Refusal> why_not(const Program& program, const Launch& launch) const override {
    return inner_->why_not(program, launch);
  }
  Buffer alloc(const Slot& slot, uint32_t sequence) override {
    return inner_->alloc(slot, sequence);
  }
  void sync(const Buffer&, Sync, size_t, size_t) override {}
  std::unique_ptr<Executable> load(const Program& program,
                                   std::span<const TensorView> weights) override {
    return std::make_unique<Counting>(*this, program, inner_->load(program, weights));
  }

  uint32_t rows_of_candidates = 0;
  uint32_t rows_of_logits = 0;
  // Where given, does damage to the first row of candidates.
  std::function<void(std::span<int32_t>)> spoil = {};

 private:
  class Counting : public Executable {
   public:
    Counting(PickingDevice& device, const Program& program, std::unique_ptr<Executable> inner)
        : device_(device), inner_(std::move(inner)) {
      for (uint16_t i = 0; i < program.slots.size(); ++i) {
        const Slot& slot = program.slots[i];
        if (slot.kind != SlotKind::output) continue;
        if (slot.role == Role::logits || slot.role == Role::logit_cap) gives_logits_ = true;
        if (slot.role == Role::candidates) candidates_ = i, words_ = slot.cols;
      }
    }

    void bind(uint16_t slot, const Buffer& buffer) override {
      inner_->bind(slot, buffer);
      if (words_ > 0 && slot == candidates_)
        first_row_ = {reinterpret_cast<int32_t*>(buffer.data), words_};
    }
    void submit(const Call& call) override {
      inner_->submit(call);
      if (gives_logits_) device_.rows_of_logits += call.rows;
      if (words_ > 0) device_.rows_of_candidates += call.rows;
    }
    Completion wait(std::chrono::milliseconds timeout) override {
      const Completion done = inner_->wait(timeout);
      if (words_ > 0 && device_.spoil) device_.spoil(first_row_);
      return done;
    }

   private:
    PickingDevice& device_;
    std::unique_ptr<Executable> inner_;
    bool gives_logits_ = false;
    uint16_t candidates_ = 0;
    uint64_t words_ = 0;  // 0: it has no candidates
    std::span<int32_t> first_row_;
  };

  std::unique_ptr<Device> inner_;
  DeviceInfo info_;
};

}  // namespace tyto::testing_support
