// --speculate, --draft and --draft-max: whether tokens are guessed, by whom and how many at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cli/flags.h"
#include "engine/draft_model.h"

namespace tyto {

struct SpeculationFlags {
  std::string speculate = "off";
  std::string draft;  // a model; empty: none
  uint32_t draft_max = 8;
};
void add_speculation_flags(CommandLine& command, SpeculationFlags& flags);

// What the flags ask for, opened: the draft model, and who makes guesses for requests.
class OpenSpeculation {
 public:
  // `engine` outlives it.
  OpenSpeculation(const SpeculationFlags& flags, const Engine& engine,
                  const EngineFlags& engine_flags);

  // For Request::speculation, one for each; null where none is wanted.
  std::shared_ptr<Speculation> begin_request() const {
    return speculator_ ? speculator_->begin_request() : nullptr;
  }

 private:
  std::unique_ptr<Engine> draft_;
  std::unique_ptr<Speculator> speculator_;
};

}  // namespace tyto
