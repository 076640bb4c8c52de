// Attention over KV caches: how queries and positions are shared among the threads.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "device/cpu/inner_loops.h"
#include "program/program.h"

namespace tyto::cpu {

// Causal attention of a call's rows, each segment in its own sequence's cache.
struct Attention {
  const float* q;      // [rows, heads, head_dim]
  const std::byte* k;  // kv_type (f32, f16 or q8_0), laid out as `shape` says
  const std::byte* v;
  DType kv_type;
  std::span<const Segment> segments;
  const LaunchShape& shape;      // a page, where there are pages, is a multiple of kSplitPositions
  const float* sinks = nullptr;  // [heads]: logits that nothing is mixed for, or null
  float* y;                      // [rows, heads, head_dim]
};

void attend(const Attention& attention, ThreadPool& pool, const AttentionLoops& loops);

}  // namespace tyto::cpu
