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
          .norm_eps = config.norm_eps,
          .qkv_bias = config.qkv_bias,
          .qk_norm = config.qk_norm && !config.wide_qk_norm,
          .beyond_images = differences_from_llama(config)};
}

Sequence::Sequence(Pipeline& pipeline)
    : pipeline_(pipeline), kv_(pipeline.pool_, pipeline.window_, pipeline.states()) {
  tokens_.reserve(pipeline.context());
  pipeline.live_.push_back(this);
}

Sequence::~Sequence() {
  std::erase(pipeline_.live_, this);
}

void Sequence::begin_with(std::span<const Token> tokens, KvTable kv) {
  TYTO_ASSERT(tokens_.empty() && tokens.size() == kv.length());
  TYTO_ASSERT(kv.can_be_cut_to(kv.length()));
  tokens_.assign(tokens.begin(), tokens.end());
  kv.want_state(kv_.wanted_state());
  kv_ = std::move(kv);
}

void Sequence::rewind(uint32_t position) {
  TYTO_ASSERT(position <= kv_.length() && can_rewind(position));
  kv_.set_length(position);  // later positions are overwritten before anything attends to them
  tokens_.resize(position);
}

KvTable Sequence::take_cache() {
  kv_.set_length(kv_.length());  // gives up room that nothing was written to
  tokens_.clear();
  return std::exchange(kv_, KvTable(pipeline_.pool_, pipeline_.window_, pipeline_.states()));
}

Pipeline::Pipeline(const Model& model, const SideDevices& devices, const PipelineOptions& options,
                   Trace& trace, const Progress& progress)
    : model_(model),
      trace_(trace),
      run_name_(trace.name({.label = "run"})),
      devices_(devices),
      options_(options),
      sides_(std::make_unique<Sides>(model, devices, options.forward, trace, progress)),
      pool_(sides_->pages(), sides_->page()),
      window_pool_(sides_->windowed().pages, sides_->page()),
      state_pool_(sides_->state().states, 1) {
  take_limits();
  take_window();
}

Pipeline::Pipeline(const Model& model, std::span<Device* const> devices,
                   const PipelineOptions& options, Trace& trace, const Progress& progress)
    : Pipeline(model,
               SideDevices{{devices.begin(), devices.end()}, {devices.begin(), devices.end()}},
               options, trace, progress) {}

void Pipeline::take_limits() {
  has_two_sides_ = sides_->are_two();
  context_ = sides_->forward(Side::decode).context();
  page_bytes_ = sides_->page_bytes();
  window_page_bytes_ = sides_->windowed().page_bytes;
  state_bytes_ = sides_->state().bytes;
  for (const Side side : {Side::decode, Side::prefill}) {
    const Forward& forward = sides_->forward(side);
    limits_[static_cast<size_t>(side)] = {forward.most_rows(), forward.most_together(),
                                          forward.pass_costs()};
  }
  rows_agree_ = disagreeing_device().empty();
  passes_agree_ = rows_agree_ && std::ranges::all_of(devices_.prefill, [](const Device* device) {
                    return device->info().rows_agree;
                  });
}

void Pipeline::take_window() {
  window_ = {};
  if (window_pool_.capacity() == 0) return;
  window_ = {&window_pool_, model_.config.window, std::max(most_rows(), pool_.page_positions())};
}

std::string Pipeline::disagreeing_device() const {
  for (const Device* device : devices_.decode)
    if (const DeviceInfo info = device->info(); !info.rows_agree) return info.name;
  return {};
}

Side Pipeline::side_for(size_t prompt) const {
  const bool is_worth_it = prompt >= options_.min_prompt && prompt <= options_.max_prompt;
  return has_two_sides_ && is_worth_it ? Side::prefill : Side::decode;
}

uint32_t Pipeline::most_rows() const {
  return std::max(limits(Side::decode).most_rows, limits(Side::prefill).most_rows);
}

size_t Pipeline::event_count(size_t prompt, size_t tokens) const {
  const size_t of_one = sides_->forward(Side::decode).event_count(prompt, tokens);
  if (!has_two_sides_) return of_one;
  const size_t hand_overs = 2;
  return of_one + sides_->forward(Side::prefill).event_count(prompt, 0) + hand_overs;
}

void Pipeline::check_room(uint32_t position, size_t tokens) const {
  if (tokens <= context() - position) return;
  throw Error(ErrorCode::input, "context",
              fmt::format("{} tokens after position {} do not fit in {} positions", tokens,
                          position, context()),
              context() < model_.config.context
                  ? fmt::format("the model allows -c up to {}", model_.config.context)
                  : "shorten the prompt");
}

uint32_t Pipeline::next_rows(uint32_t position, size_t left, Side side) const {
  const auto rows = static_cast<uint32_t>(std::min<size_t>(left, context_));
  const PassCosts& costs = limits(side).pass_costs;
  return costs.kernels.empty() ? std::min(limits(side).most_rows, rows)
                               : next_pass(costs, position, rows);
}

bool Pipeline::reserve(Sequence& sequence, uint32_t tokens) {
  if (is_broken_) rebuild();
  const uint32_t wanted = sequence.position() + tokens;
  std::optional<KvTable::Copy> copy;
  while (!sequence.kv_.grow_to(wanted, copy))
    if (!reclaim || !reclaim(*sequence.kv_.lacking(wanted))) return false;
  if (copy) sides_->copy_page(*copy);
  return true;
}

namespace {

// The logits of a row go out once, also where a run that failed half-way is run again.
struct Delivery {
  std::span<const SequenceRows> group;
  std::span<uint32_t> delivered;  // [group]
  size_t first;                   // where the group begins in the batch
  const Pipeline::OnLogits& on_logits;

  void give(size_t item, uint32_t behind, const Logits& logits) {
    if (group[item].logits - behind <= delivered[item]) return;
    ++delivered[item];
    on_logits(first + item, behind, logits);
  }
};

}  // namespace

std::vector<Pipeline::Failure> Pipeline::run(std::span<SequenceRows> batch,
                                             const OnLogits& on_logits) {
  uint32_t tokens = 0;
  for (SequenceRows& rows : batch) {
    rows.position = rows.sequence->position();
    check_room(rows.position, rows.tokens.size());
    tokens += rows.count();
  }
  Span span(trace_, EventKind::run, run_name_, batch.front().position, tokens);
  delivered_.assign(batch.size(), 0);
  std::vector<Failure> failures;
  const uint32_t rebuilt_before = rebuilt_;
  for (size_t first = 0; first < batch.size();) {
    const std::span<SequenceRows> group = next_group(batch.subspan(first));
    Delivery delivery{group, std::span(delivered_).subspan(first), first, on_logits};
    const OnLogits once = [&delivery](size_t item, uint32_t behind, const Logits& logits) {
      delivery.give(item, behind, logits);
    };
    std::optional<Error> error;
    try {
      if (rebuilt_ == rebuilt_before)
        run_group(group, once);
      else
        run_again(group, once);  // the room that was reserved is gone
    } catch (const Error& thrown) {
      error = recover(thrown, group, once);
    }
    // Where not even new contexts work no other item need try.
    const size_t end = error && is_broken_ ? batch.size() : first + group.size();
    for (size_t item = first; error && item < end; ++item) failures.push_back({item, *error});
    first = end;
  }
  return failures;
}

// As many items from the front as one side takes together.
std::span<SequenceRows> Pipeline::next_group(std::span<SequenceRows> batch) const {
  const Side side = batch.front().side;
  const SideLimits& most = limits(side);
  size_t items = 0, rows = 0;
  while (items < batch.size() && items < most.most_together && batch[items].side == side) {
    rows += batch[items].tokens.size();
    if (items > 0 && rows > most.most_rows) break;
    ++items;
  }
  return batch.first(items);
}

// What was run is part of the sequences from then on.
void Pipeline::run_group(std::span<SequenceRows> group, const OnLogits& on_logits) {
  for (SequenceRows& rows : group) {
    Sequence& sequence = *rows.sequence;
    const bool is_prefill = sequence.phase == Phase::prefill;
    rows.position = sequence.position();
    rows.pages = sequence.kv_.pages();
    rows.window_pages = sequence.kv_.window_pages();
    plan_states(rows);
    rows.candidates = sequence.candidates;
    rows.counters = is_prefill ? &sequence.executed.prefill : &sequence.executed.decode;
    rows.handed_over = &sequence.handed_over;
  }
  sides_->run(group.front().side, group, on_logits);
  for (const SequenceRows& rows : group) {
    Sequence& sequence = *rows.sequence;
    sequence.tokens_.insert(sequence.tokens_.end(), rows.tokens.begin(), rows.tokens.end());
    sequence.kv_.set_length(static_cast<uint32_t>(sequence.tokens_.size()), rows.side);
  }
}

// The states of a pass: besides that behind it those at every step of pages, and where others may
// go on. The least recent ones that are remembered give way to them.
void Pipeline::plan_states(SequenceRows& rows) {
  if (states() == nullptr) return;
  KvTable& kv = rows.sequence->kv_;
  const uint32_t step = sides_->state().step * pool_.page_positions();
  const auto keep = [&](uint32_t at, bool is_kept) {
    while (!kv.keep_state(at, is_kept))
      if (!reclaim || !reclaim(KvKind::state)) return;
  };
  if (const uint32_t at = kv.wanted_state(); at > rows.position && at <= rows.end())
    keep(at, false);
  for (uint32_t at = rows.position - rows.position % step + step; at <= rows.end(); at += step)
    keep(at, true);
  rows.state_from = kv.state_from();
  rows.state_to = kv.state_to();
  rows.kept = kv.kept_in_pass(rows.count());
}

SequenceRows next_part(SequenceRows& left, uint32_t count) {
  SequenceRows part = left;
  part.tokens = left.tokens.first(count);
  left.tokens = left.tokens.subspan(count);
  part.logits = std::min(count, left.logits - std::min(left.logits, left.count()));
  left.logits = std::min(left.logits, left.count());
  return part;
}

void Pipeline::run_alone(SequenceRows rows, const OnLogits& on_logits) {
  if (!reserve(*rows.sequence, rows.count())) {
    const auto kind = rows.sequence->kv_.lacking(rows.sequence->position() + rows.count());
    if (kind == KvKind::state)
      throw Error(
          ErrorCode::input, "KV cache",
          fmt::format("all {} states of recurrent layers are in use", state_pool_.capacity()),
          "give more --kv-memory");
    const KvPool& pool = kind == KvKind::windowed ? window_pool_ : pool_;
    throw Error(ErrorCode::input, "KV cache",
                fmt::format("all {} pages of {} positions are in use", pool.capacity(),
                            pool.page_positions()),
                "give more --kv-memory");
  }
  const std::vector<Failure> failures = run({&rows, 1}, on_logits);
  if (!failures.empty()) throw failures.front().error;
}

Logits Pipeline::run(Sequence& sequence, std::span<const Token> tokens, const Progress& progress) {
  TYTO_ASSERT(!tokens.empty());
  check_room(sequence.position(), tokens.size());
  SequenceRows left{.sequence = &sequence, .tokens = tokens, .side = side_for(tokens.size())};
  Logits last;
  const auto show = [&] {
    if (progress && tokens.size() > 1)
      progress("reading the prompt", tokens.size() - left.count(), tokens.size());
  };
  show();
  while (!left.tokens.empty()) {
    const uint32_t rows = next_rows(sequence.position(), left.tokens.size(), left.side);
    run_alone(next_part(left, rows),
              [&last](size_t, uint32_t, const Logits& logits) { last = logits; });
    show();
  }
  return last;
}

void Pipeline::run_rows(Sequence& sequence, std::span<const Token> tokens,
                        const OnPosition& visit) {
  TYTO_ASSERT(!tokens.empty() && tokens.size() <= most_checked());
  check_room(sequence.position(), tokens.size());
  const auto rows = static_cast<uint32_t>(tokens.size());
  run_alone(
      {.sequence = &sequence, .tokens = tokens, .logits = rows},
      [&](size_t, uint32_t behind, const Logits& logits) { visit(rows - behind - 1, logits); });
}

}  // namespace tyto
