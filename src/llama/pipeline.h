// A model made ready to run on its devices: the plan, the buffers and the KV cache.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "device/device.h"
#include "llama/forward_program.h"
#include "model/model.h"
#include "program/stitch.h"
#include "text/vocabulary.h"

namespace tyto {

struct PipelineOptions {
  uint32_t context = 0;          // 0: the model's
  uint32_t prefill_chunk = 256;  // tokens per prefill dispatch
  Fusion fusion = Fusion::block;
  DType kv_type = DType::f16;
  std::chrono::milliseconds timeout = std::chrono::seconds(120);  // of one dispatch
};

// One dispatch: a loaded program with everything bound, and what must move around it.
struct Step {
  std::string name = {};
  Device* device = nullptr;
  std::unique_ptr<Executable> executable = {};
  struct Transfer {
    Buffer buffer;
    uint64_t bytes_per_token = 0;
  };
  std::vector<Transfer> uploads = {};    // before submit
  std::vector<Transfer> downloads = {};  // after wait
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

  size_t dispatches_per_token() const { return decode_.size(); }
  uint64_t kv_bytes() const { return kv_bytes_; }

 private:
  std::vector<Step> prepare(const ForwardProgram& forward, Fusion fusion, Trace& trace);
  std::unique_ptr<Executable> load(const Piece& piece, const ForwardProgram& forward, Step& step);
  Buffer& buffer(const Slot& slot, const TensorView& contents, Device& user);
  std::span<const float> logits(uint32_t row);
  void check_room(size_t tokens) const;
  void run_body(std::span<const Token> tokens);
  void run_steps(std::vector<Step>& steps, const Call& call);
  void run_step(Step& step, const Call& call);

  const Model& model_;
  std::vector<Device*> devices_;
  uint32_t context_;
  uint32_t chunk_;
  std::chrono::milliseconds timeout_;
  std::vector<float> frequencies_;
  std::map<std::string, Buffer> buffers_;                      // by slot name: the parts share them
  std::map<std::pair<std::string, Device*>, Buffer> weights_;  // each device has its own form
  std::map<std::string, Device*> owners_;  // by slot name: who allocates what several devices use
  DType activations_;
  std::vector<float> logits_;  // [vocab], where activations_ is not f32
  uint64_t kv_bytes_ = 0;
  std::vector<Step> prefill_;  // body for up to chunk_ tokens
  std::vector<Step> head_;     // logits for up to kHeadRows rows
  std::vector<Step> decode_;   // body and head for one token
  uint32_t position_ = 0;
};

}  // namespace tyto
