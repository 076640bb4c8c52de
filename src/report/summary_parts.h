// The parts of summarise(), one function per table. Inside src/report only.
#pragma once

#include <cstdint>

#include "report/records.h"
#include "report/summary.h"

namespace tyto {

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

}  // namespace tyto
