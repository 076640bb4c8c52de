// A model made ready to run on its devices: the plan, the buffers and the KV cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "device/device.h"
#include "llama/forward_program.h"
#include "llama/observation.h"
#include "model/model.h"
#include "program/stitch.h"
#include "text/vocabulary.h"
#include "trace/span.h"

namespace tyto {

// What happens when a dispatch fails on a device that is not the cpu.
enum class OnDeviceError : uint8_t {
  retry,  // once, on contexts made anew, from the first token; then fail
  cpu,    // the cpu does it all over, and everything after it
  fail,
};

struct PipelineOptions {
  uint32_t context = 0;          // 0: the model's
  uint32_t prefill_chunk = 256;  // tokens per prefill dispatch
  Fusion fusion = Fusion::block;
  std::optional<DType> kv_type = {};  // none: the device's own, else f16
  OnDeviceError on_error = OnDeviceError::retry;
  std::chrono::milliseconds timeout = std::chrono::seconds(120);  // of one dispatch
  Observer observer = {};  // sees every dispatch when it has completed; none: nothing is copied
};

// What an NPU's kernels must fit; `context` as in PipelineOptions.
ModelDims model_dims(const Config& config, uint32_t context);

// One dispatch: a loaded program with everything bound, and what must move around it.
struct Step {
  std::string name = {};
  Device* device = nullptr;
  std::unique_ptr<Executable> executable = {};
  DispatchLabel label = {};
  struct Transfer {
    std::string slot;
    Buffer buffer;
    uint64_t bytes_per_token = 0;
  };
  size_t launches = 0;
  std::vector<Transfer> uploads = {};    // before submit
  std::vector<Transfer> downloads = {};  // after wait

  // For an observer alone.
  struct Visible {
    std::string step;
    Slot slot;
    Buffer buffer;
  };
  std::vector<Visible> visible = {};
  std::vector<std::string> hidden = {};
  bool is_head_alone = false;  // its rows are the last of what the body ran
};

// Owns its KV cache: one sequence at a time. Used by one thread. Model and devices outlive it.
class Pipeline {
 public:
  // `devices` in order of preference; each launch goes to the first that can run it.
  Pipeline(const Model& model, std::span<Device* const> devices, const PipelineOptions& options,
           Trace& trace);

  // Runs tokens after the current position and returns the logits of the last one. [vocab],
  // valid until the next call.
  std::span<const float> run(std::span<const Token> tokens, const Progress& progress = {});

  // The same, handing out the logits of every position: visit(position, logits).
  void run_all_logits(std::span<const Token> tokens,
                      const std::function<void(uint32_t, std::span<const float>)>& visit,
                      const Progress& progress = {});

  uint32_t position() const { return position_; }  // tokens in the KV cache
  uint32_t context() const { return context_; }
  void rewind(uint32_t position);  // forgets everything from `position` on
  // Device errors that were recovered from, in words.
  const std::vector<std::string>& recoveries() const { return recoveries_; }

  size_t dispatches_per_token() const { return decode_.steps.size(); }
  // Events that a recording of `prompt` and then `tokens` single ones takes, at most.
  size_t event_count(size_t prompt, size_t tokens) const;
  uint64_t kv_bytes() const { return kv_bytes_; }

 private:
  // A part of the forward pass made ready: its dispatches, and who has the KV cache meanwhile.
  struct Stage {
    std::vector<Step> steps;
    Device* kv_device = nullptr;  // none: it does not touch the cache
    Device* x_device = nullptr;   // the last to use the residual stream
  };
  struct Plan {
    ForwardProgram forward;
    std::vector<Piece> pieces;
  };

  void build();
  Plan plan(ForwardProgram forward, Fusion fusion);
  Stage prepare(const Plan& plan);
  std::unique_ptr<Executable> load(const Piece& piece, const ForwardProgram& forward, Step& step);
  void prepare_observation(const Plan& plan, size_t index, Step& step);
  Buffer& buffer(const Slot& slot, const TensorView& contents, Device& user);
  void check_rotation(const Program& program, const std::vector<uint8_t>& placement);

  template <typename Function>
  auto recovering(const Function& function);
  void recover(const Error& error);
  void replay();

  std::span<const float> run_tokens(std::span<const Token> tokens, const Progress& progress);
  void run_body(std::span<const Token> tokens);
  void run_head(const Call& call);
  void run_stage(Stage& stage, const Call& call);
  void move_cache(Device& to);
  void run_step(Step& step, const Call& call);
  void show(const Step& step, const Call& call);
  std::vector<float> seen_values(const Step& step, const Step::Visible& visible, const Call& call);
  std::span<const float> logits(uint32_t row);
  void check_room(size_t tokens) const;

  const Model& model_;
  Trace& trace_;
  uint16_t run_name_;
  uint16_t logits_name_;
  uint16_t cache_name_;
  std::vector<Device*> devices_;
  const PipelineOptions options_;
  DeviceInfo first_;  // of devices_.front()
  uint32_t context_;
  uint32_t chunk_ = 0;       // tokens per prefill call
  uint32_t head_rows_ = 0;   // logits per call
  uint32_t cache_rows_ = 0;  // positions the KV slots have room for
  std::vector<float> frequencies_;
  std::map<std::string, Buffer> buffers_;                      // by slot name: the parts share them
  std::map<std::pair<std::string, Device*>, Buffer> weights_;  // each device has its own form
  std::map<std::string, Device*> owners_;  // by slot name: who allocates what several devices use
  std::vector<Buffer> kv_;
  Device* kv_home_ = nullptr;  // whose copy of the cache is the newest
  Device* rope_device_ = nullptr;
  Device* x_home_ = nullptr;  // who has the residual stream after the body
  std::byte* token_ids_ = nullptr;
  const std::byte* logits_data_ = nullptr;
  std::vector<float> logits_;  // [vocab], where activations are not f32
  uint64_t kv_bytes_ = 0;
  Stage prompt_;  // body for up to chunk_ tokens from position 0, where that has kernels of its own
  Stage prefill_;  // body for up to chunk_ tokens
  Stage head_;     // logits for up to head_rows_ rows
  Stage decode_;   // body and head for one token
  uint32_t position_ = 0;
  std::vector<Token> history_;  // [position_], what the cache was made from
  std::vector<std::string> recoveries_;
};

}  // namespace tyto
