#include "serve/api/generation.h"

#include <charconv>
#include <chrono>

#include "base/utc_time.h"
#include "serve/api/constraints.h"
#include "serve/api/fields.h"
#include "text/chat_text.h"

namespace tyto::api {
namespace {

using std::chrono::steady_clock;

constexpr const char* kTimeoutHeader = "x-request-timeout";
constexpr double kMostTimeoutSeconds = 86400;

std::optional<std::chrono::milliseconds> timeout_of_header(const Exchange& exchange) {
  const std::string_view text = exchange.request.header(kTimeoutHeader);
  if (text.empty()) return std::nullopt;
  double seconds = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (failure != std::errc() || end != text.data() + text.size() || !(seconds > 0) ||
      seconds > kMostTimeoutSeconds)
    throw RequestError(
        400, "", kTimeoutHeader,
        fmt::format("'{}' is no number of seconds up to {}", text, kMostTimeoutSeconds));
  return std::chrono::milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1e3)));
}

// The earlier of what the request and a proxy's header say.
std::optional<steady_clock::time_point> deadline_of(const Exchange& exchange,
                                                    const GenerationOptions& options) {
  std::optional<steady_clock::time_point> deadline;
  const auto now = steady_clock::now();
  for (const auto& timeout : {options.timeout, timeout_of_header(exchange)})
    if (timeout && (!deadline || now + *timeout < *deadline)) deadline = now + *timeout;
  return deadline;
}

// What the request's numbers mean for this model.
void check_sampling(const ModelText& model, const SamplerOptions& sampling) {
  try {
    check(sampling, model.tokenizer->size());
  } catch (const Error& error) {
    throw RequestError(error, "logit_bias");
  }
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

// All prompts or none: what was taken before one is refused is cancelled.
void submit_all(const Exchange& exchange, const Generation& generation,
                std::vector<CompletionRequest> requests,
                const std::shared_ptr<RunningAnswer>& answer) {
  EngineThread& engine = exchange.api.engine;
  std::vector<EngineThread::Ticket> tickets;
  try {
    for (CompletionRequest& request : requests) {
      const auto first = static_cast<uint32_t>(tickets.size()) * generation.options.choices;
      tickets.push_back(engine.submit(generation.model->name, std::move(request),
                                      RunningAnswer::events(answer, first)));
    }
  } catch (const Error& error) {
    exchange.api.metrics.refused(counted_as(refusal_of(error)));
    answer->refuse(error);
  }
  const auto cancel = [&engine, tickets = std::move(tickets)] {
    for (const EngineThread::Ticket ticket : tickets) engine.cancel(ticket);
  };
  answer->on_broken_off(cancel);
  exchange.reply->on_gone(cancel);
}

}  // namespace

void generate_answer(const Exchange& exchange, Generation generation, std::string_view id_prefix,
                     MakeStyle make_style) {
  const ModelText& model = *generation.model;
  for (const std::vector<Token>& prompt : generation.prompts)
    check_context(model, prompt.size(), generation.field);
  check_sampling(model, generation.options.sampling);
  const MakeConstraint constraint =
      constraint_for(generation.model, generation.options.format, generation.grammar);
  const auto deadline = deadline_of(exchange, generation.options);
  const AnswerHead head = head_of(exchange, generation, id_prefix);
  std::vector<CompletionRequest> requests;
  for (size_t i = 0; i < generation.prompts.size(); ++i) {
    CompletionRequest request = engine_request(generation, generation.prompts[i]);
    request.id = i == 0 ? head.id : fmt::format("{}-{}", head.id, i);
    request.constraint = constraint;
    request.deadline = deadline;
    requests.push_back(std::move(request));
  }
  const auto answer =
      std::make_shared<RunningAnswer>(exchange.reply, make_style(head), plan_of(generation));
  submit_all(exchange, generation, std::move(requests), answer);
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

}  // namespace tyto::api
