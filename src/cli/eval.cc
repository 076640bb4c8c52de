#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "llama/reference.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

struct EvalFlags {
  EngineFlags engine;
  std::string tokens;
  std::string prompt;
  std::string logits;
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
  Engine engine(engine_options(flags.engine), progress_bar());
  const Config& config = engine.model().config;
  const std::vector<Token> tokens = flags.tokens.empty() ? engine.tokenizer().encode(flags.prompt)
                                                         : parse_tokens(flags.tokens, "--tokens");
  check_tokens(tokens, config);

  AtomicFile file(flags.logits);
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
      write(static_cast<uint32_t>(i), reference.forward(tokens[i]));
      if (progress) progress("reference", i + 1, tokens.size());
    }
  } else {
    const auto before = engine.trace().snapshot();
    engine.pipeline().run_all_logits(tokens, write, progress_bar());
    const auto executed = window(before, engine.trace().snapshot());
    engine.check_required({.prefill = executed, .decode = {}});
    executed_on = device_names(executed);
  }
  file.commit();
  print(
      fmt::format("{} positions x {} logits (f32, little endian, row-major) in {}; executed on {}; "
                  "best next token {}\n",
                  tokens.size(), config.vocab, flags.logits, executed_on, last));
}

}  // namespace

void define_eval(CLI::App& command) {
  auto flags = std::make_shared<EvalFlags>();
  auto* tokens = command.add_option("--tokens", flags->tokens, "token ids, separated by commas")
                     ->type_name("IDS");
  auto* prompt =
      command.add_option("--prompt", flags->prompt, "text, tokenized as it is")->type_name("TEXT");
  tokens->excludes(prompt);
  command.add_option("--logits", flags->logits, "file to write, f32 [positions, vocab]")
      ->type_name("FILE")
      ->required();
  command.add_flag("--reference", flags->reference, "use the plain f32 reference, not a device");
  add_engine_flags(command, flags->engine);
  command.footer(
      "Writes what the model predicts after every position, so that two engines can be compared "
      "number by number.\n\nExample:\n  tyto eval -m model.gguf --tokens 1,2,3 --logits out.f32");
  command.callback([flags, tokens, prompt] {
    if (tokens->count() + prompt->count() == 0)
      throw Error(ErrorCode::usage, "eval", "nothing to evaluate",
                  "give --tokens 1,2,3 or --prompt TEXT");
    eval(*flags);
  });
}

}  // namespace tyto
