#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "bench/bench_tests.h"
#include "cli/commands.h"
#include "cli/provenance.h"
#include "doctor/probe.h"
#include "shell/command_line.h"
#include "shell/help.h"
#include "shell/progress.h"
#include "shell/signals.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

int exit_code(ErrorCode code) {
  return code == ErrorCode::usage ? 2 : code == ErrorCode::require ? 3 : 1;
}

// A command that is named first says already whose message it is: "tyto run: no prompt".
int report(const char* what, const std::string& hint, int code) {
  erase_progress();
  std::string line = printable_line(what);
  if (!line.starts_with("tyto ")) line = "tyto: " + line;
  if (!hint.empty()) line += " (" + with_documents_found(hint) + ")";
  const size_t columns = stderr_columns();
  if (columns > 0) line = joined(wrapped_lines(line, columns), "\n");
  std::fprintf(stderr, "%s\n", line.c_str());
  return code;
}

// Lines that are much longer are hard to read.
size_t help_width() {
  constexpr size_t kLeast = 60, kMost = 100;
  const size_t width = stdout_style().width;
  return width == 0 ? kUsualHelpWidth : std::clamp(width, kLeast, kMost);
}

std::vector<std::string> arguments(int argc, char** argv) {
  std::vector<std::string> result(argv + std::min(argc, 1), argv + argc);
  if (!result.empty() && result.front() == "bench") result = spell_out_bench_flags(result);
  return result;
}

int parse_and_run(int argc, char** argv) {
  CommandLine program("tyto", "");
  define_program(program);
  const Invocation asked = parse(program, arguments(argc, argv));
  record_command_line(asked.path, argc, argv);
  const bool is_bare = asked.kind == Invocation::Kind::run && &asked.command() == &program;
  if (asked.kind == Invocation::Kind::help || is_bare) {
    print(help_text(asked.path, help_width()));
  } else if (asked.kind == Invocation::Kind::whole_help) {
    print(help_text(asked.path, help_width(), HelpSize::whole));
  } else if (asked.kind == Invocation::Kind::version) {
    print(program.version + "\n");
  } else {
    asked.command().run();
    erase_progress();
  }
  return 0;
}

}  // namespace
}  // namespace tyto

int main(int argc, char** argv) {
  tyto::list_gpus_if_asked(argc, argv);
  tyto::hold_closed_streams();
  tyto::handle_signals();
  try {
    tyto::refuse_unknown_environment();
    return tyto::parse_and_run(argc, argv);
  } catch (const tyto::Interrupted&) {
    return tyto::kInterruptedExitCode;
  } catch (const tyto::Error& error) {
    return tyto::report(error.what(), error.hint, tyto::exit_code(error.code));
  } catch (const std::bad_alloc&) {
    return tyto::report("out of memory", "", 1);
  } catch (const std::exception& error) {
    return tyto::report(error.what(), "", 1);
  }
}
