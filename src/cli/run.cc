#include <CLI/CLI.hpp>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "engine/generate.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxPromptBytes = 64 << 20;

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  ChatFlags chat;
  std::string prompt;
  std::string prompt_file;
  bool raw = false;
};

std::string prompt_text(const RunFlags& flags) {
  if (!flags.prompt_file.empty()) return read_text_file(flags.prompt_file, kMaxPromptBytes);
  return flags.prompt == "-" ? read_stdin() : flags.prompt;
}

std::vector<Token> prompt_tokens(const RunFlags& flags, const Engine& engine) {
  const std::string text = prompt_text(flags);
  if (text.empty()) fail_input("prompt", "is empty");
  const Tokenizer& tokenizer = engine.tokenizer();
  if (flags.raw) return tokenizer.encode(text);
  const ChatTemplate chat_template = choose_chat_template(
      tokenizer.vocabulary(), flags.chat.chat_template, engine.model().path.string());
  std::vector<ChatMessage> messages;
  if (!flags.chat.system.empty()) messages.push_back({"system", flags.chat.system});
  messages.push_back({"user", text});
  return encode_chat(tokenizer, chat_template, messages);
}

void run(const RunFlags& flags) {
  Engine engine(engine_options(flags.engine), progress_bar());
  const SamplerOptions sampling = sampler_options(flags.sampling, engine.model());
  Sampler sampler(sampling);
  const Request request{.prompt = prompt_tokens(flags, engine),
                        .max_tokens = flags.sampling.max_tokens,
                        .stop = flags.sampling.stop,
                        .ignore_eos = flags.sampling.ignore_eos};

  // With --require, text is held until the receipt proves where it came from.
  std::string held;
  const bool hold = !flags.engine.require.empty();
  const auto show = [&](std::string_view text) {
    if (hold)
      held += text;
    else
      print(text);
    return true;
  };
  const Answer answer = generate(engine.tokenizer(), engine.pipeline(), sampler, request,
                                 engine.trace(), show, progress_bar());
  engine.check_required(answer.receipt.devices);
  print(held + "\n");
  if (sampling.temperature > 0) note(fmt::format("seed {}", sampling.seed));
  note(fmt::format("ready in {:.0f} ms · {} · stopped at {}", engine.setup_seconds() * 1e3,
                   receipt_line(answer.receipt), name(answer.reason)));
}

}  // namespace

void define_run(CLI::App& command) {
  auto flags = std::make_shared<RunFlags>();
  auto* prompt = command.add_option("-p,--prompt", flags->prompt, "what to say; - reads stdin");
  auto* file = command.add_option("-f,--file", flags->prompt_file, "read the prompt from a file");
  prompt->type_name("TEXT")->excludes(file);
  file->type_name("FILE");
  auto* raw =
      command.add_flag("--raw", flags->raw, "give the prompt as it is, without a chat template");
  add_chat_flags(command, flags->chat);
  raw->excludes("--system")->excludes("--chat-template");
  add_engine_flags(command, flags->engine);
  add_sampling_flags(command, flags->sampling);
  command.footer(
      "The generated text alone goes to stdout; the receipt (tokens, speed, the devices that "
      "executed) goes to stderr.\n\n"
      "Examples:\n"
      "  tyto run -p 'Tell me a story about a fox who finds a lamp.'\n"
      "  tyto run -m model.gguf -p 'Name three owls.' --temp 0 -n 100\n"
      "  cat notes.txt | tyto run -m ./Llama-3.2-1B-Instruct -p - --system 'Summarise.'");
  command.callback([flags, prompt, file] {
    if (prompt->count() + file->count() == 0)
      throw Error(ErrorCode::usage, "run", "no prompt", "give one with -p TEXT or -f FILE");
    run(*flags);
  });
}

}  // namespace tyto
