// Weights in the GPU's memory: each once, for all programs that use it.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "device/vulkan/memory.h"
#include "device/vulkan/weight_form.h"
#include "tensor/view.h"

namespace tyto::vulkan {

class WeightStore {
 public:
  WeightStore(std::shared_ptr<Context> context, Transfers& transfers)
      : context_(std::move(context)), transfers_(transfers) {}

  // In the form that kernels multiply by. Known by where the host has it, which outlives this.
  std::shared_ptr<Memory> matrix(const TensorView& weight, WeightForm form);
  // One row of values, in f32.
  std::shared_ptr<Memory> vector(const TensorView& weight);

 private:
  // Host address, form, is a vector.
  using Key = std::tuple<const std::byte*, WeightForm, bool>;

  std::shared_ptr<Context> context_;
  Transfers& transfers_;
  std::map<Key, std::shared_ptr<Memory>> stored_;  // shared with the executables that use it
};

}  // namespace tyto::vulkan
