#include <fmt/format.h>

#include "base/printable.h"
#include "cli/auto_device.h"
#include "cli/combination.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/evidence_flags.h"
#include "cli/flags.h"
#include "cli/output_file.h"
#include "cli/prompt.h"
#include "cli/prompt_cache.h"
#include "cli/provenance.h"
#include "cli/signals.h"
#include "cli/speculation_flags.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/grammar/constraint.h"
#include "trace/energy_meter.h"
#include "trace/energy_report.h"

namespace tyto {
namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  GrammarFlags grammar;
  SpeculationFlags speculation;
  PromptFlags prompt;
  PromptCacheFlags prompt_cache;
  std::string receipt;
  bool force = false;
  std::string sign;
  bool energy = false;
};

void show_receipt(Engine& engine, const EngineFlags& flags, const Answer& answer,
                  const Verification& verification) {
  const bool is_interrupted = answer.reason == StopReason::cancelled;
  note(fmt::format("ready in {:.0f} ms · {} · stopped at {}{}{}", engine.setup_seconds() * 1e3,
                   receipt_line(answer.receipt), is_interrupted ? "interrupt" : name(answer.reason),
                   identity_clause(engine.identity()), verified_clause(verification, flags)));
  if (!verification.warning.empty()) note("tyto: " + verification.warning);
  for (const std::string& line : energy_lines(answer.receipt)) note("energy · " + line);
}

// Shows the text as it comes, or leaves it in `held`. Ctrl-C ends the answer, not the program.
Answer answer_to(const Request& request, Engine& engine, Sampler& sampler, bool hold,
                 std::string& held) {
  const InterruptWatch interrupt;
  const auto show = [&](std::string_view piece) {
    const std::string text = only_text(piece);
    if (hold)
      held += text;
    else
      print(text);
    return !interrupt.is_interrupted();
  };
  const auto watch = [&, bar = progress_bar()](std::string_view what, uint64_t done,
                                               uint64_t total) {
    const bool ends = interrupt.is_interrupted() && done < total;
    if (bar) bar(what, ends ? total : done, total);  // a whole bar is taken away
    if (!ends) return;
    note("tyto: interrupted before the first token");
    throw Interrupted();
  };
  return generate(engine.generator(), sampler, request, show, watch);
}

void run(const CommandLine& command, RunFlags& flags) {
  const auto key = signing_key(flags.sign);  // before any work
  const auto grammar = read_grammar(flags.grammar);
  OutputFile receipt_file(flags.receipt, kReceiptFile, flags.force);
  PromptCache prompt_cache(flags.prompt_cache);
  read_prompt(command, flags.prompt);
  settle_device(flags.engine, {.prompt_tokens = about_tokens(flags.prompt.prompt.size()),
                               .generated_tokens = flags.sampling.max_tokens});
  Engine engine(engine_options(flags.engine), progress_bar());
  const OpenSpeculation speculation(flags.speculation, engine, flags.engine);
  prompt_cache.load(engine, flags.engine);
  const SamplerOptions sampling = sampler_options(flags.sampling, engine.model());
  Sampler sampler(sampling);
  const auto meter = energy_meter(flags.energy);
  Request request{.prompt = prompt_tokens(flags.prompt, engine),
                  .max_tokens = flags.sampling.max_tokens,
                  .stop = flags.sampling.stop,
                  .ignore_eos = flags.sampling.ignore_eos,
                  .speculation = speculation.begin_request(),
                  .energy = meter.get()};
  if (grammar)
    request.constraint = std::make_shared<Constraint>(
        grammar, std::make_shared<const TokenTrie>(engine.tokenizer()));

  // With --require, text is held until the receipt proves where it came from.
  std::string held;
  Answer answer = answer_to(request, engine, sampler, !flags.engine.require.empty(), held);
  engine.check_required(answer.receipt.phases);
  engine.complete(answer.receipt);
  print(held + "\n");
  const Verification verification = verification_of(combination_of(engine, flags.engine));
  if (receipt_file.is_wanted()) {
    ReceiptContext context = receipt_context(engine);
    context.key = key.get();
    context.verified = name(verification.state);
    context.verified_time = verification.time;
    receipt_file.write(receipt_json(answer.receipt, context));
  }
  if (sampling.temperature > 0) note(fmt::format("seed {}", sampling.seed));
  show_receipt(engine, flags.engine, answer, verification);
  prompt_cache.save(engine, request.prompt);
  if (answer.reason == StopReason::cancelled) throw Interrupted();
}

}  // namespace

void define_run(CommandLine& command) {
  RunFlags& flags = command.values<RunFlags>();
  add_prompt_flags(command, flags.prompt);
  add_prompt_cache_flags(command, flags.prompt_cache);
  add_engine_flags(command, flags.engine);
  add_energy_flag(command, flags.energy);
  add_sampling_flags(command, flags.sampling);
  add_grammar_flags(command, flags.grammar);
  add_speculation_flags(command, flags.speculation);
  command.add({{"--receipt", &flags.receipt, "FILE", "write the receipt as JSON"},
               force_flag(flags.force, {"--receipt"}),
               sign_flag(flags.sign)});
  command.footer =
      "The generated text alone goes to stdout; the receipt (tokens, speed, the devices that "
      "executed) goes to stderr. Control characters other than line breaks and tabs are left out "
      "of the text. Without a prompt, stdin is read; with one, it is not. Ctrl-C ends the answer: "
      "what there is of it stays, with its receipt, and the exit code is 130.\n\n"
      "Examples:\n"
      "  tyto run 'Tell me a story about a fox who finds a lamp.'\n"
      "  tyto run -m model.gguf 'Name three owls.' --temp 0 -n 100\n"
      "  cat notes.txt | tyto run -m ./Llama-3.2-1B-Instruct --system 'Summarise.'";
  command.run = [&command, &flags] {
    check_sign_flag(command, {"--receipt"});
    run(command, flags);
  };
}

}  // namespace tyto
