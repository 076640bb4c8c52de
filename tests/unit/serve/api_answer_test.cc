#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/json_value.h"
#include "serve/api/answer.h"
#include "unit/serve/collecting_reply.h"

namespace tyto::api {
namespace {

// Byte-level, without merges: token 'a' is the byte a.
std::shared_ptr<const ModelText> bytes_model() {
  auto model = std::make_shared<ModelText>();
  model->name = "bytes";
  Vocabulary vocabulary;
  for (int byte = 0; byte < 128; ++byte)
    vocabulary.pieces.push_back(std::string(1, static_cast<char>(byte)));
  vocabulary.unknown = 0;
  model->tokenizer = std::make_shared<const Tokenizer>(vocabulary, "bytes");
  return model;
}

Receipt receipt_of_answer() {
  Receipt receipt;
  receipt.prompt_tokens = 3;
  receipt.cached_tokens = 7;
  receipt.generated_tokens = 2;
  receipt.prefill_seconds = 0.5;
  receipt.decode_seconds = 0.25;
  return receipt;
}

using MakeStyle = std::unique_ptr<AnswerStyle> (*)(AnswerHead);

struct Answering {
  explicit Answering(MakeStyle style, AnswerPlan plan = {}, AnswerHead head = {}) {
    head.id = "id-1";
    head.model = "bytes";
    head.version = "9.9";
    head.created = 5;
    plan.model = bytes_model();
    answer = std::make_shared<RunningAnswer>(reply, style(head), plan);
    events = RunningAnswer::events(answer);
  }

  void token(std::string_view text, uint32_t choice = 0,
             std::optional<LogProbabilities> scores = {}) {
    ++so_far.generated_tokens;
    events.on_token({.choice = choice,
                     .token = text.empty() ? 0 : text.front(),
                     .text = text,
                     .log_probabilities = std::move(scores),
                     .so_far = so_far,
                     .is_simulated = is_simulated});
  }

  void done(StopReason reason, uint32_t choice = 0, const std::string& rest = "",
            std::optional<Error> error = {}) {
    Outcome outcome;
    outcome.answer.reason = reason;
    outcome.answer.receipt = receipt;
    outcome.rest = rest;
    outcome.error = std::move(error);
    events.on_done({.choice = choice, .outcome = outcome, .receipt = R"({"schema":"r"})"});
  }

  // The JSON of each server-sent event, or of each line.
  std::vector<Json> pieces() const {
    std::vector<Json> list;
    size_t begin = 0;
    while (begin < reply->body.size()) {
      const size_t end = reply->body.find('\n', begin);
      std::string line = reply->body.substr(begin, end - begin);
      begin = end == std::string::npos ? reply->body.size() : end + 1;
      if (line.starts_with("data: ")) line.erase(0, 6);
      if (!line.empty() && line != "[DONE]") list.push_back(Json::parse(line, "piece"));
    }
    return list;
  }

  std::shared_ptr<CollectingReply> reply = std::make_shared<CollectingReply>();
  Receipt so_far;
  bool is_simulated = false;
  Receipt receipt = receipt_of_answer();
  std::shared_ptr<RunningAnswer> answer;
  CompletionEvents events;
};

std::string_view text_at(const Json& json, std::initializer_list<const char*> path) {
  Json value = json;
  for (const char* key : path) value = value.at(key);
  return value.as_string();
}

Json first(const Json& array) {
  std::optional<Json> found;
  array.for_each_element([&](size_t index, const Json& element) {
    if (index == 0) found = element;
  });
  return found.value();
}

// Workers that have not come yet.
struct WaitingWorkers : CollectingReply {
  void on_worker(std::function<void()> task) override { tasks.push_back(std::move(task)); }
  std::vector<std::function<void()>> tasks;
};

TEST(ApiAnswer, AWorkerWritesWhatIsNotStreamed) {
  for (const MakeStyle style :
       {openai_chat_style, openai_text_style, ollama_chat_style, ollama_text_style}) {
    const auto reply = std::make_shared<WaitingWorkers>();
    Answering to(style);
    to.answer = std::make_shared<RunningAnswer>(reply, style({}), AnswerPlan{});
    to.events = RunningAnswer::events(to.answer);
    to.token("Hello");
    to.done(StopReason::eos);
    EXPECT_EQ(reply->ends, 0);
    ASSERT_EQ(reply->tasks.size(), 1u);
    to.answer.reset();
    to.events = {};
    std::exchange(reply->tasks, {}).front()();
    EXPECT_EQ(reply->ends, 1);
    EXPECT_NE(reply->body.find("Hello"), std::string::npos);
  }
}

// Says how much of an answer was kept for its end.
struct KeptStyle : AnswerStyle {
  std::string stream_type() const override { return ""; }
  std::string begin(uint32_t) const override { return ""; }
  std::string piece(uint32_t, const Said&, const JsonValue&) const override { return ""; }
  std::string end(uint32_t, const Choice& choice) const override {
    return std::to_string(choice.said.text.size() + choice.said.thought.size() +
                          choice.said.tokens.size());
  }
  std::string last(std::span<const Choice>) const override { return ""; }
  std::string failure(const Refusal&) const override { return ""; }
  std::string whole(std::span<const Choice> choices) const override {
    return end(0, choices.front());
  }
  ErrorText error_text() const override { return openai_error; }
};

TEST(ApiAnswer, WhatWasStreamedIsNotKept) {
  const MakeStyle style = [](AnswerHead) -> std::unique_ptr<AnswerStyle> {
    return std::make_unique<KeptStyle>();
  };
  for (const bool streams : {true, false}) {
    Answering to(style, {.streams = streams});
    for (int i = 0; i < 10; ++i) to.token("abc", 0, LogProbabilities{.chosen = -1, .top = {}});
    to.done(StopReason::eos);
    EXPECT_EQ(to.reply->body, streams ? "0" : "40");
  }
}

// An answer that cannot be written is its own end.
struct ThrowingStyle : KeptStyle {
  explicit ThrowingStyle(bool in_piece) : is_in_piece(in_piece) {}
  std::string piece(uint32_t, const Said&, const JsonValue&) const override {
    if (is_in_piece) throw 7;
    return "";
  }
  std::string whole(std::span<const Choice>) const override { throw std::bad_alloc(); }
  std::string failure(const Refusal& refusal) const override { return refusal.message; }
  bool is_in_piece;
};

TEST(ApiAnswer, WhateverIsThrownIsTheAnswersEnd) {
  for (const bool streams : {true, false}) {
    const auto reply = std::make_shared<CollectingReply>();
    Answering to(openai_chat_style);
    to.answer = std::make_shared<RunningAnswer>(reply, std::make_unique<ThrowingStyle>(streams),
                                                AnswerPlan{.streams = streams});
    int cancelled = 0;
    to.answer->on_broken_off([&] { ++cancelled; });
    to.events = RunningAnswer::events(to.answer);
    to.token("a");
    to.token("b");
    to.done(StopReason::eos);
    EXPECT_EQ(reply->ends, 1);
    EXPECT_EQ(cancelled, streams ? 1 : 0);
    EXPECT_EQ(reply->status, streams ? 200 : 500);
    EXPECT_FALSE(reply->body.empty());
  }
}

TEST(ApiAnswer, WholeChat) {
  Answering to(openai_chat_style, {.with_receipt = true});
  to.token("Hel");
  to.token("lo");
  EXPECT_EQ(to.reply->ends, 0);
  to.done(StopReason::eos, 0, "!");
  EXPECT_EQ(to.reply->ends, 1);
  EXPECT_EQ(to.reply->status, 200);
  const Json json = to.reply->json();
  EXPECT_EQ(text_at(json, {"id"}), "id-1");
  EXPECT_EQ(text_at(json, {"object"}), "chat.completion");
  EXPECT_EQ(text_at(json, {"system_fingerprint"}), "tyto-9.9");
  const Json choice = first(json.at("choices"));
  EXPECT_EQ(text_at(choice, {"message", "content"}), "Hello!");
  EXPECT_EQ(text_at(choice, {"message", "role"}), "assistant");
  EXPECT_EQ(text_at(choice, {"finish_reason"}), "stop");
  const Json usage = json.at("usage");
  EXPECT_EQ(usage.at("prompt_tokens").as_int(), 10);
  EXPECT_EQ(usage.at("completion_tokens").as_int(), 2);
  EXPECT_EQ(usage.at("total_tokens").as_int(), 12);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int(), 7);
  const Json timings = json.at("timings");
  EXPECT_EQ(timings.at("cache_n").as_int(), 7);
  EXPECT_DOUBLE_EQ(timings.at("prompt_ms").as_double(), 500);
  EXPECT_DOUBLE_EQ(timings.at("prompt_per_second").as_double(), 6);
  EXPECT_DOUBLE_EQ(timings.at("predicted_per_second").as_double(), 4);
  EXPECT_EQ(text_at(json, {"receipt", "schema"}), "r");
}

TEST(ApiAnswer, StreamedChat) {
  Answering to(openai_chat_style, {.streams = true}, {.include_usage = true});
  EXPECT_EQ(to.reply->begins, 0);
  to.token("a");
  EXPECT_EQ(to.reply->begins, 1);
  EXPECT_EQ(to.reply->type, "text/event-stream");
  to.token("");  // a part of a character: nothing to show
  to.token("b");
  to.done(StopReason::max_tokens);
  EXPECT_TRUE(to.reply->body.ends_with("data: [DONE]\n\n"));
  const std::vector<Json> pieces = to.pieces();
  ASSERT_EQ(pieces.size(), 5u);  // role, a, b, end, usage
  EXPECT_EQ(text_at(first(pieces[0].at("choices")), {"delta", "role"}), "assistant");
  EXPECT_EQ(text_at(first(pieces[1].at("choices")), {"delta", "content"}), "a");
  EXPECT_EQ(text_at(first(pieces[2].at("choices")), {"delta", "content"}), "b");
  EXPECT_TRUE(first(pieces[2].at("choices")).at("finish_reason").is(Json::Type::null));
  EXPECT_EQ(text_at(first(pieces[3].at("choices")), {"finish_reason"}), "length");
  EXPECT_TRUE(pieces[3].at("usage").is(Json::Type::null));
  EXPECT_EQ(pieces[4].at("choices").size(), 0u);
  EXPECT_EQ(pieces[4].at("usage").at("completion_tokens").as_int(), 2);
  for (const Json& piece : pieces) EXPECT_EQ(text_at(piece, {"object"}), "chat.completion.chunk");
}

TEST(ApiAnswer, AnEmptyAnswerStillBegins) {
  Answering to(openai_chat_style, {.streams = true});
  to.done(StopReason::eos);
  EXPECT_EQ(to.reply->begins, 1);
  EXPECT_EQ(to.pieces().size(), 2u);
}

TEST(ApiAnswer, ChoicesAreCountedOncePerPrompt) {
  Answering to(openai_text_style, {.choices = 2, .begin_with = {">", ">"}},
               {.choices_per_prompt = 2});
  to.token("x", 1);
  to.done(StopReason::stop_string, 1);
  EXPECT_EQ(to.reply->ends, 0);
  to.token("y", 0);
  to.done(StopReason::context_full, 0);
  const Json json = to.reply->json();
  std::vector<std::string> texts, reasons;
  json.at("choices").for_each_element([&](size_t, const Json& choice) {
    texts.emplace_back(choice.at("text").as_string());
    reasons.emplace_back(choice.at("finish_reason").as_string());
    EXPECT_EQ(choice.at("timings").at("prompt_n").as_int(), 3);
  });
  EXPECT_EQ(texts, (std::vector<std::string>{">y", ">x"}));
  EXPECT_EQ(reasons, (std::vector<std::string>{"length", "stop"}));
  EXPECT_EQ(json.at("usage").at("prompt_tokens").as_int(), 10);
  EXPECT_EQ(json.at("usage").at("completion_tokens").as_int(), 4);
}

TEST(ApiAnswer, LogProbabilities) {
  const LogProbabilities scores{.chosen = -0.5f, .top = {{'a', -0.5f}, {'b', -INFINITY}}};
  Answering chat(openai_chat_style, {}, {.log_probabilities = true});
  chat.token("a", 0, scores);
  chat.done(StopReason::eos);
  const Json entry = first(first(chat.reply->json().at("choices")).at("logprobs").at("content"));
  EXPECT_EQ(text_at(entry, {"token"}), "a");
  EXPECT_DOUBLE_EQ(entry.at("logprob").as_double(), -0.5);
  EXPECT_EQ(first(entry.at("bytes")).as_int(), 'a');
  EXPECT_EQ(entry.at("top_logprobs").size(), 2u);

  Answering text(openai_text_style, {}, {.log_probabilities = true});
  text.token("a", 0, scores);
  text.done(StopReason::eos);
  const Json lists = first(text.reply->json().at("choices")).at("logprobs");
  EXPECT_EQ(first(lists.at("tokens")).as_string(), "a");
  EXPECT_DOUBLE_EQ(first(lists.at("top_logprobs")).at("b").as_double(), -9999);
}

// Tokens that are parts of characters, and several of one text.
TEST(ApiAnswer, ScoredTokensOfCompletionsHavePlacesAndNames) {
  Choice choice;
  for (const char* bytes : {"a", "\xc3", "\xa9", "bc", "d"}) {
    ScoredToken& token = choice.said.tokens.emplace_back();
    token.chosen = {.bytes = bytes, .log_probability = -1};
    token.most_probable = {{"x", -1}, {"x", -2}, {"\xe2\x80", -3}, {"\xe2", -4},
                           {"", -5},  {"", -6},  {"", -7}};
    place_token(token, choice);
  }
  const std::vector<Choice> choices = {choice};
  const auto style = openai_text_style({.log_probabilities = true});
  const Json whole = Json::parse(style->whole(choices), "answer");
  const Json lists = first(whole.at("choices")).at("logprobs");
  EXPECT_EQ(lists.at("text_offset").text(), "[0,1,2,2,4]");
  EXPECT_EQ(lists.at("tokens").text(), R"(["a","bytes:\\xc3","bytes:\\xa9","bc","d"])");
  EXPECT_EQ(
      first(lists.at("top_logprobs")).text(),
      R"({"x":-1.0,"bytes:\\x78":-2.0,"bytes:\\xe2\\x80":-3.0,"bytes:\\xe2":-4.0,"":-5.0,"bytes:":-6.0,"bytes:'":-7.0})");
}

TEST(ApiAnswer, PiecesOfCompletionsGoOnWithTheOffsets) {
  Answering to(openai_text_style, {.streams = true}, {.log_probabilities = true});
  for (const char* text : {"a", "b", "c"}) to.token(text, 0, LogProbabilities{.chosen = -1});
  to.done(StopReason::eos);
  const std::vector<Json> pieces = to.pieces();
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(first(pieces.at(i).at("choices")).at("logprobs").at("text_offset").text(),
              fmt::format("[{}]", i));
}

// Text in brackets is a call, for this test.
bool divide_at_bracket(std::string_view text, bool, Said& since) {
  if (text == "[")
    since.calls.push_back({.index = 0, .id = "call_1", .name = "f"});
  else if (text == "{" || text == "}")
    since.calls.push_back({.index = 0, .arguments = std::string(text)});
  else
    since.text += text;
  return true;
}

// OpenAI's pieces show what there is of a call; a whole answer never has a call that broke off.
TEST(ApiAnswer, CallsThatBreakOff) {
  for (const StopReason reason :
       {StopReason::max_tokens, StopReason::context_full, StopReason::eos}) {
    const std::string finish = reason == StopReason::eos ? "stop" : "length";
    for (const MakeStyle style : {openai_chat_style, ollama_chat_style})
      for (const bool streams : {false, true}) {
        Answering to(style,
                     {.streams = streams, .divide = [] { return TextDivider(divide_at_bracket); }});
        for (const char* text : {"[", "{"}) to.token(text);
        to.done(reason);
        const Json last = to.pieces().back();
        const std::string broken = R"({"name": "f", "arguments": {)";  // is text
        if (style == ollama_chat_style) {
          EXPECT_EQ(text_at(last, {"done_reason"}), finish);
          EXPECT_FALSE(last.at("message").find("tool_calls"));
          EXPECT_EQ(text_at(last, {"message", "content"}), broken);
          continue;
        }
        const Json choice = first(last.at("choices"));
        EXPECT_EQ(text_at(choice, {"finish_reason"}), finish);
        if (streams) continue;
        EXPECT_FALSE(choice.at("message").find("tool_calls"));
        EXPECT_EQ(text_at(choice, {"message", "content"}), broken);
      }
  }
}

TEST(ApiAnswer, ALimitBehindAWholeCallIsStillALimit) {
  Answering to(openai_chat_style, {.divide = [] { return TextDivider(divide_at_bracket); }});
  for (const char* text : {"[", "{", "}"}) to.token(text);
  to.done(StopReason::max_tokens);
  const Json choice = first(to.reply->json().at("choices"));
  EXPECT_EQ(text_at(choice, {"finish_reason"}), "length");
  EXPECT_EQ(choice.at("message").at("tool_calls").size(), 1u);
}

TEST(ApiAnswer, ToolCalls) {
  const auto plan = [](bool streams) -> AnswerPlan {
    return {.streams = streams, .divide = [] { return TextDivider(divide_at_bracket); }};
  };
  Answering whole(openai_chat_style, plan(false)), stream(openai_chat_style, plan(true)),
      ollama(ollama_chat_style, plan(true));
  for (Answering* to : {&whole, &stream, &ollama}) {
    for (const char* text : {"[", "{", "}"}) to->token(text);
    to->done(StopReason::eos);
  }
  const Json choice = first(whole.reply->json().at("choices"));
  EXPECT_EQ(text_at(choice, {"finish_reason"}), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is(Json::Type::null));
  const Json call = first(choice.at("message").at("tool_calls"));
  EXPECT_EQ(text_at(call, {"function", "name"}), "f");
  EXPECT_EQ(text_at(call, {"function", "arguments"}), "{}");
  EXPECT_EQ(text_at(call, {"id"}), "call_1");

  const std::vector<Json> pieces = stream.pieces();
  ASSERT_EQ(pieces.size(), 5u);
  const Json begun = first(first(pieces[1].at("choices")).at("delta").at("tool_calls"));
  EXPECT_EQ(begun.at("index").as_int(), 0);
  EXPECT_EQ(text_at(begun, {"type"}), "function");
  EXPECT_FALSE(first(first(pieces[2].at("choices")).at("delta").at("tool_calls")).find("id"));
  EXPECT_EQ(text_at(first(pieces[4].at("choices")), {"finish_reason"}), "tool_calls");

  const std::vector<Json> lines = ollama.pieces();
  ASSERT_EQ(lines.size(), 1u);
  const Json spoken = first(lines[0].at("message").at("tool_calls"));
  EXPECT_TRUE(spoken.at("function").at("arguments").is(Json::Type::object));
}

TEST(ApiAnswer, OllamaLines) {
  Answering chat(ollama_chat_style, {.streams = true});
  chat.token("a");
  chat.done(StopReason::max_tokens, 0, "b");
  EXPECT_EQ(chat.reply->type, "application/x-ndjson");
  const std::vector<Json> lines = chat.pieces();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(text_at(lines[0], {"message", "content"}), "a");
  EXPECT_FALSE(lines[0].at("done").as_bool());
  EXPECT_TRUE(lines[2].at("done").as_bool());
  EXPECT_EQ(text_at(lines[2], {"done_reason"}), "length");
  EXPECT_EQ(lines[2].at("prompt_eval_count").as_int(), 10);
  EXPECT_EQ(lines[2].at("prompt_eval_duration").as_int(), 500'000'000);
  EXPECT_EQ(lines[2].at("eval_duration").as_int(), 250'000'000);

  Answering text(ollama_text_style);
  text.token("a");
  text.done(StopReason::eos);
  EXPECT_EQ(text_at(text.reply->json(), {"response"}), "a");
  EXPECT_TRUE(text.reply->json().at("done").as_bool());
}

TEST(ApiAnswer, AnErrorBeforeTheFirstPieceHasAStatus) {
  Answering to(openai_chat_style, {.streams = true});
  to.done(StopReason::cancelled, 0, "", Error(ErrorCode::deadline, "request", "took too long"));
  EXPECT_EQ(to.reply->status, 504);
  EXPECT_EQ(text_at(to.reply->json(), {"error", "code"}), "timeout");
  EXPECT_EQ(text_at(to.reply->json(), {"error", "type"}), "timeout_error");
}

TEST(ApiAnswer, AnErrorInTheMiddleIsAPiece) {
  Answering to(openai_chat_style, {.choices = 2, .streams = true});
  int cancelled = 0;
  to.answer->on_broken_off([&] { ++cancelled; });
  to.token("a");
  to.done(StopReason::cancelled, 0, "", Error(ErrorCode::device, "vnpu", "failed"));
  EXPECT_EQ(cancelled, 1);
  to.answer->on_broken_off([&] { ++cancelled; });
  EXPECT_EQ(cancelled, 2);
  EXPECT_EQ(text_at(to.pieces().back(), {"error", "type"}), "server_error");
  EXPECT_EQ(to.reply->ends, 1);
  const std::string before = to.reply->body;
  to.token("late", 1);
  to.done(StopReason::eos, 1);
  EXPECT_EQ(to.reply->body, before);
  EXPECT_EQ(to.reply->ends, 1);
}

TEST(ApiAnswer, ASimulationHasNoRates) {
  Receipt receipt = receipt_of_answer();
  receipt.devices.push_back(
      {.device = "vnpu", .is_virtual = true, .submissions = 1, .completions = 1});
  const JsonValue timings = timings_json(receipt);
  EXPECT_EQ(timings.at("clock"), "simulation wall time");
  EXPECT_EQ(timings.at("modelled"), false);
  for (const char* name : {"prompt_ms", "prompt_per_second", "predicted_per_second",
                           "prompt_per_token_ms", "predicted_per_token_ms"})
    EXPECT_FALSE(timings.contains(name)) << name;
}

TEST(ApiAnswer, TimingsOfPiecesSayWhoseTheyAre) {
  for (const bool is_simulated : {false, true}) {
    Answering to(openai_chat_style, {.streams = true, .with_timings = true});
    to.is_simulated = is_simulated;
    to.token("a");
    const Json timings = to.pieces().back().at("timings");
    EXPECT_EQ(timings.find("clock").has_value(), is_simulated);
    EXPECT_EQ(timings.find("prompt_ms").has_value(), !is_simulated);
  }
}

TEST(ApiAnswer, RefusedRatesAreLeftOut) {
  Receipt receipt = receipt_of_answer();
  receipt.plausibility.verdict = Verdict::refused;
  EXPECT_FALSE(timings_json(receipt).contains("prompt_per_second"));
  EXPECT_TRUE(timings_json(receipt).contains("prompt_ms"));
}

TEST(ApiErrors, KindsHaveStatuses) {
  const auto status = [](ErrorCode code) { return refusal_of(Error(code, "", "x")).status; };
  EXPECT_EQ(status(ErrorCode::input), 400);
  EXPECT_EQ(status(ErrorCode::unsupported), 400);
  EXPECT_EQ(status(ErrorCode::busy), 429);
  EXPECT_EQ(status(ErrorCode::device), 500);
  EXPECT_EQ(status(ErrorCode::deadline), 504);
  const http::Response busy =
      error_response(refusal_of(Error(ErrorCode::busy, "", "x")), openai_error);
  ASSERT_EQ(busy.headers.size(), 1u);
  EXPECT_EQ(busy.headers.front().first, "Retry-After");
  // A request that was taken was not one too many.
  const Refusal late = refusal_of_end(Error(ErrorCode::busy, "", "x"));
  EXPECT_EQ(late.status, 503);
  EXPECT_EQ(error_response(late, openai_error).headers.front().first, "Retry-After");
  EXPECT_EQ(refusal_of_end(Error(ErrorCode::device, "", "x")).status, 500);
  EXPECT_EQ(counted_as(refusal_of(Error(ErrorCode::busy, "", "x"))), "too_many_requests");
  EXPECT_EQ(counted_as(refusal_of(Error(ErrorCode::input, "", "x"))), "bad request");
  EXPECT_EQ(ollama_error({.message = "no"}), R"({"error":"no"})");
  EXPECT_NE(error_body(401, "/v1/models", "no key").find("authentication_error"),
            std::string::npos);
  for (const char* path : {"/api", "/api/", "/api/chat", "/api/nowhere"})
    EXPECT_EQ(error_body(401, path, "no key"), R"({"error":"no key"})");
  for (const char* path : {"", "/", "/apis", "/v1/api/chat"})
    EXPECT_TRUE(error_body(401, path, "no key").starts_with(R"({"error":{"message":"no key")"));
}

TEST(ApiErrors, SayEverythingOnce) {
  // Retry-After is the next step, and clients have words of their own for it.
  EXPECT_EQ(refusal_of(Error(ErrorCode::busy, "server", "is full", "try again later")).message,
            "server: is full");
  EXPECT_EQ(refusal_of(Error(ErrorCode::input, "x", "is bad", "use y")).message,
            "x: is bad; use y");
}

TEST(ApiErrors, OfTheRequestsJsonNameTheirField) {
  const auto param = [](const std::string& where) {
    return refusal_of(Error(ErrorCode::unsupported, where, "is not supported")).param;
  };
  EXPECT_EQ(param("request: tools[0].function.parameters.properties.v.not"),
            "tools[0].function.parameters.properties.v.not");
  EXPECT_EQ(param("request"), "");
  EXPECT_EQ(param("model"), "");
}

TEST(ApiErrors, IdsDiffer) {
  EXPECT_NE(random_id("x-"), random_id("x-"));
  EXPECT_EQ(random_id("x-").size(), 26u);
}

}  // namespace
}  // namespace tyto::api
