#include "library/tyto.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/chat_template.h"
#include "text/reasoning.h"

namespace tyto::library {

namespace {

EngineOptions engine_options(const ModelOptions& options) {
  EngineOptions result;
  result.model = options.model;
  result.device = options.device;
  result.require = options.require;
  result.threads = options.threads;
  result.pipeline.forward.context = options.context;
  return result;
}

}  // namespace

struct Model::Parts {
  explicit Parts(const ModelOptions& options)
      : engine(engine_options(options)), chat_template(options.chat_template) {}
  Answer answer(const Question& question, const OnText& on_text);

  Engine engine;
  const std::string chat_template;
};

namespace {

struct Prompt {
  std::vector<Token> tokens;
  std::string chat = {};  // the text of the template; empty: the prompt as it is
};

// A model without a template gets the prompt as it is.
Prompt prompt_of(const Question& question, const Engine& engine, const std::string& chat_template) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  const bool has_template = !chat_template.empty() || !vocabulary.chat_template.empty() ||
                            !vocabulary.more_templates.empty();
  if (question.raw || !has_template) {
    if (!question.system.empty())
      throw Error(ErrorCode::usage, "system", "needs a chat template",
                  "leave it out, or take a model with a template");
    return {encode_prompt(tokenizer, question.prompt, {})};
  }
  std::vector<ChatMessage> messages;
  if (!question.system.empty()) messages.push_back({"system", question.system});
  messages.push_back({"user", question.prompt});
  ChatText chat = render_chat(
      tokenizer, choose_chat_template(vocabulary, chat_template, engine.model().path.string()),
      messages);
  return {encode_chat(tokenizer, chat), std::move(chat.text)};
}

// The text of an answer, divided where a template made its prompt.
class DividedText {
 public:
  DividedText(const Tokenizer& tokenizer, const std::string& chat) {
    if (!chat.empty()) stream_.emplace(thought_format(tokenizer), chat);
  }

  // What of the answer came.
  std::string push(std::string_view piece) {
    return stream_ ? take(stream_->push(piece))
                   : take({.reasoning = {}, .content = std::string(piece)});
  }
  std::string finish() { return stream_ ? take(stream_->finish()) : ""; }

  std::string text, thought;

 private:
  std::string take(ReasoningDelta delta) {
    thought += delta.reasoning;
    text += delta.content;
    return std::move(delta.content);
  }

  std::optional<ReasoningStream> stream_;  // none: all of it is the answer
};

SamplerOptions sampling_of(const Question& question, const Engine& engine) {
  SamplerOptions options = sampling_for(engine.model(), {});
  if (question.temperature) options.temperature = *question.temperature;
  if (question.seed) options.seed = *question.seed;
  check(options, engine.model().config.vocab);
  return options;
}

Receipt receipt_of(const tyto::Receipt& receipt) {
  return {.line = short_receipt_line(receipt),
          .details = receipt_line(receipt),
          .prompt_tokens = receipt.prompt_tokens,
          .cached_tokens = receipt.cached_tokens,
          .generated_tokens = receipt.generated_tokens,
          .prefill_seconds = receipt.prefill_seconds,
          .decode_seconds = receipt.decode_seconds,
          .is_modelled = has_virtual_device(receipt),
          .fallbacks = receipt.fallbacks};
}

// The hint belongs to the line for those who see nothing else of an Error.
template <typename Function>
auto in_one_line(const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    throw std::runtime_error(error.hint.empty() ? error.what()
                                                : fmt::format("{}; {}", error.what(), error.hint));
  }
}

}  // namespace

Model::Model(const ModelOptions& options)
    : parts_(in_one_line([&] { return std::make_unique<Parts>(options); })) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Answer Model::answer(const Question& question, const OnText& on_text) {
  return in_one_line([&] { return parts_->answer(question, on_text); });
}

Answer Model::Parts::answer(const Question& question, const OnText& on_text) {
  const bool is_held = !engine.requirement().device.empty();
  Prompt prompt = prompt_of(question, engine, chat_template);
  Request request{
      .prompt = std::move(prompt.tokens), .max_tokens = question.most_tokens, .stop = {}};
  request.continues_text = prompt.chat.empty() && has_text(engine.tokenizer(), request.prompt);
  if (!prompt.chat.empty()) request.shown_special = special_thought_markers(engine.tokenizer());
  Sampler sampler(sampling_of(question, engine));
  DividedText text(engine.tokenizer(), prompt.chat);
  tyto::Answer answer =
      generate(engine.generator(), sampler, std::move(request), [&](std::string_view piece) {
        const std::string said = text.push(piece);
        return is_held || !on_text || on_text(said);
      });
  const std::string rest = text.finish();
  engine.check_required(answer.receipt.phases);
  engine.complete(answer.receipt);
  const std::string& left = is_held ? text.text : rest;
  if (on_text && !left.empty()) on_text(left);
  return {.text = std::move(text.text),
          .thought = std::move(text.thought),
          .reason = std::string(name(answer.reason)),
          .receipt = receipt_of(answer.receipt)};
}

double Model::setup_seconds() const {
  return parts_->engine.setup_seconds();
}

}  // namespace tyto::library
