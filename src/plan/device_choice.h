// Which device runs a prompt and which one decodes: the fastest pair for the work that is expected,
// by how fast each device is. Pure functions of such figures; who knows them is none of its
// business (plan/calibration.h, plan/rates.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plan/what_if.h"
#include "trace/receipt.h"

namespace tyto {

struct RatePoint {
  uint32_t tokens = 0;  // the prompt's; while decoding: in the KV cache
  double tokens_per_second = 0;
  bool operator==(const RatePoint&) const = default;
};

// How fast one device is with one model.
struct DeviceRates {
  std::string name;
  PlanKind kind = PlanKind::modelled;
  std::vector<RatePoint> prefill = {}, decode = {};  // by tokens, ascending; none: unknown
  // Keys and values between it and the host's memory; 0: it has them there.
  double kv_gb_s = 0;

  bool is_known() const { return !prefill.empty() && !decode.empty(); }
};

// Between points in proportion. A shorter prompt than the first takes as long as that one, since
// kernels have a least size; a longer one than the last goes on at its rate.
double prefill_seconds(const DeviceRates& rates, double tokens);
// Per token. Beyond the last point attention grows as it did before it.
double decode_seconds(const DeviceRates& rates, double context);

struct Workload {
  uint32_t prompt_tokens = 512;
  uint32_t generated_tokens = 128;
  uint64_t kv_bytes_per_token = 0;
};
// Seconds for all of it. Where the two are different devices the prompt's keys and values go from
// one to the other once.
double seconds_of(const DeviceRates& prefill, const DeviceRates& decode, const Workload& work);

struct DeviceChoice {
  std::string prefill, decode;
  // Shorter prompts are run sooner where the tokens are decoded; 1: there are none.
  uint32_t min_n = 1;
  PlanKind kind = PlanKind::modelled;  // that of the least certain figure that it rests on
  std::string reason;                  // what was compared, in words
};

// `devices` in order of preference where nothing else decides; not empty. Two devices must be
// clearly faster than one, since both then hold the weights. A pair that does not satisfy `require`
// is none; without any a require Error.
DeviceChoice choose_devices(std::span<const DeviceRates> devices, const Workload& work,
                            const Requirement& require = {});

}  // namespace tyto
