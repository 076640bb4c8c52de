#include <gtest/gtest.h>

#include <string>

#include "serve/api/errors.h"
#include "serve/api/generation.h"
#include "serve/api/requests.h"
#include "support/expect_error.h"
#include "unit/text/small_vocabularies.h"

namespace tyto::api {
namespace {

constexpr const char* kTools = R"([{"type":"function","function":{"name":"weather",
  "parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}])";

ChatCompletionRequest chat(const std::string& fields) {
  return parse_chat_completion(
      parse_body(R"({"messages":[{"role":"user","content":"Hi"}])" + fields + "}"), {});
}

TextCompletionRequest completion(const std::string& fields) {
  return parse_completion(parse_body("{" + fields + "}"), {});
}

// The field that is to blame; empty: none.
template <typename Read>
std::string blamed(const Read& read) {
  try {
    read();
    return "";
  } catch (const RequestError& error) {
    EXPECT_EQ(refusal_of(error).status, 400);
    return error.param;
  }
}

TEST(ApiRequests, AChatsFieldsAreRead) {
  const ChatCompletionRequest request = chat(
      R"(,"logprobs":true,"top_logprobs":3,"add_generation_prompt":false,"special":true,
         "enable_thinking":false,"chat_template_kwargs":{"a":1},"temperature":0)");
  EXPECT_EQ(request.conversation.messages.front().content, "Hi");
  EXPECT_TRUE(request.options.log_probabilities);
  EXPECT_EQ(request.options.top_log_probabilities, 3u);
  EXPECT_FALSE(request.conversation.add_generation_prompt);
  EXPECT_TRUE(request.conversation.special_in_messages);
  EXPECT_EQ(request.conversation.thinking, false);
  EXPECT_EQ(request.conversation.variables->at("a").as_int(), 1);
  EXPECT_EQ(request.options.sampling.temperature, 0);
}

TEST(ApiRequests, TheModelsDefaultsStay) {
  const ChatCompletionRequest request = parse_chat_completion(
      parse_body(R"({"messages":[{"role":"user","content":"Hi"}],"top_k":3})"),
      {.temperature = 0.25f, .top_k = 9});
  EXPECT_FLOAT_EQ(request.options.sampling.temperature, 0.25f);
  EXPECT_EQ(request.options.sampling.top_k, 3u);
}

TEST(ApiRequests, ChatIsRefusedByName) {
  const auto blame = [](const std::string& fields) { return blamed([&] { chat(fields); }); };
  EXPECT_EQ(blame(R"(,"logprobs":1)"), "logprobs");
  EXPECT_EQ(blame(R"(,"top_logprobs":3)"), "top_logprobs");
  EXPECT_EQ(blame(R"(,"logprobs":true,"top_logprobs":21)"), "top_logprobs");
  EXPECT_EQ(blame(R"(,"messages":"Hi")"), "messages");
  EXPECT_EQ(blame(R"(,"messages":[])"), "messages");
  EXPECT_EQ(blame(R"(,"messages":[{"role":7,"content":"x"}])"), "messages");
  EXPECT_EQ(blame(R"(,"messages":null)"), "messages");
  EXPECT_EQ(blame(R"(,"tools":{})"), "tools");
  EXPECT_EQ(blame(R"(,"tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(blame(R"(,"chat_template_kwargs":[])"), "chat_template_kwargs");
  const std::string tools = std::string(",\"tools\":") + kTools;
  EXPECT_EQ(blame(tools + R"(,"tool_choice":"maybe")"), "tool_choice");
  EXPECT_EQ(blame(tools + R"(,"tool_choice":{"type":"function","function":{"name":"x"}})"),
            "tool_choice");
  EXPECT_EQ(blame(tools + R"(,"response_format":{"type":"json_object"})"), "tools");
  EXPECT_EQ(blame(tools + R"(,"parallel_tool_calls":1)"), "parallel_tool_calls");
}

TEST(ApiRequests, TooManyMessages) {
  std::string messages = R"({"role":"user","content":"x"})";
  for (int i = 0; i < 4096; ++i) messages += R"(,{"role":"user","content":"x"})";
  EXPECT_EQ(blamed([&] { chat(",\"messages\":[" + messages + "]"); }), "messages");
}

TEST(ApiRequests, ToolsAndTheirChoiceAreRead) {
  const std::string tools = std::string(",\"tools\":") + kTools;
  const ChatCompletionRequest any = chat(tools);
  ASSERT_EQ(any.tools.size(), 1u);
  EXPECT_EQ(any.tools.front().name, "weather");
  EXPECT_TRUE(any.conversation.tools.has_value());
  EXPECT_EQ(any.tool_choice.kind, ToolChoice::Kind::automatic);
  const ChatCompletionRequest none = chat(tools + R"(,"tool_choice":"none")");
  EXPECT_TRUE(none.tools.empty());
  EXPECT_FALSE(none.conversation.tools.has_value());
  EXPECT_FALSE(chat(R"(,"tools":[])").conversation.tools.has_value());
  const ChatCompletionRequest named =
      chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"weather"}})");
  EXPECT_EQ(named.tool_choice.kind, ToolChoice::Kind::required);
  EXPECT_EQ(named.tool_choice.name, "weather");
}

TEST(ApiRequests, ToolsHaveATemplateOfTheirOwn) {
  ModelText model;
  model.tokenizer = std::make_shared<const Tokenizer>(byte_level_vocabulary({}), "small");
  model.chat_template = std::make_shared<const ChatTemplate>("D", "default");
  model.tool_template = std::make_shared<const ChatTemplate>("T{{ tools | length }}", "tool_use");
  const auto prompt = [&](const std::string& fields) {
    return chat_text(model, chat(fields).conversation);
  };
  EXPECT_EQ(prompt(""), "D");
  EXPECT_EQ(prompt(R"(,"tools":[])"), "D");
  EXPECT_EQ(prompt(std::string(R"(,"tools":)") + kTools), "T1");
  model.tool_template.reset();
  EXPECT_EQ(blamed([&] { prompt(std::string(R"(,"tools":)") + kTools); }), "tools");
  model.why_no_tools = "line 1: no such filter";
  EXPECT_EQ(prompt(""), "D");
  EXPECT_ERROR(prompt(std::string(R"(,"tools":)") + kTools), "line 1: no such filter");
  // Where it is the only one, it is still the one for tools.
  model.why_no_tools.clear();
  model.chat_template.reset();
  model.tool_template = std::make_shared<const ChatTemplate>("T{{ tools | length }}", "tool_use");
  EXPECT_EQ(prompt(std::string(R"(,"tools":)") + kTools), "T1");
  EXPECT_ERROR(prompt(""), "the model has no chat template");
}

TEST(ApiRequests, AModelWithoutADefaultTemplateNamesItsTemplates) {
  ModelText model;
  model.name = "m";
  model.why_no_chat = "has the chat templates rag, tool_use, and none that is called default";
  for (const std::string& tools : {std::string(), std::string(R"(,"tools":)") + kTools}) {
    EXPECT_ERROR(chat_text(model, chat(tools).conversation),
                 "m: " + model.why_no_chat + "; serve it with --chat-template and the name of one");
  }
}

TEST(ApiRequests, ToolsThatATemplateDoesNotShowAreRefused) {
  ModelText model;
  model.tokenizer = std::make_shared<const Tokenizer>(byte_level_vocabulary({}), "small");
  const auto blame = [&](const std::string& source) {
    model.chat_template = std::make_shared<const ChatTemplate>(source, "test");
    const Conversation conversation = chat(std::string(R"(,"tools":)") + kTools).conversation;
    return blamed([&] { chat_text(model, conversation); });
  };
  EXPECT_EQ(blame("D"), "tools");
  EXPECT_EQ(blame("{% for tool in tools or [] %}{% endfor %}D"), "tools");
  EXPECT_EQ(blame("{{ tools | tojson }}"), "");
  EXPECT_EQ(blame("{% for tool in tools %}{{ tool.type }}{% endfor %}"), "");
}

TEST(ApiRequests, APromptOfTheBosAlone) {
  ModelText model;
  model.tokenizer = std::make_shared<const Tokenizer>(byte_level_vocabulary({}), "small");
  const std::vector<Token> bos = {model.tokenizer->vocabulary().bos};
  EXPECT_EQ(prompt_tokens(model, {.text = ""}, "prompt"), bos);
  EXPECT_EQ(prompt_tokens(model, {.text = "<|begin|>"}, "prompt"), bos);
}

TEST(ApiRequests, ACompletionsFieldsAreRead) {
  EXPECT_EQ(completion(R"("prompt":"a")").prompts.front().text, "a");
  EXPECT_EQ(completion(R"("prompt":[1,2])").prompts.front().tokens.size(), 2u);
  EXPECT_TRUE(completion(R"("prompt":"a","echo":true)").echo);
  const TextCompletionRequest scored = completion(R"("prompt":"a","logprobs":2)");
  EXPECT_TRUE(scored.options.log_probabilities);
  EXPECT_EQ(scored.options.top_log_probabilities, 2u);
  EXPECT_EQ(completion(R"("prompt":"a","n":2,"best_of":2,"suffix":"")").options.choices, 2u);
  const auto blame = [](const std::string& fields) { return blamed([&] { completion(fields); }); };
  EXPECT_EQ(blame(R"("echo":true)"), "prompt");
  EXPECT_EQ(blame(R"("prompt":"a","best_of":2)"), "best_of");
  EXPECT_EQ(blame(R"("prompt":"a","suffix":"x")"), "suffix");
  EXPECT_EQ(blame(R"("prompt":"a","logprobs":true)"), "logprobs");
  EXPECT_EQ(blame(R"("prompt":"a","logprobs":1,"echo":true)"), "logprobs");
}

TEST(ApiRequests, AnEmbeddingsFieldsAreRead) {
  EXPECT_TRUE(parse_embeddings(parse_body(R"({"input":"a","encoding_format":"base64"})")).base64);
  EXPECT_EQ(parse_embeddings(parse_body(R"({"input":["a","b"]})")).inputs.size(), 2u);
  const auto blame = [](const std::string& body) {
    return blamed([&] { parse_embeddings(parse_body(body)); });
  };
  EXPECT_EQ(blame("{}"), "input");
  EXPECT_EQ(blame(R"({"input":7})"), "input");
  EXPECT_EQ(blame(R"({"input":"a","encoding_format":"hex"})"), "encoding_format");
  EXPECT_EQ(blame(R"({"input":"a","dimensions":0})"), "dimensions");
  EXPECT_EQ(parse_embeddings(parse_body(R"({"input":"a","dimensions":8})")).dimensions, 8u);
  EXPECT_FALSE(parse_embeddings(parse_body(R"({"input":"a"})")).truncate);
}

TEST(ApiRequests, OllamaEmbeddings) {
  const auto read = [](const std::string& body) { return parse_ollama_embed(parse_body(body)); };
  EXPECT_TRUE(read(R"({"input":"a"})").truncate);
  EXPECT_FALSE(read(R"({"input":"a","truncate":false})").truncate);
  EXPECT_FALSE(read(R"({"prompt":"a"})").truncate);  // the older form
  EXPECT_EQ(read(R"({"input":"a","dimensions":8})").dimensions, 8u);
  EXPECT_EQ(blamed([&] { read(R"({"input":"a","truncate":"no"})"); }), "truncate");
  EXPECT_EQ(blamed([&] { read(R"({"input":"a","dimensions":-1})"); }), "dimensions");
}

TEST(ApiRequests, OllamaLoadsAndUnloads) {
  const auto read = [](const std::string& body) {
    return parse_ollama_load(parse_body(body), "prompt");
  };
  for (const char* body : {"{}", R"({"prompt":""})", R"({"prompt":null})"})
    ASSERT_TRUE(read(body)) << body;
  for (const char* body : {R"({"prompt":"x"})", R"({"prompt":7})", R"({"prompt":[]})"})
    EXPECT_FALSE(read(body)) << body;
  EXPECT_TRUE(parse_ollama_load(parse_body(R"({"messages":[]})"), "messages"));
  EXPECT_FALSE(parse_ollama_load(parse_body(R"({"messages":""})"), "messages"));
  for (const char* time : {"0", "0.0", "\"0\"", "\"0s\"", "\"0m\""})
    EXPECT_TRUE(read(fmt::format(R"({{"keep_alive":{}}})", time))->unloads) << time;
  for (const char* time :
       {"-1", "300", "\"5m\"", "\"-1\"", "\"\"", "null", "true", "[0]", "\"soon\""})
    EXPECT_FALSE(read(fmt::format(R"({{"keep_alive":{}}})", time))->unloads) << time;
}

TEST(ApiRequests, ModelNames) {
  EXPECT_EQ(parse_model(parse_body("{}")), "");
  EXPECT_EQ(parse_model(parse_body(R"({"model":"owlet"})")), "owlet");
  EXPECT_EQ(blamed([] { parse_model(parse_body(R"({"model":1})")); }), "model");
}

TEST(ApiRequests, OllamaChat) {
  const auto read = [](const std::string& fields) {
    return parse_ollama_chat(
        parse_body(R"({"messages":[{"role":"user","content":"Hi"}])" + fields + "}"), {});
  };
  EXPECT_TRUE(read("").options.stream);
  const ChatCompletionRequest request = read(
      R"(,"stream":false,"format":"json","think":"low","options":{"num_predict":5,"temperature":0,
         "stop":["x"],"seed":3,"num_ctx":17,"num_thread":"ignored"})");
  EXPECT_FALSE(request.options.stream);
  EXPECT_EQ(request.options.format.kind, OutputFormat::Kind::json);
  EXPECT_EQ(request.options.max_tokens, 5u);
  EXPECT_EQ(request.options.sampling.seed, 3u);
  EXPECT_EQ(request.options.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(request.conversation.thinking, true);
  EXPECT_FALSE(read(R"(,"options":{"num_predict":-2})").options.max_tokens.has_value());
  EXPECT_EQ(read(R"(,"format":{"type":"integer"})").options.format.kind,
            OutputFormat::Kind::json_schema);
  EXPECT_NE(read("").options.sampling.seed, read("").options.sampling.seed);
  const auto blame = [&](const std::string& fields) { return blamed([&] { read(fields); }); };
  EXPECT_EQ(blame(R"(,"format":"xml")"), "format");
  EXPECT_EQ(blame(R"(,"options":{"temperature":"x"})"), "options.temperature");
  EXPECT_EQ(blame(R"(,"options":[])"), "options");
  EXPECT_EQ(blame(R"(,"messages":[{"role":"user","content":"x","images":["aa"]}])"),
            "messages[0].images");
}

TEST(ApiRequests, OllamaGenerate) {
  const auto read = [](const std::string& body) {
    return parse_ollama_generate(parse_body(body), {});
  };
  const GenerateRequest request = read(R"({"prompt":"Hi","system":"Be brief."})");
  ASSERT_EQ(request.conversation.messages.size(), 2u);
  EXPECT_EQ(request.conversation.messages[0].role, "system");
  EXPECT_FALSE(request.raw.has_value());
  EXPECT_EQ(read(R"({"prompt":"Hi","raw":true})").raw, "Hi");
  const auto blame = [&](const std::string& body) { return blamed([&] { read(body); }); };
  EXPECT_EQ(blame("{}"), "prompt");
  EXPECT_EQ(blame(R"({"prompt":"x","images":["aa"]})"), "images");
  EXPECT_EQ(blame(R"({"prompt":"x","suffix":"y"})"), "suffix");
  EXPECT_EQ(blame(R"({"prompt":"x","template":"y"})"), "template");
  EXPECT_EQ(blame(R"({"prompt":"x","context":[]})"), "");  // what answers have
  EXPECT_EQ(blame(R"({"prompt":"x","context":null})"), "");
  EXPECT_EQ(blame(R"({"prompt":"x","context":"y"})"), "context");
  try {
    read(R"({"prompt":"x","context":[1,2,3]})");
    ADD_FAILURE();
  } catch (const RequestError& error) {
    EXPECT_EQ(refusal_of(error).status, 400);
    EXPECT_EQ(error.param, "context");
    EXPECT_NE(std::string_view(error.what()).find("/api/chat"), std::string_view::npos);
  }
  EXPECT_EQ(parse_ollama_embed(parse_body(R"({"prompt":"x"})")).inputs.front().text, "x");
}

}  // namespace
}  // namespace tyto::api
