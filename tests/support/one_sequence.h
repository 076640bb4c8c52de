// A pipeline that runs one sequence, for tests that need no more.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "llama/pipeline.h"

namespace tyto::testing_support {

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
    pipeline_.run_all_logits(sequence_, tokens, visit);
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
