#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "cli/bench/bench_tests.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/signals.h"
#include "cli/terminal.h"

namespace tyto {
namespace {

struct Command {
  const char* name;
  const char* summary;
  void (*define)(CommandLine& command);
};

constexpr Command kCommands[] = {
    {"run", "answer one prompt", define_run},
    {"chat", "talk with the model", define_chat},
    {"serve", "answer over HTTP: OpenAI's and Ollama's API, and a page", define_serve},
    {"tokenize", "show how text becomes tokens", define_tokenize},
    {"detokenize", "turn token ids back into text", define_detokenize},
    {"template", "render a conversation with a chat template", define_template},
    {"inspect", "show a model's config, tensors and memory needs", define_inspect},
    {"eval", "write the logits of every position to a file", define_eval},
    {"embed", "turn a text into one vector", define_embed},
    {"perplexity", "measure how well a model predicts a text", define_perplexity},
    {"bench", "measure prefill and decode speed, as llama-bench does", define_bench},
    {"results", "list, show, check and supersede what bench measured", define_results},
    {"receipt", "check what a receipt proves; make keys to sign with", define_receipt},
    {"power", "measure what a load uses above idle, per power rail", define_power},
    {"profile", "show where the time of a request goes", define_profile},
    {"verify", "check that a device computes what the reference does", define_verify},
    {"diagnose", "find the layer and step where a device goes wrong", define_diagnose},
    {"quantize", "convert a model to a GGUF of another type", define_quantize},
    {"synth", "write a random-weight model of a public shape", define_synth},
    {"doctor", "check this machine all the way down, with a fix for each fault", define_doctor},
    {"devices", "list the devices of this build and machine", define_devices},
    {"plan", "predict speed and memory on a machine with an NPU", define_plan},
    {"compile", "make NPU kernel images, or say how they are made", define_compile},
    {"kernels", "import, list, check and remove NPU kernel images", define_kernels},
};

constexpr const char* kFooter =
    "Models (-m): a GGUF file, a Hugging Face checkpoint folder, or a repo id already in the local "
    "Hugging Face cache.\nNothing is ever downloaded. Without -m the model that ships with Tyto is "
    "used.\n\n"
    "Exit codes: 0 done, 1 bad input or a failed device, 2 bad usage, 3 --require not satisfied.\n"
    "`tyto COMMAND --help` describes each command.";

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::usage:
      return 2;
    case ErrorCode::require:
      return 3;
    default:
      return 1;
  }
}

int report(const char* what, const std::string& hint, int code) {
  std::fprintf(stderr, "tyto: %s%s%s%s\n", printable_line(what).c_str(), hint.empty() ? "" : " (",
               hint.c_str(), hint.empty() ? "" : ")");
  return code;
}

std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> result(argv + std::min(argc, 1), argv + argc);
  if (!result.empty() && result.front() == "bench") result = spell_out_bench_flags(result);
  return result;
}

int parse_and_run(int argc, char** argv) {
  CommandLine program("tyto",
                      "Tyto runs Llama-family language models and says which device did the work.");
  program.version = std::string("tyto ") + TYTO_VERSION;
  program.footer = kFooter;
  for (const Command& command : kCommands)
    command.define(program.add_command(command.name, command.summary));
  const Invocation asked = parse(program, arguments(argc, argv));
  if (asked.kind == Invocation::Kind::help) {
    print(help_text(asked.path));
  } else if (asked.kind == Invocation::Kind::version) {
    print(program.version + "\n");
  } else if (&asked.command() == &program) {
    return report("no command", "see --help", 2);
  } else {
    asked.command().run();
  }
  return 0;
}

}  // namespace
}  // namespace tyto

int main(int argc, char** argv) {
  tyto::handle_signals();
  try {
    tyto::refuse_unknown_environment();
    return tyto::parse_and_run(argc, argv);
  } catch (const tyto::Error& error) {
    return tyto::report(error.what(), error.hint, tyto::exit_code(error.code));
  } catch (const std::bad_alloc&) {
    return tyto::report("out of memory", "", 1);
  } catch (const std::exception& error) {
    return tyto::report(error.what(), "", 1);
  }
}
