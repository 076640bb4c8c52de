// serve: initialise once, answer many. The main thread starts everything and then waits for
// signals.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <mutex>

#include "base/environment.h"
#include "base/error.h"
#include "cli/child_process.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/evidence_flags.h"
#include "cli/plan.h"
#include "cli/provenance.h"
#include "cli/serve_flags.h"
#include "cli/terminal.h"
#include "serve/api/api.h"
#include "serve/api/errors.h"
#include "serve/engine_thread.h"
#include "serve/http/server.h"
#include "serve/metrics.h"
#include "serve/service_manager.h"
#include "trace/energy_meter.h"
#include "trace/energy_report.h"

namespace tyto {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestLoad = std::chrono::hours(1);
// What a running server can take over from its configuration.
const std::vector<std::string> kReloadable = {"--api-key", "--api-key-file", "--queue",
                                              "--keep-alive", "--timeout"};

// SIGTERM and SIGINT end the server, SIGHUP reads its configuration again. They are taken here and
// nowhere else, so they are blocked before there are other threads.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&set_, signal);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // 0: none came in time.
  int wait(std::chrono::milliseconds most) const {
    const timespec time{most.count() / 1000, (most.count() % 1000) * 1'000'000};
    return std::max(0, ::sigtimedwait(&set_, nullptr, &time));
  }
  bool ask_to_end() const {
    const int signal = wait(std::chrono::milliseconds(0));
    return signal == SIGTERM || signal == SIGINT;
  }

 private:
  sigset_t set_ = {};
};

// What `tyto doctor --json` says, asked anew at most once a minute: it looks at every device node.
class DoctorView {
 public:
  std::string operator()() {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (text_.empty() || now - asked_ > 60s) {
      text_ = output_of_child({"/proc/self/exe", "doctor", "--json"}, 60s, 4 << 20);
      asked_ = now;
    }
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
  std::chrono::steady_clock::time_point asked_;
};

EngineThreadOptions thread_options(const ServeFlags& flags, const SigningKey* key) {
  EngineThreadOptions options;
  options.models = models_to_serve(flags);
  options.most_running = flags.slots;
  options.most_waiting = flags.queue;
  options.longest_request = parse_time(flags.timeout, "--timeout");
  options.keep_alive = parse_time(flags.keep_alive, "--keep-alive");
  options.receipt_context = [flags, key](Engine& engine) {
    ReceiptContext context = receipt_context(engine);
    context.key = key;
    return context;
  };
  return options;
}

void reload(CommandLine& command, ServeFlags& flags, const http::ServerOptions& network,
            EngineThread& engine, http::Server& server) {
  try {
    const ConfigChanges changes = reload_config(command, define_serve, kReloadable);
    // All of it is read before any of it is taken over.
    std::vector<std::string> keys = api_keys(flags, network);
    const auto keep_alive = parse_time(flags.keep_alive, "--keep-alive");
    const auto longest = parse_time(flags.timeout, "--timeout");
    server.set_api_keys(std::move(keys));
    engine.set_most_waiting(flags.queue);
    engine.set_keep_alive(keep_alive);
    engine.set_longest_request(longest);
    note(fmt::format(
        "configuration read again; changed: {}",
        changes.taken.empty() ? "nothing" : fmt::format("{}", fmt::join(changes.taken, ", "))));
    if (!changes.need_restart.empty())
      note(fmt::format("these need a restart: {}", fmt::join(changes.need_restart, ", ")));
  } catch (const Error& error) {
    note(fmt::format("tyto: {} (the configuration stays as it was)", error.what()));
  }
}

// No more requests; those that have begun may end. A second signal ends them, too.
void drain(std::chrono::milliseconds most, const Signals& signals, EngineThread& engine,
           http::Server& server) {
  const auto end = std::chrono::steady_clock::now() + most;
  server.drain();
  bool is_over = false;
  while (!is_over && std::chrono::steady_clock::now() < end && !signals.ask_to_end())
    is_over = engine.drain(50ms) && server.wait_idle(50ms);
  note(is_over ? "every answer was given; ended" : "ended before every answer was given");
}

void start_counting(EnergyMeter& meter) {
  meter.start();
  for (const std::string& reason : energy_reasons(meter.lap())) note("energy · " + reason);
}

void wait_until_loaded(const Signals& signals, EngineThread& engine) {
  const auto end = std::chrono::steady_clock::now() + kLongestLoad;
  while (!engine.wait_ready(100ms)) {
    if (signals.ask_to_end()) throw Error(ErrorCode::input, "serve", "ended while loading");
    if (std::chrono::steady_clock::now() > end)
      throw Error(ErrorCode::input, "serve", "loading takes more than an hour");
  }
}

void serve(CommandLine& command, ServeFlags& flags) {
  const auto started = std::chrono::steady_clock::now();
  const auto key = signing_key(flags.sign);
  const auto longest_drain = parse_time(flags.drain, "--drain").value_or(24h);
  const ServiceManager manager(take_service_variables());
  const http::ServerOptions network = server_options(flags, manager.activated_socket());
  const EngineThreadOptions to_serve = thread_options(flags, key.get());
  const Signals signals;
  ServeMetrics metrics;
  DoctorView doctor;
  EngineThread engine(to_serve, metrics);
  std::atomic<const http::Server*> counted = nullptr;  // the handler is made before its server
  api::Api api{.engine = engine,
               .metrics = metrics,
               .version = TYTO_VERSION,
               .connections =
                   [&] {
                     const http::Server* of = counted.load();
                     return of == nullptr ? http::ServerCounts{} : of->counts();
                   },
               .views = {.doctor = [&] { return doctor(); },
                         .plan = [&] { return plan_json(to_serve.models[0].engine.model); }}};
  http::Server server(network, api::make_handler(std::move(api)), api::error_body);
  counted = &server;
  const std::string address = server.address();
  note(fmt::format("listening on {}{}", address.starts_with("unix:") ? "" : "http://", address));
  wait_until_loaded(signals, engine);
  for (const ModelStatus& model : engine.models())
    for (const std::string& line : model.fallbacks) note(fmt::format("{}: {}", model.name, line));
  note(fmt::format(
      "ready in {:.0f} ms: {}",
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - started).count(),
      fmt::join(engine.names(), ", ")));
  manager.notify("READY=1");
  const auto meter = energy_meter(flags.energy);
  if (meter) start_counting(*meter);
  while (true) {
    const int signal = signals.wait(1000ms);
    if (meter) metrics.energy(meter->lap());
    if (signal == SIGHUP) {
      manager.notify("RELOADING=1");
      reload(command, flags, network, engine, server);
      manager.notify("READY=1");
    } else if (signal > 0) {
      break;
    }
  }
  manager.notify("STOPPING=1");
  drain(longest_drain, signals, engine, server);
}

}  // namespace

void define_serve(CommandLine& command) {
  ServeFlags& flags = command.values<ServeFlags>();
  add_serve_flags(command, flags);
  add_config_flag(command, flags.config);
  command.footer =
      "docs/server.md has a line of curl for everything that it answers; the page is at /.\n\n"
      "Examples:\n"
      "  tyto serve\n"
      "  tyto serve -m small=a.gguf -m large=b.gguf --keep-alive 5m\n"
      "  tyto serve --host 0.0.0.0 --api-key-file key --allow-host tyto.example.org";
  command.run = [&command, &flags] { serve(command, flags); };
}

}  // namespace tyto
