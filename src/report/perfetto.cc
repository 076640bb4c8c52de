// The recording as Chrome trace events, for ui.perfetto.dev. One process for the host, one per
// device with its queue, programs and launches as tracks.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "report/report.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

constexpr int kHost = 1;
constexpr int kFirstDevice = 2;
enum HostTrack { kHostThread = 1, kSetup = 2 };
enum DeviceTrack { kQueue = 1, kPrograms = 2, kLaunches = 3 };

std::string quoted(const std::string& text) {
  return ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

// The format counts microseconds; written from integers so that slices that touch stay so.
std::string microseconds(uint64_t ns) {
  return fmt::format("{}.{:03}", ns / 1000, ns % 1000);
}

class Writer {
 public:
  void track(int process, int thread, const std::string& process_name, const std::string& name) {
    if (named_.emplace(process, process_name).second)
      event(fmt::format(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":{}}})", process,
                        quoted(process_name)));
    event(fmt::format(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}})",
                      process, thread, quoted(name)));
    event(fmt::format(
        R"("ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}})",
        process, thread, thread));
  }

  void slice(int process, int thread, const std::string& name, const char* category,
             uint64_t start_ns, uint64_t end_ns, const std::string& args) {
    event(fmt::format(
        R"("ph":"X","name":{},"cat":"{}","ts":{},"dur":{},"pid":{},"tid":{},"args":{{{}}})",
        quoted(name), category, microseconds(start_ns), microseconds(end_ns - start_ns), process,
        thread, args));
  }

  void counter(const char* name, const char* unit, uint64_t at_ns, uint64_t value) {
    event(fmt::format(R"("ph":"C","name":"{}","ts":{},"pid":{},"args":{{"{}":{}}})", name,
                      microseconds(at_ns), kHost, unit, value));
  }

  std::string take(const std::string& other) {
    return "{\"displayTimeUnit\":\"ms\",\n\"otherData\":" + other + ",\n\"traceEvents\":[" + out_ +
           "\n]}\n";
  }

 private:
  void event(const std::string& fields) { out_ += (out_.empty() ? "\n{" : ",\n{") + fields + "}"; }

  std::string out_;
  std::map<int, std::string> named_;
};

std::string full_name(const EventName& name) {
  return name.layer == kNoLayer ? name.label : fmt::format("L{:02}.{}", name.layer, name.label);
}

std::string work_args(const Event& event) {
  return fmt::format(R"("token":{},"dispatch":{},"rows":{},"position":{},"bytes":{},"flops":{})",
                     event.token, event.dispatch, event.rows, event.position, event.bytes,
                     event.flops);
}

void write_tracks(Writer& writer, const Profile& profile) {
  writer.track(kHost, kHostThread, "host", "engine thread");
  writer.track(kHost, kSetup, "host", "set-up");
  for (size_t i = 0; i < profile.facts.devices.size(); ++i) {
    const DeviceFacts& device = profile.facts.devices[i];
    const std::string name = device.name + (device.is_virtual ? " (modelled)" : "");
    const int process = kFirstDevice + static_cast<int>(i);
    writer.track(process, kQueue, name, "queue");
    writer.track(process, kPrograms, name, "programs");
    writer.track(process, kLaunches, name, "launches");
  }
}

class RunWriter {
 public:
  RunWriter(Writer& writer, const Profile& profile, uint64_t offset_ns)
      : writer_(writer), profile_(profile), offset_(offset_ns) {}

  void add(const Event& event) {
    const uint64_t start = event.start_ns + offset_, end = event.end_ns + offset_;
    const EventName& name = profile_.names[event.name];
    const auto on_host = [&](const std::string& label, const std::string& args) {
      const bool waits_for_virtual = event.kind == EventKind::wait && is_virtual(event);
      writer_.slice(kHost, kHostThread, label, waits_for_virtual ? "modelled" : "measured", start,
                    end, args);
    };
    switch (event.kind) {
      case EventKind::token:
        return on_host(
            event.token == 0 ? "prefill and first token" : fmt::format("token {}", event.token),
            fmt::format(R"("token":{})", event.token));
      case EventKind::run:
        on_host(fmt::format("run of {} token{}", event.rows, event.rows == 1 ? "" : "s"),
                fmt::format(R"("position":{},"rows":{})", event.position, event.rows));
        return writer_.counter("KV length", "positions", end,
                               uint64_t{event.position} + event.rows);
      case EventKind::host:
        return on_host(name.label, fmt::format(R"("token":{})", event.token));
      case EventKind::launch:
        return writer_.slice(process(event), kLaunches, full_name(name), category(event), start,
                             end, work_args(event));
      case EventKind::submit:
        submitted_ = event;
        return on_host("submit " + full_name(name), work_args(event));
      case EventKind::wait:
        on_host("wait " + full_name(name), work_args(event));
        if (submitted_.dispatch != event.dispatch) return;
        submitted_.modelled_ns = event.modelled_ns;
        for (const DeviceTrack track : {kQueue, kPrograms})
          writer_.slice(
              process(event), track,
              track == kQueue ? fmt::format("dispatch {}", event.dispatch) : full_name(name),
              category(event), submitted_.start_ns + offset_, end,
              work_args(submitted_) + fmt::format(R"(,"launches":{})", submitted_.launches));
        return;
      case EventKind::upload:
        return on_host("write " + full_name(name), work_args(event));
      case EventKind::download:
        return on_host("read " + full_name(name), work_args(event));
    }
  }

 private:
  bool is_virtual(const Event& event) const {
    return profile_.facts.devices[event.device].is_virtual;
  }
  const char* category(const Event& event) const {
    return is_virtual(event) ? "modelled" : "measured";
  }
  static int process(const Event& event) { return kFirstDevice + event.device; }

  Writer& writer_;
  const Profile& profile_;
  uint64_t offset_;
  Event submitted_;
};

}  // namespace

std::string perfetto_report(const Profile& profile, const ProfileRun& run) {
  Writer writer;
  write_tracks(writer, profile);
  uint64_t request_ns = 0;  // where the request begins: right after the set-up
  const uint64_t begin = setup_begin(profile);
  for (const SetupSpan& span : profile.setup) {
    writer.slice(kHost, kSetup, span.phase, "measured", span.start_ns - begin, span.end_ns - begin,
                 "");
    request_ns = std::max(request_ns, span.end_ns - begin);
  }
  RunWriter events(writer, profile, request_ns);
  for (const Event& event : run.events) events.add(event);
  const ordered_json other = {
      {"tyto", profile.facts.origin.version},
      {"model", profile.facts.model_name},
      {"time", profile.facts.origin.time},
      {"command", profile.facts.origin.command},
      {"events_lost", run.lost},
      {"clock", is_modelled(profile)
                    ? "modelled: a virtual device's time is the cost model's, the host's measured"
                    : "measured"}};
  return writer.take(other.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace tyto
