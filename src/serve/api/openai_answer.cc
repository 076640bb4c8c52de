// OpenAI's answers: chat completions and the older completions of a text. Pieces are server-sent
// events.
#include <sodium.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "serve/api/answer.h"
#include "serve/api/answer_numbers.h"
#include "serve/api/json_text.h"

namespace tyto::api {
namespace {

constexpr const char* kDone = "data: [DONE]\n\n";

std::string event(const ordered_json& json) {
  return "data: " + json_text(json) + "\n\n";
}

const char* finish_reason(const Choice& choice) {
  if (!choice.said.calls.empty()) return "tool_calls";
  const bool is_cut =
      choice.reason == StopReason::max_tokens || choice.reason == StopReason::context_full;
  return is_cut ? "length" : "stop";
}

// JSON has no infinity; this is OpenAI's number for a token that cannot come.
double shown(float log_probability) {
  return std::isfinite(log_probability) ? log_probability : -9999.0;
}

ordered_json scored_json(const ScoredText& token) {
  ordered_json bytes = ordered_json::array();
  for (const char byte : token.bytes) bytes.push_back(static_cast<uint8_t>(byte));
  return {{"token", token.bytes}, {"logprob", shown(token.log_probability)}, {"bytes", bytes}};
}

ordered_json chat_log_probabilities(const std::vector<ScoredToken>& tokens) {
  ordered_json content = ordered_json::array();
  for (const ScoredToken& token : tokens) {
    ordered_json entry = scored_json(token.chosen);
    entry["top_logprobs"] = ordered_json::array();
    for (const ScoredText& other : token.most_probable)
      entry["top_logprobs"].push_back(scored_json(other));
    content.push_back(std::move(entry));
  }
  return {{"content", content}, {"refusal", nullptr}};
}

ordered_json text_log_probabilities(const std::vector<ScoredToken>& tokens) {
  ordered_json json = {{"tokens", ordered_json::array()},
                       {"token_logprobs", ordered_json::array()},
                       {"top_logprobs", ordered_json::array()}};
  for (const ScoredToken& token : tokens) {
    json["tokens"].push_back(token.chosen.bytes);
    json["token_logprobs"].push_back(shown(token.chosen.log_probability));
    ordered_json top = ordered_json::object();
    for (const ScoredText& other : token.most_probable)
      top[other.bytes] = shown(other.log_probability);
    json["top_logprobs"].push_back(std::move(top));
  }
  return json;
}

ordered_json call_json(const CallPart& call) {
  ordered_json json = {{"index", call.index}};
  if (!call.id.empty()) json["id"] = call.id;
  if (!call.id.empty()) json["type"] = "function";
  json["function"] = ordered_json::object();
  if (!call.name.empty()) json["function"]["name"] = call.name;
  json["function"]["arguments"] = call.arguments;
  return json;
}

ordered_json calls_json(const std::vector<CallPart>& calls) {
  ordered_json json = ordered_json::array();
  for (const CallPart& call : calls) json.push_back(call_json(call));
  return json;
}

// What both kinds share: the frame around choices.
class OpenAiStyle : public AnswerStyle {
 public:
  explicit OpenAiStyle(AnswerHead head) : head_(std::move(head)) {}

  std::string stream_type() const override { return "text/event-stream"; }
  ErrorText error_text() const override { return openai_error; }
  std::string failure(const Refusal& refusal) const override {
    return "data: " + openai_error(refusal) + "\n\n";
  }

  std::string piece(uint32_t index, const Said& since, const ordered_json& timings) const override {
    ordered_json json = framed(piece_object(), choice_piece(index, since, nullptr));
    if (!timings.is_null()) json["timings"] = timings;
    return event(json);
  }

  std::string end(uint32_t index, const Choice& choice) const override {
    ordered_json json = framed(piece_object(), choice_piece(index, {}, finish_reason(choice)));
    add_numbers(json, choice);
    return event(json);
  }

  std::string last(std::span<const Choice> choices) const override {
    if (!head_.include_usage) return kDone;
    ordered_json json = framed(piece_object(), nullptr);
    json["usage"] = usage_json(choices, head_.choices_per_prompt);
    if (choices.size() == 1) add_numbers(json, choices.front());
    return event(json) + kDone;
  }

  std::string whole(std::span<const Choice> choices) const override {
    ordered_json json = framed(whole_object(), nullptr);
    for (uint32_t i = 0; i < choices.size(); ++i) {
      json["choices"].push_back(whole_choice(i, choices[i]));
      add_numbers(choices.size() == 1 ? json : json["choices"].back(), choices[i]);
    }
    json["usage"] = usage_json(choices, head_.choices_per_prompt);
    return json_text(json);
  }

 protected:
  virtual const char* piece_object() const = 0;
  virtual const char* whole_object() const = 0;
  virtual ordered_json choice_piece(uint32_t index, const Said& since,
                                    const char* finish) const = 0;
  virtual ordered_json whole_choice(uint32_t index, const Choice& choice) const = 0;

  // Around one choice, or around none yet.
  ordered_json framed(const char* object, ordered_json choice) const {
    ordered_json json = {{"id", head_.id},
                         {"object", object},
                         {"created", head_.created},
                         {"model", head_.model},
                         {"system_fingerprint", "tyto-" + head_.version},
                         {"choices", ordered_json::array()}};
    if (!choice.is_null()) json["choices"].push_back(std::move(choice));
    if (head_.include_usage) json["usage"] = nullptr;
    return json;
  }

  static void add_numbers(ordered_json& json, const Choice& choice) {
    json["timings"] = timings_json(choice.receipt);
    if (!choice.receipt_text.empty()) json["receipt"] = ordered_json::parse(choice.receipt_text);
  }

  static ordered_json reason_or_null(const char* finish) {
    return finish == nullptr ? ordered_json(nullptr) : ordered_json(finish);
  }

  const AnswerHead head_;
};

class ChatStyle : public OpenAiStyle {
 public:
  using OpenAiStyle::OpenAiStyle;

  std::string begin(uint32_t index) const override {
    return event(framed(piece_object(),
                        with_delta(index, {{"role", "assistant"}, {"content", ""}}, {}, nullptr)));
  }

 protected:
  const char* piece_object() const override { return "chat.completion.chunk"; }
  const char* whole_object() const override { return "chat.completion"; }

  ordered_json choice_piece(uint32_t index, const Said& since, const char* finish) const override {
    ordered_json delta = ordered_json::object();
    if (!since.thought.empty()) delta["reasoning_content"] = since.thought;
    if (!since.text.empty()) delta["content"] = since.text;
    if (!since.calls.empty()) delta["tool_calls"] = calls_json(since.calls);
    return with_delta(index, std::move(delta), since.tokens, finish);
  }

  ordered_json whole_choice(uint32_t index, const Choice& choice) const override {
    const Said& said = choice.said;
    ordered_json message = {{"role", "assistant"}, {"content", said.text}, {"refusal", nullptr}};
    if (!said.thought.empty()) message["reasoning_content"] = said.thought;
    if (!said.calls.empty()) {
      if (said.text.empty()) message["content"] = nullptr;
      message["tool_calls"] = calls_json(said.calls);
      for (ordered_json& call : message["tool_calls"]) call.erase("index");
    }
    return {{"index", index},
            {"message", std::move(message)},
            {"logprobs", log_probabilities(said.tokens)},
            {"finish_reason", finish_reason(choice)}};
  }

 private:
  ordered_json log_probabilities(const std::vector<ScoredToken>& tokens) const {
    return head_.log_probabilities ? chat_log_probabilities(tokens) : ordered_json(nullptr);
  }

  ordered_json with_delta(uint32_t index, ordered_json delta,
                          const std::vector<ScoredToken>& tokens, const char* finish) const {
    return {{"index", index},
            {"delta", std::move(delta)},
            {"logprobs", tokens.empty() ? ordered_json(nullptr) : log_probabilities(tokens)},
            {"finish_reason", reason_or_null(finish)}};
  }
};

class TextStyle : public OpenAiStyle {
 public:
  using OpenAiStyle::OpenAiStyle;

  std::string begin(uint32_t) const override { return ""; }

 protected:
  const char* piece_object() const override { return "text_completion"; }
  const char* whole_object() const override { return "text_completion"; }

  ordered_json choice_piece(uint32_t index, const Said& since, const char* finish) const override {
    return {{"index", index},
            {"text", since.text},
            {"logprobs",
             since.tokens.empty() ? ordered_json(nullptr) : text_log_probabilities(since.tokens)},
            {"finish_reason", reason_or_null(finish)}};
  }

  ordered_json whole_choice(uint32_t index, const Choice& choice) const override {
    ordered_json json = choice_piece(index, choice.said, finish_reason(choice));
    if (head_.log_probabilities) json["logprobs"] = text_log_probabilities(choice.said.tokens);
    return json;
  }
};

}  // namespace

std::unique_ptr<AnswerStyle> openai_chat_style(AnswerHead head) {
  return std::make_unique<ChatStyle>(std::move(head));
}

std::unique_ptr<AnswerStyle> openai_text_style(AnswerHead head) {
  return std::make_unique<TextStyle>(std::move(head));
}

std::string random_id(std::string_view prefix) {
  std::array<uint8_t, 12> bytes;
  randombytes_buf(bytes.data(), bytes.size());
  std::string id(prefix);
  for (const uint8_t byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace tyto::api
