#include <algorithm>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "llama/reference.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

struct EvalFlags {
  EngineChoice engine;
  std::string tokens;
  std::string prompt;
  bool special = false;
  std::string logits;
  bool force = false;
  bool reference = false;
};

void check_tokens(const std::vector<Token>& tokens, const Config& config) {
  if (tokens.empty()) fail_input("eval", "no tokens");
  for (Token token : tokens)
    if (static_cast<uint32_t>(token) >= config.vocab)
      fail_input("eval", "token {} is outside the vocabulary of {}", token, config.vocab);
}

Token argmax(std::span<const float> logits) {
  return static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void eval(const EvalFlags& flags) {
  AtomicFile file(flags.logits, replacing(flags.force));
  Engine engine(flags.engine.options, progress_bar());
  const Config& config = engine.model().config;
  const std::vector<Token> tokens =
      flags.tokens.empty()
          ? engine.tokenizer().encode(flags.prompt, {.parse_special = flags.special})
          : parse_tokens(flags.tokens, "--ids");
  check_tokens(tokens, config);
  engine.pipeline().check_room(0, tokens.size());

  Token last = -1;
  const auto write = [&](uint32_t, std::span<const float> logits) {
    file.write(std::as_bytes(logits));
    last = argmax(logits);
  };
  std::string executed_on = "the f32 reference";
  if (flags.reference) {
    Reference reference(engine.model());
    const Progress progress = progress_bar();
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (progress) progress("the reference computes", i, tokens.size());
      write(static_cast<uint32_t>(i), reference.forward(tokens[i]));
    }
  } else {
    const Receipt receipt =
        read_logits(engine.generator_from_nothing(), tokens, write, progress_bar());
    engine.check_required(receipt.phases);
    executed_on = execution_text(receipt);
  }
  file.commit();
  print_prose(
      fmt::format("{} positions x {} logits (f32, little endian, row-major) in {}; executed on {}; "
                  "best next token {}\n",
                  tokens.size(), config.vocab, flags.logits, executed_on, last));
  note("wrote " + flags.logits);
}

}  // namespace

void define_eval(CommandLine& command) {
  EvalFlags& flags = command.values<EvalFlags>();
  command.add({
      {"--ids", &flags.tokens, "IDS", "token ids, separated by commas",
       Rules{.alias = "--tokens", .excludes = {"--prompt"}}},
      {"--prompt", &flags.prompt, "TEXT", "text, used without a chat template",
       Rules{.may_be_empty = true}},
      {"--special", &flags.special, "read special tokens that the prompt spells out",
       Rules{.excludes = {"--ids"}}},
      {"--logits", &flags.logits, "FILE",
       "write the logits to FILE, as f32 [positions, vocabulary]", Rules{.required = true}},
      force_flag(flags.force, {"--logits"}),
      {"--reference", &flags.reference, "run the f32 reference instead of a device"},
  });
  add_engine_flags(command, flags.engine);
  command.footer =
      "Writes what the model predicts after every position, so that two engines can be compared "
      "number by number.\n\nExamples:\n"
      "  tyto eval --prompt 'Once upon a time' --logits out.f32\n"
      "  tyto eval -m model.gguf --ids 1,2,3 --logits ids.f32";
  command.first = {"--model",   "--prompt", "--ids",     "--logits",  "--force",   "--reference",
                   "--special", "--device", "--require", "--context", "--threads", "--kv-type"};
  command.run = [&command, &flags] {
    if (!command.is_given("--ids") && !command.is_given("--prompt"))
      throw Error(ErrorCode::usage, "tyto eval", "nothing to evaluate",
                  "give --ids 1,2,3 or --prompt TEXT");
    if (flags.reference && !flags.engine.options.require.empty())
      throw Error(ErrorCode::require, "--require " + flags.engine.options.require,
                  "the f32 reference is not a device", "leave out --reference");
    settle_engine(command, flags.engine);
    eval(flags);
  };
}

}  // namespace tyto
