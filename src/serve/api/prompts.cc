#include "serve/api/generation.h"
#include "text/chat_text.h"
#include "text/grammar/json_schema.h"
#include "text/reasoning.h"
#include "text/tool_calls.h"

namespace tyto::api {
namespace {

bool has_tools(const Conversation& conversation) {
  return conversation.tools && conversation.tools->size() > 0;
}

const ChatTemplate& template_for(const ModelText& model, const Conversation& conversation) {
  const bool with_tools = has_tools(conversation);
  if (with_tools && !model.why_no_tools.empty())
    throw RequestError(Error(ErrorCode::unsupported, model.name, model.why_no_tools), "tools");
  const auto& chosen =
      with_tools && model.tool_template ? model.tool_template : model.chat_template;
  if (!chosen)
    throw RequestError(Error(ErrorCode::unsupported, model.name, "the model has no chat template",
                             "use /v1/completions, or serve it with --chat-template"),
                       "model");
  return *chosen;
}

ChatOptions options_of(const Conversation& conversation) {
  ChatOptions options;
  options.add_generation_prompt = conversation.add_generation_prompt;
  options.tools = conversation.tools;
  options.variables = conversation.variables;
  if (conversation.thinking) options.flags.emplace_back("enable_thinking", *conversation.thinking);
  return options;
}

ChatText render(const ModelText& model, const ChatTemplate& chosen,
                const Conversation& conversation) {
  try {
    return render_chat(*model.tokenizer, chosen, conversation.messages, options_of(conversation),
                       conversation.special_in_messages);
  } catch (const Error& error) {
    throw RequestError(error, "messages");
  }
}

// `text` is what the template makes with the conversation's tools. Some templates know no tools,
// and say nothing of it.
bool shows_tools(const ModelText& model, const ChatTemplate& chosen, Conversation conversation,
                 const std::string& text) {
  conversation.tools.reset();
  try {
    return render(model, chosen, conversation).text != text;
  } catch (const Error&) {
    return true;  // it uses them without looking whether there are any
  }
}

// Calls are looked for in what is left when the thoughts are taken out.
class ChatDivider {
 public:
  ChatDivider(ReasoningStream thoughts, ToolFormat format, const std::vector<Tool>& tools,
              bool parallel_calls)
      : thoughts_(std::move(thoughts)) {
    if (!tools.empty()) calls_.emplace(format, tools, random_seed(), parallel_calls);
  }

  bool operator()(std::string_view text, bool is_last, Said& since) {
    take(thoughts_.push(text), since);
    if (is_last) take(thoughts_.finish(), since);
    if (is_last && calls_) add(calls_->finish(), since);
    return !calls_ || !calls_->is_over();
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

[[noreturn]] void refuse_tools(const ModelText& model, const std::string& why) {
  throw RequestError(Error(ErrorCode::unsupported, model.name, why,
                           "leave the tools out, or serve it with another --chat-template"),
                     "tools");
}

ToolFormat format_of_calls(const ModelText& model) {
  if (model.tool_format == ToolFormat::none)
    refuse_tools(model,
                 "the model's chat template shows no tools, or writes no calls that we read");
  return model.tool_format;
}

void add_thoughts(const std::string& prompt, Generation& generation) {
  const Tokenizer& tokenizer = *generation.model->tokenizer;
  generation.thoughts = thoughts_ahead(tokenizer, prompt);
  for (const Token marker : special_thought_markers(tokenizer))
    generation.shown_special.push_back(marker);
}

}  // namespace

std::string chat_text(const ModelText& model, const Conversation& conversation) {
  const ChatTemplate& chosen = template_for(model, conversation);
  std::string text = render(model, chosen, conversation).text;
  if (has_tools(conversation) && !shows_tools(model, chosen, conversation, text))
    refuse_tools(model, "the model's chat template shows no tools");
  return text;
}

Generation chat_generation(std::shared_ptr<const ModelText> model, ChatCompletionRequest request) {
  const ChatText chat =
      render(*model, template_for(*model, request.conversation), request.conversation);
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
  add_thoughts(chat.text, generation);
  const bool is_held =
      !generation.grammar.empty() || generation.options.format.kind != OutputFormat::Kind::text;
  const ReasoningStream thoughts(thought_format(*model->tokenizer), chat.text, is_held);
  generation.divide = [thoughts, format, tools = std::move(request.tools),
                       parallel = request.parallel_calls]() -> TextDivider {
    return ChatDivider(thoughts, format, tools, parallel);
  };
  return generation;
}

std::vector<Token> prompt_tokens(const ModelText& model, const TextOrTokens& prompt,
                                 const std::string& field) {
  if (!prompt.is_tokens)
    return encode_prompt(*model.tokenizer, prompt.text, {.add_eos = false, .parse_special = true});
  for (const Token token : prompt.tokens)
    if (static_cast<size_t>(token) >= model.tokenizer->size())
      throw RequestError(
          400, "", field,
          fmt::format("token {} is outside the vocabulary of {}", token, model.tokenizer->size()));
  return prompt.tokens;
}

}  // namespace tyto::api
