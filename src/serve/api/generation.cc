#include "serve/api/generation.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include "base/json_value.h"
#include "base/spelling.h"
#include "serve/api/errors.h"
#include "serve/api/requests.h"
#include "text/chat_template.h"
#include "text/grammar/constraint.h"
#include "text/grammar/json_schema.h"
#include "text/reasoning.h"
#include "text/tools.h"

namespace tyto::api {
namespace {

using std::chrono::steady_clock;

constexpr const char* kTimeoutHeader = "x-request-timeout";
constexpr double kLongestTimeout = 86400;

std::optional<std::chrono::milliseconds> timeout_of_header(const Exchange& exchange) {
  const std::string_view text = exchange.request.header(kTimeoutHeader);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size() || !(seconds > 0) ||
      seconds > kLongestTimeout)
    throw RequestError(
        400, "", kTimeoutHeader,
        fmt::format("'{}' is not a number of seconds up to {}", text, kLongestTimeout));
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3)));
}

// What the request's numbers mean for this model.
void check_sampling(const ModelText& model, const SamplerOptions& sampling) {
  try {
    check(sampling, model.tokenizer->size());
  } catch (const Error& error) {
    throw RequestError(error, "logit_bias");
  }
}

bool continues_text(const Generation& generation, const std::vector<Token>& prompt) {
  return generation.is_raw && has_text(*generation.model->tokenizer, prompt);
}

// Makes each choice a constraint of its own; none where everything may be written.
std::function<std::shared_ptr<Constraint>()> constraint_of(
    const Generation& generation, const std::vector<Token>& prompt,
    const std::shared_ptr<const Grammar>& grammar) {
  if (!grammar) return {};
  const AnswerPlace begin{.thoughts = generation.thoughts,
                          .continues_text = continues_text(generation, prompt)};
  return [grammar, tokens = generation.model->token_trie(), begin] {
    return std::make_shared<Constraint>(grammar, tokens, begin);
  };
}

CompletionRequest engine_request(const Generation& generation, const std::vector<Token>& prompt) {
  const GenerationOptions& options = generation.options;
  const auto room = generation.model->context - static_cast<uint32_t>(prompt.size());
  CompletionRequest request;
  request.request.prompt = prompt;
  request.request.max_tokens = options.max_tokens.value_or(room);
  request.request.stop = options.stop;
  request.request.ignore_eos = options.ignore_eos;
  request.request.shown_special = generation.shown_special;
  request.request.continues_text = continues_text(generation, prompt);
  request.sampling = options.sampling;
  request.choices = options.choices;
  request.log_probabilities = options.log_probabilities;
  request.top_log_probabilities = options.top_log_probabilities;
  request.profile = options.profile;
  return request;
}

AnswerHead head_of(const Exchange& exchange, const Generation& generation,
                   std::string_view id_prefix) {
  const GenerationOptions& options = generation.options;
  return {.id = random_id(id_prefix),
          .model = generation.model->name,
          .version = exchange.api.version,
          .created = seconds_since_1970(),
          .include_usage = options.include_usage,
          .log_probabilities = options.log_probabilities,
          .choices_per_prompt = options.choices};
}

AnswerPlan plan_of(const Generation& generation) {
  AnswerPlan plan{
      .model = generation.model,
      .choices = static_cast<uint32_t>(generation.prompts.size()) * generation.options.choices,
      .streams = generation.options.stream,
      .divide = generation.divide,
      .with_receipt = generation.options.receipt,
      .with_timings = generation.options.timings_per_token};
  for (const std::string& text : generation.begin_with)
    plan.begin_with.insert(plan.begin_with.end(), generation.options.choices, text);
  return plan;
}

// What an answer takes for each of its tokens until it is sent: its text, and each token with its
// probability, which is written with its bytes. A token that the engine holds takes more.
constexpr uint64_t kTextBytes = 16, kScoredBytes = 96, kHeldBytes = 96;
constexpr uint64_t kMostAnswerBytes = 16 << 20;  // as many answers as may run and wait are kept

// An answer that is not streamed, or that is held, is kept until its end. Numbers that cannot be
// kept are refused; who gives none gets as many tokens as can be.
void bound_answer(const Generation& generation, std::vector<CompletionRequest>& requests) {
  const GenerationOptions& options = generation.options;
  const bool is_held = generation.model->holds_streams;
  if (options.stream && !is_held) return;
  const uint64_t scored = options.log_probabilities ? 1 + options.top_log_probabilities : 0;
  const uint64_t token_bytes = kTextBytes + scored * kScoredBytes + (is_held ? kHeldBytes : 0);
  const uint64_t choices = requests.size() * options.choices;
  const uint64_t most = kMostAnswerBytes / token_bytes / choices;
  for (CompletionRequest& request : requests) {
    const auto room =
        generation.model->context - static_cast<uint32_t>(request.request.prompt.size());
    uint32_t& tokens = request.request.max_tokens;
    if (std::min(tokens, room) <= most) continue;
    if (options.max_tokens)
      throw RequestError(
          400, "", "max_tokens",
          fmt::format("{} answers of {} tokens at {} bytes each exceed the {} MiB of an answer "
                      "that is {}; {} tokens fit{}",
                      choices, tokens, token_bytes, kMostAnswerBytes >> 20,
                      is_held ? "held until its end, as --require has it" : "not streamed", most,
                      is_held ? "" : ", or stream it"));
    tokens = static_cast<uint32_t>(std::max<uint64_t>(most, 1));
  }
}

}  // namespace

void generate_answer(const Exchange& exchange, Generation generation, std::string_view id_prefix,
                     MakeStyle make_style) {
  const ModelText& model = *generation.model;
  for (const std::vector<Token>& prompt : generation.prompts)
    check_context(model, prompt.size(), generation.field);
  check_sampling(model, generation.options.sampling);
  const auto grammar = grammar_for(generation.options.format, generation.grammar);
  const auto deadline = deadline_of(exchange, generation.options.timeout);
  const AnswerHead head = head_of(exchange, generation, id_prefix);
  std::vector<CompletionRequest> requests;
  for (size_t i = 0; i < generation.prompts.size(); ++i) {
    CompletionRequest request = engine_request(generation, generation.prompts[i]);
    request.id = i == 0 ? head.id : fmt::format("{}-{}", head.id, i);
    request.constraint = constraint_of(generation, generation.prompts[i], grammar);
    request.deadline = deadline;
    requests.push_back(std::move(request));
  }
  bound_answer(generation, requests);
  const auto answer =
      std::make_shared<RunningAnswer>(exchange.reply, make_style(head), plan_of(generation));
  EngineThread& engine = exchange.api.engine;
  std::vector<EngineThread::Submission> all;
  for (CompletionRequest& request : requests) {
    const auto first = static_cast<uint32_t>(all.size()) * generation.options.choices;
    all.push_back({std::move(request), RunningAnswer::events(answer, first)});
  }
  const auto cancel = [&engine, tickets = engine.submit_all(model.name, std::move(all))] {
    for (const EngineThread::Ticket ticket : tickets) engine.cancel(ticket);
  };
  answer->on_broken_off(cancel);
  exchange.reply->on_gone(cancel);
}

std::optional<steady_clock::time_point> deadline_of(
    const Exchange& exchange, std::optional<std::chrono::milliseconds> asked) {
  std::optional<steady_clock::time_point> deadline;
  const auto now = steady_clock::now();
  for (const auto& timeout : {asked, timeout_of_header(exchange)})
    if (timeout && (!deadline || now + *timeout < *deadline)) deadline = now + *timeout;
  return deadline;
}

void check_context(const ModelText& model, size_t tokens, const std::string& field) {
  if (tokens == 0) throw RequestError(400, "", field, "the prompt has no tokens");
  if (tokens < model.context) return;
  // Clients look for these words.
  throw RequestError(400, "context_length_exceeded", field,
                     fmt::format("This model's maximum context length is {} tokens. However, your "
                                 "{} resulted in {} tokens.",
                                 model.context, field, tokens));
}

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
  if (!chosen && !model.why_no_chat.empty())
    throw RequestError(Error(ErrorCode::unsupported, model.name, model.why_no_chat,
                             "serve it with --chat-template and the name of one"),
                       "model");
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

using std::chrono::steady_clock;

namespace {

// A part of a vector is no smaller embedding unless a model was trained for it.
void check_dimensions(const ModelText& model, const EmbeddingsRequest& request) {
  if (request.dimensions && *request.dimensions != model.embedding_size)
    throw RequestError(400, "unsupported", "dimensions",
                       fmt::format("this model's embeddings have {}", model.embedding_size));
}

}  // namespace

void embed(const Exchange& exchange, const ModelText& model, const EmbeddingsRequest& request,
           std::function<JsonValue(const Embeddings&)> wording) {
  check_dimensions(model, request);
  Embeddings embeddings{.model = model.name};
  std::vector<std::vector<Token>> tokens;
  for (const TextOrTokens& input : request.inputs) {
    tokens.push_back(prompt_tokens(model, input, "input"));
    if (request.truncate && tokens.back().size() >= model.context)
      tokens.back().resize(model.context - 1);
    check_context(model, tokens.back().size(), "input");
    embeddings.tokens += tokens.back().size();
  }
  EngineThread& engine = exchange.api.engine;
  const auto answer = [reply = exchange.reply, error_text = error_text_for(exchange.request.path),
                       embeddings, wording = std::move(wording),
                       start = steady_clock::now()](std::vector<std::vector<float>> vectors,
                                                    const std::optional<Error>& error) mutable {
    if (error) return reply->send(error_response(refusal_of_end(*error), error_text));
    embeddings.vectors = std::move(vectors);
    embeddings.seconds = std::chrono::duration<double>(steady_clock::now() - start).count();
    // Written by a worker: the engine has others to serve.
    reply->on_worker([reply, wording = std::move(wording), embeddings = std::move(embeddings)] {
      reply->send({.body = json_text(wording(embeddings))});
    });
  };
  const EngineThread::Ticket ticket =
      engine.embed(model.name, std::move(tokens), answer, deadline_of(exchange, {}));
  exchange.reply->on_gone([&engine, ticket] { engine.cancel(ticket); });
}

}  // namespace tyto::api
