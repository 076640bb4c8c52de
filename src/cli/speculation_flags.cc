#include "cli/speculation_flags.h"

#include "shell/command_line.h"
#include "shell/terminal.h"

namespace tyto {

void add_speculation_flags(CommandLine& command, SpeculationFlags& flags) {
  command.add(
      "Speculation",
      {{"--speculate", &flags.speculate, OneOf{"lookup", "off"},
        "draft tokens by looking up earlier occurrences of the last words; answers stay "
        "the same",
        Rules{.shows_default = true, .excludes = {"--draft"}}},
       {"--draft", &flags.draft, "MODEL", "small model that drafts tokens (same vocabulary)"},
       {"--draft-max", &flags.draft_max, "N", "draft at most N tokens at once",
        Rules{.range = Range{1, kMostGuesses},
              .shows_default = true,
              .needs_one_of = {"--speculate", "--draft"}}}});
}

OpenSpeculation::OpenSpeculation(const SpeculationFlags& flags, const Engine& engine,
                                 const EngineFlags& engine_flags) {
  if (!flags.draft.empty()) {
    draft_ = open_draft(flags.draft, engine, engine_options(engine_flags), progress_bar());
    speculator_ = std::make_unique<Speculator>(
        flags.draft, [draft = draft_.get()] { return model_drafter(*draft); }, flags.draft_max);
  } else if (flags.speculate == "lookup") {
    speculator_ = std::make_unique<Speculator>("lookup", lookup_drafter, flags.draft_max);
  }
}

}  // namespace tyto
