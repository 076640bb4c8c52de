// The receipt of one request: which devices executed it, by their own completion counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "power/energy_meter.h"
#include "trace/trace.h"

namespace tyto {

// Whether a speed can be true at all: what it implies against what the device could do at best.

// Bounds of a device that nothing can beat; 0 where none is known.
struct DeviceLimits {
  double gb_s = 0;         // memory bandwidth
  double gflops = 0;       // arithmetic, two per multiply-accumulate
  double dispatch_us = 0;  // least time of one submission
  std::string source = {};
};

// What is published of a device, and so holds whatever a file says of it. An NPU's machine is the
// first word of its limits' source ("strix-halo: memory bus"); of one that is not known the best of
// all counts. None for devices of which nothing is published.
std::optional<DeviceLimits> published_limits(std::string_view device, std::string_view source);

// Whether a receipt that names this device has to say that it is a virtual one.
bool must_be_virtual(std::string_view device);

// A rate, and what one token (or, for a prefill, one prompt token) costs the device.
struct Claim {
  std::string device;
  std::string phase;  // "prefill", "decode"
  double tokens_per_second = 0;
  double bytes_per_token = 0;
  double flops_per_token = 0;
  double dispatches_per_token = 0;
};

enum class Verdict : uint8_t { unchecked, plausible, refused };
std::string_view name(Verdict verdict);

struct Plausibility {
  Verdict verdict = Verdict::unchecked;
  std::vector<std::string> reasons = {};    // what contradicts the rate
  std::vector<std::string> checks = {};     // what was compared and held
  std::vector<std::string> unchecked = {};  // what could not be compared, and why
};

Plausibility judge(const Claim& claim, const DeviceLimits& limits);
// Refused if any part is, plausible if anything was checked.
Plausibility combine(const std::vector<Plausibility>& parts);

// --require DEVICE[:phase]: the device that must have done the work, or nothing counts.

enum class Phase : uint8_t { prefill, decode };
std::string_view name(Phase phase);

struct Requirement {
  std::string device;          // empty: nothing is required
  std::optional<Phase> phase;  // none: every phase that ran
  bool empty() const { return device.empty(); }
};

// "npu", "npu:decode"; another phase is a usage Error.
Requirement parse_requirement(const std::string& text);
std::string to_text(const Requirement& requirement);

struct PhaseCounters {  // devices that were submitted to, in each phase
  std::vector<DeviceCounters> prefill;
  std::vector<DeviceCounters> decode;
};

// Throws a require Error unless, in each phase concerned, the device is real, completed everything
// that was submitted to it, and did most of the arithmetic. A named phase that did not run fails.
void check_requirement(const Requirement& requirement, const PhaseCounters& executed);

class SigningKey;

// Joules of the request's own window, and the rail they were read from; or why there are none.
struct Energy {
  std::optional<double> prefill_joules = {};
  std::optional<double> decode_joules = {};
  std::string rail = {};
  std::string reason = "not read";
};

// A virtual device's time in place of its simulation's; the host's time as it was measured.
struct ModelledSeconds {
  double prefill = 0;
  double decode = 0;
};

// What came of guessing tokens; the guesses have no part in the answer (engine/speculation.h).
struct SpeculationCounters {
  std::string source = {};      // who guessed: "lookup", or a model's name
  uint64_t calls = 0;           // calls of the model that decoded
  uint64_t drafted = 0;         // tokens that were guessed
  uint64_t accepted = 0;        // those that the model chose
  double drafting_seconds = 0;  // part of the times of both phases
  bool operator==(const SpeculationCounters&) const = default;
};

struct Receipt {
  uint32_t prompt_tokens = 0;  // that were run
  uint32_t cached_tokens = 0;  // the prompt's, that an earlier request had run
  uint32_t generated_tokens = 0;
  // An answer's first token comes out of the prefill; in a benchmark each has its own step.
  bool first_from_prefill = true;
  double queue_seconds = 0;             // until it was its turn
  double prefill_seconds = 0;           // from the prompt's tokens to the choice of the first token
  double decode_seconds = 0;            // to the choice of the last token
  std::vector<DeviceCounters> devices;  // this request's window only, devices with submissions
  PhaseCounters phases;                 // the same, split where the first token was chosen
  // What a device should have done and did not, and recoveries, in words.
  std::vector<std::string> fallbacks;
  std::vector<std::string> on_host;  // what devices leave to the host by design: "embedding"
  uint32_t recoveries = 0;           // how often work was run again after a device failed
  HandOvers handed_over;             // between the devices for prompts and for tokens
  std::optional<SpeculationCounters> speculation;  // none: it was not asked for
  EnergyWindow prefill_energy;  // over the same time as the seconds; no rails: not asked for
  EnergyWindow decode_energy;
  std::vector<LoadedCode> loaded_code;
  uint64_t kv_peak_bytes = 0;  // the most that caches took at once, all requests of the engine
  std::optional<ModelledSeconds> modelled;  // known only from a recording
  Energy energy;
  Plausibility plausibility;
};

// Who executed, for every command, table, page and file: the devices that completed work, not those
// that were asked for, the host last. "vnpu (modelled)+cpu"; "no device" where none did.
std::string device_names(const std::vector<DeviceCounters>& counted);
// The same with what went wrong on the way: "vnpu (modelled)+cpu; 1 dispatch failed; run again
// once".
std::string execution_text(const Receipt& receipt);
uint64_t failed_dispatches(const Receipt& receipt);  // on all devices

// Counts, seconds and work of another run, which came after those of `total`.
void add(Receipt& total, const Receipt& run);

// Tokens that took a step of decoding.
uint32_t decoded_tokens(const Receipt& receipt);

// By wall time, whatever the devices.
double prefill_tokens_per_second(const Receipt& receipt);
double decode_tokens_per_second(const Receipt& receipt);

// Calls of the model for each token that took a step of decoding; none when nothing was decoded or
// no speculation was asked for.
std::optional<double> calls_per_token(const Receipt& receipt);

bool has_virtual_device(const Receipt& receipt);
// Submissions per decoded token; none when nothing was decoded. The host's own steps are function
// calls, not dispatches, so the cpu counts only where it did all of the work.
std::optional<double> dispatches_per_token(const Receipt& receipt);

struct NamedLimits {
  std::string device;
  DeviceLimits limits;
};
// Each phase on each device. A simulation's own wall time is not judged.
Plausibility judge(const Receipt& receipt, const std::vector<NamedLimits>& limits);

// "vnpu (96 of 96 submissions completed, ...), cpu (...)", what fell back, and what the host does
// by design.
std::string executed_line(const Receipt& receipt);

// One line: counts, rates, executed devices with submissions, GB/s. Where a virtual device took
// part there are no rates: the wall time is a simulation's and the device's own is marked as
// modelled. Rates that cannot be true are not shown; the reason is.
std::string receipt_line(const Receipt& receipt);
// The same in less than 80 columns: "87 tokens · 41 tok/s · cpu".
std::string short_receipt_line(const Receipt& receipt);
// What must not be overlooked, a line for each: refused speeds, dispatches that failed, fallbacks.
std::vector<std::string> trouble_lines(const Receipt& receipt);

// A LoRA adapter of the model that ran.
struct AdapterFacts {
  std::string path;
  std::string hash;  // over the adapter's file
  double scale = 1;
};

// What the receipt file says about where the numbers come from.
struct ReceiptContext {
  std::string version = {};  // which Tyto wrote it
  std::string time = {};     // UTC, ISO 8601
  std::string command = {};
  std::string model = {};  // path
  std::string model_format = {};
  std::string model_size = {};  // "1.0B"
  std::string model_type = {};  // "q4_k_m"
  std::vector<AdapterFacts> adapters = {};
  uint64_t weight_bytes = 0;
  std::string weights_hash = {};       // the identity of the model that was loaded
  std::string weights_hash_form = {};  // exactly what was hashed
  double identity_seconds = 0;         // that hashing took
  bool identity_cached = false;        // the weights were hashed in an earlier run
  std::string fusion = {};
  std::string device_choice = {};  // why --device auto took the device; empty: it was named
  std::vector<NamedLimits> limits = {};
  const SigningKey* key = nullptr;  // who vouches for it; none: it is hashed alone
  std::string verified = {};        // "yes", "no", "failed"; empty: not looked up
  std::string verified_time = {};   // when it was found out
};

// Energy in words: J/token per rail and phase, or n/a with the reason.

// "0.123 J/token", or "n/a (reason)".
std::string joules_per_token(const RailEnergy& energy, double tokens);

// One line per rail: "rapl package-0: prefill 0.041 J/token, decode 0.220 J/token at 14.1 W".
// Nothing when the request was not measured.
std::vector<std::string> energy_lines(const Receipt& receipt);

// "amdgpu PPT: n/a (reason)" for every rail that was not.
std::vector<std::string> energy_reasons(const EnergyWindow& window);

// The receipt's own summary: the first rail that was read in both phases, or the first reason.
Energy energy_of(const Receipt& receipt);

// Where a virtual device took part, what was measured is the simulation's: the joules are dropped
// and the reason takes their place.
void drop_simulated_energy(Receipt& receipt);

}  // namespace tyto
