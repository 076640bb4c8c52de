// A request recorded, and the profile around it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "engine/sampler.h"
#include "llama/pipeline.h"
#include "trace/profile.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

// Where tokens are guessed a call has more to tell.
enum class Decoding { plain, speculative };
// The most events that a prompt and its answer leave behind.
size_t recorded_events(const Pipeline& pipeline, size_t prompt, size_t most_tokens,
                       Decoding decoding);
// 64 bytes each: a recording takes at most half a GiB.
inline constexpr size_t kMostRecordedEvents = size_t{8} << 20;
void start_recording(Trace& trace, size_t events);
// Makes room for them all and begins; a recording that was not enough says how much it lost.
void start_recording(Engine& engine, size_t prompt, size_t most_tokens,
                     Decoding decoding = Decoding::plain);

// Where shares of the cpu's peak come from: measuring takes the machine for a while.
enum class PeakSource { measured, unknown };

// Everything of a profile but its runs, names and origin.
Profile profile_of(Engine& engine, const SamplerOptions& sampling, PeakSource peak);

// For measuring: speed does not depend on which tokens these are, and they are always the same.
std::vector<Token> made_up_tokens(uint32_t count, uint32_t vocab);

// Requests of `prompt_tokens` made-up tokens, each recorded: their seconds and the last receipt. A
// request that does not fit the context leaves a note instead.
SweepRow record_sweep_row(Engine& engine, uint32_t prompt_tokens, uint32_t most_tokens,
                          uint32_t repetitions);

// Receipts of requests, put together from what their sequences were counted.

// Adds what the devices did for a sequence, what fell back, and the memory its pipeline took.
void add_execution(Receipt& receipt, const Sequence& sequence, const Pipeline& pipeline,
                   const Trace& trace);

// What fell back, of the engine and of the sequence.
void add_fallbacks(Receipt& receipt, const Sequence& sequence, const Trace& trace);

}  // namespace tyto
