// What a Pipeline does when a run failed: devices are made again, every sequence is replayed in the
// passes it was run in, and the rows that failed are run once more.
#include <algorithm>

#include "llama/pipeline.h"

namespace tyto {
namespace {

bool is_in(std::span<const SequenceRows> group, const Sequence* sequence) {
  return std::ranges::any_of(group,
                             [&](const SequenceRows& rows) { return rows.sequence == sequence; });
}

}  // namespace

bool Pipeline::has_other_device() const {
  const auto is_other = [](const Device* device) { return !device->info().shares_host_memory; };
  return std::ranges::any_of(devices_.decode, is_other) ||
         std::ranges::any_of(devices_.prefill, is_other);
}

// At most once for a device error. What it returns ends the group's requests; the caches of all
// others are filled again, unless that fails, too: then they are empty, and the next run makes the
// devices again.
std::optional<Error> Pipeline::recover(const Error& error, std::span<SequenceRows> group,
                                       const OnLogits& on_logits) {
  if (error.code != ErrorCode::device) {
    // Where rows were run again in several passes, the window in front of them may be gone, or the
    // state.
    for (const SequenceRows& rows : group)
      rows.sequence->rewind(rows.sequence->last_cut(rows.position));
    return error;
  }
  std::vector<Past> known = pasts(group);
  const bool goes_on = has_other_device() && options_.on_error != OnDeviceError::fail;
  log_recovery(error, group, goes_on);
  const std::optional<Error> failure = goes_on ? try_again(group, known, on_logits) : error;
  if (!failure) return std::nullopt;
  std::erase_if(known, [&](const Past& past) { return is_in(group, past.sequence); });
  try {
    lose_caches();
    if (!known.empty()) restore(known);
  } catch (const Error&) {
    lose_caches();
  }
  return failure;
}

std::optional<Error> Pipeline::try_again(std::span<SequenceRows> group, std::span<const Past> known,
                                         const OnLogits& on_logits) {
  ++recoveries_;
  host_took_over_ = options_.on_error == OnDeviceError::cpu;
  if (host_took_over_)
    for (std::vector<Device*>* order : {&devices_.decode, &devices_.prefill})
      std::erase_if(*order, [](Device* device) { return !device->info().shares_host_memory; });
  try {
    restore(known);
    run_again(group, on_logits);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
}

// The device that is left after a recovery may take fewer rows at once.
void Pipeline::run_again(std::span<SequenceRows> group, const OnLogits& on_logits) {
  for (size_t item = 0; item < group.size(); ++item) {
    SequenceRows left = group[item];
    while (!left.tokens.empty()) {
      SequenceRows part = next_part(left, std::min(limits(left.side).most_rows, left.count()));
      if (!reserve(*part.sequence, part.count()))
        throw Error(ErrorCode::device, "recovery", "there is no room for what was in the caches");
      run_group({&part, 1}, [&](size_t, uint32_t behind, const Logits& logits) {
        on_logits(item, behind + left.count(), logits);
      });
    }
  }
}

// What a failed device left in its caches is not to be trusted, and neither is the device until it
// is made again.
void Pipeline::lose_caches() {
  is_broken_ = true;
  if (on_caches_lost) on_caches_lost();
  for (Sequence* sequence : live_) sequence->rewind(0);
}

void Pipeline::rebuild() {
  sides_.reset();  // old contexts go before new ones are made
  sides_ = std::make_unique<Sides>(model_, devices_, options_.forward, trace_);
  take_limits();
  pool_.reset(sides_->pages(), sides_->page());
  window_pool_.reset(sides_->windowed().pages, sides_->page());
  state_pool_.reset(sides_->state().states, 1);
  take_window();
  is_broken_ = false;
  ++rebuilt_;
}

// What every sequence had before the rows of the group that failed.
std::vector<Pipeline::Past> Pipeline::pasts(std::span<const SequenceRows> group) const {
  std::vector<Past> result;
  for (Sequence* sequence : live_)
    result.push_back({sequence, sequence->tokens_, sequence->kv_.begins()});
  for (const SequenceRows& rows : group) {
    Past& past = *std::ranges::find(result, rows.sequence, &Past::sequence);
    past.tokens.resize(rows.position);
    past.begins.resize(rows.position);
  }
  return result;
}

// Each sequence's receipt says whether the dispatch was its own or its cache is filled again
// because of another's.
void Pipeline::log_recovery(const Error& error, std::span<const SequenceRows> group, bool goes_on) {
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

void Pipeline::restore(std::span<const Past> pasts) {
  lose_caches();
  rebuild();
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
    SequenceRows rows{.sequence = past.sequence,
                      .tokens = tokens.subspan(done, end - done),
                      .logits = end - done == 1 ? 1u : 0u,
                      .side = side};
    run_again({&rows, 1}, [](size_t, uint32_t, const Logits&) {});
    done = end;
  }
}

}  // namespace tyto
