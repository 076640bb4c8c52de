// Ollama's answers: one JSON object to a line, the last with the numbers.
#include "base/json.h"
#include "base/utc_time.h"
#include "serve/api/answer.h"
#include "serve/api/answer_numbers.h"
#include "serve/api/json_text.h"

namespace tyto::api {
namespace {

const char* done_reason(const Choice& choice) {
  return is_cut(choice) ? "length" : "stop";
}

ordered_json scored_json(const std::vector<ScoredToken>& tokens) {
  const auto one = [](const ScoredText& token) -> ordered_json {
    return {{"token", token.bytes}, {"logprob", token.log_probability}};
  };
  ordered_json list = ordered_json::array();
  for (const ScoredToken& token : tokens) {
    ordered_json entry = one(token.chosen);
    for (const ScoredText& other : token.most_probable) entry["top_logprobs"].push_back(one(other));
    list.push_back(std::move(entry));
  }
  return list;
}

// Ollama gives arguments as an object, and so only with the whole call.
ordered_json ollama_calls(const std::vector<CallPart>& calls) {
  ordered_json json = ordered_json::array();
  for (const CallPart& call : calls)
    json.push_back(
        {{"function", {{"name", call.name}, {"arguments", ordered_json::parse(call.arguments)}}}});
  return json;
}

class OllamaStyle : public AnswerStyle {
 public:
  explicit OllamaStyle(AnswerHead head) : head_(std::move(head)) {}

  std::string stream_type() const override { return "application/x-ndjson"; }
  ErrorText error_text() const override { return ollama_error; }
  std::string failure(const Refusal& refusal) const override {
    return ollama_error(refusal) + "\n";
  }
  std::string begin(uint32_t) const override { return ""; }

  std::string piece(uint32_t, const Said& since, const ordered_json&) const override {
    if (since.thought.empty() && since.text.empty() && since.tokens.empty()) return "";
    ordered_json json =
        framed({.thought = since.thought, .text = since.text, .tokens = since.tokens});
    json["done"] = false;
    return json_text(json) + "\n";
  }

  std::string end(uint32_t, const Choice&) const override { return ""; }

  std::string last(std::span<const Choice> choices) const override {
    const Choice& choice = choices.front();
    return json_text(finished(choice, framed({.calls = choice.said.calls}))) + "\n";
  }

  std::string whole(std::span<const Choice> choices) const override {
    return json_text(finished(choices.front(), framed(choices.front().said)));
  }

 protected:
  virtual void add_said(ordered_json& json, const Said& said) const = 0;
  virtual void add_end(ordered_json&) const {}

 private:
  ordered_json framed(const Said& said) const {
    ordered_json json = {{"model", head_.model}, {"created_at", utc_now()}};
    add_said(json, said);
    if (!said.tokens.empty()) json["logprobs"] = scored_json(said.tokens);
    return json;
  }

  ordered_json finished(const Choice& choice, ordered_json json) const {
    json["done"] = true;
    json["done_reason"] = done_reason(choice);
    add_end(json);
    add_ollama_durations(json, choice.receipt);
    return json;
  }

  const AnswerHead head_;
};

class OllamaChat : public OllamaStyle {
  using OllamaStyle::OllamaStyle;
  void add_said(ordered_json& json, const Said& said) const override {
    json["message"] = {{"role", "assistant"},
                       {"content", said.text + text_of_broken_calls(said.calls)}};
    if (!said.thought.empty()) json["message"]["thinking"] = said.thought;
    const auto calls = whole_calls(said.calls);
    if (!calls.empty()) json["message"]["tool_calls"] = ollama_calls(calls);
  }
};

class OllamaText : public OllamaStyle {
  using OllamaStyle::OllamaStyle;
  void add_said(ordered_json& json, const Said& said) const override {
    json["response"] = said.text;
    if (!said.thought.empty()) json["thinking"] = said.thought;
  }
  // Deprecated, and clients still read it.
  void add_end(ordered_json& json) const override { json["context"] = ordered_json::array(); }
};

}  // namespace

std::unique_ptr<AnswerStyle> ollama_chat_style(AnswerHead head) {
  return std::make_unique<OllamaChat>(std::move(head));
}

std::unique_ptr<AnswerStyle> ollama_text_style(AnswerHead head) {
  return std::make_unique<OllamaText>(std::move(head));
}

}  // namespace tyto::api
