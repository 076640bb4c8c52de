#include "engine/generate.h"

#include <exception>
#include <optional>
#include <utility>

#include "engine/scheduler.h"

namespace tyto {
namespace {

// A scheduler with one job, which no other waits for.
Outcome run_alone(const Generator& with, Sampler& sampler, Request request,
                  const OnToken& on_token) {
  Scheduler scheduler(with, {.most_running = 1, .most_waiting = 1, .cuts_prompts = false});
  std::optional<Outcome> outcome;
  std::exception_ptr thrown;  // by a callback: the job ends in good order first
  Job::Id id = 0;
  request.is_recorded = true;
  if (request.progress)
    request.progress = [&, show = std::move(request.progress)](std::string_view what, uint64_t done,
                                                               uint64_t total) {
      try {
        show(what, done, total);
      } catch (...) {
        thrown = std::current_exception();
        scheduler.cancel(id);
      }
    };
  id = scheduler.add(
      std::move(request), sampler,
      [&](const ChosenToken& chosen) {
        try {
          return on_token(chosen);
        } catch (...) {
          thrown = std::current_exception();
          return false;
        }
      },
      [&](Job::Id, Outcome ended) { outcome = std::move(ended); });
  while (!outcome) scheduler.step();
  if (thrown) std::rethrow_exception(thrown);
  if (outcome->error) throw *outcome->error;
  outcome->answer.receipt.queue_seconds = 0;  // there was no queue
  return std::move(*outcome);
}

}  // namespace

Answer generate(const Generator& with, Sampler& sampler, Request request, const OnText& on_text) {
  Outcome outcome = run_alone(with, sampler, std::move(request),
                              [&](const ChosenToken& chosen) { return on_text(chosen.text); });
  if (!outcome.rest.empty()) on_text(outcome.rest);
  return std::move(outcome.answer);
}

Answer generate_tokens(const Generator& with, Sampler& sampler, Request request,
                       const OnToken& on_token) {
  return run_alone(with, sampler, std::move(request), on_token).answer;
}

Embedding embed(const Generator& with, std::span<const Token> tokens, const Progress& progress) {
  Sampler unused({.temperature = 0});
  Outcome outcome = run_alone(with, unused,
                              {.prompt = {tokens.begin(), tokens.end()},
                               .stop = {},
                               .progress = progress,
                               .wanted = Wanted::embedding},
                              [](const ChosenToken&) { return true; });
  return {std::move(outcome.embedding), std::move(outcome.answer.receipt)};
}

Receipt read_logits(const Generator& with, std::span<const Token> tokens, const OnPosition& visit,
                    const Progress& progress) {
  Sampler unused({.temperature = 0});
  return run_alone(with, unused,
                   {.prompt = {tokens.begin(), tokens.end()},
                    .stop = {},
                    .progress = progress,
                    .wants_all_logits = true,
                    .wanted = Wanted::all_logits,
                    .on_logits = visit},
                   [](const ChosenToken&) { return true; })
      .answer.receipt;
}

}  // namespace tyto
