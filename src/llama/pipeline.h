// A model that runs sequences: their caches, their runs, and what happens when a device fails.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "llama/forward.h"
#include "llama/sequence.h"
#include "llama/sides.h"

namespace tyto {

// What happens when a dispatch fails on a device that is not the host's.
enum class OnDeviceError : uint8_t {
  retry,  // once, on fresh contexts, from the first token; then fail
  cpu,    // the host does it all over, and everything after it
  fail,
};

struct PipelineOptions {
  ForwardOptions forward;
  OnDeviceError on_error = OnDeviceError::retry;
  // Prompts of fewer and of more tokens are not worth another device than the one for tokens.
  uint32_t min_prompt = 2;
  uint32_t max_prompt = UINT32_MAX;
};

// What an NPU's kernels must fit; `context` as in ForwardOptions.
ModelDims model_dims(const Config& config, uint32_t context);

// Takes the first `count` rows of `left`, with their part of the logits.
SequenceRows next_part(SequenceRows& left, uint32_t count);

// Used by one thread. Model and devices outlive it.
class Pipeline {
 public:
  Pipeline(const Model& model, const SideDevices& devices, const PipelineOptions& options,
           Trace& trace, const Progress& progress = {});
  // The same devices for prompts and for tokens.
  Pipeline(const Model& model, std::span<Device* const> devices, const PipelineOptions& options,
           Trace& trace, const Progress& progress = {});

  using OnLogits = Forward::OnLogits;
  // An item of a batch that could not be run.
  struct Failure {
    size_t item;
    Error error;
  };

  // Makes room in the cache for `tokens` more. False when there are no free pages, even after
  // asking `reclaim` for some.
  bool reserve(Sequence& sequence, uint32_t tokens);
  // Runs at most next_rows() tokens of each item, for which reserve() has made room; they stay as
  // they are until it returns. As many items together as a side's devices take, so that on a device
  // that takes one sequence at a time each gets its turn. Returns those that failed, in order; the
  // others were run. The sequence of an item that failed is as it was, or empty: where a device was
  // to blame, or had been and the window before the item is gone.
  [[nodiscard]] std::vector<Failure> run(std::span<SequenceRows> batch, const OnLogits& on_logits);

  // One sequence by itself, however many tokens: the logits of the last, or as many of the best as
  // Sequence::candidates asks for. Valid until the next call.
  Logits run(Sequence& sequence, std::span<const Token> tokens, const Progress& progress = {});
  // At most most_checked() tokens in one call on the decode side: visit(row, logits) for each, in
  // order.
  void run_rows(Sequence& sequence, std::span<const Token> tokens, const OnPosition& visit);

  const Forward& forward() const { return sides_->forward(Side::decode); }
  uint32_t context() const { return context_; }
  // Where all of a prompt of `prompt` tokens runs; a token by itself is no prompt.
  Side side_for(size_t prompt) const;
  // Most rows of any pass.
  uint32_t most_rows() const;
  // Rows of one sequence whose results on the decode side are those of as many calls, to the last
  // bit; 1: the results of its devices depend on the number of rows.
  uint32_t most_checked() const { return rows_agree_ ? limits(Side::decode).most_rows : 1; }
  // The first device that keeps it at 1.
  std::string disagreeing_device() const;
  // A prompt's rows have the same bits in passes of any size, wherever they run.
  bool passes_agree() const { return passes_agree_; }
  // Rows of the next pass of a prompt that has `left` more tokens from `position` on.
  uint32_t next_rows(uint32_t position, size_t left, Side side) const;
  // A prompt's kernels compute all the rows they were made for, however few a pass uses.
  bool has_fixed_rows() const { return !limits(Side::prefill).pass_costs.kernels.empty(); }
  // Events that a recording of `prompt` rows and then `tokens` single ones takes, at most.
  size_t event_count(size_t prompt, size_t tokens) const;
  uint32_t vocab() const { return model_.config.vocab; }
  KvPool& kv_pool() { return pool_; }
  const KvPool& kv_pool() const { return pool_; }
  const KvWindow& kv_window() const { return window_; }
  // Null: no layer has a state.
  KvPool* states() { return state_pool_.capacity() == 0 ? nullptr : &state_pool_; }
  uint64_t position_bytes(KvKind kind = KvKind::full) const { return sides_->position_bytes(kind); }
  // What positions of a page hold, to be kept elsewhere (Sides).
  void read_page(KvPage page, KvRange range, std::span<std::byte> to, KvKind kind = KvKind::full) {
    sides_->read_page(page, range, to, kind);
  }
  void write_page(KvPage page, KvRange range, std::span<const std::byte> from,
                  KvKind kind = KvKind::full) {
    sides_->write_page(page, range, from, kind);
  }
  // What all recurrent layers have, one after the other.
  void read_state(uint32_t state, std::span<std::byte> to) { sides_->read_state(state, to); }
  void write_state(uint32_t state, std::span<const std::byte> from) {
    sides_->write_state(state, from);
  }
  uint32_t recoveries() const { return recoveries_; }  // from device errors so far
  // A device failed for good (OnDeviceError::cpu): nothing has gone to it since.
  bool host_took_over() const { return host_took_over_; }
  uint64_t kv_peak_bytes() const {
    return pool_.peak() * page_bytes_ + window_pool_.peak() * window_page_bytes_ +
           state_pool_.peak() * state_bytes_;
  }
  // Throws an input Error unless `tokens` more fit into one sequence's context.
  void check_room(uint32_t position, size_t tokens) const;

  // Gives back a page that no sequence needs, of the kind that is lacking; false: there is none.
  std::function<bool(KvKind)> reclaim = {};
  // What caches hold is not to be trusted any more: what remembers pages must forget them.
  std::function<void()> on_caches_lost = {};

 private:
  friend class Sequence;
  // What a sequence had in its cache, and in which passes it got there.
  struct Past {
    Sequence* sequence;
    std::vector<Token> tokens;
    PassBegins begins;
  };

  // What a side takes at once.
  struct SideLimits {
    uint32_t most_rows = 0;
    uint32_t most_together = 0;
    PassCosts pass_costs = {};
  };

  const SideLimits& limits(Side side) const { return limits_[static_cast<size_t>(side)]; }
  void take_limits();
  void take_window();
  std::span<SequenceRows> next_group(std::span<SequenceRows> batch) const;
  void plan_states(SequenceRows& rows);
  void run_group(std::span<SequenceRows> group, const OnLogits& on_logits);
  void run_alone(SequenceRows rows, const OnLogits& on_logits);

  // recovery.cc
  bool has_other_device() const;  // than the host's
  std::optional<Error> recover(const Error& error, std::span<SequenceRows> group,
                               const OnLogits& on_logits);
  std::optional<Error> try_again(std::span<SequenceRows> group, std::span<const Past> pasts,
                                 const OnLogits& on_logits);
  void run_again(std::span<SequenceRows> group, const OnLogits& on_logits);
  void rebuild();
  void lose_caches();
  std::vector<Past> pasts(std::span<const SequenceRows> before) const;
  void log_recovery(const Error& error, std::span<const SequenceRows> group, bool goes_on);
  void restore(std::span<const Past> pasts);
  void replay(const Past& past);

  const Model& model_;
  Trace& trace_;
  const uint16_t run_name_;
  SideDevices devices_;
  PipelineOptions options_;
  std::unique_ptr<Sides> sides_;
  // About the sides, which may be gone: a device that failed is made again when it is next needed.
  bool has_two_sides_ = false;
  bool rows_agree_ = false;  // on the decode side
  bool passes_agree_ = false;
  uint32_t context_ = 0;
  std::array<SideLimits, 2> limits_;  // [sides]
  uint64_t page_bytes_ = 0, window_page_bytes_ = 0, state_bytes_ = 0;
  bool is_broken_ = false;
  uint32_t rebuilt_ = 0;  // times that rebuild() has run
  uint32_t recoveries_ = 0;
  bool host_took_over_ = false;
  KvPool pool_;
  KvPool window_pool_;  // empty where layers with a window share the pages of all
  KvPool state_pool_;   // by itself a page is a state of one position; empty: no layer has any
  KvWindow window_;
  std::vector<Sequence*> live_;
  std::vector<uint32_t> delivered_;  // [batch at hand], logits that were handed out
};

}  // namespace tyto
