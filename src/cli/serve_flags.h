// What `tyto serve` takes, and what it turns into.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags.h"
#include "cli/speculation_flags.h"
#include "shell/config_file.h"

namespace tyto {

struct EngineThreadOptions;
struct ModelToServe;
namespace http {
struct ServerOptions;
}

struct ServeFlags {
  std::vector<std::string> models;  // PATH or NAME=PATH
  EngineFlags engine;
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
  std::string timeout = "10m";
  std::string keep_alive = "never";
  std::string drain = "30s";
  uint32_t connections = 2048;
  std::string max_body = "16M";
  uint32_t workers = 2;
  std::string sign;
  bool energy = false;
  SpeculationFlags speculation;
  ConfigFlags config;
};

void add_serve_flags(CommandLine& command, ServeFlags& flags);

// "500ms", "30s", "5m", "1h"; "never" where that is a value. Anything else is a usage Error.
std::optional<std::chrono::milliseconds> parse_time(const std::string& text,
                                                    const std::string& flag);

// From --api-key and --api-key-file. Throws a usage Error where others than this machine could ask
// without a key.
std::vector<std::string> api_keys(const ServeFlags& flags, const http::ServerOptions& network);

std::vector<ModelToServe> models_to_serve(const ServeFlags& flags);
// `listening`: a socket that is open already, instead of --host and --port.
http::ServerOptions server_options(const ServeFlags& flags, std::optional<int> listening);

}  // namespace tyto
