// Requests through the handler to a real engine with the shipped model, without connections.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

#include "serve/api/api.h"
#include "serve/api/errors.h"
#include "unit/serve/collecting_reply.h"

namespace tyto::api {
namespace {

constexpr auto kLong = std::chrono::seconds(120);

// Answers come from the engine's thread.
class WaitingReply : public CollectingReply {
 public:
  void send(http::Response response) override {
    const std::lock_guard lock(mutex_);
    CollectingReply::send(std::move(response));
    changed_.notify_all();
  }
  void begin(int with_status, std::string with_type, http::Headers with_headers) override {
    const std::lock_guard lock(mutex_);
    CollectingReply::begin(with_status, std::move(with_type), std::move(with_headers));
  }
  void write(std::string piece) override {
    const std::lock_guard lock(mutex_);
    CollectingReply::write(std::move(piece));
    changed_.notify_all();
  }
  void finish() override {
    const std::lock_guard lock(mutex_);
    CollectingReply::finish();
    changed_.notify_all();
  }
  bool wait_end() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return ends > 0; });
  }
  bool wait_text(const std::string& text) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kLong, [&] { return body.find(text) != std::string::npos; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class ApiHandler : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    metrics = new ServeMetrics();
    EngineThreadOptions options;
    ModelToServe& owlet = options.models.emplace_back();
    owlet.name = "owlet";
    owlet.engine.model = TYTO_SOURCE_DIR "/models/owlet";
    owlet.engine.threads = 1;
    owlet.engine.pipeline.forward.sequences = 8;
    options.receipt_context = [](Engine& with) {
      return ReceiptContext{.model = with.model().path.string(), .limits = with.limits()};
    };
    engine = new EngineThread(std::move(options), *metrics);
    ASSERT_TRUE(engine->wait_ready(kLong));
    Views views{.doctor = [] { return std::string(R"({"checks":[]})"); }};
    handler =
        make_handler({.engine = *engine, .metrics = *metrics, .version = "1.2.3", .views = views});
  }
  static void TearDownTestSuite() {
    handler = {};
    delete engine;
    delete metrics;
  }

  std::shared_ptr<WaitingReply> begin(const std::string& method, const std::string& path,
                                      const std::string& body = "", http::Headers headers = {}) {
    auto reply = std::make_shared<WaitingReply>();
    handler({.method = method, .path = path, .query = "", .headers = headers, .body = body}, reply);
    return reply;
  }
  std::shared_ptr<WaitingReply> call(const std::string& method, const std::string& path,
                                     const std::string& body = "", http::Headers headers = {}) {
    auto reply = begin(method, path, body, std::move(headers));
    EXPECT_TRUE(reply->wait_end());
    return reply;
  }
  Json get(const std::string& path) {
    const auto reply = call("GET", path);
    EXPECT_EQ(reply->status, 200) << path << reply->body;
    return reply->json();
  }
  Json post(const std::string& path, const std::string& body) {
    const auto reply = call("POST", path, body);
    EXPECT_EQ(reply->status, 200) << path << reply->body;
    return reply->json();
  }
  // The status, and the error's code.
  std::pair<int, std::string> refused(const std::string& path, const std::string& body) {
    const auto reply = call("POST", path, body);
    return {reply->status, reply->json().at("error").string_or("code", "")};
  }

  static inline ServeMetrics* metrics = nullptr;
  static inline EngineThread* engine = nullptr;
  static inline http::Handler handler;
};

Json only(const Json& array) {
  EXPECT_EQ(array.size(), 1u);
  std::optional<Json> found;
  array.for_each_element([&](size_t, const Json& element) { found = element; });
  return found.value();
}

std::string content_of(const Json& answer) {
  return std::string(only(answer.at("choices")).at("message").at("content").as_string());
}

constexpr const char* kStory =
    R"("messages":[{"role":"user","content":"Tell me a story."}],"temperature":0,"max_tokens":8)";

TEST_F(ApiHandler, Status) {
  EXPECT_EQ(get("/health").at("status").as_string(), "ok");
  EXPECT_EQ(only(get("/v1/models").at("data")).at("id").as_string(), "owlet");
  EXPECT_EQ(get("/v1/models/owlet").at("object").as_string(), "model");
  EXPECT_GT(get("/props").at("default_generation_settings").at("n_ctx").as_int(), 0);
  EXPECT_TRUE(get("/slots").is(Json::Type::array));
  EXPECT_EQ(get("/doctor").at("checks").size(), 0u);
  EXPECT_EQ(call("GET", "/plan")->status, 404);  // nobody gave one
  const auto counted = call("GET", "/metrics");
  EXPECT_TRUE(counted->type.starts_with("text/plain; version=0.0.4"));
  EXPECT_NE(counted->body.find("tyto_model_loaded"), std::string::npos);
}

TEST_F(ApiHandler, PathsAndMethods) {
  EXPECT_EQ(call("GET", "/nowhere")->status, 404);
  const auto other = call("GET", "/v1/chat/completions");
  EXPECT_EQ(other->status, 405);
  EXPECT_EQ(other->headers.front(), (std::pair<std::string, std::string>{"Allow", "POST"}));
  EXPECT_EQ(call("GET", "/v1/models/gpt")->status, 404);
  EXPECT_TRUE(call("GET", "/api/nowhere")->json().at("error").is(Json::Type::string));
  const auto page = call("GET", "/");
  EXPECT_EQ(page->status, 200);
  EXPECT_TRUE(page->type.starts_with("text/html"));
}

TEST_F(ApiHandler, ChatAndItsReceipt) {
  const Json answer =
      post("/v1/chat/completions", std::string("{") + kStory + R"(,"receipt":true})");
  EXPECT_FALSE(content_of(answer).empty());
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int(), 8);
  const std::string id(answer.at("id").as_string());
  EXPECT_TRUE(id.starts_with("chatcmpl-"));
  EXPECT_EQ(answer.at("receipt").at("generated_tokens").as_int(), 8);
  EXPECT_EQ(get("/v1/receipts/" + id).at("hash").as_string(),
            answer.at("receipt").at("hash").as_string());
  EXPECT_EQ(call("GET", "/v1/receipts/" + id + "/profile.html")->status, 404);
  bool is_listed = false;
  get("/v1/receipts").at("receipts").for_each_element([&](size_t, const Json& receipt) {
    is_listed |= receipt.at("id").as_string() == id;
  });
  EXPECT_TRUE(is_listed);
}

TEST_F(ApiHandler, AStreamSaysTheSame) {
  const std::string whole =
      content_of(post("/v1/chat/completions", std::string("{") + kStory + "}"));
  const auto reply =
      call("POST", "/v1/chat/completions",
           std::string("{") + kStory + R"(,"stream":true,"timings_per_token":true})");
  EXPECT_NE(reply->body.find("predicted_n\":1,"), std::string::npos);
  EXPECT_TRUE(reply->body.ends_with("data: [DONE]\n\n"));
  std::string streamed;
  size_t at = 0;
  while ((at = reply->body.find("data: {", at)) != std::string::npos) {
    const size_t end = reply->body.find("\n\n", at);
    const Json piece = Json::parse(reply->body.substr(at + 6, end - at - 6), "piece");
    streamed += only(piece.at("choices")).at("delta").string_or("content", "");
    at = end;
  }
  EXPECT_EQ(streamed, whole);
}

TEST_F(ApiHandler, Recorded) {
  const Json answer = post("/v1/completions",
                           R"({"prompt":"Once","max_tokens":4,"profile":true,"ignore_eos":true})");
  const std::string path = "/v1/receipts/" + std::string(answer.at("id").as_string());
  EXPECT_TRUE(get(path + "/profile.json").find("schema"));
  const auto page = call("GET", path + "/profile.html");
  EXPECT_TRUE(page->body.starts_with("<!doctype html>"));
  EXPECT_EQ(page->headers.front().first, "Content-Security-Policy");
  EXPECT_TRUE(call("GET", path + "/dataflow.svg")->body.starts_with("<svg xmlns="));
}

TEST_F(ApiHandler, CompletionsOfSeveralPrompts) {
  const Json answer = post("/v1/completions",
                           R"({"prompt":["Once","There"],"n":2,"max_tokens":3,"echo":true,
                               "temperature":0,"ignore_eos":true})");
  std::vector<std::string> texts;
  answer.at("choices").for_each_element(
      [&](size_t, const Json& choice) { texts.emplace_back(choice.at("text").as_string()); });
  ASSERT_EQ(texts.size(), 4u);
  EXPECT_TRUE(texts[0].starts_with("Once") && texts[3].starts_with("There"));
  EXPECT_EQ(texts[0], texts[1]);  // without chance
  EXPECT_EQ(answer.at("usage").at("completion_tokens").as_int(), 12);
}

TEST_F(ApiHandler, LogProbabilities) {
  const Json answer = post("/v1/chat/completions",
                           std::string("{") + kStory + R"(,"logprobs":true,"top_logprobs":2})");
  size_t tokens = 0;
  only(answer.at("choices"))
      .at("logprobs")
      .at("content")
      .for_each_element([&](size_t, const Json& entry) {
        ++tokens;
        EXPECT_LE(entry.at("logprob").as_double(), 0);
        EXPECT_EQ(entry.at("top_logprobs").size(), 2u);
      });
  EXPECT_EQ(tokens, 8u);
}

TEST_F(ApiHandler, FormatsHold) {
  const Json answer = post("/v1/chat/completions",
                           R"({"messages":[{"role":"user","content":"Say yes."}],"max_tokens":60,
          "response_format":{"type":"json_schema","json_schema":{"name":"x","schema":
          {"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],
           "additionalProperties":false}}}})");
  const Json value = Json::parse(content_of(answer), "content");
  EXPECT_EQ(value.at("ok").type(), Json::Type::boolean);
  const Json word =
      post("/v1/completions", R"({"prompt":"Say","grammar":"root ::= \"yes\" | \"no\""})");
  const std::string text(only(word.at("choices")).at("text").as_string());
  EXPECT_TRUE(text == "yes" || text == "no") << text;
}

TEST_F(ApiHandler, Refusals) {
  using Refused = std::pair<int, std::string>;
  EXPECT_EQ(refused("/v1/chat/completions", "{"), Refused(400, ""));
  EXPECT_EQ(refused("/v1/chat/completions", "{}"), Refused(400, "missing_required_parameter"));
  EXPECT_EQ(refused("/v1/chat/completions", R"({"model":"gpt-4","messages":[]})"),
            Refused(404, "model_not_found"));
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":"x","grammar":"root ::= ("})").first, 400);
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":"x","logit_bias":{"99999999":1}})").first, 400);
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":[99999999]})").first, 400);
  const std::string words = "word " + std::string(40000, 'a');
  EXPECT_EQ(refused("/v1/completions", R"({"prompt":")" + words + "\"}"),
            Refused(400, "context_length_exceeded"));
  const auto late =
      call("POST", "/v1/completions", R"({"prompt":"x","ignore_eos":true,"timeout_ms":1})");
  EXPECT_EQ(late->status, 504);
  EXPECT_EQ(late->json().at("error").at("code").as_string(), "timeout");
  EXPECT_EQ(
      call("POST", "/v1/completions", R"({"prompt":"x"})", {{"x-request-timeout", "soon"}})->status,
      400);
}

TEST_F(ApiHandler, AClientThatGoesAwayIsForgotten) {
  const auto reply =
      begin("POST", "/v1/completions",
            R"({"prompt":"Once","stream":true,"ignore_eos":true,"max_tokens":100000})");
  ASSERT_TRUE(reply->wait_text("data: "));
  reply->gone();
  ASSERT_TRUE(reply->wait_end());
  for (const SlotStatus& slot : engine->slots()) EXPECT_NE(slot.model, "owlet");
}

TEST_F(ApiHandler, Tokens) {
  const Json tokens = post("/tokenize", R"({"content":"Hello é"})").at("tokens");
  const Json pieces = post("/tokenize", R"({"content":"Hello é","with_pieces":true})").at("tokens");
  EXPECT_EQ(tokens.size(), pieces.size());
  EXPECT_EQ(post("/detokenize", "{\"tokens\":" + tokens.text() + "}").at("content").as_string(),
            "Hello é");
  EXPECT_EQ(post("/tokenize", R"({"content":"a","add_special":true})").at("tokens").size(),
            post("/tokenize", R"({"content":"a"})").at("tokens").size() + 1);
  const Json text = post("/apply-template", R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_NE(text.at("prompt").as_string().find("Hi"), std::string_view::npos);
}

TEST_F(ApiHandler, Ollama) {
  EXPECT_EQ(get("/api/version").at("version").as_string(), "1.2.3");
  EXPECT_EQ(only(get("/api/tags").at("models")).at("name").as_string(), "owlet");
  EXPECT_EQ(only(get("/api/ps").at("models")).at("name").as_string(), "owlet");
  EXPECT_TRUE(post("/api/show", R"({"model":"owlet:latest"})").find("model_info"));
  const Json chat = post("/api/chat", R"({"model":"owlet","stream":false,
      "messages":[{"role":"user","content":"Hi"}],"options":{"num_predict":4}})");
  EXPECT_TRUE(chat.at("done").as_bool());
  EXPECT_EQ(chat.at("eval_count").as_int(), 4);
  const auto lines =
      call("POST", "/api/generate",
           R"({"model":"owlet","prompt":"Once","raw":true,"options":{"num_predict":3}})");
  EXPECT_EQ(lines->type, "application/x-ndjson");
  EXPECT_NE(lines->body.find("\"done\":true"), std::string::npos);
  const auto unknown = call("POST", "/api/chat", R"({"model":"llama9","messages":[]})");
  EXPECT_EQ(unknown->status, 404);
  EXPECT_TRUE(unknown->json().at("error").is(Json::Type::string));
}

TEST_F(ApiHandler, Embeddings) {
  const Json answer = post("/v1/embeddings", R"({"input":["a dog","a cat"]})");
  double length = 0;
  answer.at("data").for_each_element([&](size_t index, const Json& entry) {
    EXPECT_EQ(entry.at("index").as_uint(9), index);
    if (index > 0) return;
    entry.at("embedding").for_each_element([&](size_t, const Json& value) {
      length += value.as_double() * value.as_double();
    });
  });
  EXPECT_NEAR(length, 1, 1e-3);
  const Json packed = post("/v1/embeddings", R"({"input":"a dog","encoding_format":"base64"})");
  EXPECT_TRUE(only(packed.at("data")).at("embedding").is(Json::Type::string));
  EXPECT_EQ(post("/api/embed", R"({"input":["a","b"]})").at("embeddings").size(), 2u);
  EXPECT_TRUE(post("/api/embeddings", R"({"prompt":"a"})").find("embedding"));
}

}  // namespace
}  // namespace tyto::api
