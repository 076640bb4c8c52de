#include "ggml/plugin_device.h"

#include <cstdio>
#include <exception>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/printable.h"
#include "report/report.h"

namespace tyto::plugin {

void print_error(const std::string& text) {
  std::fprintf(stderr, "tyto: %s\n", printable_line(text).c_str());
  std::fflush(stderr);
}

namespace {

void keep(PluginDevice& device, const std::string& problem) {
  if (device.problem == problem) return;  // ggml asks again and again
  device.problem = problem;
  print_error(device.name + ": " + problem);
}

std::string text_of(const Error& error) {
  return error.hint.empty() ? error.what() : std::string(error.what()) + " (" + error.hint + ")";
}

// Each when it happens, not only in the receipt.
void print_news(PluginDevice& device, const Session& session) {
  const auto print = [&](const std::vector<std::string>& lines, size_t& printed) {
    for (; printed < lines.size(); ++printed) print_error(device.name + ": " + lines[printed]);
  };
  print(session.notices(), device.notices);
  print(session.trace().fallbacks(), device.fallbacks);
}

}  // namespace

Session* session_of(PluginDevice& device) {
  const std::lock_guard lock(device.opening);
  if (device.session || !device.problem.empty()) return device.session.get();
  try {
    device.session = std::make_unique<Session>(device.settings, device.is_virtual, &device.memory);
  } catch (const Error& error) {
    keep(device, text_of(error));
  } catch (const std::exception& error) {
    keep(device, error.what());
  }
  return device.session.get();
}

bool guarded(PluginDevice& device, const std::function<void(Session&)>& function) {
  Session* session = session_of(device);
  if (session == nullptr) return false;
  const std::lock_guard lock(session->mutex);
  try {
    function(*session);
    print_news(device, *session);
    return true;
  } catch (const Error& error) {
    keep(device, text_of(error));
  } catch (const std::exception& error) {
    keep(device, error.what());
  }
  return false;
}

Origin origin_of(const PluginDevice& device) {
  return {device.name, TYTO_VERSION, TYTO_GGML_VERSION};
}

void write_files(const PluginDevice& device) {
  if (!device.session) return;
  const auto write = [](const std::string& path, const FileKind& kind, const std::string& text) {
    if (path.empty()) return;
    try {
      AtomicFile file(path, Replace::same_kind, kind);
      file.write(text);
      file.commit();
    } catch (const std::exception& error) {
      print_error(error.what());
    }
  };
  const Origin origin = origin_of(device);
  write(device.settings.receipt_file, kPluginReceiptFile, receipt_json(*device.session, origin));
  if (!device.settings.trace_file.empty())
    write(device.settings.trace_file, kPerfettoFile, trace_json(*device.session, origin));
}

}  // namespace tyto::plugin
