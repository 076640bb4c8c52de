// The forward pass of a model on its devices: rows in, logits or hidden states out. Knows rows and
// pages, no sequences: llama/pipeline.h does.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/error.h"
#include "llama/logits.h"
#include "llama/sequence.h"
#include "llama/stages.h"
#include "model/model.h"
#include "trace/trace.h"

namespace tyto {

using OnPosition = std::function<void(uint32_t position, const Logits& logits)>;

// Used by one thread. Model and devices outlive it.
class Forward {
 public:
  // `devices` in order of preference.
  Forward(const Model& model, std::span<Device* const> devices, const ForwardOptions& options,
          Trace& trace, const Progress& progress = {});

  // The logits of a row of rows[item], `behind` rows before its last: valid during the call.
  using OnLogits = std::function<void(size_t item, uint32_t behind, const Logits& logits)>;
  // At most most_rows() rows of at most most_together() sequences.
  void run(std::span<const SequenceRows> rows, const OnLogits& on_logits);

  KvStore& store() { return stages_.kv(); }
  const KvShape& kv() const { return stages_.kv().shape(); }
  DType kv_type() const { return kv().type; }
  uint32_t context() const { return stages_.context(); }
  Fusion fusion() const { return stages_.fusion(); }
  uint32_t most_rows() const { return stages_.chunk(); }
  uint32_t most_together() const { return most_segments_; }
  // Costs of prompt kernels, where those compute all the rows they were made for.
  const PassCosts& pass_costs() const { return stages_.pass_costs(); }
  size_t dispatches_per_token() const { return stages_.dispatches_per_token(); }
  size_t event_count(size_t prompt, size_t tokens) const {
    return stages_.event_count(prompt, tokens);
  }

 private:
  // Gets the row of a stage's result that belongs to a position of rows[item].
  using OnRow = std::function<void(size_t item, uint32_t position, uint32_t row)>;

  void put_tokens(std::span<const SequenceRows> rows);
  bool candidates_suffice(std::span<const SequenceRows> rows) const;
  void run_body(std::span<const SequenceRows> rows);
  void run_head(Stage& head, std::span<const SequenceRows> rows, bool all, const OnRow& on_row);
  void run_stage(Stage& stage);
  void count(const Step& step, const Completion& done, uint32_t rows);
  void count_unfinished(const Step& step);
  void move_residual(const Segment& rows, Device* to);
  void show_hidden(std::span<const SequenceRows> rows);
  Logits result(const Stage& stage, uint32_t row);
  Logits logits(uint32_t row);
  Logits candidates(uint32_t row);
  ErrorCode failure_code() const {  // for results that are no numbers
    return devices_.are_hosts() ? ErrorCode::input : ErrorCode::device;
  }

  const Model& model_;
  Trace& trace_;
  const uint16_t logits_name_, candidates_name_, hidden_name_;
  const DeviceOrder devices_;
  const ForwardOptions options_;
  Stages stages_;
  uint32_t most_segments_ = UINT32_MAX;
  Device* residual_owner_ = nullptr;  // has the residual stream after the body
  // The call at hand: its segments, and the rows that each belongs to.
  std::vector<Segment> segments_;
  std::vector<const SequenceRows*> owners_;
  std::vector<float> logits_;    // [vocab], for readers of bf16 logits in f32
  std::vector<Candidate> best_;  // [candidates] of the row at hand
};

}  // namespace tyto
