// A model that runs sequences: their caches, their runs, and what happens when a device fails.
#pragma once

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

namespace tyto {

// What happens when a dispatch fails on a device that is not the host's.
enum class OnDeviceError : uint8_t {
  retry,  // once, on contexts made anew, from the first token; then fail
  cpu,    // the host does it all over, and everything after it
  fail,
};

struct PipelineOptions {
  ForwardOptions forward;
  OnDeviceError on_error = OnDeviceError::retry;
};

// What an NPU's kernels must fit; `context` as in ForwardOptions.
ModelDims model_dims(const Config& config, uint32_t context);

// Used by one thread. Model and devices outlive it.
class Pipeline {
 public:
  // `devices` in order of preference; the host's takes what the others cannot run.
  Pipeline(const Model& model, std::span<Device* const> devices, const PipelineOptions& options,
           Trace& trace, const Progress& progress = {});

  // Some more tokens of a sequence, and how many of the last have logits.
  struct Work {
    Sequence* sequence;
    std::span<const Token> tokens;
    uint32_t logits = 1;
    const OnHidden* on_hidden = nullptr;  // where given, gets each token's hidden state
  };
  using OnLogits = Forward::OnLogits;
  // An item of a batch that could not be run.
  struct Failure {
    size_t item;
    Error error;
  };

  // Makes room in the cache for so many more tokens. False when there are no free pages, even after
  // asking `reclaim` for some.
  bool reserve(Sequence& sequence, uint32_t tokens);
  // At most most_rows() tokens, for which reserve() has made room; they stay as they are until it
  // returns. As many items together as the devices take, so that of a device that takes one
  // sequence at a time each gets its turn. Returns those that failed, in order; the others were
  // run. The sequence of an item that failed is as it was, or empty where a device was to blame.
  [[nodiscard]] std::vector<Failure> run(std::span<const Work> batch, const OnLogits& on_logits);

  // One sequence by itself, however many tokens: the logits of the last, or as many of the best as
  // Sequence::candidates asks for. Valid until the next call.
  Logits run(Sequence& sequence, std::span<const Token> tokens, const Progress& progress = {});
  // The same, handing out the logits of every position: visit(position, logits).
  void run_all_logits(Sequence& sequence, std::span<const Token> tokens,
                      const std::function<void(uint32_t, std::span<const float>)>& visit,
                      const Progress& progress = {});
  // The hidden state of every position, without logits.
  void run_hidden(Sequence& sequence, std::span<const Token> tokens, const OnHidden& visit,
                  const Progress& progress = {});

  const Forward& forward() const { return *forward_; }
  uint32_t context() const { return context_; }
  uint32_t most_rows() const { return most_rows_; }
  // Of the next pass of a prompt that has `left` more tokens from `position` on.
  uint32_t next_rows(uint32_t position, size_t left) const;
  // A prompt's kernels compute all the rows they were made for, however few a pass uses.
  bool has_fixed_rows() const { return !pass_costs_.kernels.empty(); }
  uint32_t vocab() const { return model_.config.vocab; }
  KvPool& kv_pool() { return pool_; }
  uint64_t position_bytes() const { return page_bytes_ / pool_.page_positions(); }
  // What positions of a page hold, for whoever keeps it elsewhere (Forward).
  void read_page(KvPage page, KvRange range, std::span<std::byte> to) {
    forward_->read_page(page, range, to);
  }
  void write_page(KvPage page, KvRange range, std::span<const std::byte> from) {
    forward_->write_page(page, range, from);
  }
  uint32_t recoveries() const { return recoveries_; }  // from device errors so far
  // A device failed for good (OnDeviceError::cpu): nothing has gone to it since.
  bool host_took_over() const { return host_took_over_; }
  uint64_t kv_peak_bytes() const { return pool_.peak() * page_bytes_; }
  // Throws an input Error unless so many tokens fit into one sequence's context.
  void check_room(uint32_t position, size_t tokens) const;

  // Gives back a page that no sequence needs; false: there is none.
  std::function<bool()> reclaim = {};
  // What caches hold is not to be trusted any more: whoever remembers pages forgets them.
  std::function<void()> on_caches_lost = {};

 private:
  friend class Sequence;
  // What a sequence had in its cache, and in which passes it got there.
  struct Past {
    Sequence* sequence;
    std::vector<Token> tokens;
    PassBegins begins;
  };

  std::optional<Error> run_group(std::span<const Work> group, std::span<const uint32_t> begins,
                                 const OnLogits& on_logits, bool has_room);
  void run_once(std::span<const Work> group, const OnLogits& on_logits);
  void run_again(std::span<const Work> group, const OnLogits& on_logits);
  void commit(const Work& work);
  void make_anew();
  void lose_caches();
  void run_part(const Work& work, const OnLogits& on_logits);
  std::vector<Past> pasts() const;
  void tell_of(const Error& error, std::span<const Work> group, bool goes_on);
  void restore(std::span<const Past> pasts);
  void replay(const Past& past);

  const Model& model_;
  Trace& trace_;
  const uint16_t run_name_;
  std::vector<Device*> devices_;
  PipelineOptions options_;
  std::unique_ptr<Forward> forward_;
  // Of the forward, which may be gone: a device that failed is made anew when it is next needed.
  uint32_t context_ = 0;
  uint32_t most_rows_ = 0;
  uint32_t most_together_ = 0;
  PassCosts pass_costs_ = {};
  uint64_t page_bytes_ = 0;
  bool is_broken_ = false;
  uint32_t rebuilt_ = 0;  // times that make_anew() has run
  uint32_t recoveries_ = 0;
  bool host_took_over_ = false;
  KvPool pool_;
  std::vector<Sequence*> live_;
  std::vector<BatchRows> rows_;
  // Of each item of the batch at hand: where it begins, logits that were handed out.
  std::vector<uint32_t> begins_, delivered_;
};

}  // namespace tyto
