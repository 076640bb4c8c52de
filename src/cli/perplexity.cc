#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "engine/engine.h"
#include "engine/receipt.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxTextBytes = 256 << 20;

struct PerplexityFlags {
  EngineFlags engine;
  std::string file;
  uint32_t window = 1024;
  uint32_t stride = 512;
};

// -log p(token), with the normaliser in double.
double surprise(std::span<const float> logits, Token token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double total = 0;
  for (float logit : logits) total += std::exp(static_cast<double>(logit) - largest);
  return std::log(total) + largest - logits[static_cast<size_t>(token)];
}

struct Score {
  uint64_t tokens = 0;
  double sum = 0;
  double squares = 0;
  void add(double value) {
    ++tokens;
    sum += value;
    squares += value * value;
  }
};

// Windows overlap: every token but the first is predicted once, from at least window - stride
// tokens before it where the text has them.
Score score(Pipeline& pipeline, Sequence& sequence, const std::vector<Token>& tokens,
            const PerplexityFlags& flags) {
  Score result;
  const Progress progress = progress_bar();
  size_t scored_to = 1;  // tokens[0] has nothing before it
  for (size_t begin = 0; scored_to < tokens.size(); begin += flags.stride) {
    const size_t end = std::min(begin + flags.window, tokens.size());
    sequence.rewind(0);
    pipeline.run_all_logits(sequence, std::span(tokens).subspan(begin, end - begin),
                            [&](uint32_t position, std::span<const float> logits) {
                              const size_t next = begin + position + 1;
                              if (next >= scored_to && next < end)
                                result.add(surprise(logits, tokens[next]));
                            });
    scored_to = end;
    if (progress) progress("perplexity", end, tokens.size());
  }
  return result;
}

void perplexity(const PerplexityFlags& flags) {
  EngineOptions options = engine_options(flags.engine);
  Engine engine(options, progress_bar());
  if (flags.stride == 0 || flags.stride > flags.window ||
      flags.window > engine.pipeline().context())
    throw Error(ErrorCode::usage, "--window/--stride",
                fmt::format("need 1 <= stride <= window <= {}", engine.pipeline().context()));
  const auto tokens = engine.tokenizer().encode(read_text_file(flags.file, kMaxTextBytes));
  if (tokens.size() < 3) fail_input(flags.file, "too short: {} tokens", tokens.size());
  Sequence sequence(engine.pipeline());
  const Score result = score(engine.pipeline(), sequence, tokens, flags);
  engine.check_required(sequence.executed);
  const auto count = static_cast<double>(result.tokens);
  const double mean = result.sum / count;
  const double variance = std::max(0.0, result.squares / count - mean * mean);
  const double value = std::exp(mean);
  print(fmt::format(
      "perplexity {:.4f} +- {:.4f} over {} tokens (window {}, stride {}), nll {:.6f}\n", value,
      value * std::sqrt(variance / count), result.tokens, flags.window, flags.stride, mean));
  Receipt receipt;
  add_execution(receipt, sequence, engine.pipeline(), engine.trace());
  note(executed_line(receipt));
}

}  // namespace

void define_perplexity(CommandLine& command) {
  PerplexityFlags& flags = command.values<PerplexityFlags>();
  command.add({
      {"-f,--file", &flags.file, "FILE", "the text", Rules{.required = true}},
      {"--window", &flags.window, "N", "tokens seen at once", Rules{.shows_default = true}},
      {"--stride", &flags.stride, "N", "tokens scored per window", Rules{.shows_default = true}},
  });
  add_engine_flags(command, flags.engine);
  command.footer =
      "Prints exp of the mean negative log-likelihood and its standard error; lower is better.\n\n"
      "Example:\n  tyto perplexity -f text.txt";
  command.run = [&flags] { perplexity(flags); };
}

}  // namespace tyto
