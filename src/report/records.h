// A run's events put back together: dispatches with their parts and launches, tokens, host work.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/profile.h"

namespace tyto {

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

}  // namespace tyto
