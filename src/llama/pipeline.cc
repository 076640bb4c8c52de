#include "llama/pipeline.h"

#include <algorithm>

namespace tyto {

ModelDims model_dims(const Config& config, uint32_t context) {
  return {.layers = config.layers,
          .emb = config.emb,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .hidden = config.hidden,
          .vocab = config.vocab,
          .context = context == 0 ? config.context : context,
          .norm_eps = config.norm_eps};
}

Sequence::Sequence(Pipeline& pipeline) : pipeline_(pipeline), kv_(pipeline.pool_) {
  pipeline.live_.push_back(this);
  tokens_.reserve(pipeline.context());
}

Sequence::~Sequence() {
  std::erase(pipeline_.live_, this);
}

void Sequence::begin_with(std::span<const Token> tokens, KvTable kv) {
  TYTO_ASSERT(tokens_.empty() && tokens.size() == kv.length());
  tokens_.assign(tokens.begin(), tokens.end());
  kv_ = std::move(kv);
}

void Sequence::rewind(uint32_t position) {
  TYTO_ASSERT(position <= kv_.length());
  kv_.set_length(position);  // later positions are overwritten before anything attends to them
  tokens_.resize(position);
}

KvTable Sequence::take_cache() {
  kv_.set_length(kv_.length());  // gives up room that nothing was written to
  tokens_.clear();
  return std::exchange(kv_, KvTable(pipeline_.pool_));
}

Pipeline::Pipeline(const Model& model, std::span<Device* const> devices,
                   const PipelineOptions& options, Trace& trace)
    : model_(model),
      trace_(trace),
      run_name_(trace.name({.label = "run"})),
      devices_(devices.begin(), devices.end()),
      options_(options),
      forward_(std::make_unique<Forward>(model, devices_, options.forward, trace)),
      context_(forward_->context()),
      most_rows_(forward_->most_rows()),
      page_bytes_(forward_->kv().page_bytes),
      pool_(forward_->kv().pages, forward_->kv().page) {}

void Pipeline::check_room(uint32_t position, size_t tokens) const {
  if (tokens <= context() - position) return;
  throw Error(ErrorCode::input, "context",
              fmt::format("{} tokens after position {} do not fit in {} positions", tokens,
                          position, context()),
              context() < model_.config.context
                  ? fmt::format("the model allows -c up to {}", model_.config.context)
                  : "shorten the prompt");
}

bool Pipeline::reserve(Sequence& sequence, uint32_t tokens) {
  if (is_broken_) make_anew();
  std::optional<KvTable::Copy> copy;
  while (!sequence.kv_.grow_to(sequence.position() + tokens, copy))
    if (!reclaim || !reclaim()) return false;
  if (copy) forward_->copy_page(*copy);
  return true;
}

namespace {

// Hands out logits once each, also when a run that failed half-way is run again.
struct Delivery {
  Delivery(std::span<const Pipeline::Work> work, const Pipeline::OnLogits& to,
           std::vector<uint32_t>& memory)
      : batch(work), on_logits(to), delivered(memory) {
    delivered.assign(batch.size(), 0);
  }

  void give(size_t item, uint32_t behind, std::span<const float> logits) {
    if (batch[item].logits - behind <= delivered[item]) return;
    ++delivered[item];
    on_logits(item, behind, logits);
  }

  std::span<const Pipeline::Work> batch;
  const Pipeline::OnLogits& on_logits;
  std::vector<uint32_t>& delivered;  // [batch]
};

}  // namespace

// Recovers from a device error at most once: a second one is the caller's. The next run finds
// devices made anew in any case.
void Pipeline::run(std::span<const Work> batch, const OnLogits& on_logits) {
  const auto begin = batch.front().sequence->position();
  size_t tokens = 0;
  for (const Work& work : batch) {
    check_room(work.sequence->position(), work.tokens.size());
    tokens += work.tokens.size();
  }
  Span span(trace_, EventKind::run, run_name_, begin, static_cast<uint32_t>(tokens));
  Delivery delivery{batch, on_logits, delivered_};
  const OnLogits once = [&delivery](size_t item, uint32_t behind, std::span<const float> logits) {
    delivery.give(item, behind, logits);
  };
  try {
    run_once(batch, once);
  } catch (const Error& error) {
    if (error.code != ErrorCode::device) throw;
    if (devices_.size() == 1 || options_.on_error == OnDeviceError::fail) {
      lose_caches();
      throw;
    }
    try {
      recover(error);
      return run_again(batch, once);
    } catch (const Error&) {
      lose_caches();
      throw;
    }
  }
  for (const Work& work : batch) commit(work);
}

// What was run is part of the sequence from now on.
void Pipeline::commit(const Work& work) {
  Sequence& sequence = *work.sequence;
  sequence.tokens_.insert(sequence.tokens_.end(), work.tokens.begin(), work.tokens.end());
  sequence.kv_.set_length(static_cast<uint32_t>(sequence.tokens_.size()));
}

// After a recovery, which may have left a device that takes fewer rows at once.
void Pipeline::run_again(std::span<const Work> batch, const OnLogits& on_logits) {
  for (size_t item = 0; item < batch.size(); ++item) {
    const std::span<const Token> tokens = batch[item].tokens;
    for (size_t done = 0; done < tokens.size();) {
      const size_t now = std::min<size_t>(most_rows(), tokens.size() - done);
      const size_t after = tokens.size() - done - now;  // tokens of later passes
      const size_t wanted = batch[item].logits > after ? batch[item].logits - after : 0;
      const Work part{batch[item].sequence, tokens.subspan(done, now),
                      static_cast<uint32_t>(std::min(wanted, now))};
      if (!reserve(*part.sequence, static_cast<uint32_t>(now)))
        throw Error(ErrorCode::device, "recovery", "there is no room for what was in the caches");
      run_once({&part, 1}, [&](size_t, uint32_t behind, std::span<const float> logits) {
        on_logits(item, static_cast<uint32_t>(behind + after), logits);
      });
      commit(part);
      done += now;
    }
  }
}

void Pipeline::run_once(std::span<const Work> batch, const OnLogits& on_logits) {
  rows_.clear();
  for (const Work& work : batch) {
    Sequence& sequence = *work.sequence;
    const bool is_prefill = sequence.phase == Phase::prefill;
    rows_.push_back(
        {.tokens = work.tokens,
         .position = sequence.position(),
         .pages = sequence.kv_.pages(),
         .logits = work.logits,
         .counters = is_prefill ? &sequence.executed.prefill : &sequence.executed.decode});
  }
  forward_->run(rows_, on_logits);
}

void Pipeline::run_part(Sequence& sequence, std::span<const Token> tokens, uint32_t logits,
                        const OnLogits& on_logits) {
  if (!reserve(sequence, static_cast<uint32_t>(tokens.size())))
    throw Error(ErrorCode::input, "KV cache",
                fmt::format("all {} pages of {} positions are in use", pool_.capacity(),
                            pool_.page_positions()),
                "give more --kv-memory");
  const Work work{&sequence, tokens, logits};
  run({&work, 1}, on_logits);
}

std::span<const float> Pipeline::run(Sequence& sequence, std::span<const Token> tokens,
                                     const Progress& progress) {
  TYTO_ASSERT(!tokens.empty());
  check_room(sequence.position(), tokens.size());
  std::span<const float> last;
  const OnLogits keep = [&last](size_t, uint32_t, std::span<const float> logits) { last = logits; };
  for (size_t done = 0; done < tokens.size();) {
    const size_t now = std::min<size_t>(most_rows(), tokens.size() - done);
    run_part(sequence, tokens.subspan(done, now), done + now == tokens.size() ? 1 : 0, keep);
    done += now;
    if (progress && tokens.size() > 1) progress("prefill", done, tokens.size());
  }
  return last;
}

void Pipeline::run_all_logits(Sequence& sequence, std::span<const Token> tokens,
                              const std::function<void(uint32_t, std::span<const float>)>& visit,
                              const Progress& progress) {
  check_room(sequence.position(), tokens.size());
  for (size_t done = 0; done < tokens.size();) {
    const size_t now = std::min<size_t>(most_rows(), tokens.size() - done);
    const uint32_t end = sequence.position() + static_cast<uint32_t>(now);
    run_part(sequence, tokens.subspan(done, now), static_cast<uint32_t>(now),
             [&](size_t, uint32_t behind, std::span<const float> logits) {
               visit(end - behind - 1, logits);
             });
    done += now;
    if (progress) progress("prefill", done, tokens.size());
  }
}

// What a failed device left in its caches is not to be trusted, and neither is the device until it
// is made anew.
void Pipeline::lose_caches() {
  is_broken_ = true;
  if (on_caches_lost) on_caches_lost();
  for (Sequence* sequence : live_) sequence->rewind(0);
}

void Pipeline::make_anew() {
  forward_.reset();  // runs go before the contexts that are made anew
  forward_ = std::make_unique<Forward>(model_, devices_, options_.forward, trace_);
  context_ = forward_->context();
  most_rows_ = forward_->most_rows();
  page_bytes_ = forward_->kv().page_bytes;
  pool_.reset(forward_->kv().pages, forward_->kv().page);
  is_broken_ = false;
}

// Every live sequence fills its cache again.
void Pipeline::recover(const Error& error) {
  const bool goes_to_host = options_.on_error == OnDeviceError::cpu;
  const std::string what = fmt::format(
      "{}; {}", error.what(), goes_to_host ? "finished on the cpu" : "retried on new contexts");
  ++recoveries_;
  struct Past {
    Sequence* sequence;
    std::vector<Token> tokens;
    std::vector<bool> begins;
  };
  std::vector<Past> pasts;
  for (Sequence* sequence : live_) {
    sequence->recoveries.push_back(what);
    pasts.push_back({sequence, sequence->tokens_, sequence->kv_.begins()});
  }
  lose_caches();
  host_took_over_ = goes_to_host;
  if (goes_to_host)
    std::erase_if(devices_, [](Device* device) { return !device->info().shares_host_memory; });
  make_anew();
  for (const Past& past : pasts) replay(*past.sequence, past.tokens, past.begins);
}

// In the passes it was run in, so that the caches hold the same bits again. A pass of one token
// asks for its logits, as it did: devices have kernels of their own for it.
void Pipeline::replay(Sequence& sequence, std::span<const Token> tokens,
                      const std::vector<bool>& begins) {
  for (size_t done = 0; done < tokens.size();) {
    size_t end = done + 1;
    while (end < tokens.size() && !begins[end] && end - done < most_rows()) ++end;
    const Work work{&sequence, tokens.subspan(done, end - done), end - done == 1 ? 1u : 0u};
    if (!reserve(sequence, static_cast<uint32_t>(end - done)))
      throw Error(ErrorCode::device, "recovery", "there is no room for what was in the caches");
    run_once({&work, 1}, [](size_t, uint32_t, std::span<const float>) {});
    commit(work);
    done = end;
  }
}

}  // namespace tyto
