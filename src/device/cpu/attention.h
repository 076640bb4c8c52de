// Attention over a KV cache: how queries and positions are shared among the threads.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"

namespace tyto::cpu {

// Causal attention of a call's tokens, the first of which stands at `position`.
struct Attention {
  const float* q;      // [tokens, heads, head_dim]
  const std::byte* k;  // [kv_heads, context, head_dim] of kv_type: f32, f16 or q8_0
  const std::byte* v;
  DType kv_type;
  size_t tokens;
  size_t position;
  size_t heads;
  size_t kv_heads;
  size_t head_dim;
  size_t context;
  float* y;  // [tokens, heads, head_dim]
};

void attend(const Attention& attention, ThreadPool& pool, const AttentionLoops& loops);

}  // namespace tyto::cpu
