#include <fmt/format.h>

#include "base/error.h"
#include "base/utf8.h"
#include "check/combination.h"
#include "cli/answer_text.h"
#include "cli/chat/conversation.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "cli/prompt_cache.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "evidence/receipt_json.h"
#include "power/energy_meter.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/signals.h"
#include "shell/terminal.h"
#include "text/grammar/constraint.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

struct RunFlags {
  EngineChoice engine;
  SamplingFlags sampling;
  std::shared_ptr<const Grammar> grammar;
  SpeculationFlags speculation;
  PromptFlags prompt;
  PromptCacheFlags prompt_cache;
  std::string receipt;
  bool force = false;
  std::string sign;
  bool energy = false;
  bool verbose = false;
};

struct Told {
  const SamplerOptions& sampling;
  const std::string& cut;  // the answer was; empty: it was not
  const Combination& combination;
  const Verification& verification;
};

// Everything, for those who ask for it.
std::string full_receipt(Engine& engine, const EngineOptions& options, const Answer& answer,
                         const Told& told) {
  const bool is_interrupted = answer.reason == StopReason::cancelled;
  std::string line =
      fmt::format("ready in {:.0f} ms · {} · stopped at {}", engine.setup_seconds() * 1e3,
                  receipt_line(answer.receipt), is_interrupted ? "interrupt" : name(answer.reason));
  if (told.sampling.temperature > 0) line += fmt::format(" · seed {}", told.sampling.seed);
  return line + identity_clause(engine.identity()) + verified_clause(told.verification, options);
}

void show_receipt(Engine& engine, const RunFlags& flags, const Answer& answer, const Told& told) {
  end_answer_on_terminal();
  if (flags.verbose) {
    note(full_receipt(engine, flags.engine.options, answer, told), Ink::dim);
  } else {
    const bool is_interrupted = answer.reason == StopReason::cancelled;
    note(short_receipt_line(answer.receipt) + (is_interrupted ? " · stopped" : ""), Ink::dim);
    for (const std::string& line : trouble_lines(answer.receipt)) note(line);
  }
  if (!told.cut.empty()) note(told.cut);
  if (!flags.verbose) {
    const std::string sentence =
        verified_sentence(told.verification, told.combination, engine, flags.engine.options);
    if (!sentence.empty()) note(sentence);
  }
  if (!told.verification.warning.empty()) note("tyto: " + told.verification.warning);
  for (const std::string& line : energy_lines(answer.receipt)) note("energy · " + line);
}

struct HeldText {
  std::string shown, thought;
};

// Shows the text as it comes, or leaves it in `held`. Ctrl-C ends the answer, not the program.
Answer answer_to(Request request, Engine& engine, Sampler& sampler, AnswerText& text,
                 AnswerPrinter& printer, bool hold, HeldText& held) {
  const InterruptWatch interrupt;
  const auto show_piece = [&](const AnswerText::Piece& piece) {
    if (hold) {
      held.shown += piece.shown;
      held.thought += only_text(piece.thought);
    } else {
      if (!piece.thought.empty()) print_to_stderr(only_text(piece.thought));
      printer.show(piece.shown);
    }
  };
  const auto show = [&](std::string_view written) {
    show_piece(text.push(written));
    return !interrupt.is_interrupted();
  };
  request.progress = [&, bar = progress_bar()](std::string_view what, uint64_t done,
                                               uint64_t total) {
    const bool ends = interrupt.is_interrupted() && done < total;
    if (bar) bar(what, ends ? total : done, total);  // a whole bar is taken away
    if (!ends) return;
    note("tyto: interrupted before the first token");
    throw Interrupted();
  };
  Answer answer = generate(engine.generator(), sampler, std::move(request), show);
  show_piece(text.finish());
  return answer;
}

std::shared_ptr<Constraint> constraint_of(const std::shared_ptr<const Grammar>& grammar,
                                          const Tokenizer& tokenizer, const ModelPrompt& prompt) {
  AnswerPlace begin{.continues_text = prompt.continues_text};
  if (!prompt.chat.empty()) begin.thoughts = thoughts_ahead(tokenizer, prompt.chat);
  return std::make_shared<Constraint>(grammar, std::make_shared<const TokenTrie>(tokenizer),
                                      std::move(begin));
}

void run(const CommandLine& command, RunFlags& flags) {
  const auto key = signing_key(flags.sign);  // before any work
  OutputFile receipt_file(flags.receipt, kReceiptFile, flags.force);
  PromptCache prompt_cache(flags.prompt_cache);
  read_prompt(command, flags.prompt);
  const QuietTerminal quiet;
  settle_engine(command, flags.engine,
                {.prompt_tokens = about_tokens(flags.prompt.prompt.size()),
                 .generated_tokens = flags.sampling.max_tokens});
  const EngineOptions& options = flags.engine.options;
  Engine engine(options, progress_bar());
  const OpenSpeculation speculation(flags.speculation, engine, options);
  prompt_cache.load(engine, options);
  const SamplerOptions sampling = sampler_options(flags.sampling, engine.model());
  Sampler sampler(sampling);
  const auto meter = energy_meter(flags.energy);
  const Tokenizer& tokenizer = engine.tokenizer();
  note_idle_chat_flags(flags.prompt, engine);
  const ModelPrompt prompt = model_prompt(flags.prompt, engine);
  Request request{.prompt = prompt.tokens,
                  .max_tokens = flags.sampling.max_tokens,
                  .stop = flags.sampling.stop,
                  .ignore_eos = flags.sampling.ignore_eos,
                  .continues_text = prompt.continues_text,
                  .speculation = speculation.begin_request(),
                  .energy = meter.get()};
  if (!prompt.chat.empty()) request.shown_special = special_thought_markers(tokenizer);
  if (flags.grammar) request.constraint = constraint_of(flags.grammar, tokenizer, prompt);

  // With --require, text is held until the receipt proves where it came from.
  HeldText held;
  AnswerText text(tokenizer, prompt.chat, flags.grammar != nullptr);
  AnswerPrinter printer;
  Answer answer =
      answer_to(request, engine, sampler, text, printer, !options.require.empty(), held);
  engine.check_required(answer.receipt.phases);
  engine.complete(answer.receipt);
  if (!held.thought.empty()) print_to_stderr(held.thought);
  printer.show(held.shown);
  printer.end();
  const Combination combination = combination_of(engine, options, progress_bar());
  const Verification verification = verification_of(combination);
  if (receipt_file.is_wanted()) {
    ReceiptContext context = receipt_context(engine);
    context.key = key.get();
    context.verified = name(verification.state);
    context.verified_time = verification.time;
    receipt_file.write(receipt_json(answer.receipt, context));
  }
  const std::string cut =
      cut_off_text(answer.reason, answer.receipt.generated_tokens, engine.pipeline().context());
  show_receipt(engine, flags, answer, {sampling, cut, combination, verification});
  prompt_cache.save(engine, request.prompt);
  if (answer.reason == StopReason::cancelled) throw Interrupted();
  // What is not whole is of no use to the program that reads it.
  if (!cut.empty() && request.constraint && !request.constraint->is_complete())
    throw Error(ErrorCode::input, "the answer", "does not match the grammar or schema",
                "it was " + cut);
}

// A model was named and no prompt, on a terminal.
void chat_instead(const CommandLine& command, const RunFlags& flags) {
  refuse_idle_flags(command, "a chat (there is no prompt)", [](const Flag& flag) {
    const auto idle = {"--raw", "--receipt", "--energy"};
    return std::find(idle.begin(), idle.end(), flag.name()) == idle.end();
  });
  ChatCommandFlags chat{.engine = flags.engine,
                        .grammar = flags.grammar,
                        .chat = flags.prompt.chat,
                        .settings = {.sampling = flags.sampling, .verbose = flags.verbose},
                        .speculation = flags.speculation,
                        .prompt_cache = flags.prompt_cache};
  talk(command, chat);
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
  command.add({{"--receipt", &flags.receipt, "FILE", "write the receipt as JSON to FILE"},
               force_flag(flags.force, {"--receipt"}),
               sign_flag(flags.sign),
               {"-v,--verbose", &flags.verbose, "show the whole receipt"}});
  command.footer =
      "The answer goes to stdout, the rest to stderr. Without a prompt, stdin is read.\n\n"
      "Control characters other than line breaks and tabs are left out of the answer. Ctrl-C stops "
      "the answer: its text and its receipt stay, and the exit code is 130.\n\n"
      "Examples:\n"
      "  tyto run 'Tell me a story about a fox who finds a lamp.'\n"
      "  tyto run -n 60 --seed 7 'Tell me a story about a dog and a dragon.'\n"
      "  cat notes.txt | tyto run -m ./Llama-3.2-1B-Instruct --system 'Summarise.'";
  command.first = {"--model", "--prompt", "--file",        "--system",  "--tokens",  "--temp",
                   "--seed",  "--stop",   "--device",      "--context", "--threads", "--kv-type",
                   "--lora",  "--draft",  "--json-schema", "--require", "--receipt", "--verbose"};
  command.run = [&command, &flags] {
    check_sign_flag(command, {"--receipt"});
    settle_words(command, flags.prompt, flags.engine.options.model);
    wants_chat(command) ? chat_instead(command, flags) : run(command, flags);
  };
}

}  // namespace tyto
