#include "ggml/plugin.h"

#include <cstdio>
#include <exception>

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "report/report.h"
#include "trace/profile.h"

namespace tyto::plugin {
namespace {

DeviceCounters counters_of(const Session& session) {
  const std::string name = session.info().name;
  for (const DeviceCounters& device : session.trace().snapshot())
    if (device.device == name) return device;
  return {};
}

double share(uint64_t part, uint64_t rest) {
  const double all = static_cast<double>(part) + static_cast<double>(rest);
  return all > 0 ? static_cast<double>(part) / all : 0;
}

double per(uint64_t value, uint64_t count) {
  return count > 0 ? static_cast<double>(value) / static_cast<double>(count) : 0;
}

const char* fusion_name(const Session& session) {
  return session.offer().fuses ? "block" : "op";
}

}  // namespace

std::string receipt_line(const Session& session, const Origin& origin) {
  const DeviceCounters device = counters_of(session);
  const WorkCounts& work = session.counts();
  const uint64_t tokens = session.weights().most_tokens;
  std::string line = fmt::format(
      "tyto receipt: {}{}: {} of {} dispatches completed, {} tokens ({:.2f} dispatches a token, "
      "fusion {}), {} products, {:.1f} % of the MACs given to the plug-in, ",
      origin.device, device.is_virtual ? " (virtual)" : "", device.completions, device.submissions,
      tokens, per(device.submissions, tokens), fusion_name(session), work.products,
      100 * share(work.macs, work.host_macs));
  line += device.is_virtual
              ? fmt::format("{:.3f} s modelled for {}", static_cast<double>(device.busy_ns) / 1e9,
                            session.settings().machine)
              : fmt::format("{:.3f} s on the device", static_cast<double>(device.busy_ns) / 1e9);
  if (work.decode_dispatches > 0)
    line += fmt::format(", {:.1f} us of host time a dispatch of one token",
                        per(work.decode_ns, work.decode_dispatches) / 1e3);
  line += fmt::format("; CPU: {} products", work.host_products);
  if (work.host_operations > work.host_products)
    line += fmt::format(" and {} other operations", work.host_operations - work.host_products);
  line += " by the plug-in, others by llama.cpp itself";
  for (const std::string& fallback : session.trace().fallbacks()) line += "; " + fallback;
  return line;
}

std::string receipt_json(const Session& session, const Origin& origin) {
  const DeviceCounters device = counters_of(session);
  const WorkCounts& work = session.counts();
  const Weights::Totals& weights = session.weights();
  JsonValue declined = JsonValue::array();
  for (const auto& [reason, count] : work.declined)
    declined.push_back({{"reason", reason}, {"count", count}});
  JsonValue code = JsonValue::array();
  for (const LoadedCode& loaded : session.trace().loaded_code())
    code.push_back({{"program", loaded.program}, {"form", loaded.form}, {"hash", loaded.hash}});
  const char* seconds = device.is_virtual ? "modelled_seconds" : "device_seconds";
  const JsonValue receipt = {
      {"tyto_version", origin.version},
      {"time", utc_now()},
      {"ggml_version", origin.ggml_version},
      {"device", origin.device},
      {"description", session.info().description},
      {"is_virtual", device.is_virtual},
      {"machine", device.is_virtual ? session.settings().machine : ""},
      {"fusion", fusion_name(session)},
      {"submissions", device.submissions},
      {"dispatches", device.completions},
      {"launches", device.launches},
      {"tokens", weights.most_tokens},
      {"dispatches_per_token", per(device.completions, weights.most_tokens)},
      {"mul_mat", {{"offloaded", work.products}, {"on_cpu", work.host_products}}},
      {"other_operations_on_cpu", work.host_operations - work.host_products},
      {"macs", {{origin.device, work.macs}, {"cpu", work.host_macs}}},
      {"share_of_macs", share(work.macs, work.host_macs)},
      {"macs_note", "of what llama.cpp gave to the plug-in; what it ran elsewhere is not seen"},
      {seconds, static_cast<double>(device.busy_ns) / 1e9},
      {"decode",
       {{"tokens", weights.most_alone},
        {device.is_virtual ? "modelled_ms_per_token" : "device_ms_per_token",
         per(work.decode_busy_ns, weights.most_alone) / 1e6}}},
      {"host_us_per_dispatch", per(work.decode_ns, work.decode_dispatches) / 1e3},
      {"submission_us_per_dispatch", per(device.submitting_ns, device.submissions) / 1e3},
      {"first_calls_seconds", static_cast<double>(work.first_ns) / 1e9},
      {"host_us_per_batch_dispatch", per(work.batch_ns, work.batch_dispatches) / 1e3},
      {"simulated_seconds",
       device.is_virtual ? static_cast<double>(device.waited_ns + device.submitting_ns) / 1e9 : 0},
      {"bytes", device.bytes},
      {"pinned_bytes", device.pinned_bytes},
      {"weights",
       {{"tensors", weights.matrices},
        {"int8_bytes", weights.bytes},
        {"quantise_seconds", weights.seconds}}},
      {"loaded_code", code},
      {"declined", declined},
      {"notices", session.notices()},
      {"fallbacks", session.trace().fallbacks()}};
  return receipt.dump(2) + "\n";
}

std::string trace_json(const Session& session, const Origin& origin) {
  const DeviceInfo info = session.info();
  Profile profile;
  profile.facts.origin.version = origin.version;
  profile.facts.origin.time = utc_now();
  profile.facts.origin.fusion = fusion_name(session);
  profile.facts.model_name = "a ggml graph";
  profile.facts.devices.push_back({.name = origin.device,
                                   .tag = "NPU",
                                   .description = info.description,
                                   .is_virtual = info.is_virtual,
                                   .peak = info.limits});
  profile.setup = session.trace().setup_spans();
  profile.names = session.trace().names();
  Receipt receipt;
  receipt.devices = session.trace().snapshot();
  return perfetto_report(profile, collect_run(session.trace(), receipt));
}

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
