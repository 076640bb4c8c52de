#include "plan/device_choice.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/spelling.h"

namespace tyto {
namespace {

constexpr double kWorthTwo = 0.95;           // times one device's; repeated runs differ by less
constexpr uint32_t kLongestMinN = 1u << 17;  // prompts beyond it are not looked at

struct Point {
  double tokens, seconds;
};

// `points` has at least one.
double on_line(std::span<const Point> points, double tokens, double slope_beyond) {
  if (tokens <= points.front().tokens) return points.front().seconds;
  const Point& last = points.back();
  if (tokens >= last.tokens) return last.seconds + slope_beyond * (tokens - last.tokens);
  const auto after = std::ranges::upper_bound(points, tokens, {}, &Point::tokens);
  const Point &a = *(after - 1), &b = *after;
  return a.seconds + (b.seconds - a.seconds) * (tokens - a.tokens) / (b.tokens - a.tokens);
}

struct Pair {
  const DeviceRates *prefill, *decode;
  double seconds = 0;

  bool is_one() const { return prefill == decode; }
  PlanKind kind() const { return std::max(prefill->kind, decode->kind); }
};

bool satisfies(const Pair& pair, const Requirement& require) {
  const auto is_required = [&](Phase phase) {
    return !require.empty() && require.phase.value_or(phase) == phase;
  };
  return (!is_required(Phase::prefill) || pair.prefill->name == require.device) &&
         (!is_required(Phase::decode) || pair.decode->name == require.device);
}

// The fastest first. Devices of unknown speed come last, and never in two.
std::vector<Pair> pairs_of(std::span<const DeviceRates> devices, const Workload& work,
                           const Requirement& require) {
  std::vector<Pair> pairs;
  for (const DeviceRates& prefill : devices)
    for (const DeviceRates& decode : devices) {
      Pair pair{&prefill, &decode};
      const bool are_known = prefill.is_known() && decode.is_known();
      if (!pair.is_one() && !are_known) continue;
      if (!satisfies(pair, require)) continue;
      pair.seconds = are_known ? seconds_of(prefill, decode, work) : INFINITY;
      pairs.push_back(pair);
    }
  std::ranges::stable_sort(pairs, {}, &Pair::seconds);
  return pairs;
}

Pair best_of(const std::vector<Pair>& pairs) {
  const auto one = std::ranges::find_if(pairs, &Pair::is_one);
  const bool is_alone_enough =
      one != pairs.end() && pairs.front().seconds > kWorthTwo * one->seconds;
  return is_alone_enough ? *one : pairs.front();
}

// By halves: what a longer prompt gains only grows.
uint32_t least_prompt(const Pair& pair, Workload work) {
  if (pair.is_one()) return 1;
  const auto is_worth_it = [&](uint32_t tokens) {
    work.prompt_tokens = tokens;
    return seconds_of(*pair.prefill, *pair.decode, work) <
           seconds_of(*pair.decode, *pair.decode, work);
  };
  uint32_t least = 1, most = std::min(std::max(work.prompt_tokens, 1u), kLongestMinN);
  while (least < most) {
    const uint32_t middle = least + (most - least) / 2;
    if (is_worth_it(middle))
      most = middle;
    else
      least = middle + 1;
  }
  return least;
}

std::string pair_text(const Pair& pair) {
  return pair.is_one()
             ? pair.decode->name
             : fmt::format("prefill on {}, decode on {}", pair.prefill->name, pair.decode->name);
}

std::string seconds_text(double seconds) {
  if (seconds >= 10) return fmt::format("{:.0f} s", seconds);
  return seconds >= 1 ? fmt::format("{:.1f} s", seconds) : fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string figure(const Pair& pair) {
  if (!std::isfinite(pair.seconds)) return "unknown";
  return fmt::format("{} {}", seconds_text(pair.seconds), name(pair.kind()));
}

std::string reason_for(const Pair& best, const std::vector<Pair>& pairs, const Workload& work) {
  if (pairs.size() == 1) return fmt::format("{}, the only choice", pair_text(best));
  std::vector<std::string> others;
  for (const Pair& each : pairs)
    if (each.is_one() && !(best.is_one() && each.decode == best.decode))
      others.push_back(
          fmt::format("{} {}{}", each.decode->name, best.is_one() ? "" : "alone ", figure(each)));
  return fmt::format("{}: {} for {} + {} tokens{}{}", pair_text(best), figure(best),
                     work.prompt_tokens, work.generated_tokens, others.empty() ? "" : "; ",
                     joined(others, ", "));
}

}  // namespace

double prefill_seconds(const DeviceRates& rates, double tokens) {
  std::vector<Point> points;
  for (const RatePoint& each : rates.prefill)
    points.push_back({static_cast<double>(each.tokens), each.tokens / each.tokens_per_second});
  return on_line(points, tokens, 1 / rates.prefill.back().tokens_per_second);
}

double decode_seconds(const DeviceRates& rates, double context) {
  std::vector<Point> points;
  for (const RatePoint& each : rates.decode)
    points.push_back({static_cast<double>(each.tokens), 1 / each.tokens_per_second});
  double slope = 0;
  if (points.size() > 1) {
    const Point &a = points[points.size() - 2], &b = points.back();
    slope = std::max(0.0, (b.seconds - a.seconds) / (b.tokens - a.tokens));
  }
  return on_line(points, context, slope);
}

double seconds_of(const DeviceRates& prefill, const DeviceRates& decode, const Workload& work) {
  const double prompt = work.prompt_tokens, generated = work.generated_tokens;
  double seconds = (prompt > 0 ? prefill_seconds(prefill, prompt) : 0) +
                   generated * decode_seconds(decode, prompt + generated / 2);
  if (prefill.name == decode.name) return seconds;
  for (const DeviceRates* device : {&prefill, &decode})
    if (device->kv_gb_s > 0)
      seconds += prompt * static_cast<double>(work.kv_bytes_per_token) / device->kv_gb_s / 1e9;
  return seconds;
}

DeviceChoice choose_devices(std::span<const DeviceRates> devices, const Workload& work,
                            const Requirement& require) {
  TYTO_ASSERT(!devices.empty());
  const std::vector<Pair> pairs = pairs_of(devices, work, require);
  if (pairs.empty())
    throw Error(ErrorCode::require, "--require " + to_text(require),
                "cannot be met by " + joined(devices, ", ", &DeviceRates::name));
  const Pair best = best_of(pairs);
  return {.prefill = best.prefill->name,
          .decode = best.decode->name,
          .min_n = least_prompt(best, work),
          .kind = best.kind(),
          .reason = reason_for(best, pairs, work)};
}

}  // namespace tyto
