// Requests through the handler to a real engine with the shipped model, without connections.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/spelling.h"
#include "serve/api/errors.h"
#include "serve/api/routes.h"
#include "support/allocations.h"
#include "support/http_client.h"
#include "support/http_visits.h"
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
  static EngineThreadOptions engine_options() {
    EngineThreadOptions options;
    ModelToServe& owlet = options.models.emplace_back();
    owlet.name = "owlet";
    owlet.engine.model = TYTO_SOURCE_DIR "/models/owlet";
    owlet.engine.threads = 1;
    owlet.engine.pipeline.forward.sequences = 8;
    owlet.engine.pipeline.forward.context = 256;
    options.receipt_context = [](Engine& with) {
      return ReceiptContext{.model = with.model().path.string(), .limits = with.limits()};
    };
    return options;
  }
  static void SetUpTestSuite() {
    metrics = new ServeMetrics();
    engine = new EngineThread(engine_options(), *metrics);
    ASSERT_TRUE(engine->wait_ready(kLong));
    const auto doctor = [] {
      ++doctor_runs;
      if (doctor_fails) fail_input("doctor", "has not said all");
      doctor_may_end.wait();
      return std::string(R"({"checks":[]})");
    };
    handler = make_handler({.engine = *engine,
                            .metrics = *metrics,
                            .version = "1.2.3",
                            .views = {.doctor = std::make_unique<SlowView>(doctor, kLong, kLong)}});
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
  static inline std::atomic<int> doctor_runs = 0;
  static inline std::atomic<bool> doctor_fails = false;
  static inline http::Event doctor_may_end;
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

TEST_F(ApiHandler, StatusPathsAnswer) {
  for (const char* path : {"/health", "/v1/health"})
    EXPECT_EQ(get(path).at("status").as_string(), "ok");
  EXPECT_EQ(only(get("/v1/models").at("data")).at("id").as_string(), "owlet");
  EXPECT_EQ(get("/v1/models/owlet").at("object").as_string(), "model");
  EXPECT_GT(get("/props").at("default_generation_settings").at("n_ctx").as_int(), 0);
  EXPECT_TRUE(get("/slots").is(Json::Type::array));
  EXPECT_EQ(call("GET", "/plan")->status, 404);  // none was given
  const auto counted = call("GET", "/metrics");
  EXPECT_TRUE(counted->type.starts_with("text/plain; version=0.0.4"));
  EXPECT_NE(counted->body.find("tyto_model_loaded"), std::string::npos);
}

TEST_F(ApiHandler, TheDoctorKeepsNoWorkerAndRunsOnceForAll) {
  doctor_fails = true;
  EXPECT_EQ(call("GET", "/doctor")->status, 500);
  doctor_fails = false;
  std::vector<std::shared_ptr<WaitingReply>> asked;                      // shared with the handler
  for (int i = 0; i < 3; ++i) asked.push_back(begin("GET", "/doctor"));  // none of them waits
  for (const auto& reply : asked) EXPECT_EQ(reply->ends, 0);
  doctor_may_end.happen();
  for (const auto& reply : asked) {
    EXPECT_TRUE(reply->wait_end());
    EXPECT_EQ(reply->json().at("checks").size(), 0u);
  }
  EXPECT_EQ(get("/doctor").at("checks").size(), 0u);  // kept
  EXPECT_EQ(doctor_runs, 2);                          // the one that failed was not
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

TEST_F(ApiHandler, ARecordedRequestHasItsProfile) {
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

TEST_F(ApiHandler, APromptOfTheBosAlone) {
  for (const char* prompt : {R"("")", R"("<|begin_of_text|>")", "[4091]"}) {
    const Json answer =
        post("/v1/completions", fmt::format(R"({{"prompt":{},"max_tokens":2}})", prompt));
    EXPECT_EQ(answer.at("usage").at("prompt_tokens").as_int(), 1) << prompt;
  }
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

TEST_F(ApiHandler, RefusalsHaveStatusAndCode) {
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
  const auto has_slot = [] {
    for (const SlotStatus& slot : engine->slots())
      if (slot.model == "owlet") return true;
    return false;
  };
  const auto deadline = std::chrono::steady_clock::now() + kLong;  // the slot goes after the answer
  while (has_slot() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_FALSE(has_slot());
}

TEST_F(ApiHandler, TokensOfATextAndBack) {
  const Json tokens = post("/tokenize", R"({"content":"Hello é"})").at("tokens");
  const Json pieces = post("/tokenize", R"({"content":"Hello é","with_pieces":true})").at("tokens");
  EXPECT_EQ(tokens.size(), pieces.size());
  EXPECT_EQ(post("/detokenize", "{\"tokens\":" + tokens.text() + "}").at("content").as_string(),
            "Hello é");
  EXPECT_EQ(post("/tokenize", R"({"content":"a","add_special":true})").at("tokens").size(),
            post("/tokenize", R"({"content":"a"})").at("tokens").size() + 1);
  const Json text = post("/apply-template", R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_NE(text.at("prompt").as_string().find("Hi"), std::string_view::npos);
  const auto with_tools = call("POST", "/apply-template",
                               R"({"messages":[{"role":"user","content":"Hi"}],
                                   "tools":[{"type":"function","function":{"name":"f"}}]})");
  EXPECT_EQ(with_tools->status, 400);
  EXPECT_EQ(with_tools->json().at("error").at("param").as_string(), "tools");
}

TEST_F(ApiHandler, OllamaPathsAnswerAsOllamaDoes) {
  EXPECT_EQ(get("/api/version").at("version").as_string(), "1.2.3");
  for (const char* path : {"/api/tags", "/api/ps"}) {
    const Json model = only(get(path).at("models"));
    EXPECT_EQ(model.at("name").as_string(), "owlet:latest");
    EXPECT_EQ(model.at("model").as_string(), "owlet:latest");
    const std::string_view digest = model.at("digest").as_string();
    EXPECT_EQ(digest.size(), 64u);
    EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), digest.npos);
    EXPECT_EQ(model.at("details").at("format").as_string().find(' '), std::string_view::npos);
    const std::string_view type = model.at("details").at("quantization_level").as_string();
    EXPECT_EQ(type.find_first_of("abcdefghijklmnopqrstuvwxyz"), type.npos) << type;
  }
  EXPECT_EQ(only(get("/api/ps").at("models")).at("expires_at").as_string(), "9999-12-31T00:00:00Z");
  engine->set_keep_alive(std::chrono::hours(1));
  const std::string expiry(only(get("/api/ps").at("models")).at("expires_at").as_string());
  EXPECT_GT(expiry, utc_now());
  EXPECT_LE(expiry, utc_time(seconds_since_1970() + 3601));
  engine->set_keep_alive({});
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

// Errors of the server and errors of the handler, for each path.
TEST_F(ApiHandler, EveryErrorHasTheFormOfItsPath) {
  http::ServerOptions options = http::on_free_port();
  options.api_keys = {"k"};
  options.most_body_bytes = 1000;
  http::Server server(options, handler, error_body);
  const std::string local = "host: localhost\r\n", key = "x-api-key: k\r\n";
  const std::string bad = "content-length: 1\r\n\r\n{";
  const std::string unknown = "content-length: 19\r\n\r\n{\"model\":\"llama-9\"}";
  const std::vector<std::pair<int, std::string>> errors = {
      {401, local + "\r\n"},
      {403, local + "origin: http://evil.example\r\n\r\n"},
      {405, local + key + "\r\n"},
      {413, local + key + "content-length: 1001\r\n\r\n"},
      {417, local + key + "expect: x\r\n\r\n"},
      {421, "host: evil.example\r\n\r\n"},
      {431, local + "x: " + std::string(20000, 'x') + "\r\n\r\n"},
      {400, local + key + bad},
      {404, local + key + unknown},
  };
  const std::vector<std::pair<std::string, std::string>> paths = {
      {"GET", "/api/version"},
      {"GET", "/api/tags"},
      {"GET", "/api/ps"},
      {"POST", "/api/show"},
      {"POST", "/api/chat"},
      {"POST", "/api/generate"},
      {"POST", "/api/embed"},
      {"POST", "/api/embeddings"},
      {"POST", "/api/pull"},
      {"POST", "/v1/embeddings"},
      {"POST", "/v1/chat/completions"},
      {"POST", "/v1/completions"},
  };
  for (const auto& [right_method, path] : paths)
    for (const auto& [status, rest] : errors) {
      if ((status == 400 || status == 404) && right_method == "GET") continue;
      SCOPED_TRACE(path + " " + std::to_string(status));
      const std::string other = right_method == "GET" ? "POST" : "GET";
      HttpClient client(server.port());
      client.send((status == 405 ? other : right_method) + " " + path + " HTTP/1.1\r\n" + rest);
      const HttpAnswer answer = client.read_answer();
      EXPECT_TRUE(answer.status == status || path == "/api/pull") << answer.status;
      EXPECT_GE(answer.status, 400);
      const Json error = Json::parse(answer.body, "answer").at("error");
      EXPECT_TRUE(error.is(path.starts_with("/api/") ? Json::Type::string : Json::Type::object))
          << answer.body;
    }
}

TEST_F(ApiHandler, NamesAreTakenWithAndWithoutATag) {
  for (const char* name : {"owlet", "owlet:latest"}) {
    EXPECT_EQ(get(std::string("/v1/models/") + name).at("id").as_string(), "owlet");
    const std::string model = fmt::format(R"({{"model":"{}","content":"a"}})", name);
    EXPECT_GT(post("/tokenize", model).at("tokens").size(), 0u);
    EXPECT_TRUE(post("/api/show", model).find("model_info"));
  }
  for (const char* name : {"owlet:8b", "owlet:latest:latest", ":latest", "owl"})
    EXPECT_EQ(call("GET", std::string("/v1/models/") + name)->status, 404) << name;
}

TEST_F(ApiHandler, OllamaLoadsAndUnloadsWithoutAText) {
  const auto is_loaded = [] { return engine->models().front().is_loaded; };
  const auto wait_until_unloaded = [&] {
    for (int i = 0; i < 6000 && is_loaded(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return !is_loaded();
  };
  const std::pair<std::string, std::string> kEmpty[] = {
      {"/api/generate", R"("prompt":"")"},
      {"/api/generate", R"("stream":true)"},
      {"/api/chat", R"("messages":[])"},
      {"/api/chat", R"("stream":false)"},
  };
  for (const auto& [path, fields] : kEmpty) {
    SCOPED_TRACE(path + fields);
    const Json loaded = post(path, R"({"model":"owlet:latest",)" + fields + "}");
    EXPECT_EQ(loaded.at("done_reason").as_string(), "load");
    EXPECT_TRUE(loaded.at("done").as_bool());
    EXPECT_TRUE(is_loaded());
    const Json text =
        path == "/api/chat" ? loaded.at("message").at("content") : loaded.at("response");
    EXPECT_EQ(text.as_string(), "");
    const Json unloaded = post(path, R"({"model":"owlet","keep_alive":0,)" + fields + "}");
    EXPECT_EQ(unloaded.at("done_reason").as_string(), "unload");
    EXPECT_TRUE(wait_until_unloaded());
    EXPECT_EQ(get("/api/ps").at("models").size(), 0u);
    EXPECT_EQ(get("/api/tags").at("models").size(), 1u);
  }
  // With a text it goes when it has answered.
  const Json answer = post("/api/generate", R"({"model":"owlet","prompt":"Once","stream":false,
      "keep_alive":"0s","options":{"num_predict":2}})");
  EXPECT_EQ(answer.at("eval_count").as_int(), 2);
  EXPECT_TRUE(wait_until_unloaded());
  for (const char* path : {"/api/generate", "/api/chat"})
    EXPECT_EQ(call("POST", path, R"({"model":"llama9","keep_alive":0})")->status, 404);
  EXPECT_EQ(post("/api/chat", R"({"model":"owlet"})").at("done_reason").as_string(), "load");
}

TEST_F(ApiHandler, OllamaShortensLongInputs) {
  const std::string words = "word " + std::string(40000, 'a');
  const std::string input = R"({"model":"owlet","input":")" + words + "\"";
  const Json answer = post("/api/embed", input + "}");
  EXPECT_EQ(answer.at("embeddings").size(), 1u);
  EXPECT_EQ(answer.at("prompt_eval_count").as_int(),
            get("/props").at("default_generation_settings").at("n_ctx").as_int() - 1);
  EXPECT_EQ(call("POST", "/api/embed", input + R"(,"truncate":false})")->status, 400);
  EXPECT_EQ(call("POST", "/v1/embeddings", input + "}")->status, 400);
  EXPECT_EQ(call("POST", "/api/embeddings", R"({"prompt":")" + words + "\"}")->status, 400);
  const int64_t size = get("/v1/models/owlet").at("meta").at("n_embd").as_int();
  for (const char* path : {"/api/embed", "/v1/embeddings"})
    for (const auto& [dimensions, status] : {std::pair{size, 200}, {size - 1, 400}}) {
      const std::string body = fmt::format(R"({{"input":"a","dimensions":{}}})", dimensions);
      EXPECT_EQ(call("POST", path, body)->status, status) << path << body;
    }
}

TEST_F(ApiHandler, EmbeddingsHaveLengthOne) {
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

// Tasks of workers wait until they are run here; what is written before is written by the engine's
// thread, which has others to serve.
struct WorkerlessReply : WaitingReply {
  void on_worker(std::function<void()> task) override { tasks.set_value(std::move(task)); }
  std::promise<std::function<void()>> tasks;

  void run_task() {
    auto task = tasks.get_future();
    ASSERT_EQ(task.wait_for(kLong), std::future_status::ready);
    EXPECT_EQ(begins + ends, 0) << body;
    task.get()();
    EXPECT_EQ(ends, 1);
    EXPECT_EQ(status, 200) << body;
  }
};

TEST_F(ApiHandler, WorkersWriteEmbeddings) {
  for (const char* path : {"/v1/embeddings", "/api/embed"}) {
    const auto reply = std::make_shared<WorkerlessReply>();
    handler(
        {.method = "POST", .path = path, .query = "", .headers = {}, .body = R"({"input":"a"})"},
        reply);
    reply->run_task();
    EXPECT_NE(reply->body.find("embedding"), std::string::npos);
  }
}

TEST_F(ApiHandler, WorkersWriteStreamsThatWereHeld) {
  EngineThreadOptions options = engine_options();
  options.models.front().engine.require = "cpu";
  EngineThread strict(std::move(options), *metrics);
  ASSERT_TRUE(strict.wait_ready(kLong));
  const http::Handler handle =
      make_handler({.engine = strict, .metrics = *metrics, .version = "1.2.3", .views = {}});
  for (const char* path : {"/v1/completions", "/api/generate"}) {
    const std::string body =
        R"({"prompt":"Once upon a time","stream":true,"max_tokens":4,"options":{"num_predict":4}})";
    const auto reply = std::make_shared<WorkerlessReply>();
    handle({.method = "POST", .path = path, .query = "", .headers = {}, .body = body}, reply);
    reply->run_task();
    EXPECT_EQ(reply->begins, 1);
    EXPECT_GE(std::ranges::count(reply->body, '\n'), 5) << reply->body;
  }
}

TEST_F(ApiHandler, AnAnswerThatCouldNotBeKeptIsRefusedWithItsNumbers) {
  const std::string prompts = R"({"prompt":["a","b","c","d"],"n":16,"logprobs":20)";
  const auto reply = call("POST", "/v1/completions", prompts + R"(,"max_tokens":240})");
  EXPECT_EQ(reply->status, 400);
  const std::string message(reply->json().at("error").at("message").as_string());
  EXPECT_NE(message.find("64 answers of 240 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("129 tokens fit"), std::string::npos) << message;
  EXPECT_EQ(reply->json().at("error").at("param").as_string(), "max_tokens");
  // In a stream nothing is kept.
  const auto stream =
      begin("POST", "/v1/completions", prompts + R"(,"max_tokens":240,"stream":true})");
  EXPECT_TRUE(stream->wait_text("data: "));
  EXPECT_EQ(stream->status, 200);
  stream->gone();
}

TEST_F(ApiHandler, AStreamThatIsHeldIsKeptAsWell) {
  EngineThreadOptions options = engine_options();
  options.models.front().engine.require = "cpu";
  EngineThread strict(std::move(options), *metrics);
  ASSERT_TRUE(strict.wait_ready(kLong));
  const http::Handler handle =
      make_handler({.engine = strict, .metrics = *metrics, .version = "1.2.3", .views = {}});
  const auto ask = [&](const std::string& fields) {
    auto reply = std::make_shared<WaitingReply>();
    handle({.method = "POST",
            .path = "/v1/completions",
            .query = "",
            .headers = {},
            .body = R"({"prompt":["a","b","c","d"],"stream":true,)" + fields + "}"},
           reply);
    EXPECT_TRUE(reply->wait_end());
    return reply;
  };
  const auto refused = ask(R"("n":16,"logprobs":20,"max_tokens":240)");
  EXPECT_EQ(refused->status, 400);
  const std::string message(refused->json().at("error").at("message").as_string());
  EXPECT_NE(message.find("123 tokens fit"), std::string::npos) << message;
  EXPECT_EQ(message.find("stream it"), std::string::npos) << message;
  EXPECT_EQ(refused->json().at("error").at("param").as_string(), "max_tokens");
  EXPECT_EQ(ask(R"("logprobs":20,"max_tokens":2)")->status, 200);
}

// As on a worker of the server, which catches what its handler throws.
TEST_F(ApiHandler, AnAllocationThatFailsOnAWorkerEndsNothingButItsRequest) {
  const std::array<const char*, 3> kAsked[] = {
      {"GET", "/v1/models", ""},
      {"GET", "/v1/receipts", ""},
      {"POST", "/tokenize", R"({"content":"Once","with_pieces":true})"},
      {"POST", "/v1/completions", R"({"prompt":"Once","max_tokens":1,"logprobs":2})"},
      {"POST", "/v1/chat/completions",
       R"({"messages":[{"role":"user","content":"Hi"}],)"
       R"("max_tokens":1})"},
      {"POST", "/api/show", R"({"model":"owlet"})"},
  };
  for (const auto& [method, path, body] : kAsked) {
    size_t failed = 0;
    for (int64_t n = 0; n < 1000; n += 1 + std::max<int64_t>(0, n - 30) / 3) {
      const auto reply = std::make_shared<WaitingReply>();
      http::Request request{
          .method = method, .path = path, .query = "", .headers = {}, .body = body};
      testing_support::failing = n;
      try {
        handler(std::move(request), reply);
      } catch (const std::exception&) {
        // The server answers with this error.
      }
      failed += std::exchange(testing_support::failing, -1) < 0;
    }
    EXPECT_GT(failed, 10u) << path;
    // Requests that lost their answer may be in their places still, until the engine has ended
    // them.
    auto status = call(method, path, body)->status;
    for (int tries = 0; status == 429 && tries < 10'000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      status = call(method, path, body)->status;
    }
    EXPECT_EQ(status, 200) << path;
  }
}

}  // namespace
}  // namespace tyto::api
