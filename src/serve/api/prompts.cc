#include "serve/api/generation.h"
#include "text/chat_text.h"
#include "text/grammar/json_schema.h"
#include "text/reasoning.h"
#include "text/tool_calls.h"

namespace tyto::api {
namespace {

ChatText render(const ModelText& model, const Conversation& conversation) {
  if (!model.chat_template)
    throw RequestError(Error(ErrorCode::unsupported, model.name, "the model has no chat template",
                             "use /v1/completions, or serve it with --chat-template"),
                       "model");
  ChatOptions options;
  options.add_generation_prompt = conversation.add_generation_prompt;
  options.tools = conversation.tools;
  options.variables = conversation.variables;
  if (conversation.thinking) options.flags.emplace_back("enable_thinking", *conversation.thinking);
  try {
    return render_chat(*model.tokenizer, *model.chat_template, conversation.messages, options,
                       conversation.special_in_messages);
  } catch (const Error& error) {
    throw RequestError(error, "messages");
  }
}

// Calls are looked for in what is left when the thoughts are taken out.
class ChatDivider {
 public:
  ChatDivider(bool is_thinking, ToolFormat format, const std::vector<Tool>& tools)
      : thoughts_(is_thinking) {
    if (!tools.empty()) calls_.emplace(format, tools, random_seed());
  }

  void operator()(std::string_view text, bool is_last, Said& since) {
    take(thoughts_.push(text), since);
    if (!is_last) return;
    take(thoughts_.finish(), since);
    if (calls_) add(calls_->finish(), since);
  }

 private:
  void take(const ReasoningDelta& delta, Said& since) {
    since.thought += delta.reasoning;
    if (calls_)
      add(calls_->push(delta.content), since);
    else
      since.text += delta.content;
  }

  static void add(const AnswerDelta& delta, Said& since) {
    since.text += delta.content;
    for (const ToolCallDelta& call : delta.calls)
      since.calls.push_back(
          {static_cast<uint32_t>(call.index), call.id, call.name, call.arguments});
  }

  ReasoningStream thoughts_;
  std::optional<ToolCallStream> calls_;
};

ToolFormat format_of_calls(const ModelText& model) {
  if (model.tool_format == ToolFormat::none)
    throw RequestError(
        Error(ErrorCode::unsupported, model.name, "the model's chat template knows no calls"),
        "tools");
  return model.tool_format;
}

}  // namespace

std::string chat_text(const ModelText& model, const Conversation& conversation) {
  return render(model, conversation).text;
}

Generation chat_generation(std::shared_ptr<const ModelText> model, ChatCompletionRequest request) {
  const ChatText chat = render(*model, request.conversation);
  Generation generation{.model = model,
                        .options = std::move(request.options),
                        .prompts = {encode_chat(*model->tokenizer, chat)},
                        .field = "messages"};
  ToolFormat format = ToolFormat::none;
  if (!request.tools.empty()) {
    format = format_of_calls(*model);
    generation.shown_special = tool_marker_tokens(format, *model->tokenizer);
    if (request.tool_choice.kind == ToolChoice::Kind::required)
      generation.grammar = tool_call_gbnf(format, request.tools, request.tool_choice,
                                          request.parallel_calls, gbnf_from_json_schema);
  }
  const bool is_thinking = prompt_opens_reasoning(chat.text);
  generation.divide = [is_thinking, format, tools = std::move(request.tools)]() -> TextDivider {
    return ChatDivider(is_thinking, format, tools);
  };
  return generation;
}

std::vector<Token> prompt_tokens(const ModelText& model, const TextOrTokens& prompt,
                                 const std::string& field) {
  if (!prompt.is_tokens)
    return model.tokenizer->encode(prompt.text, {.add_eos = false, .parse_special = true});
  for (const Token token : prompt.tokens)
    if (static_cast<size_t>(token) >= model.tokenizer->size())
      throw RequestError(
          400, "", field,
          fmt::format("token {} is outside the vocabulary of {}", token, model.tokenizer->size()));
  return prompt.tokens;
}

}  // namespace tyto::api
