// A profile as a value: what was recorded, and the facts around it. Every report is a function of
// it, and it can be saved and read back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/counters.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

struct DeviceFacts {
  std::string name;
  std::string tag;          // its kind: CPU, NPU, GPU
  std::string description;  // the hardware, and what drives it
  bool is_virtual = false;
  bool is_host = false;  // takes the steps that another device does not: its work is host work
  DeviceLimits peak;     // for shares of it; 0 where unknown
};

struct Facts {
  ReceiptContext origin;   // version, time, command, model file and hash, fusion, limits
  std::string model_name;  // "owlet", "Llama-3.2-1B"
  uint32_t layers = 0;
  uint32_t threads = 0;
  uint32_t context = 0;        // positions there is room for
  uint32_t prefill_chunk = 0;  // tokens per prefill dispatch
  std::string kv_type;
  std::string sampling;              // in words
  std::string prompt = {};           // as it was asked; empty: it was not kept
  std::vector<DeviceFacts> devices;  // events name them by index
};

// Times of a run are on one clock that begins with the request: wall time, in which submission to
// and wait for a virtual device have been replaced by its modelled time.
struct ProfileRun {
  std::vector<Event> events;
  uint64_t lost = 0;  // events that the recording had no room for
  Receipt receipt;
  std::string stopped;           // why generation ended
  std::string answer = {};       // its text; empty: it was not kept
  double simulated_seconds = 0;  // wall time spent in dispatches to virtual devices
};

// One row of a sweep over prompt lengths: a value per repetition.
struct SweepRow {
  uint32_t prompt_tokens = 0;
  uint32_t generated_tokens = 0;
  std::vector<double> prefill_s = {};
  std::vector<double> tpot_ms = {};
  Receipt receipt = {};   // from the last repetition
  std::string note = {};  // why there is nothing
};

struct Profile {
  Facts facts;
  std::vector<SetupSpan> setup;
  double setup_seconds = 0;
  std::vector<EventName> names;
  std::vector<ProfileRun> runs;
  std::vector<SweepRow> sweep;
};

// What `trace` recorded of one request, on the clock described above. Fills in the receipt's
// modelled seconds where a virtual device took part.
ProfileRun collect_run(const Trace& trace, const Receipt& receipt);

// From the pipeline's first run to the choice of the first token, and on to the last, by a run's
// events.
ModelledSeconds recorded_seconds(const std::vector<Event>& events);

uint64_t setup_begin(const Profile& profile);  // the earliest span's; 0 without spans
bool is_modelled(const Profile& profile);      // a virtual device is among its devices

}  // namespace tyto
