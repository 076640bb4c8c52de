// A Program as a GPU runs it: dispatches of kernels with their arguments, ready to be recorded.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "device/vulkan/pipelines.h"
#include "program/launch_names.h"
#include "program/program.h"

namespace tyto::vulkan {

// What an address among a kernel's arguments is of: a slot of the program; from its number of slots
// on, a temporary of the lowering; or one of these.
using Operand = uint32_t;
constexpr Operand kNothing = UINT32_MAX;       // address 0
constexpr Operand kCallData = UINT32_MAX - 1;  // device/vulkan/call_data.h

struct Dispatch {
  PipelineKey kernel;
  std::vector<Operand> operands = {};  // addresses, in the order of the kernel's push constants
  std::vector<uint32_t> values = {};   // after them
  std::array<uint32_t, 3> groups = {1, 1, 1};
  std::vector<Operand> writes = {};  // of the operands; the others are read
  LaunchGroup launches = {};         // of the program, that it computes or takes part in
};

// What a recording is made for: the kernels and their grids depend on no more.
struct CallForm {
  uint32_t rows = 1;             // as many as the kernels can take; the call may have fewer
  bool has_single_rows = false;  // every segment is one row
  uint32_t tiles = 1;            // of prompt attention
  auto operator<=>(const CallForm&) const = default;
};

struct Lowered {
  std::vector<Dispatch> dispatches;
  std::vector<uint64_t> temporaries;  // bytes of each, zeroed when it is allocated
};

// The kernels of few rows read each weight once for all of them; those of many rows are products of
// matrices.
constexpr uint32_t kFewRows = 16;

// How many rows kernels for a call of `rows` rows take.
uint32_t row_bucket(uint32_t rows);

struct GpuFacts;

// Nothing when a launch can run on a GPU, else the reason.
std::optional<std::string> why_not(const Program& program, const Launch& launch);

Lowered lower(const Program& program, const CallForm& form, const GpuFacts& gpu);

}  // namespace tyto::vulkan
