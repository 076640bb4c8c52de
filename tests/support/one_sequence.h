// A pipeline that runs one sequence, for tests that need no more.
#pragma once

#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "llama/pipeline.h"

namespace tyto::testing_support {

// The last `logits` rows of some tokens, or all hidden states, in passes as large as the pipeline
// takes.
inline void run_each(Pipeline& pipeline, Sequence& sequence, std::span<const Token> tokens,
                     uint32_t logits, const OnHidden* on_hidden,
                     const std::function<void(uint32_t, std::span<const float>)>& visit) {
  SequenceRows left{&sequence, tokens, logits, on_hidden, pipeline.side_for(tokens.size())};
  while (!left.tokens.empty()) {
    const uint32_t count = pipeline.next_rows(sequence.position(), left.tokens.size(), left.side);
    SequenceRows part = next_part(left, count);
    if (!pipeline.reserve(sequence, count)) throw std::runtime_error("no pages");
    const auto failures = pipeline.run({&part, 1}, [&](size_t, uint32_t behind, const Logits& row) {
      visit(part.end() - behind - 1, row);
    });
    if (!failures.empty()) throw failures.front().error;
  }
}

class OneSequence {
 public:
  // Model, devices and trace outlive it.
  OneSequence(const Model& model, std::span<Device* const> devices, const PipelineOptions& options,
              Trace& trace)
      : pipeline_(model, devices, options, trace), sequence_(pipeline_) {}

  std::span<const float> run(std::span<const Token> tokens) {
    return pipeline_.run(sequence_, tokens);
  }
  void run_all_logits(std::span<const Token> tokens,
                      const std::function<void(uint32_t, std::span<const float>)>& visit) {
    run_each(pipeline_, sequence_, tokens, static_cast<uint32_t>(tokens.size()), nullptr, visit);
  }
  void run_hidden(std::span<const Token> tokens, const OnHidden& visit) {
    run_each(pipeline_, sequence_, tokens, 0, &visit, {});
  }
  uint32_t position() const { return sequence_.position(); }
  void rewind(uint32_t position) { sequence_.rewind(position); }
  const std::vector<std::string>& recoveries() const { return sequence_.recoveries; }

  Pipeline& pipeline() { return pipeline_; }
  Sequence& sequence() { return sequence_; }
  const Forward& forward() const { return pipeline_.forward(); }

 private:
  Pipeline pipeline_;
  Sequence sequence_;
};

}  // namespace tyto::testing_support
