#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "check/perplexity.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxTextBytes = 256 << 20;

constexpr uint32_t kUsualWindow = 1024;
constexpr uint32_t kLlamaCppWindow = 512;  // llama-perplexity's own
constexpr uint32_t kLeastLlamaCppWindow = 4;
constexpr uint64_t kFewTokens = 500;  // scored; with fewer the standard error says little

struct PerplexityFlags {
  EngineChoice engine;
  std::string file;
  std::optional<uint32_t> window;
  std::optional<uint32_t> stride;
  std::string like;
  JsonFlag json;
};

uint32_t window_of(const PerplexityFlags& flags, Engine& engine, uint32_t usual) {
  return flags.window.value_or(std::min(usual, engine.pipeline().context()));
}

PerplexityTask own_task(const PerplexityFlags& flags, Engine& engine) {
  const uint32_t window = window_of(flags, engine, kUsualWindow);
  const uint32_t stride = flags.stride.value_or(std::max(1u, window / 2));
  if (stride > window)
    throw Error(ErrorCode::usage, fmt::format("--stride {}", stride),
                fmt::format("is more than the window of {} tokens", window),
                "give a smaller stride, or a larger window with -c");
  PerplexityTask task;
  task.tokens =
      engine.tokenizer().encode(as_text(text_from(flags.file, kMaxTextBytes), flags.file));
  if (task.tokens.size() < 3)
    fail_input(flags.file, "too short: {}", counted(task.tokens.size(), "token"));
  task.windows = overlapping_windows(task.tokens.size(), window, stride);
  task.cut = fmt::format("window {}, stride {}", window, stride);
  return task;
}

// Text and tokens as llama-perplexity -f has them: without the last line's end, and with the
// beginning-of-text token at the head of every window where the model wants one.
PerplexityTask llama_cpp_task(const PerplexityFlags& flags, Engine& engine) {
  const uint32_t window = window_of(flags, engine, kLlamaCppWindow);
  if (window < kLeastLlamaCppWindow)
    throw Error(ErrorCode::usage, fmt::format("-c {}", window),
                "leaves nothing to score in the second half of a window",
                fmt::format("give at least {}", kLeastLlamaCppWindow));
  std::string text = as_text(text_from(flags.file, kMaxTextBytes), flags.file);
  if (text.ends_with('\n')) text.pop_back();
  PerplexityTask task;
  task.tokens = engine.tokenizer().encode(text, {.add_eos = false});
  if (task.tokens.size() < 2 * size_t{window})
    throw Error(
        ErrorCode::input, flags.file,
        fmt::format("has {} tokens, fewer than two windows of {}", task.tokens.size(), window),
        "give a longer text, or a smaller window with -c");
  const Vocabulary& vocabulary = engine.tokenizer().vocabulary();
  if (vocabulary.add_bos && vocabulary.bos >= 0) task.first = vocabulary.bos;
  task.windows = llama_cpp_windows(task.tokens.size(), window);
  task.cut = fmt::format("{} of {}, last halves", counted(task.windows.size(), "window"), window);
  return task;
}

void perplexity(const PerplexityFlags& flags) {
  EngineOptions options = flags.engine.options;
  options.pipeline.forward.context = flags.window.value_or(0);
  Engine engine(options, progress_bar());
  const PerplexityTask task =
      flags.like.empty() ? own_task(flags, engine) : llama_cpp_task(flags, engine);
  Receipt receipt;
  const PerplexityScore result =
      score(engine.generator_from_nothing(), task, receipt, progress_bar());
  engine.check_required(receipt.phases);
  const double mean = result.mean(), value = result.perplexity();
  const double error = result.standard_error();
  const JsonValue json = {{"perplexity", value},
                          {"standard_error", error},
                          {"nll_per_token", mean},
                          {"tokens", result.tokens},
                          {"windows", task.windows.size()},
                          {"cut", task.cut},
                          {"model", engine.model().path.string()},
                          {"executed_on", execution_text(receipt)}};
  if (!flags.json.is_given() || !put_json(flags.json, json.dump(2) + "\n"))
    print_prose(fmt::format("perplexity {:.4f} ± {:.4f} over {} ({})\nnll {:.6f} per token\n",
                            value, error, counted(result.tokens, "token"), task.cut, mean));
  if (result.tokens < kFewTokens)
    note(
        fmt::format("{} {} too few to compare models: the error is {:.0f} % of the value; use a "
                    "text of several thousand tokens",
                    counted(result.tokens, "scored token"), result.tokens == 1 ? "is" : "are",
                    100 * error / value));
  note(executed_line(receipt));
}

}  // namespace

void define_perplexity(CommandLine& command) {
  PerplexityFlags& flags = command.values<PerplexityFlags>();
  add_engine_flags(command, flags.engine);
  command.remove("--context");  // room for one window is all that it needs
  command.add({
      {"-f,--file", &flags.file, "FILE", "the text; - reads it from stdin",
       Rules{.required = true}},
      {"-c,--context", &flags.window, "N",
       fmt::format("tokens per window (default: {}, {} with --like llama.cpp, at most the model's "
                   "context)",
                   kUsualWindow, kLlamaCppWindow),
       Rules{.range = Range{2, 1 << 30}, .alias = "--window"}},
      {"--stride", &flags.stride, "N", "tokens scored per window (default: half a window)",
       Rules{.range = Range{1, 1 << 30}, .excludes = {"--like"}}},
      {"--like", &flags.like, OneOf{"llama.cpp"},
       "score as llama-perplexity does: the second half of windows that do not overlap"},
  });
  add_json_flag(command, flags.json);
  command.footer =
      "Prints the perplexity and its standard error; lower is better. Compare only figures with "
      "the same window.\n\n"
      "Examples:\n  tyto perplexity -f text.txt\n"
      "  tyto perplexity -m model.gguf -f text.txt --like llama.cpp";
  command.first = {"--model",  "--file",    "--context", "--stride",  "--like",
                   "--device", "--require", "--threads", "--kv-type", "--lora"};
  command.run = [&command, &flags] {
    settle_engine(command, flags.engine);
    perplexity(flags);
  };
}

}  // namespace tyto
