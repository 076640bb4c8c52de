#include "base/error.h"
#include "cli/calibration_file.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/progress_line.h"
#include "cli/terminal.h"
#include "device/device.h"

namespace tyto {
namespace {

// Two rows for each: what it is for, and what was found here.
void add_rows(const DeviceEntry& entry, const DeviceEnv& env, Table& table) {
  std::string usable = "no", found;
  try {
    const DeviceInfo device = entry.open(env)->info();
    usable = device.is_virtual ? "virtual" : device.is_software ? "software" : "yes";
    found = device.description;
  } catch (const Error& error) {
    found = error.what() + (error.hint.empty() ? "" : " (" + error.hint + ")");
  }
  table.rows.push_back({{std::string(entry.name), usable, std::string(entry.summary)}});
  table.rows.push_back({{"", "", found}});
}

void list_devices() {
  ThreadPool pool;
  Trace trace;
  Table table{.id = "devices",
              .title = "",
              .columns = {{"device", false}, {"usable", false}, {"what it is", false}}};
  for (const DeviceEntry& entry : device_table()) {
    announce(fmt::format("opening {}", entry.name));
    add_rows(entry, {pool, trace}, table);
  }
  print_coloured(to_text(table, stdout_style()));
  print_prose("\n" + calibration_text() + "\n");
}

}  // namespace

void define_devices(CommandLine& command) {
  command.footer =
      "A device that cannot be used is listed with the reason. `tyto doctor` says what to do.";
  command.run = list_devices;
}

}  // namespace tyto
