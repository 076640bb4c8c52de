// doctor: everything between the processor and a dispatch, each with a verdict and a way out.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "base/columns.h"
#include "base/counted.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/joined.h"
#include "base/printable.h"
#include "cli/calibration_file.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/doctor/doctor_checks.h"
#include "cli/doctor/doctor_probe.h"
#include "cli/doctor/doctor_report.h"
#include "cli/documents.h"
#include "cli/flags.h"
#include "cli/json_flag.h"
#include "cli/output_file.h"
#include "cli/progress_line.h"
#include "cli/terminal.h"
#include "device/npu/npu_entry.h"
#include "report/table.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

constexpr size_t kPipeWidth = 100;  // what it says is sent to others

struct DoctorFlags {
  ModelFlags model;
  JsonFlag json;
  std::string root = "/";
  std::string report;
};

ModelFacts look_at_model(const ModelFlags& flags) {
  ModelFacts facts;
  try {
    facts = probe_model(model_or_shipped(flags));
  } catch (const Error& error) {  // no shipped model beside the program
    facts.name = "the shipped model";
    facts.error = error.what();
    facts.hint = error.hint;
  }
  facts.named = !flags.model.empty();
  return facts;
}

CalibrationFacts look_at_calibration() try {
  const CalibrationHere here = calibration_here();
  return {.measured = here.calibration ? summary(*here.calibration) : "",
          .problem = here.why_ignored};
} catch (const Error& error) {  // nobody says where the cache is
  return {.measured = "", .problem = error.what()};
}

SystemFacts look(const DoctorFlags& flags) {
  announce("looking at the machine");
  SystemFacts facts = read_system_facts(flags.root);
  const bool this_machine = flags.root == "/";
  // Before there are threads: it is asked in a forked process.
  if (this_machine && !facts.vulkan.loader.empty()) probe_vulkan(facts.vulkan.loader, facts.vulkan);
  try {
    facts.kernel_cache = probe_kernel_cache(cache_folder() / "kernels");
  } catch (const Error& error) {  // nobody says where the cache is
    facts.kernel_cache.problems.push_back(error.what());
  }
  if (!this_machine && flags.model.model.empty()) return facts;
  announce("opening the model");
  facts.model = look_at_model(flags.model);
  if (this_machine) {
    facts.build_has_xrt = built_with_xrt();
    announce("trying the devices");
    facts.devices = probe_devices();
    facts.calibration = look_at_calibration();
  }
  return facts;
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

std::string json_text(const std::vector<Check>& checks) {
  ordered_json rows = ordered_json::array();
  for (const Check& check : checks) {
    rows.push_back(
        {{"check", check.name}, {"state", to_string(check.state)}, {"detail", check.detail}});
    rows.back()["fix"] = nullptr;
    if (!check.fix.empty()) rows.back()["fix"] = check.fix;
  }
  ordered_json whole = {{"schema", "tyto-doctor/1"}, {"verdict", to_string(worst(checks))}};
  const Check* first = first_to_repair(checks);
  whole["first"] = nullptr;
  if (first != nullptr) whole["first"] = first->name;
  whole["checks"] = std::move(rows);
  return whole.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void doctor(const DoctorFlags& flags) {
  OutputFile report(flags.report, kDoctorReport, flags.json.force);
  const SystemFacts facts = look(flags);
  const std::vector<Check> checks = examine(facts);
  if (!flags.json.is_given() || !put_json(flags.json, json_text(checks))) print_checks(checks);
  if (report.is_wanted()) report.write(doctor_report(facts, checks, flags.report));
  if (worst(checks) == CheckState::fail)
    throw Error(ErrorCode::device, "doctor", "this machine is not in order");
}

}  // namespace

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
