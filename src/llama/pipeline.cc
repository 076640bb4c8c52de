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
    : pipeline_(pipeline), kv_(pipeline.pool_, pipeline.window_) {
  pipeline.live_.push_back(this);
  tokens_.reserve(pipeline.context());
}

Sequence::~Sequence() {
  std::erase(pipeline_.live_, this);
}

void Sequence::begin_with(std::span<const Token> tokens, KvTable kv) {
  TYTO_ASSERT(tokens_.empty() && tokens.size() == kv.length());
  TYTO_ASSERT(kv.can_be_cut_to(kv.length()));
  tokens_.assign(tokens.begin(), tokens.end());
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
  return std::exchange(kv_, KvTable(pipeline_.pool_, pipeline_.window_));
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
      window_pool_(sides_->windowed().pages, sides_->page()) {
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

bool Pipeline::has_other_device() const {
  const auto is_other = [](const Device* device) { return !device->info().shares_host_memory; };
  return std::ranges::any_of(devices_.decode, is_other) ||
         std::ranges::any_of(devices_.prefill, is_other);
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
  if (is_broken_) make_anew();
  const uint32_t wanted = sequence.position() + tokens;
  std::optional<KvTable::Copy> copy;
  while (!sequence.kv_.grow_to(wanted, copy))
    if (!reclaim || !reclaim(*sequence.kv_.lacking(wanted))) return false;
  if (copy) sides_->copy_page(*copy);
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

  void give(size_t item, uint32_t behind, const Logits& logits) {
    if (batch[item].logits - behind <= delivered[item]) return;
    ++delivered[item];
    on_logits(item, behind, logits);
  }

  std::span<const Pipeline::Work> batch;
  const Pipeline::OnLogits& on_logits;
  std::vector<uint32_t>& delivered;  // [batch]
};

bool is_in(std::span<const Pipeline::Work> group, const Sequence* sequence) {
  return std::any_of(group.begin(), group.end(),
                     [&](const Pipeline::Work& work) { return work.sequence == sequence; });
}

}  // namespace

std::vector<Pipeline::Failure> Pipeline::run(std::span<const Work> batch,
                                             const OnLogits& on_logits) {
  size_t tokens = 0;
  begins_.clear();
  for (const Work& work : batch) {
    begins_.push_back(work.sequence->position());
    check_room(begins_.back(), work.tokens.size());
    tokens += work.tokens.size();
  }
  Span span(trace_, EventKind::run, run_name_, begins_.front(), static_cast<uint32_t>(tokens));
  Delivery delivery{batch, on_logits, delivered_};
  std::vector<Failure> failures;
  const uint32_t rebuilt_before = rebuilt_;
  for (size_t first = 0; first < batch.size();) {
    const std::span<const Work> group = next_group(batch.subspan(first));
    const OnLogits once = [&](size_t item, uint32_t behind, const Logits& logits) {
      delivery.give(first + item, behind, logits);
    };
    const auto error = run_group(group, std::span(begins_).subspan(first, group.size()), once,
                                 rebuilt_ == rebuilt_before);
    // Where not even new contexts work nobody else need try.
    const size_t end = error && is_broken_ ? batch.size() : first + group.size();
    for (size_t item = first; error && item < end; ++item) failures.push_back({item, *error});
    first = end;
  }
  return failures;
}

// As many items from the front as one side takes together.
std::span<const Pipeline::Work> Pipeline::next_group(std::span<const Work> batch) const {
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

// Recovers from a device error at most once. What it returns ends the group's requests; everybody
// else's caches are filled again, unless that fails, too: then they are empty, and the next run
// finds devices made anew.
std::optional<Error> Pipeline::run_group(std::span<const Work> group,
                                         std::span<const uint32_t> begins,
                                         const OnLogits& on_logits, bool has_room) {
  std::optional<Error> failure;
  try {
    if (has_room) {
      run_once(group, on_logits);
      for (const Work& work : group) commit(work);
    } else {
      run_again(group, on_logits);
    }
    return std::nullopt;
  } catch (const Error& error) {
    if (error.code != ErrorCode::device) {
      for (size_t i = 0; i < group.size(); ++i) take_back(*group[i].sequence, begins[i]);
      return error;
    }
    failure = error;
  }
  std::vector<Past> known = pasts();
  for (size_t i = 0; i < group.size(); ++i) {
    Past& past = *std::ranges::find(known, group[i].sequence, &Past::sequence);
    past.tokens.resize(begins[i]);
    past.begins.resize(begins[i]);
  }
  if (has_other_device() && options_.on_error != OnDeviceError::fail) {
    ++recoveries_;
    tell_of(*failure, group, true);
    host_took_over_ = options_.on_error == OnDeviceError::cpu;
    if (host_took_over_)
      for (std::vector<Device*>* order : {&devices_.decode, &devices_.prefill})
        std::erase_if(*order, [](Device* device) { return !device->info().shares_host_memory; });
    try {
      restore(known);
      run_again(group, on_logits);
      return std::nullopt;
    } catch (const Error& error) {
      failure = error;
    }
  } else {
    tell_of(*failure, group, false);
  }
  std::erase_if(known, [&](const Past& past) { return is_in(group, past.sequence); });
  try {
    lose_caches();
    if (!known.empty()) restore(known);
  } catch (const Error&) {
    lose_caches();
  }
  return failure;
}

// Of work that was run again in several passes, the window in front of it may be gone.
void Pipeline::take_back(Sequence& sequence, uint32_t position) {
  sequence.rewind(sequence.can_rewind(position) ? position : 0);
}

// What was run is part of the sequence from now on.
void Pipeline::commit(const Work& work) {
  Sequence& sequence = *work.sequence;
  sequence.tokens_.insert(sequence.tokens_.end(), work.tokens.begin(), work.tokens.end());
  sequence.kv_.set_length(static_cast<uint32_t>(sequence.tokens_.size()), work.side);
}

// After a recovery, which may have left a device that takes fewer rows at once.
void Pipeline::run_again(std::span<const Work> group, const OnLogits& on_logits) {
  for (size_t item = 0; item < group.size(); ++item) {
    const std::span<const Token> tokens = group[item].tokens;
    for (size_t done = 0; done < tokens.size();) {
      const size_t now = std::min<size_t>(limits(group[item].side).most_rows, tokens.size() - done);
      const size_t after = tokens.size() - done - now;  // tokens of later passes
      const size_t wanted = group[item].logits > after ? group[item].logits - after : 0;
      const Work part{group[item].sequence, tokens.subspan(done, now),
                      static_cast<uint32_t>(std::min(wanted, now)), group[item].on_hidden,
                      group[item].side};
      if (!reserve(*part.sequence, static_cast<uint32_t>(now)))
        throw Error(ErrorCode::device, "recovery", "there is no room for what was in the caches");
      run_once({&part, 1}, [&](size_t, uint32_t behind, const Logits& logits) {
        on_logits(item, static_cast<uint32_t>(behind + after), logits);
      });
      commit(part);
      done += now;
    }
  }
}

void Pipeline::run_once(std::span<const Work> group, const OnLogits& on_logits) {
  rows_.clear();
  for (const Work& work : group) {
    Sequence& sequence = *work.sequence;
    const bool is_prefill = sequence.phase == Phase::prefill;
    rows_.push_back(
        {.tokens = work.tokens,
         .position = sequence.position(),
         .pages = sequence.kv_.pages(),
         .window_pages = sequence.kv_.window_pages(),
         .logits = work.logits,
         .candidates = sequence.candidates,
         .counters = is_prefill ? &sequence.executed.prefill : &sequence.executed.decode,
         .on_hidden = work.on_hidden,
         .handed_over = &sequence.handed_over});
  }
  sides_->run(group.front().side, rows_, on_logits);
}

void Pipeline::run_part(const Work& work, const OnLogits& on_logits) {
  const auto tokens = static_cast<uint32_t>(work.tokens.size());
  if (!reserve(*work.sequence, tokens)) {
    const auto kind = work.sequence->kv_.lacking(work.sequence->position() + tokens);
    const KvPool& pool = kind == KvKind::windowed ? window_pool_ : pool_;
    throw Error(ErrorCode::input, "KV cache",
                fmt::format("all {} pages of {} positions are in use", pool.capacity(),
                            pool.page_positions()),
                "give more --kv-memory");
  }
  const std::vector<Failure> failures = run({&work, 1}, on_logits);
  if (!failures.empty()) throw failures.front().error;
}

Logits Pipeline::run(Sequence& sequence, std::span<const Token> tokens, const Progress& progress) {
  TYTO_ASSERT(!tokens.empty());
  check_room(sequence.position(), tokens.size());
  Logits last;
  const OnLogits keep = [&last](size_t, uint32_t, const Logits& logits) { last = logits; };
  const auto show = [&](size_t done) {
    if (progress && tokens.size() > 1) progress("reading the prompt", done, tokens.size());
  };
  show(0);
  const Side side = side_for(tokens.size());
  for (size_t done = 0; done < tokens.size();) {
    const size_t now = next_rows(sequence.position(), tokens.size() - done, side);
    const uint32_t wanted = done + now == tokens.size() ? 1 : 0;
    run_part({&sequence, tokens.subspan(done, now), wanted, nullptr, side}, keep);
    done += now;
    show(done);
  }
  return last;
}

void Pipeline::run_all_logits(Sequence& sequence, std::span<const Token> tokens,
                              const std::function<void(uint32_t, std::span<const float>)>& visit,
                              const Progress& progress) {
  check_room(sequence.position(), tokens.size());
  if (progress) progress("computing logits", 0, tokens.size());
  const Side side = side_for(tokens.size());
  for (size_t done = 0; done < tokens.size();) {
    const size_t now = next_rows(sequence.position(), tokens.size() - done, side);
    const uint32_t end = sequence.position() + static_cast<uint32_t>(now);
    run_part(
        {&sequence, tokens.subspan(done, now), static_cast<uint32_t>(now), nullptr, side},
        [&](size_t, uint32_t behind, const Logits& logits) { visit(end - behind - 1, logits); });
    done += now;
    if (progress) progress("computing logits", done, tokens.size());
  }
}

void Pipeline::run_rows(Sequence& sequence, std::span<const Token> tokens,
                        const std::function<void(uint32_t, const Logits&)>& visit) {
  TYTO_ASSERT(!tokens.empty() && tokens.size() <= most_checked());
  check_room(sequence.position(), tokens.size());
  const auto rows = static_cast<uint32_t>(tokens.size());
  run_part(
      {&sequence, tokens, rows, nullptr, Side::decode},
      [&](size_t, uint32_t behind, const Logits& logits) { visit(rows - behind - 1, logits); });
}

bool Pipeline::run_hidden(Sequence& sequence, std::span<const Token> tokens, const OnHidden& visit,
                          const Progress& progress, const std::function<bool()>& goes_on) {
  check_room(sequence.position(), tokens.size());
  if (progress) progress("reading the text", 0, tokens.size());
  const Side side = side_for(tokens.size());
  for (size_t done = 0; done < tokens.size();) {
    if (goes_on && !goes_on()) return false;
    const size_t now = next_rows(sequence.position(), tokens.size() - done, side);
    run_part({&sequence, tokens.subspan(done, now), 0, &visit, side}, {});
    done += now;
    if (progress) progress("reading the text", done, tokens.size());
  }
  return true;
}

// What a failed device left in its caches is not to be trusted, and neither is the device until it
// is made anew.
void Pipeline::lose_caches() {
  is_broken_ = true;
  if (on_caches_lost) on_caches_lost();
  for (Sequence* sequence : live_) sequence->rewind(0);
}

void Pipeline::make_anew() {
  sides_.reset();  // runs go before the contexts that are made anew
  sides_ = std::make_unique<Sides>(model_, devices_, options_.forward, trace_);
  take_limits();
  pool_.reset(sides_->pages(), sides_->page());
  window_pool_.reset(sides_->windowed().pages, sides_->page());
  take_window();
  is_broken_ = false;
  ++rebuilt_;
}

std::vector<Pipeline::Past> Pipeline::pasts() const {
  std::vector<Past> result;
  for (Sequence* sequence : live_)
    result.push_back({sequence, sequence->tokens_, sequence->kv_.begins()});
  return result;
}

// In the words of those who go on: whose dispatch it was, and whose cache is filled again because
// of it.
void Pipeline::tell_of(const Error& error, std::span<const Work> group, bool goes_on) {
  const bool goes_to_host = goes_on && options_.on_error == OnDeviceError::cpu;
  for (Sequence* sequence : live_)
    if (goes_on && is_in(group, sequence))
      sequence->recoveries.push_back(
          fmt::format("{}; {}", error.what(),
                      goes_to_host ? "finished on the cpu" : "retried on new contexts"));
    else if (!is_in(group, sequence) && !sequence->tokens_.empty())
      sequence->recoveries.push_back(fmt::format("{}, in another request; run again on {}",
                                                 error.what(),
                                                 goes_to_host ? "the cpu" : "new contexts"));
}

// Devices made anew, and the sequences' caches filled again.
void Pipeline::restore(std::span<const Past> pasts) {
  lose_caches();
  make_anew();
  for (const Past& past : pasts) replay(past);
}

// In the passes it was run in, each on its side, so that the caches hold the same bits again. A
// pass of one token asks for its logits, as it did: devices have kernels of their own for it.
void Pipeline::replay(const Past& past) {
  const std::span<const Token> tokens = past.tokens;
  Side side = Side::decode;
  for (size_t done = 0; done < tokens.size();) {
    side = past.begins[done].value_or(side);
    size_t end = done + 1;
    while (end < tokens.size() && !past.begins[end] && end - done < limits(side).most_rows) ++end;
    const Work work{past.sequence, tokens.subspan(done, end - done), end - done == 1 ? 1u : 0u,
                    nullptr, side};
    run_again({&work, 1}, [](size_t, uint32_t, const Logits&) {});
    done = end;
  }
}

}  // namespace tyto
