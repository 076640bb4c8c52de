// What a recording calls the steps between the runs of the pipeline, whichever loop takes them.
#pragma once

#include <cstdint>

#include "trace/span.h"

namespace tyto {

struct HostOps {
  explicit HostOps(Trace& recorder)
      : trace(recorder),
        sample(recorder.name({.label = "sample"})),
        detokenize(recorder.name({.label = "detokenize"})),
        output(recorder.name({.label = "output"})),
        guess(recorder.name({.label = "guess"})) {}

  template <typename Function>
  auto timed(uint16_t name, const Function& function) const {
    Span span(trace, EventKind::host, name);
    return function();
  }

  Trace& trace;
  uint16_t sample;
  uint16_t detokenize;
  uint16_t output;
  uint16_t guess;
};

}  // namespace tyto
