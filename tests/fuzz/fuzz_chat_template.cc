// Renders arbitrary bytes as a chat template. Anything but an Error that leaves it is a finding.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/chat_template.h"

namespace tyto {
namespace {

// The input is a template; what follows a NUL byte in it becomes the text of the messages.
void run(std::string_view input) {
  const size_t end = input.find('\0');
  const std::string_view source = input.substr(0, end);
  const std::string content(end == input.npos ? "Hi <think>\n there" : input.substr(end + 1));
  ChatOptions options;
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  options.date = "2025-01-31";
  options.tools = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])", "tools");
  try {
    const ChatTemplate parsed(source, "input");
    for (const bool generation : {true, false}) {
      options.add_generation_prompt = generation;
      try {
        parsed.render(
            {{"system", "Be brief."},
             {"user", content},
             {.role = "assistant", .content = content, .tool_calls = {{"", "f", content}}},
             {.role = "tool", .content = content}},
            options);
      } catch (const Error&) {
      }
    }
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
