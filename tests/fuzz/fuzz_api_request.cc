// Reads arbitrary bytes as the body of each request that the server takes.
// Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/error.h"
#include "serve/api/requests.h"

namespace tyto {
namespace {

void run(std::string_view body) {
  using namespace api;
  const std::function<void(const Json&)> readers[] = {
      [](const Json& json) { parse_model(json); },
      [](const Json& json) { parse_chat_completion(json, {}); },
      [](const Json& json) { parse_completion(json, {}); },
      [](const Json& json) { parse_embeddings(json); },
      [](const Json& json) { parse_conversation(json); },
      [](const Json& json) { parse_ollama_chat(json, {}); },
      [](const Json& json) { parse_ollama_generate(json, {}); },
      [](const Json& json) { parse_ollama_embed(json); },
      [](const Json& json) { parse_ollama_load(json, "prompt"); },
  };
  for (const auto& read : readers) {
    try {
      read(parse_body(body));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
