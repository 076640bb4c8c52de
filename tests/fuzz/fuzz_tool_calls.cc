// Reads arbitrary bytes as an answer with calls: the first byte chooses the format, the second how
// the text is cut. A finding is a result that depends on the cuts, a call of a function that there
// is not, and a text that says what the answer did not.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/tools.h"

namespace tyto {
namespace {

struct Joined {
  std::string content;
  std::vector<std::string> names, arguments;
  bool is_over = false;
  bool operator==(const Joined&) const = default;
};

void add(const AnswerDelta& delta, Joined& joined) {
  joined.content += delta.content;
  for (const ToolCallDelta& call : delta.calls) {
    TYTO_ASSERT(call.id.empty() == call.name.empty());
    if (!call.name.empty()) {
      TYTO_ASSERT(call.name == "f" || call.name == "owl");
      joined.names.push_back(call.name);
      joined.arguments.emplace_back();
    }
    TYTO_ASSERT(call.index + 1 == joined.names.size());
    joined.arguments.back() += call.arguments;
  }
}

Joined read(ToolFormat format, bool parallel, std::string_view text, uint32_t seed) {
  ToolCallStream stream(format, {{"f", {}}, {"owl", {}}}, 7, parallel);
  Joined joined;
  while (!text.empty()) {
    seed = seed * 1664525u + 1013904223u;
    const size_t size = 1 + (seed >> 24) % 9;
    add(stream.push(text.substr(0, size)), joined);
    text.remove_prefix(std::min(size, text.size()));
  }
  add(stream.finish(), joined);
  TYTO_ASSERT(stream.calls() == joined.names.size());
  joined.is_over = stream.is_over();
  return joined;
}

bool is_subsequence(std::string_view part, std::string_view text) {
  size_t at = 0;
  for (const char c : text) at += at < part.size() && part[at] == c ? 1 : 0;
  return at == part.size();
}

void run(std::string_view input) {
  if (input.size() < 2) return;
  const auto choice = static_cast<uint8_t>(input[0]);
  const auto formats = tool_syntaxes();
  const ToolFormat format = formats[choice % formats.size()].format;
  const bool parallel = choice % 2 == 0;
  const std::string_view text = input.substr(2);
  const Joined cut = read(format, parallel, text, static_cast<uint8_t>(input[1]));
  ToolCallStream stream(format, {{"f", {}}, {"owl", {}}}, 7, parallel);
  Joined whole;
  add(stream.push(text), whole);
  add(stream.finish(), whole);
  whole.is_over = stream.is_over();
  TYTO_ASSERT(cut == whole);
  TYTO_ASSERT(is_subsequence(whole.content, text));
  for (const std::string& arguments : whole.arguments)
    TYTO_ASSERT(arguments == "{}" || text.find(arguments) != text.npos);
  if (format == ToolFormat::none) TYTO_ASSERT(whole.content == text);
}

}  // namespace
}  // namespace tyto

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tyto::run({reinterpret_cast<const char*>(data), size});
  return 0;
}
