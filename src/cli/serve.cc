// serve: initialise once, answer many. The main thread starts everything and then waits for
// signals.
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/redaction.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "cli/provenance.h"
#include "model/description.h"
#include "model/stores/local_models.h"
#include "model/stores/stores.h"
#include "plan/plan_table.h"
#include "power/energy_meter.h"
#include "serve/api/errors.h"
#include "serve/api/routes.h"
#include "serve/engine_thread.h"
#include "serve/http/server.h"
#include "serve/metrics.h"
#include "serve/page/page_files.h"
#include "serve/service_manager.h"
#include "shell/command_line.h"
#include "shell/config_file.h"
#include "shell/terminal.h"
#include "trace/receipt.h"

namespace tyto {
namespace {

using TimeLimit = std::optional<std::chrono::milliseconds>;  // none: never

// What the command takes, and what it turns into.
struct ServeFlags {
  std::vector<std::string> models;  // PATH or NAME=PATH
  EngineChoice engine;
  std::string chat_template;
  std::string host = "127.0.0.1";
  uint32_t port = 9377;
  std::vector<std::string> api_keys;
  std::string api_key_file;
  bool insecure = false;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> allowed_origins;
  uint32_t slots = 8;
  uint32_t queue = 64;
  TimeLimit timeout = std::chrono::minutes(10);
  TimeLimit keep_alive = std::nullopt;
  TimeLimit drain = std::chrono::seconds(30);
  uint32_t connections = 2048;
  uint64_t max_body = 16 << 20;  // bytes
  uint32_t workers = 2;
  std::string sign;
  bool energy = false;
  SpeculationFlags speculation;
  ConfigFlags config;
};

constexpr uint64_t kMostKeyBytes = 64 << 10;
constexpr size_t kShortestKey = 8;  // shorter ones can be tried one after the other

// "NAME=MODEL", or a path or a name of a store, whose last part is the name: "llama3.2:1b" of
// "ollama:llama3.2:1b", as its own API calls it.
ModelToServe named_model(const std::string& given) {
  ModelToServe model;
  const size_t equals = given.find('=');
  const bool is_named = equals != std::string::npos && given.find('/') > equals;
  const std::filesystem::path path = without_store(given);
  model.engine.model = is_named ? given.substr(equals + 1) : given;
  model.name = is_named ? given.substr(0, equals) : path.lexically_normal().filename().string();
  if (model.name.empty())  // a folder with a slash at its end
    model.name = path.parent_path().filename().string();
  if (model.name.ends_with(".gguf")) model.name.resize(model.name.size() - 5);
  if (model.name.empty() || model.engine.model.empty())
    throw Error(ErrorCode::usage, "-m " + given, "expected MODEL or NAME=MODEL");
  return model;
}

std::vector<Flag> network_flags(ServeFlags& flags) {
  const Rules shown{.shows_default = true};
  return {
      {"--host", &flags.host, "ADDRESS", "listen address, or unix:PATH for a socket", shown},
      {"--port", &flags.port, "N", "listen port; 0: any free one",
       Rules{.range = Range{0, 65535}, .shows_default = true}},
      {"--api-key", &flags.api_keys, "KEY",
       "require this key with every request; repeatable (other users can see command lines: "
       "prefer --api-key-file)",
       Rules{.is_secret = true}},
      {"--api-key-file", &flags.api_key_file, "FILE",
       "require one of the keys in this file, one per line"},
      {"--insecure", &flags.insecure, "let other machines send requests without a key"},
      {"--allow-host", &flags.allowed_hosts, "NAME", "accept this Host header, too; repeatable"},
      {"--allow-origin", &flags.allowed_origins, "URL",
       "let web pages from this origin send requests (CORS); repeatable"},
      {"--connections", &flags.connections, "N", "most connections that are open at once",
       Rules{.range = Range{1, 1 << 20}, .shows_default = true}},
      {"--max-body", size_target(flags.max_body), "SIZE", "largest body of a request", shown},
      {"--workers", &flags.workers, "N", "threads that read requests and render prompts",
       Rules{.range = Range{1, 256}, .shows_default = true}},
  };
}

std::vector<Flag> request_flags(ServeFlags& flags) {
  return {
      {"--slots", &flags.slots, "N", "requests per model that run at once",
       Rules{.range = Range{1, 256}, .shows_default = true}},
      {"--queue", &flags.queue, "N", "waiting requests; more get status 429",
       Rules{.range = Range{0, 1 << 20}, .shows_default = true}},
      {"--timeout", time_target(flags.timeout), "TIME", "time limit of a request, or never",
       Rules{.shows_default = true}},
      {"--keep-alive", time_target(flags.keep_alive), "TIME",
       "unload a model that had no request for this long, such as 5m",
       Rules{.shows_default = true}},
      {"--drain", time_target(flags.drain), "TIME",
       "time that running answers get to finish after SIGTERM", Rules{.shows_default = true}},
  };
}

void add_serve_flags(CommandLine& command, ServeFlags& flags) {
  add_engine_flags(command, flags.engine);
  command.remove("--model");  // it takes one model; ours takes several
  command.add({{"-m,--model", &flags.models, "[NAME=]MODEL",
                "GGUF file, folder or name from `tyto models` (default: the shipped model); "
                "repeatable: the first answers requests that name no model"},
               {"--chat-template", &flags.chat_template, "NAME|FILE",
                "built-in chat template or a Jinja file (default: each model's own)"},
               sign_flag(flags.sign)});
  add_energy_flag(command, flags.energy);
  command.flag("--energy").meaning =
      "count joules of each power rail for /metrics, idle time included";
  command.flag("--kv-memory").meaning =
      "limit the memory of KV caches, such as 512M or 4G (default: a context in each slot, at most "
      "a quarter of the memory)";
  add_speculation_flags(command, flags.speculation);
  command.add("Network", network_flags(flags));
  command.add("Requests", request_flags(flags));
}

// From --api-key and --api-key-file. Throws a usage Error where others than this machine could ask
// without a key.
std::vector<std::string> api_keys(const ServeFlags& flags, const http::ServerOptions& network) {
  std::vector<std::string> keys = flags.api_keys;
  if (!flags.api_key_file.empty()) {
    std::istringstream lines(read_text_file(flags.api_key_file, kMostKeyBytes));
    const size_t before = keys.size();
    for (std::string line; std::getline(lines, line);) {
      while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
      if (!line.empty()) keys.push_back(line);
    }
    if (keys.size() == before)
      throw Error(ErrorCode::usage, "--api-key-file " + flags.api_key_file, "holds no key");
  }
  for (const std::string& key : keys)
    if (key.size() < kShortestKey)
      throw Error(ErrorCode::usage, "--api-key",
                  fmt::format("a key of fewer than {} characters can be guessed", kShortestKey),
                  "make one with: openssl rand -hex 24");
  const bool is_local = http::is_local(network);
  if (keys.empty() && !flags.insecure && !is_local)
    throw Error(ErrorCode::usage,
                network.listening_fd ? "the activated socket" : "--host " + flags.host,
                "every machine that reaches this one could use it",
                "give --api-key-file, or --insecure if that is meant");
  if (flags.insecure && (!keys.empty() || is_local))
    throw Error(ErrorCode::usage, "--insecure",
                keys.empty() ? "has no effect on this machine's own address"
                             : "has no effect together with a key");
  return keys;
}

std::vector<ModelToServe> models_to_serve(const CommandLine& command, const ServeFlags& flags) {
  std::vector<std::string> given = flags.models;
  if (given.empty()) given.push_back(model_or_shipped(""));
  if (given.size() > 1 && !flags.engine.options.adapters.empty())
    throw Error(ErrorCode::usage, "--lora", fmt::format("for which of {} models?", given.size()),
                "serve one model with its adapters, and others in a process of their own");
  std::vector<ModelToServe> models;
  std::set<std::string> names;
  for (const std::string& each : given) {
    const std::string shown = redacted_words({each}).front();
    if (shown.ends_with("=" + std::string(kHidden)))  // "api-key=WORD", whose dashes are missing
      throw Error(ErrorCode::usage, shown, "names no model", "see tyto serve --help");
    ModelToServe model = named_model(each);
    if (!names.insert(model.name).second)
      throw Error(ErrorCode::usage, "-m " + each, "there are two models of this name",
                  "give them names: -m NAME=MODEL");
    describe_model(find_model(model.engine.model));  // what cannot be opened fails before listening
    EngineChoice engine = flags.engine;
    engine.options.model = model.engine.model;
    settle_engine(command, engine);
    model.engine = std::move(engine.options);
    model.engine.pipeline.forward.sequences = flags.slots;
    model.chat_template = flags.chat_template;
    model.looks_up = flags.speculation.looks_up;
    model.draft = flags.speculation.draft;
    model.most_guesses = flags.speculation.draft_max;
    models.push_back(std::move(model));
  }
  return models;
}

// `listening`: a socket that is open already, instead of --host and --port.
http::ServerOptions server_options(const ServeFlags& flags, std::optional<int> listening) {
  http::ServerOptions options;
  options.listening_fd = listening;
  options.host = flags.host;
  options.port = static_cast<uint16_t>(flags.port);
  options.workers = flags.workers;
  options.api_keys = api_keys(flags, options);
  for (const PageFile& file : page_files())
    options.open_paths.emplace_back(file.path);  // it asks for the key
  options.allowed_hosts = flags.allowed_hosts;
  options.allowed_origins = flags.allowed_origins;
  options.most_connections = flags.connections;
  options.most_body_bytes = flags.max_body;
  return options;
}

using namespace std::chrono_literals;

constexpr auto kLongestLoad = std::chrono::hours(1);
constexpr auto kDoctorKept = 30s;     // pages ask for it often
constexpr auto kLongestNote = 100ms;  // a log that nothing reads holds nothing up
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
  int wait(std::chrono::milliseconds limit) const {
    const timespec time{limit.count() / 1000, (limit.count() % 1000) * 1'000'000};
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

EngineThreadOptions thread_options(const CommandLine& command, const ServeFlags& flags,
                                   const SigningKey* key) {
  EngineThreadOptions options;
  options.models = models_to_serve(command, flags);
  options.most_running = flags.slots;
  options.most_waiting = flags.queue;
  options.longest_request = flags.timeout;
  options.keep_alive = flags.keep_alive;
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
      server.set_api_keys(std::move(keys));
      engine.set_most_waiting(flags.queue);
      engine.set_keep_alive(flags.keep_alive);
      engine.set_longest_request(flags.timeout);
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
void drain(std::chrono::milliseconds limit, const Signals& signals, EngineThread& engine,
           http::Server& server) {
  const auto end = std::chrono::steady_clock::now() + limit;
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
  bound_waits_of_notes(kLongestNote);
  raise_file_limit(flags.connections);
  const auto key = signing_key(flags.sign);
  const auto longest_drain = flags.drain.value_or(24h);
  const ServiceManager manager(take_service_variables());
  const http::ServerOptions network = server_options(flags, manager.activated_socket());
  const EngineThreadOptions to_serve = thread_options(command, flags, key.get());
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
