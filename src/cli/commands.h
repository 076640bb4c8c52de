// The commands of the program: one file each, one line in the table in program.cc.
#pragma once

#include <string>

namespace tyto {

struct ChatCommandFlags;
struct CommandLine;

// The whole command line as data: what main() parses, and what help, manual pages and completions
// are made of.
void define_program(CommandLine& program);

// Each says what its command takes (shell/command_line.h) and sets what it runs.
void define_run(CommandLine& command);
void define_pull(CommandLine& command);
void define_chat(CommandLine& command);
void define_tokenize(CommandLine& command);
void define_detokenize(CommandLine& command);
void define_template(CommandLine& command);
void define_models(CommandLine& command);
void define_inspect(CommandLine& command);
void define_quantize(CommandLine& command);
void define_eval(CommandLine& command);
void define_embed(CommandLine& command);
void define_perplexity(CommandLine& command);
void define_synth(CommandLine& command);
void define_bench(CommandLine& command);
void define_results(CommandLine& command);
void define_receipt(CommandLine& command);
void define_power(CommandLine& command);
void define_doctor(CommandLine& command);
void define_profile(CommandLine& command);
void define_verify(CommandLine& command);
void define_diagnose(CommandLine& command);
void define_devices(CommandLine& command);
void define_plan(CommandLine& command);
void define_serve(CommandLine& command);
void define_cache(CommandLine& command);
void define_kernels(CommandLine& command);
void define_compile(CommandLine& command);
void define_completions(CommandLine& command);
void define_manual(CommandLine& command);

// What commands do for others.

// `tyto chat`, which is also what `tyto run MODEL` becomes on a terminal: until the user leaves.
// `flags` change with what the user sets.
void talk(const CommandLine& command, ChatCommandFlags& flags);

// What `tyto doctor --json` says of this machine, for the server. Takes seconds and prints nothing.
std::string doctor_json();

}  // namespace tyto
