// Receipts of requests, put together from what their sequences were counted.
#pragma once

#include "llama/pipeline.h"
#include "trace/receipt.h"
#include "trace/trace.h"

namespace tyto {

// Adds what the devices did for a sequence, what fell back, and the memory its pipeline took.
void add_execution(Receipt& receipt, const Sequence& sequence, const Pipeline& pipeline,
                   const Trace& trace);

// What fell back, of the engine and of the sequence.
void add_fallbacks(Receipt& receipt, const Sequence& sequence, const Trace& trace);

}  // namespace tyto
