#include "base/error.h"
#include "base/json_value.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "shell/command_line.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

struct EmbedFlags {
  EngineChoice engine;
  std::string text, prompt;
  bool special = false;
};

void run_embed(const CommandLine& command, EmbedFlags& flags, const std::string& text) {
  if (text.empty()) throw Error(ErrorCode::usage, "tyto embed", "the text is empty");
  settle_engine(command, flags.engine,
                {.prompt_tokens = about_tokens(text.size()), .generated_tokens = 0});
  Engine engine(flags.engine.options, progress_bar());
  const auto tokens = engine.tokenizer().encode(text, {.parse_special = flags.special});
  const Embedding embedding = embed(engine.generator(), tokens, progress_bar());
  engine.check_required(embedding.receipt.phases);
  print(JsonValue(embedding.values).dump() + "\n");
  note(executed_line(embedding.receipt));
}

}  // namespace

void define_embed(CommandLine& command) {
  EmbedFlags& flags = command.values<EmbedFlags>();
  command.add({
      {"text", &flags.text, "TEXT", "the text, in quotes; - reads it from stdin",
       Rules{.may_be_empty = true, .text_kind = "text", .excludes = {"--prompt"}}},
      {"-p,--prompt", &flags.prompt, "TEXT", "the text, which may begin with a dash",
       Rules{.may_be_empty = true}},
      {"--special", &flags.special, "read special tokens that the text spells out"},
  });
  add_engine_flags(command, flags.engine);
  command.footer =
      "Prints a JSON array of length 1: the mean of the hidden states after the final norm. The "
      "dot product of two arrays is the cosine of the two texts.\n\nExamples:\n"
      "  tyto embed 'The owl hunts at night.'\n"
      "  tyto embed -m model.gguf 'A fox finds a lamp.' > fox.json";
  command.first = {"--model",   "--prompt",  "--special", "--device",
                   "--require", "--context", "--threads"};
  command.run = [&command, &flags] { run_embed(command, flags, given_text(command, "--prompt")); };
}

}  // namespace tyto
