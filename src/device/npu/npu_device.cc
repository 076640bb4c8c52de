#include "device/npu/npu_device.h"

#include <xrt/experimental/xrt_elf.h>
#include <xrt/experimental/xrt_ext.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_hw_context.h>
#include <xrt/xrt_kernel.h>

#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "program/kernel_spec.h"

namespace tyto::TYTO_XRT_PROVIDER {
namespace {

using Clock = std::chrono::steady_clock;

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

// Whatever XRT throws leaves as our Error: where it happened, and XRT's own words.
template <typename Function>
auto guarded(const std::string& where, const Function& function) {
  try {
    return function();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw Error(ErrorCode::device, where, error.what());
  }
}

// A context holds one image: two ELFs that MLIR-AIR built cannot share one, both being "main".
struct LoadedImage {
  NpuImage image;
  xrt::hw_context context;
  xrt::kernel kernel;
};

class NpuExecutable : public Executable {
 public:
  // One run per executable, restarted for each call: making a run copies the image's control code.
  NpuExecutable(const LoadedImage& loaded, const Program& program, const DeviceEnv& env,
                const NpuKernels& kernels)
      : loaded_(loaded), program_(program), env_(env), kernels_(kernels), run_(loaded.kernel) {}

  void bind(uint16_t slot, const Buffer& buffer) override {
    const auto bo = std::static_pointer_cast<xrt::bo>(buffer.handle);
    TYTO_ASSERT(bo != nullptr);
    const auto& arguments = loaded_.image.arguments;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (arguments[i] == slot) guarded(where(), [&] { run_.set_arg(static_cast<int>(i), *bo); });
    bound_.push_back(bo);
  }

  void submit(const Call& call) override {
    if (poisoned_)
      throw Error(ErrorCode::device, where(), "was used again after a failed dispatch");
    poisoned_ = true;  // until wait() has seen it complete
    call_ = call;
    const int first = loaded_.image.call_argument;
    guarded(where(), [&] {
      if (first >= 0) {
        run_.set_arg(first, call.tokens);
        run_.set_arg(first + 1, call.position);
        run_.set_arg(first + 2, call.first_row);
      }
      ++counters().submissions;
      started_ = Clock::now();
      modelled_before_ = kernels_.modelled_ns ? kernels_.modelled_ns() : 0;
      run_.start();
    });
  }

  void wait(std::chrono::milliseconds timeout) override {
    const ert_cmd_state state = guarded(where(), [&] { return run_.wait(timeout); });
    if (state != ERT_CMD_STATE_COMPLETED)
      throw Error(ErrorCode::device, where(),
                  fmt::format("the dispatch {} (state {})", name(state), static_cast<int>(state)));
    poisoned_ = false;
    const Cost declared = cost(program_, call_);
    DeviceCounters& total = counters();
    ++total.completions;
    total.launches += program_.launches.size();
    total.bytes += declared.bytes;
    total.flops += declared.flops;
    total.busy_ns += kernels_.modelled_ns
                         ? kernels_.modelled_ns() - modelled_before_
                         : static_cast<uint64_t>((Clock::now() - started_).count());
  }

 private:
  std::string where() const { return kernels_.info.name + ": " + program_.name; }
  DeviceCounters& counters() {
    return env_.trace.device(kernels_.info.name, kernels_.info.is_virtual);
  }

  const LoadedImage& loaded_;
  const Program program_;
  DeviceEnv env_;
  const NpuKernels& kernels_;
  xrt::run run_;
  std::vector<std::shared_ptr<xrt::bo>> bound_;  // shared with the pipeline's Buffers
  Call call_;
  Clock::time_point started_;
  uint64_t modelled_before_ = 0;
  bool poisoned_ = false;
};

class NpuDevice : public Device {
 public:
  NpuDevice(const DeviceEnv& env, NpuKernels kernels)
      : env_(env),
        kernels_(std::move(kernels)),
        device_(guarded(kernels_.info.name, [] { return xrt::device(0); })) {}

  DeviceInfo info() const override { return kernels_.info; }

  std::optional<std::string> why_not(const Program& program, const Launch& launch) const override {
    return kernels_.why_not(program, launch);
  }

  Buffer alloc(const Slot& slot, const TensorView* contents) override {
    const size_t bytes = contents == nullptr ? slot.bytes() : contents->bytes.size();
    return guarded(kernels_.info.name + ": buffer " + slot.name, [&] {
      // Kept as a plain xrt::bo: an ext::bo given to set_arg travels as a scalar before XRT 2.26.
      auto bo = std::make_shared<xrt::bo>(xrt::ext::bo(device_, bytes));
      auto* memory = bo->map<std::byte*>();
      if (contents == nullptr)
        std::memset(memory, 0, bytes);
      else
        std::memcpy(memory, contents->bytes.data(), bytes);
      bo->sync(XCL_BO_SYNC_BO_TO_DEVICE);
      return Buffer{.data = memory, .size = bytes, .handle = std::move(bo)};
    });
  }

  void sync(const Buffer& buffer, Sync direction, size_t offset, size_t bytes) override {
    const auto bo = std::static_pointer_cast<xrt::bo>(buffer.handle);
    guarded(kernels_.info.name + ": sync", [&] {
      bo->sync(direction == Sync::to_device ? XCL_BO_SYNC_BO_TO_DEVICE : XCL_BO_SYNC_BO_FROM_DEVICE,
               bytes, offset);
    });
  }

  std::unique_ptr<Executable> load(const Program& program) override {
    return guarded(kernels_.info.name + ": " + program.name, [&] {
      return std::make_unique<NpuExecutable>(image_of(program), program, env_, kernels_);
    });
  }

 private:
  // Layers share an image, and so a context: a device has only 16 of them.
  const LoadedImage& image_of(const Program& program) {
    const auto [entry, is_new] = images_.try_emplace(program_hash(program));
    LoadedImage& loaded = entry->second;
    if (!is_new) return loaded;
    try {
      loaded.image = kernels_.image_for(program);
      const xrt::elf elf(loaded.image.elf.data(), loaded.image.elf.size());
      loaded.context = xrt::hw_context(device_, elf);
      loaded.kernel = xrt::ext::kernel(loaded.context, loaded.image.kernel);
    } catch (...) {
      images_.erase(entry);
      throw;
    }
    return loaded;
  }

  DeviceEnv env_;
  NpuKernels kernels_;
  xrt::device device_;
  std::map<Hash128, LoadedImage> images_;  // references stay valid as it grows
};

}  // namespace

std::unique_ptr<Device> open_npu(const DeviceEnv& env, NpuKernels kernels) {
  return std::make_unique<NpuDevice>(env, std::move(kernels));
}

}  // namespace tyto::TYTO_XRT_PROVIDER
