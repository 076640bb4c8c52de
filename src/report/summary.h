// The numbers of a profile, worked out once; the text, HTML and JSON reports only lay them out.
// Times are milliseconds on the profile's clock.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/profile.h"

namespace tyto {

struct Stat {
  uint64_t count = 0;
  double total = 0, avg = 0, min = 0, p50 = 0, p95 = 0, max = 0;
};
Stat stat_of(std::vector<double> values);

struct Headline {
  double ttft_ms = 0;  // from the request to the choice of the first token
  double tpot_ms = 0;  // per token after the first
  double decode_tok_s = 0;
  double prefill_tok_s = 0;  // prompt tokens / TTFT
  double setup_s = 0;
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
};

// The tag of the processor's own work.
inline constexpr const char* kHostTag = "CPU";

// A row of the dataflow. Rows of a phase add up to its wall time.
struct FlowRow {
  std::string label;
  std::string tag;  // CPU, NPU, GPU or - for what no device does
  bool modelled = false;
  bool in_layer = false;
  double ms = 0;             // for one layer in a row of the layers, else for the whole
  double total_ms = 0;       // for the prefill or for one decoded token
  double share = 0;          // in the phase
  bool is_dispatch = false;  // then of `ms`:
  double write_ms = 0, run_ms = 0, read_ms = 0;
  double launches = 0;  // inside one dispatch
  std::string note = {};
};

struct Flow {
  std::vector<FlowRow> rows;  // in the order of the architecture
  uint32_t layers = 0;
  double layer_ms = 0;  // wall of one layer, on average
  double total_ms = 0;  // TTFT, or one token
};

// Where the wall time of a phase went, in all.
struct Attribution {
  double wall = 0;
  double device = 0;  // between submission and completion
  double host = 0;
  double copies = 0;      // to and from buffers
  double scheduling = 0;  // inside the pipeline, between dispatches
  double unattributed = 0;
  uint64_t dispatches = 0;  // to devices
  uint64_t host_ops = 0;
  double unattributed_share() const { return wall > 0 ? unattributed / wall : 0; }
};

struct CallRow {  // one program on one device in one phase
  std::string program;
  std::string tag;
  bool modelled = false;
  Stat run = {};  // submission to completion
  Stat write = {}, read = {};
  double launches = 0;                                    // per call
  double bytes_written = 0, bytes_read = 0;               // per call
  double gb_s = 0, gflops = 0;                            // declared work over `run`
  double peak_bandwidth_share = 0, peak_flops_share = 0;  // 0 where no peak is known
};

struct HostRow {
  std::string label;
  Stat time = {};
};

struct OperatorRow {
  std::string label;
  bool modelled = false;
  uint64_t calls = 0;
  double total = 0, avg = 0, share = 0;  // share of the phase's wall
  double gb_s = 0, gflops = 0;
};

constexpr std::array<double, 10> kHistogramEdgesMs = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};

struct PhaseSummary {
  Flow flow;
  Attribution wall;
  std::vector<CallRow> calls;  // to devices, in order of first use
  std::vector<HostRow> host;   // host operations, and host steps of the network
  std::vector<OperatorRow> operators;
  std::array<uint64_t, kHistogramEdgesMs.size() + 1> histogram = {};  // dispatches' run times
  uint32_t tokens = 0;  // prompt tokens, or decoded ones
};

struct LayerRow {
  uint32_t layer = 0;
  double prefill_ms = 0;
  Stat decode = {};                        // over tokens
  std::vector<double> prefill_parts = {};  // [Summary::layer_parts]
  std::vector<double> decode_parts = {};   // per token
};

struct TokenRow {  // a decoded token
  uint32_t token = 0;
  uint32_t context = 0;  // positions in the KV cache before it
  Attribution wall;
};

struct Trend {
  double first = 0, middle = 0, last = 0, min = 0, max = 0, avg = 0;
  double drift_percent = 0;          // first to last
  double slope_us_per_position = 0;  // least squares over the tokens
  double slope_error_us = 0;         // its standard error
};

struct SetupRow {
  std::string phase;
  uint64_t count = 0;
  double seconds = 0;
  double share = 0;
};

struct Summary {
  bool modelled = false;  // somewhere a virtual device's time is shown
  Headline headline;
  PhaseSummary prefill, decode;
  std::vector<std::string> layer_parts;  // programs of a layer, then the rest of its wall
  std::vector<LayerRow> layers;
  std::vector<TokenRow> tokens;
  Trend trend;
  std::vector<SetupRow> setup;  // the last row is what no phase accounts for
};

Summary summarise(const Profile& profile, const ProfileRun& run);

// The run whose wall time is the median: the one a report of several shows.
const ProfileRun& typical_run(const Profile& profile);

// A run's events put back together: dispatches with their parts and launches, tokens, host work.

struct DispatchRecord {
  uint32_t token = 0;
  uint16_t name = 0;
  uint8_t device = 0;
  bool modelled = false;
  double start = 0, end = 0;  // milliseconds
  double write = 0, submit = 0, wait = 0, read = 0;
  double once = 0;  // what only the first call of a run takes, such as waking the device
  uint64_t bytes_written = 0, bytes_read = 0;
  uint64_t bytes = 0, flops = 0;  // declared
  uint32_t launches = 0;
  std::vector<const Event*> launch_events = {};
  double run() const { return submit + wait; }
  double usual() const { return write + run() - once + read; }
};

struct HostRecord {
  uint32_t token = 0;
  uint16_t name = 0;
  double start = 0;
  double ms = 0;
  bool in_run = false;  // inside Pipeline::run
};

struct TokenRecord {
  double wall = 0;
  double runs = 0;  // inside Pipeline::run
  uint32_t context = 0;
  bool complete = false;  // its end was recorded
};

struct Records {
  std::vector<DispatchRecord> dispatches;  // in order
  std::vector<HostRecord> host;
  std::vector<TokenRecord> tokens;  // [token]
};

Records records_of(const Profile& profile, const ProfileRun& run);

inline double ms(uint64_t ns) {
  return static_cast<double>(ns) * 1e-6;
}

// The parts of summarise(), one function per table. Inside src/report only.

// A run seen by phase: token 0 is the prefill, the others that were recorded whole are the decode.
struct PhaseView {
  const Profile& profile;
  const Records& records;
  bool prefill = true;

  bool has(uint32_t token) const {
    return (token == 0) == prefill && token < records.tokens.size() &&
           records.tokens[token].complete;
  }
  uint32_t tokens() const;  // passes: 1, or the decoded tokens
  const EventName& name(uint16_t index) const { return profile.names[index]; }
  const DeviceFacts& device(uint8_t index) const { return profile.facts.devices[index]; }
};

Flow flow_of(const PhaseView& view, const Attribution& wall);
std::vector<OperatorRow> operators_of(const PhaseView& view, double wall);
// [layer], by programs of the layer; the last part is what lies between them.
struct LayerTimes {
  std::vector<std::string> parts;
  std::vector<std::vector<double>> total;      // [layer][part], over the phase
  std::vector<std::vector<double>> per_token;  // [layer][token]
};
LayerTimes layer_times(const PhaseView& view);

// What a profile comes to, in sentences, and what the names in it mean. Inside src/report only.

// "78 % of a decoded token is spent in the layers; …": where time went in the phase that most
// readers ask for, the decode where there is one.
std::string conclusion(const ProfileRun& run, const Summary& summary);

// The prompt and the answer, shortened to a line each; none where the profile does not have them.
std::vector<std::string> request_lines(const Profile& profile, const ProfileRun& run);

// "o_ffn: attention's output projection, then the feed-forward", for every name in the dataflow
// that is not plain English.
std::vector<std::string> name_lines(const Summary& summary);

}  // namespace tyto
