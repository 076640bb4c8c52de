#include "cli/serve_flags.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "base/redaction.h"
#include "cli/auto_device.h"
#include "cli/evidence_flags.h"
#include "model/description.h"
#include "model/stores/local_models.h"
#include "model/stores/stores.h"
#include "serve/engine_thread.h"
#include "serve/http/server.h"
#include "serve/page/page_files.h"
#include "shell/command_line.h"

namespace tyto {
namespace {

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
      {"--max-body", &flags.max_body, "SIZE", "largest body of a request", shown},
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
      {"--timeout", &flags.timeout, "TIME", "time limit of a request, or never",
       Rules{.shows_default = true}},
      {"--keep-alive", &flags.keep_alive, "TIME",
       "unload a model that had no request for this long, such as 5m",
       Rules{.shows_default = true}},
      {"--drain", &flags.drain, "TIME", "time that running answers get to finish after SIGTERM",
       Rules{.shows_default = true}},
  };
}

}  // namespace

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

std::optional<std::chrono::milliseconds> parse_time(const std::string& text,
                                                    const std::string& flag) {
  if (text == "never") return std::nullopt;
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  const std::string unit(rest, end);
  constexpr std::pair<const char*, uint64_t> kUnits[] = {
      {"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}, {"d", 86'400'000}};
  for (const auto& [name, factor] : kUnits)
    if (error == std::errc() && unit == name && value > 0 && value <= 1'000'000)
      return std::chrono::milliseconds(value * factor);
  throw Error(ErrorCode::usage, flag + " " + text, "expected a time like 30s, 5m, 1h, or never");
}

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

std::vector<ModelToServe> models_to_serve(const ServeFlags& flags) {
  std::vector<std::string> given = flags.models;
  if (given.empty()) given.push_back(model_or_shipped(ModelFlags{}));
  if (given.size() > 1 && !flags.engine.model.adapters.empty())
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
    EngineFlags engine = flags.engine;
    engine.model.model = model.engine.model;
    settle_device(engine);
    model.engine = engine_options(engine);
    model.engine.pipeline.forward.sequences = flags.slots;
    model.chat_template = flags.chat_template;
    model.looks_up = flags.speculation.speculate == "lookup";
    model.draft = flags.speculation.draft;
    model.most_guesses = flags.speculation.draft_max;
    models.push_back(std::move(model));
  }
  return models;
}

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
  options.most_body_bytes = parse_size(flags.max_body, "--max-body");
  return options;
}

}  // namespace tyto
