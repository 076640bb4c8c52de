#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tyto {
namespace {

std::vector<ChatMessage> read(const std::string& messages) {
  const Json body = Json::parse("{\"messages\": " + messages + "}", "request");
  return messages_from_json(body.at("messages"));
}

// The only message of an array.
ChatMessage read_one(const std::string& message) {
  return read("[" + message + "]").at(0);
}

Error refusal(const std::string& messages) {
  try {
    read(messages);
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "accepted: " << messages;
  return Error(ErrorCode::input, "", "");
}

TEST(ChatMessages, AConversation) {
  const auto messages = read(R"([
      {"role": "developer", "content": "Be brief.", "unknown": {"a": [1]}},
      {"role": "user", "content": "Hi", "name": "Ada"},
      {"role": "assistant", "content": "Hello.", "reasoning_content": "hm", "tool_calls": null},
      {"role": "owl", "content": ""}])");
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].role, "developer");
  EXPECT_EQ(messages[0].content, "Be brief.");
  EXPECT_EQ(messages[1].name, "Ada");
  EXPECT_EQ(messages[2].reasoning_content, "hm");
  EXPECT_TRUE(messages[2].tool_calls.empty());
  EXPECT_EQ(messages[3].role, "owl");
  EXPECT_TRUE(read("[]").empty());
}

TEST(ChatMessages, PartsAreJoined) {
  EXPECT_EQ(read_one(R"({"role": "user", "content": [{"type": "text", "text": "a"},
                                                     {"type": "text", "text": "b"}]})")
                .content,
            "a\nb");
  EXPECT_EQ(read_one(R"({"role": "user", "content": []})").content, "");
  const Error error = refusal(R"([{"role": "user", "content": "x"},
      {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}])");
  EXPECT_EQ(error.code, ErrorCode::unsupported);
  EXPECT_STREQ(error.what(), "request: messages[1].content[0].type: image_url is not supported");
}

TEST(ChatMessages, CallsOfOpenAiAndOfOllama) {
  const ChatMessage openai = read_one(R"({"role": "assistant", "content": null, "tool_calls": [
      {"id": "call_1", "type": "function",
       "function": {"name": "f", "arguments": "{\"x\": [1, 2.50]}"}},
      {"id": "call_2", "type": "function", "function": {"name": "g"}}]})");
  EXPECT_EQ(openai.content, "");
  ASSERT_EQ(openai.tool_calls.size(), 2u);
  EXPECT_EQ(openai.tool_calls[0].id, "call_1");
  EXPECT_EQ(openai.tool_calls[0].name, "f");
  EXPECT_EQ(openai.tool_calls[0].arguments, "{\"x\": [1, 2.50]}");
  EXPECT_EQ(openai.tool_calls[1].arguments, "{}");

  const ChatMessage ollama = read_one(R"({"role": "assistant", "content": "", "tool_calls": [
      {"function": {"name": "f", "arguments": {"b": "\"\n<", "a": [1, 2.5, null, true]}}}]})");
  ASSERT_EQ(ollama.tool_calls.size(), 1u);
  EXPECT_EQ(ollama.tool_calls[0].id, "");
  EXPECT_EQ(ollama.tool_calls[0].arguments, R"({"b":"\"\n<","a":[1,2.5,null,true]})");
}

TEST(ChatMessages, ResultsOfTools) {
  const ChatMessage openai =
      read_one(R"({"role": "tool", "tool_call_id": "call_1", "content": "42"})");
  EXPECT_EQ(openai.tool_call_id, "call_1");
  EXPECT_EQ(openai.content, "42");
  EXPECT_EQ(read_one(R"({"role": "tool", "tool_name": "f", "content": "42"})").name, "f");
}

TEST(ChatMessages, ContentMayBeLeftOutBesideCallsAlone) {
  EXPECT_EQ(read_one(R"({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]})")
                .tool_calls.size(),
            1u);
  EXPECT_STREQ(refusal(R"([{"role": "user"}])").what(),
               "request: messages[0]: field \"content\" is missing");
  EXPECT_STREQ(refusal(R"([{"role": "user", "content": null, "tool_calls": []}])").what(),
               "request: messages[0].content: expected a string, found null");
}

TEST(ChatMessages, ErrorsNameTheField) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"role": "user"})", "request: messages: expected an array, found an object"},
      {R"([7])", "request: messages[0]: expected an object, found a number"},
      {R"([{"content": "x"}])", "request: messages[0]: field \"role\" is missing"},
      {R"([{"role": 1, "content": "x"}])",
       "request: messages[0].role: expected a string, found a number"},
      {R"([{"role": "user", "content": {"a": 1}}])",
       "request: messages[0].content: expected a string, found an object"},
      {R"([{"role": "user", "content": [{"type": "text"}]}])",
       "request: messages[0].content[0]: field \"text\" is missing"},
      {R"([{"role": "tool", "content": "x", "tool_call_id": 5}])",
       "request: messages[0].tool_call_id: expected a string, found a number"},
      {R"([{"role": "assistant", "tool_calls": {}}])",
       "request: messages[0].tool_calls: expected an array, found an object"},
      {R"([{"role": "assistant", "tool_calls": [{"id": "x"}]}])",
       "request: messages[0].tool_calls[0]: field \"function\" is missing"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": [1]}}]}])",
       "request: messages[0].tool_calls[0].function.arguments: expected JSON text or an object"},
  };
  for (const auto& [messages, expected] : cases) {
    const Error error = refusal(messages);
    EXPECT_EQ(error.what(), expected);
    EXPECT_EQ(error.code, ErrorCode::input);
  }
  EXPECT_EQ(refusal(R"([{"role": "assistant", "tool_calls": [{"type": "custom"}]}])").code,
            ErrorCode::unsupported);
}

}  // namespace
}  // namespace tyto
