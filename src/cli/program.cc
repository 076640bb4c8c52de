#include "cli/program.h"

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/provenance.h"

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
    {"models", "list the models on this machine, and which of them run", define_models},
    {"pull", "fetch a model from a hub into the Hugging Face cache", define_pull},
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
    {"plan", "say what a model gives here: the cpu measured, an NPU modelled", define_plan},
    {"compile", "make NPU kernel images, or say how they are made", define_compile},
    {"kernels", "import, list, check and remove NPU kernel images", define_kernels},
    {"cache", "keep weights packed, so that a model is ready sooner", define_cache},
    {"completions", "print a script that completes commands in a shell", define_completions},
    {"manual", "print a page of the manual", define_manual},
};

constexpr const char* kSummary =
    "Tyto runs Llama-family language models and says which device did the work.";
constexpr const char* kFooter =
    "Models (-m): a GGUF file, a Hugging Face checkpoint folder, or a name that `tyto models` "
    "lists: org/repo, ollama:NAME. Only `tyto pull` downloads. Without -m the model that ships "
    "with Tyto is "
    "used.\n\n"
    "Exit codes: 0 done, 1 bad input or a failed device, 2 bad usage, 3 --require not satisfied, "
    "130 Ctrl-C.\n"
    "`tyto COMMAND --help` describes each command.";

}  // namespace

void define_program(CommandLine& program) {
  program.summary = kSummary;
  program.version = version_text();
  program.footer = kFooter;
  for (const Command& command : kCommands)
    command.define(program.add_command(command.name, command.summary));
}

}  // namespace tyto
