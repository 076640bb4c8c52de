// Host memory that a kernel set locks for the device.
#pragma once

#include <cstdint>

#include "plan/air_images.h"

namespace tyto {

uint64_t layer_values(const Config& config);  // of all matrices of all layers
// Of f16 caches: whole ones, as devices have them in one piece;
uint64_t kv_bytes(const Config& config, uint64_t positions);
// what a token reads, of layers with a window no more than that;
uint64_t attended_kv_bytes(const Config& config, uint64_t positions);
// and what is kept of one sequence where pages behind a window are given back (KvWindow).
uint64_t kept_kv_bytes(const Config& config, uint64_t positions);
uint64_t q4nx_weight_bytes(const Config& config);  // streamed per token by the fused decode

// What the published host allocates besides weights for images of `rows`.
uint64_t prefill_scratch_bytes(const Config& config, uint64_t rows);

uint64_t bf16_block_pinned(const Config& config, uint64_t rows, PlanHost host);
// `window`: the largest that the decode is built for.
uint64_t q4nx_token_pinned(const Config& config, uint64_t rows, uint64_t window, PlanHost host);

}  // namespace tyto
