// Energy in words: J/token per rail and phase, or n/a with the reason.
#pragma once

#include <string>
#include <vector>

#include "power/energy_meter.h"
#include "trace/receipt.h"

namespace tyto {

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
