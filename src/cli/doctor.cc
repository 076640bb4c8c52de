// doctor: everything between the processor and a dispatch, each with a verdict and a way out.
#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/provenance.h"
#include "doctor/checks.h"
#include "doctor/doctor.h"
#include "engine/engine.h"
#include "evidence/receipt_json.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/help.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

constexpr size_t kPipeWidth = 100;  // what it says is sent to others

struct DoctorFlags {
  std::string model;
  JsonFlag json;
  std::string root = "/";
  std::string report;
};

CalibrationFacts look_at_calibration() try {
  const CalibrationHere here = calibration_here();
  return {.measured = here.calibration ? summary(*here.calibration) : "",
          .problem = here.why_ignored};
} catch (const Error& error) {  // the environment does not say where the cache is
  return {.measured = "", .problem = error.what()};
}

SystemFacts look_for(const DoctorFlags& flags) {
  DoctorOptions options{.root = flags.root, .model = flags.model, .announce = announce};
  if (flags.root == "/") options.calibration = look_at_calibration();
  return look(options);
}

// A few tokens on the device; the report has their receipt.
JsonValue short_run(const std::string& device, const std::string& model) {
  constexpr const char* kPrompt = "Tell me a story about a fox who finds a lamp.";
  constexpr uint32_t kTokens = 16;
  announce(fmt::format("running a few tokens on {}", device));
  EngineOptions options;
  options.model = model;
  options.device = device;
  Engine engine(options);
  Sampler sampler({.temperature = 0});
  Request request;
  request.prompt = engine.tokenizer().encode(kPrompt);
  request.max_tokens = kTokens;
  request.ignore_eos = true;
  Answer answer =
      generate(engine.generator(), sampler, request, [](std::string_view) { return true; });
  engine.complete(answer.receipt);
  return receipt_fields(answer.receipt, receipt_context(engine));
}

JsonValue program_json() {
  const BuildFacts built = build_facts();
  return {{"version", TYTO_VERSION},
          {"commit", built.commit},
          {"compiler", built.compiler},
          {"build_type", built.build_type},
          {"instruction_sets", built.instruction_sets},
          {"xrt", built.xrt},
          {"libraries", built.libraries}};
}

std::string summary(const std::vector<Check>& checks) {
  const auto failures = std::count_if(checks.begin(), checks.end(), [](const Check& check) {
    return check.state == CheckState::fail;
  });
  const Check* first = first_to_repair(checks);
  if (first == nullptr) return "Everything works.";
  if (failures == 0 && first->detail.starts_with("none"))
    return fmt::format("Everything works. No {} was found; {}.", first->name, first->fix);
  if (failures == 0)
    return fmt::format("Everything works. It could work better, {}: {}", first->name, first->fix);
  return fmt::format("{} broken. Do this first, {}: {}", failures, first->name, first->fix);
}

// Checks that were skipped for the same reason are one row.
std::vector<Check> shortened(std::span<const Check> checks) {
  std::vector<Check> rows;
  for (size_t begin = 0, end = 0; begin < checks.size(); begin = end) {
    const Check& first = checks[begin];
    for (end = begin + 1; end < checks.size(); ++end)
      if (first.state != CheckState::skipped || checks[end].state != CheckState::skipped ||
          checks[end].detail != first.detail)
        break;
    rows.push_back(first);
    if (end - begin == 1) continue;
    rows.back().name += " and " + counted(end - begin - 1, "other");
    rows.back().detail = "skipped: " + first.detail;
  }
  return rows;
}

Table table_of(const std::vector<Check>& checks) {
  constexpr std::array<const char*, 4> kMarks = {"✓", "·", "!", "✗"};
  Table table{.id = "checks", .title = "", .columns = {{"", false}, {"", false}}};
  for (const Check& check : shortened(checks)) {
    const RowStyle style = check.state == CheckState::fail ? RowStyle::alarm : RowStyle::plain;
    const std::string mark = kMarks[static_cast<size_t>(check.state)];
    table.rows.push_back({{mark + " " + check.name, check.detail}, style});
    if (!check.fix.empty())
      table.rows.push_back({{"", "→ " + with_documents_found(check.fix)}, style});
  }
  return table;
}

void print_checks(const std::vector<Check>& checks) {
  TextStyle style = stdout_style();
  if (style.width == 0) style.width = kPipeWidth;
  print_coloured(to_text(table_of(checks), style));
  const std::string verdict = with_documents_found(printable(summary(checks)));
  print("\n" + joined(wrapped_lines(verdict, style.width), "\n") + "\n");
}

void doctor(const DoctorFlags& flags) {
  OutputFile report(flags.report, kDoctorReport, flags.json.force);
  const SystemFacts facts = look_for(flags);
  const std::vector<Check> checks = examine(facts);
  if (!flags.json.is_given() || !put_json(flags.json, checks_json(checks))) print_checks(checks);
  if (report.is_wanted())
    report.write(doctor_report(
        facts, checks, {.file = flags.report, .program = program_json(), .run = short_run}));
  if (worst(checks) == CheckState::fail)
    throw Error(ErrorCode::device, "doctor", "this machine is not in order");
}

}  // namespace

std::string doctor_json() {
  return checks_json(examine(look({.calibration = look_at_calibration()})));
}

void define_doctor(CommandLine& command) {
  DoctorFlags& flags = command.values<DoctorFlags>();
  add_model_flag(command, flags.model);
  command.add({
      json_flag(flags.json),
      {"--report", &flags.report, "FILE",
       "write a file to send to others: versions, checks, receipts of a short run; no names and no "
       "private paths"},
      force_flag(flags.json.force, {"--json", "--report"}),
      {"--root", &flags.root, "DIR",
       "check a recorded machine, whose /proc, /sys, /dev, /etc, /lib, /opt and /usr are below "
       "this "
       "folder",
       Rules{.is_folder = true}},
  });
  command.alias = "validate";
  command.footer =
      "✓ good   ! works, less well than it could   ✗ broken   · does not apply\n"
      "The exit code is 1 if something is broken, else 0.\n\n"
      "docs/doctor.md explains each check.\n\n"
      "Examples:\n  tyto doctor\n  tyto doctor -m model.gguf --json";
  command.run = [&flags] { doctor(flags); };
}

}  // namespace tyto
