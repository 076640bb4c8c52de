#include "base/error.h"
#include "base/printable.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "device/device.h"

namespace tyto {
namespace {

void list_devices() {
  ThreadPool pool;
  Trace trace;
  for (const DeviceEntry& entry : device_table()) {
    std::string state;
    try {
      const DeviceInfo device = entry.open({pool, trace})->info();
      state = device.description + (device.is_virtual ? " (virtual: its time is modelled)" : "");
    } catch (const Error& error) {
      state = std::string("not usable: ") + error.what();
    }
    print(
        fmt::format("{:<8} {}\n{:<8} {}\n", entry.name, entry.summary, "", printable_line(state)));
  }
}

}  // namespace

void define_devices(CommandLine& command) {
  command.footer = "A device that cannot be used is listed with the reason.";
  command.run = list_devices;
}

}  // namespace tyto
