// Renders one chat template many times, as `tyto template` does once: a program's start under
// sanitizers takes longer than a rendering.
//
// Usage: render_templates TEMPLATE_FILE JOBS_FILE DATE BOS EOS
//   JOBS_FILE   [{"messages": FILE, "tools": FILE or "", "generation": true}, ...]
// Prints [{"text": ...} or {"error": ...}, ...].
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_value.h"
#include "text/chat_template.h"
#include "text/tools.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxFileBytes = 64 << 20;

std::string render(const std::string& template_file, const Json& job, ChatOptions options) {
  options.add_generation_prompt = job.at("generation").as_bool();
  const std::string tools(job.at("tools").as_string());
  if (!tools.empty()) {
    options.tools = Json::parse_file(tools, kMaxFileBytes);
    tools_from_json(*options.tools);
  }
  const std::string messages(job.at("messages").as_string());
  const ChatTemplate chat_template(read_text_file(template_file, kMaxFileBytes), template_file);
  return chat_template.render(messages_from_json(Json::parse_file(messages, kMaxFileBytes)),
                              options);
}

int render_all(const std::string& template_file, const std::string& jobs_file,
               const ChatOptions& options) {
  JsonValue results = JsonValue::array();
  Json::parse_file(jobs_file, kMaxFileBytes).for_each_element([&](size_t, const Json& job) {
    try {
      results.push_back({{"text", render(template_file, job, options)}});
    } catch (const Error& error) {
      results.push_back({{"error", error.what()}});
    }
  });
  std::cout << results.dump();
  return 0;
}

}  // namespace
}  // namespace tyto

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: render_templates TEMPLATE_FILE JOBS_FILE DATE BOS EOS\n";
    return 2;
  }
  tyto::ChatOptions options;
  options.date = argv[3];
  options.bos_token = argv[4];
  options.eos_token = argv[5];
  return tyto::render_all(argv[1], argv[2], options);
}
