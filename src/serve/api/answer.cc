#include "serve/api/answer.h"

namespace tyto::api {

bool is_cut(const Choice& choice) {
  return choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full;
}

std::vector<CallPart> whole_calls(const std::vector<CallPart>& calls) {
  std::vector<CallPart> whole;
  for (const CallPart& call : calls)
    if (ordered_json::parse(call.arguments, nullptr, false).is_object()) whole.push_back(call);
  return whole;
}

std::string text_of_broken_calls(const std::vector<CallPart>& calls) {
  std::string text;
  for (const CallPart& call : calls)
    if (whole_calls({call}).empty())
      text += fmt::format(R"({{"name": "{}", "arguments": {})", call.name, call.arguments);
  return text;
}

}  // namespace tyto::api
