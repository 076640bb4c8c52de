// One token out of a row of logits, in this order, each step seeing what the one before left:
//   penalties -> logit bias -> constraint -> temperature -> top-k -> top-p -> min-p -> draw
// Candidates are kept sorted only as far as a step needs, so that a vocabulary of 128k costs a pass
// over it and not a sort.
#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "text/grammar/constraint.h"

namespace tyto {

namespace {

// Higher logit first; the lower id of equals.
bool better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

template <typename... Args>
[[noreturn]] void fail_option(const char* name, fmt::format_string<Args...> format,
                              Args&&... args) {
  throw Error(ErrorCode::usage, name, fmt::format(format, std::forward<Args>(args)...));
}

void check_range(const char* name, float value, float low, float high) {
  if (!(value >= low && value <= high)) fail_option(name, "{} is outside {}..{}", value, low, high);
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What every processor that runs this has, by the compiler's own name for it.
using Floats = float __attribute__((vector_size(16)));
using Masks = int32_t __attribute__((vector_size(16)));
constexpr size_t kLanes = sizeof(Floats) / sizeof(float);
using Shorts = int16_t __attribute__((vector_size(16)));
using Bits = uint16_t __attribute__((vector_size(16)));
constexpr size_t kShorts = sizeof(Shorts) / sizeof(int16_t);

// Logits are looked through in blocks, whose bests then say where to look again.
constexpr size_t kLogitsBlock = 256;
template <typename Logit>
std::span<const Logit> block_of(std::span<const Logit> logits, size_t index) {
  const size_t first = index * kLogitsBlock;
  return logits.subspan(first, std::min(kLogitsBlock, logits.size() - first));
}

struct BlockBest {
  float highest = -kInfinity;
  bool is_usable = true;
};

// +infinity has no share in a distribution, nor has what is no number; -infinity bans a token.
// Compilers keep the order of float comparisons, so that the lanes are ours to make; two in turn
// hide the time a comparison takes.
BlockBest best_of_block(std::span<const float> logits) {
  BlockBest best;
  Floats highest[2] = {Floats{} - kInfinity, Floats{} - kInfinity};
  Masks usable[2] = {~Masks{}, ~Masks{}};
  size_t i = 0;
  for (; i + 2 * kLanes <= logits.size(); i += 2 * kLanes)
    for (size_t turn = 0; turn < 2; ++turn) {
      Floats next;
      std::memcpy(&next, &logits[i + turn * kLanes], sizeof(next));
      highest[turn] = next > highest[turn] ? next : highest[turn];
      usable[turn] &= next < kInfinity;
    }
  for (; i < logits.size(); ++i) {
    best.highest = std::max(best.highest, logits[i]);
    best.is_usable &= logits[i] < kInfinity;
  }
  for (size_t turn = 0; turn < 2; ++turn)
    for (size_t lane = 0; lane < kLanes; ++lane) {
      best.highest = std::max(best.highest, highest[turn][lane]);
      best.is_usable &= usable[turn][lane] != 0;
    }
  return best;
}

// The bits of bf16 as numbers in the order of their values: -infinity is the lowest there is, and
// NaNs of both signs, which two's complement leaves at both ends, are beyond +infinity.
constexpr uint16_t kBelowMinusInfinity = 0x7f;  // NaNs that have a sign
constexpr int16_t ranked(uint16_t bits) {
  const uint16_t turned = (bits & 0x8000) != 0 ? bits ^ 0x7fff : bits;
  return static_cast<int16_t>(static_cast<uint16_t>(turned - kBelowMinusInfinity));
}
constexpr uint16_t bits_ranked(int16_t rank) {
  const auto turned = static_cast<uint16_t>(rank + kBelowMinusInfinity);
  return (turned & 0x8000) != 0 ? turned ^ 0x7fff : turned;
}

// The same of bf16, whose ranks are compared eight at once.
BlockBest best_of_block(std::span<const uint16_t> logits) {
  constexpr int16_t kPlusInfinity = ranked(0x7f80), kMinusInfinity = ranked(0xff80);
  Shorts highest[2] = {Shorts{} + kMinusInfinity, Shorts{} + kMinusInfinity};
  size_t i = 0;
  for (; i + 2 * kShorts <= logits.size(); i += 2 * kShorts)
    for (size_t turn = 0; turn < 2; ++turn) {
      Shorts next;
      std::memcpy(&next, &logits[i + turn * kShorts], sizeof(next));
      next ^= (next >> 15) & 0x7fff;
      next = reinterpret_cast<Shorts>(reinterpret_cast<Bits>(next) - kBelowMinusInfinity);
      highest[turn] = next > highest[turn] ? next : highest[turn];
    }
  highest[0] = highest[0] > highest[1] ? highest[0] : highest[1];
  int16_t most = kMinusInfinity;
  for (size_t lane = 0; lane < kShorts; ++lane) most = std::max<int16_t>(most, highest[0][lane]);
  for (; i < logits.size(); ++i) most = std::max(most, ranked(logits[i]));
  return {value_of_bf16(bits_ranked(most)), most < kPlusInfinity};
}

float value(float logit) {
  return logit;
}

float value(uint16_t bf16) {
  return value_of_bf16(bf16);
}

template <typename Logit>
[[noreturn]] void fail_logits(std::span<const Logit> logits, size_t first) {
  while (value(logits[first]) < kInfinity) ++first;
  fail_input("logits", "the logit of token {} is {}", first, value(logits[first]));
}

[[noreturn]] void fail_ruled_out() {
  fail_input("logits", "every token is ruled out");
}

bool has_penalties(const SamplerOptions& options) {
  return options.repeat_penalty != 1.0f || options.frequency_penalty != 0.0f ||
         options.presence_penalty != 0.0f;
}

// How much a candidate weighs against the best one, whose weight is 1.
double weight(float logit, float best, float temperature) {
  return std::exp((double{logit} - best) / temperature);
}

using Iterator = std::vector<Candidate>::iterator;

// The best of [begin, end) to [begin, middle), sorted. A heap is the quick way to a few of many,
// and a slow one to many.
void sort_best(Iterator begin, Iterator middle, Iterator end) {
  constexpr ptrdiff_t kFew = 1024;
  if (middle - begin <= kFew) {
    std::partial_sort(begin, middle, end, better);
    return;
  }
  std::nth_element(begin, middle, end, better);
  std::sort(begin, middle, better);
}

void keep_top_k(std::vector<Candidate>& candidates, uint32_t k) {
  const auto middle = candidates.begin() + std::min<ptrdiff_t>(k, std::ssize(candidates));
  sort_best(candidates.begin(), middle, candidates.end());
  candidates.erase(middle, candidates.end());
}

// The candidates from the best on, sorted no further down than was asked for.
class SortedPrefix {
 public:
  explicit SortedPrefix(std::vector<Candidate>& candidates) : candidates_(candidates) {}

  const Candidate& operator[](size_t i) {
    while (i >= sorted_) extend();
    return candidates_[i];
  }

 private:
  void extend() {
    const size_t next = std::min(candidates_.size(), std::max<size_t>(64, sorted_ * 4));
    const auto at = [&](size_t i) { return candidates_.begin() + static_cast<ptrdiff_t>(i); };
    sort_best(at(sorted_), at(next), candidates_.end());
    sorted_ = next;
  }

  std::vector<Candidate>& candidates_;
  size_t sorted_ = 0;
};

}  // namespace

void check(const SamplerOptions& options, size_t vocab) {
  constexpr float kMax = std::numeric_limits<float>::max();
  check_range("temperature", options.temperature, 0, kMax);
  check_range("top-p", options.top_p, 0, 1);
  check_range("min-p", options.min_p, 0, 1);
  check_range("repeat-penalty", options.repeat_penalty, std::numeric_limits<float>::min(), kMax);
  check_range("frequency-penalty", options.frequency_penalty, -kMax, kMax);
  check_range("presence-penalty", options.presence_penalty, -kMax, kMax);
  for (const auto& [token, bias] : options.logit_bias) {
    if (token < 0 || static_cast<size_t>(token) >= vocab)
      fail_option("logit-bias", "token {} is outside the vocabulary of {}", token, vocab);
    if (!(bias < kInfinity)) fail_option("logit-bias", "the bias of token {} is {}", token, bias);
  }
}

uint32_t candidates_needed(const SamplerOptions& options, bool is_constrained) {
  if (is_constrained || has_penalties(options) || !options.logit_bias.empty()) return 0;
  return options.temperature == 0 ? 1 : options.top_k;
}

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)), random_(options_.seed) {}

void Sampler::constrain(std::shared_ptr<Constraint> constraint) {
  constraint_ = std::move(constraint);
}

void Sampler::accept(Token token) {
  if (constraint_) constraint_->accept(token);
  if (options_.penalty_window == 0) return;
  if (recent_.size() < options_.penalty_window) {
    recent_.push_back(token);
    return;
  }
  recent_[recent_next_] = token;
  recent_next_ = (recent_next_ + 1) % recent_.size();
}

bool Sampler::adjusts() const {
  return (has_penalties(options_) && !recent_.empty()) || !options_.logit_bias.empty() ||
         constraint_;
}

void Sampler::adjust(std::span<const float> logits) {
  adjusted_.assign(logits.begin(), logits.end());
  if (has_penalties(options_)) penalize();
  for (const auto& [token, bias] : options_.logit_bias)
    if (token >= 0 && static_cast<size_t>(token) < adjusted_.size())
      adjusted_[static_cast<size_t>(token)] += bias;
  if (constraint_) ban();
}

// Logits beyond the vocabulary (models pad their last layer) are no tokens.
void Sampler::ban() {
  const std::span<const uint64_t> allowed = constraint_->allowed();
  if (std::ranges::none_of(allowed, [](uint64_t word) { return word != 0; }))
    fail_input("grammar", "no token of the vocabulary goes on from here");
  const size_t whole = std::min(allowed.size(), adjusted_.size() / 64);
  for (size_t word = 0; word < whole; ++word) {
    float* const logits = &adjusted_[word * 64];
    if (allowed[word] == 0) std::fill_n(logits, 64, -kInfinity);  // most of them
    for (uint64_t banned = allowed[word] == 0 ? 0 : ~allowed[word]; banned != 0;
         banned &= banned - 1)
      logits[std::countr_zero(banned)] = -kInfinity;
  }
  for (size_t i = whole * 64; i < adjusted_.size(); ++i)
    if (i / 64 >= allowed.size() || (allowed[i / 64] >> (i % 64) & 1) == 0)
      adjusted_[i] = -kInfinity;
}

// Every token of the window once, with the number of times it occurs there.
void Sampler::penalize() {
  counted_ = recent_;
  std::sort(counted_.begin(), counted_.end());
  for (size_t i = 0, next = 0; i < counted_.size(); i = next) {
    while (next < counted_.size() && counted_[next] == counted_[i]) ++next;
    const Token token = counted_[i];
    if (token < 0 || static_cast<size_t>(token) >= adjusted_.size()) continue;
    float& logit = adjusted_[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / options_.repeat_penalty : logit * options_.repeat_penalty;
    logit -= static_cast<float>(next - i) * options_.frequency_penalty;
    logit -= options_.presence_penalty;
  }
}

// Keeps the smallest set of best candidates that holds top_p of the weight, and of those the ones
// that weigh at least min_p of the best; always one.
void Sampler::keep_probable(float best) {
  double total = 0;
  for (const Candidate& each : candidates_) total += weight(each.logit, best, options_.temperature);
  SortedPrefix sorted(candidates_);
  double mass = 0;
  size_t kept = 0;
  while (kept < candidates_.size() && (kept == 0 || mass < double{options_.top_p} * total)) {
    const double next = weight(sorted[kept].logit, best, options_.temperature);
    if (kept > 0 && next < double{options_.min_p}) break;
    mass += next;
    ++kept;
  }
  candidates_.resize(kept);
}

// Inverse of the cumulative distribution at one random number; std:: distributions differ between
// standard libraries, this does not.
Token Sampler::draw(float best) {
  double mass = 0;
  for (const Candidate& each : candidates_) mass += weight(each.logit, best, options_.temperature);
  const double unit = static_cast<double>(random_() >> 11) * 0x1p-53;  // [0, 1)
  double seen = 0;
  for (const Candidate& each : candidates_) {
    seen += weight(each.logit, best, options_.temperature);
    if (unit * mass < seen) return each.token;
  }
  return candidates_.front().token;
}

Token Sampler::draw_probable(float best) {
  if (options_.top_p < 1 || options_.min_p > 0) keep_probable(best);
  return draw(best);
}

// The first of the highest.
template <typename Logit>
Token Sampler::find_best(std::span<const Logit> logits) {
  if (logits.empty()) fail_input("logits", "there are none");
  block_bests_.resize((logits.size() + kLogitsBlock - 1) / kLogitsBlock);
  size_t best = 0;
  for (size_t block = 0; block < block_bests_.size(); ++block) {
    const BlockBest found = best_of_block(block_of(logits, block));
    if (!found.is_usable) fail_logits(logits, block * kLogitsBlock);
    block_bests_[block] = found.highest;
    if (found.highest > block_bests_[best]) best = block;
  }
  size_t first = best * kLogitsBlock;
  while (value(logits[first]) != block_bests_[best]) ++first;
  return static_cast<Token>(first);
}

// As many blocks have a best one at or above `floor` as candidates will be kept: the top k are all
// there.
template <typename Logit>
void Sampler::gather_candidates(std::span<const Logit> logits) {
  candidates_.clear();
  float floor = -kInfinity;
  const size_t k = options_.top_k;
  if (k > 0 && k < block_bests_.size()) {
    floors_ = block_bests_;
    const auto kth = floors_.begin() + static_cast<ptrdiff_t>(k - 1);
    std::nth_element(floors_.begin(), kth, floors_.end(), std::greater<>());
    floor = *kth;
  }
  for (size_t block = 0; block < block_bests_.size(); ++block) {
    if (block_bests_[block] < floor) continue;
    const std::span<const Logit> values = block_of(logits, block);
    for (size_t i = 0; i < values.size(); ++i)
      if (const float each = value(values[i]); each >= floor)
        candidates_.push_back({static_cast<Token>(block * kLogitsBlock + i), each});
  }
}

template <typename Logit>
Token Sampler::choose(std::span<const Logit> logits) {
  const Token top = find_best(logits);
  const float best = value(logits[static_cast<size_t>(top)]);
  if (best == -kInfinity) fail_ruled_out();
  if (options_.temperature == 0) return top;

  candidates_.reserve(logits.size());
  gather_candidates(logits);
  if (options_.top_k > 0) keep_top_k(candidates_, options_.top_k);
  return draw_probable(best);
}

// The top k are there already, in the order that keep_top_k leaves.
Token Sampler::choose(std::span<const Candidate> best) {
  const Candidate& top = best.front();
  if (top.logit == -kInfinity) fail_ruled_out();
  if (options_.temperature == 0) return top.token;
  const auto kept = best.first(options_.top_k);
  candidates_.assign(kept.begin(), kept.end());
  return draw_probable(top.logit);
}

Token Sampler::sample(const Logits& logits) {
  if (logits.are_candidates()) {
    const uint32_t needed = candidates_needed(options_, constraint_ != nullptr);
    TYTO_ASSERT(needed > 0 && needed <= logits.candidates().size());
    return choose(logits.candidates());
  }
  if (adjusts()) {
    adjust(logits);
    return choose(std::span<const float>(adjusted_));
  }
  return logits.is_bf16() ? choose(logits.bf16()) : choose(std::span<const float>(logits));
}

LogProbabilities log_probabilities(std::span<const float> logits, Token chosen, uint32_t count) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  const float log_sum = largest + static_cast<float>(std::log(sum));
  const auto value = [&](Token token) { return logits[static_cast<size_t>(token)] - log_sum; };

  LogProbabilities result{.chosen = value(chosen)};
  if (count == 0) return result;
  std::vector<Token> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end =
      tokens.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(count, tokens.size()));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](Token a, Token b) {
    const float of_a = logits[static_cast<size_t>(a)], of_b = logits[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  for (auto at = tokens.begin(); at != end; ++at) result.top.push_back({*at, value(*at)});
  return result;
}

}  // namespace tyto
