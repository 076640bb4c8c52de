// Which neighbouring launches the CPU runs as one parallel loop: matrices, also of experts, that
// share their activations, and what is done element by element with their results. The results are
// the same bits; a token has fewer loops to start and to wait for.
#pragma once

#include <cstddef>
#include <span>

#include "device/cpu/operations.h"
#include "program/program.h"

namespace tyto::cpu {

constexpr size_t kMostFused = 3;

// How many launches from `first` on run together; 1: that one alone.
size_t fused_launches(const Program& program, size_t first);

// Runs as many launches as fused_launches() said, given in order.
void run_fused(std::span<const Operation> operations);

}  // namespace tyto::cpu
