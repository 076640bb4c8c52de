// serve: initialise once, answer many. The main thread starts everything and then waits for
// signals.
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <ctime>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/evidence_flags.h"
#include "cli/model_words.h"
#include "cli/plan.h"
#include "cli/provenance.h"
#include "cli/serve_flags.h"
#include "power/energy_meter.h"
#include "serve/api/errors.h"
#include "serve/api/routes.h"
#include "serve/engine_thread.h"
#include "serve/http/server.h"
#include "serve/metrics.h"
#include "serve/service_manager.h"
#include "shell/command_line.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

using namespace std::chrono_literals;

constexpr auto kLongestLoad = std::chrono::hours(1);
constexpr auto kDoctorKept = 30s;     // pages ask for it often
constexpr auto kLongestDoctor = 20s;  // the server's end waits for it
// What a step of the model and the last bytes of answers may take when the server has to end.
constexpr auto kLongestEnd = std::chrono::seconds(3);
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

// Connections are files, and shells let a process have 1024 of them unless it asks for more.
void raise_file_limit(uint32_t connections) {
  constexpr rlim_t kOtherFiles = 64;  // models, devices and the server itself have them open
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = before;
  if (limit.rlim_cur < connections + kOtherFiles)
    note(
        fmt::format("--connections {}: this process may open {} files, which is fewer than they "
                    "need; raise that (ulimit -Hn, LimitNOFILE of a service), or give a lower "
                    "--connections",
                    connections, limit.rlim_cur));
}

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
    const ConfigChanges changes = reload_config(command, define_serve, kReloadable, [&] {
      // All of it is read before any of it is taken over.
      std::vector<std::string> keys = api_keys(flags, network);
      const auto keep_alive = parse_time(flags.keep_alive, "--keep-alive");
      const auto longest = parse_time(flags.timeout, "--timeout");
      server.set_api_keys(std::move(keys));
      engine.set_most_waiting(flags.queue);
      engine.set_keep_alive(keep_alive);
      engine.set_longest_request(longest);
    });
    note(fmt::format(
        "configuration read again; changed: {}",
        changes.taken.empty() ? "nothing" : fmt::format("{}", fmt::join(changes.taken, ", "))));
    if (!changes.need_restart.empty())
      note(fmt::format("these need a restart: {}", fmt::join(changes.need_restart, ", ")));
  } catch (const std::exception& error) {
    note(fmt::format("tyto: {} (the configuration stays as it was)", error.what()));
  }
}

// No more requests; those that have begun may end. When the time is over, or at a second signal,
// they are told so and ended.
void drain(std::chrono::milliseconds most, const Signals& signals, EngineThread& engine,
           http::Server& server) {
  const auto end = std::chrono::steady_clock::now() + most;
  server.drain();
  bool is_over = false;
  while (!is_over && std::chrono::steady_clock::now() < end && !signals.ask_to_end())
    is_over = engine.drain(50ms) && server.wait_idle(50ms);
  if (is_over) return note("all requests finished, server stopped");
  engine.end_all(kLongestEnd);
  server.wait_idle(kLongestEnd);
  throw Error(ErrorCode::input, "serve", "stopped before all requests were finished");
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
  raise_file_limit(flags.connections);
  const auto key = signing_key(flags.sign);
  const auto longest_drain = parse_time(flags.drain, "--drain").value_or(24h);
  const ServiceManager manager(take_service_variables());
  const http::ServerOptions network = server_options(flags, manager.activated_socket());
  const EngineThreadOptions to_serve = thread_options(flags, key.get());
  const Signals signals;
  ServeMetrics metrics;
  EngineThread engine(to_serve, metrics);
  std::atomic<const http::Server*> counted = nullptr;  // the handler is made before its server
  api::Api api{
      .engine = engine,
      .metrics = metrics,
      .version = TYTO_VERSION,
      .connections =
          [&] {
            const http::Server* of = counted.load();
            return of == nullptr ? http::ServerCounts{} : of->counts();
          },
      .views = {.doctor = std::make_unique<api::SlowView>(doctor_json, kDoctorKept, kLongestDoctor),
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
  add_model_word(command);
  command.footer =
      "OpenAI's and Ollama's API and a chat page, on http://127.0.0.1:9377 by default.\n\n"
      "docs/server.md has a curl line for every endpoint.\n\n"
      "Examples:\n"
      "  tyto serve\n"
      "  tyto serve -m small=a.gguf -m large=b.gguf --keep-alive 5m\n"
      "  tyto serve --host 0.0.0.0 --api-key-file key --allow-host tyto.example.org";
  command.first = {"--model",   "--host",    "--port",    "--api-key-file", "--allow-host",
                   "--slots",   "--queue",   "--timeout", "--keep-alive",   "--device",
                   "--context", "--threads", "--kv-type", "--draft",        "--config"};
  command.run = [&command, &flags] { serve(command, flags); };
}

}  // namespace tyto
