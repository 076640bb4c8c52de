// The commands of the program: one file each, one line in the table in main.cc.
#pragma once

#include <CLI/App.hpp>

namespace tyto {

struct Command {
  const char* name;
  const char* summary;
  void (*define)(CLI::App& command);  // adds options and sets the callback
};

void define_run(CLI::App& command);
void define_chat(CLI::App& command);
void define_tokenize(CLI::App& command);
void define_detokenize(CLI::App& command);
void define_template(CLI::App& command);
void define_inspect(CLI::App& command);
void define_quantize(CLI::App& command);
void define_eval(CLI::App& command);
void define_perplexity(CLI::App& command);
void define_synth(CLI::App& command);
void define_bench(CLI::App& command);
void define_results(CLI::App& command);
void define_power(CLI::App& command);
void define_doctor(CLI::App& command);
void define_profile(CLI::App& command);
void define_verify(CLI::App& command);
void define_diagnose(CLI::App& command);
void define_devices(CLI::App& command);
void define_plan(CLI::App& command);
void define_kernels(CLI::App& command);
void define_compile(CLI::App& command);

}  // namespace tyto
