// doctor: everything between the processor and a dispatch, each with a verdict and a way out.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/columns.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/joined.h"
#include "base/printable.h"
#include "cli/calibration_file.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/doctor/doctor_checks.h"
#include "cli/doctor/doctor_probe.h"
#include "cli/flags.h"
#include "cli/progress_line.h"
#include "cli/terminal.h"
#include "device/npu/npu_entry.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

constexpr size_t kPipeWidth = 100;  // what it says is sent to others

struct DoctorFlags {
  ModelFlags model;
  bool json = false;
  std::string root = "/";
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
  if (first == nullptr) return "All is well.";
  if (failures == 0)
    return fmt::format("Nothing is broken. To get more out of it, {}: {}", first->name, first->fix);
  return fmt::format("{} broken. Do this first, {}: {}", failures, first->name, first->fix);
}

// Checks that were skipped for the same reason are one row.
std::vector<Check> shortened(const std::vector<Check>& checks) {
  std::vector<Check> rows;
  std::string also;
  for (size_t i = 0; i < checks.size(); ++i) {
    const Check& check = checks[i];
    const bool repeats = check.state == CheckState::skipped && !rows.empty() &&
                         rows.back().state == CheckState::skipped &&
                         checks[i - 1].detail == check.detail;
    if (!repeats) {
      if (!also.empty()) rows.back().detail += "; so also " + also;
      also.clear();
      rows.push_back(check);
    } else {
      also += (also.empty() ? "" : ", ") + check.name;
    }
  }
  if (!also.empty()) rows.back().detail += "; so also " + also;
  return rows;
}

Table table_of(const std::vector<Check>& checks) {
  constexpr std::array<const char*, 4> kMarks = {"✓", "·", "!", "✗"};
  Table table{.id = "checks", .title = "", .columns = {{"", false}, {"", false}}};
  for (const Check& check : shortened(checks)) {
    const RowStyle style = check.state == CheckState::fail ? RowStyle::alarm : RowStyle::plain;
    const std::string mark = kMarks[static_cast<size_t>(check.state)];
    table.rows.push_back({{mark + " " + check.name, check.detail}, style});
    if (!check.fix.empty()) table.rows.push_back({{"", "→ " + check.fix}, style});
  }
  return table;
}

void print_checks(const std::vector<Check>& checks) {
  TextStyle style = stdout_style();
  if (style.width == 0) style.width = kPipeWidth;
  print_coloured(to_text(table_of(checks), style));
  print("\n" + joined(wrapped_lines(printable(summary(checks)), style.width), "\n") + "\n");
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
  const std::vector<Check> checks = examine(look(flags));
  flags.json ? print(json_text(checks)) : print_checks(checks);
  if (worst(checks) == CheckState::fail)
    throw Error(ErrorCode::device, "doctor", "this machine is not in order");
}

}  // namespace

void define_doctor(CommandLine& command) {
  DoctorFlags& flags = command.values<DoctorFlags>();
  add_model_flag(command, flags.model);
  command.add({
      {"--json", &flags.json, "the same as JSON"},
      {"--root", &flags.root, "DIR",
       "read /proc, /sys, /dev, /etc, /lib, /opt and /usr below this folder: a recorded machine; "
       "nothing is tried out then",
       Rules{.is_folder = true}},
  });
  command.alias = "validate";
  command.footer =
      "✓ good   ! works, less well than it could   ✗ broken   · does not apply\n"
      "Exit code 1 when something is broken, else 0. docs/doctor.md explains each check.\n\n"
      "Examples:\n  tyto doctor\n  tyto doctor -m model.gguf --json";
  command.run = [&flags] { doctor(flags); };
}

}  // namespace tyto
