#include "library/tyto.h"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "text/chat_template.h"

namespace tyto::library {

struct Model::Parts {
  explicit Parts(const EngineOptions& options) : engine(options) {}
  Answer answer(const Question& question, const OnText& on_text);

  Engine engine;
};

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

// A model without a template gets the prompt as it is.
std::vector<Token> prompt_of(const Question& question, const Engine& engine) {
  const Tokenizer& tokenizer = engine.tokenizer();
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  if (question.raw || vocabulary.chat_template.empty()) {
    if (!question.system.empty())
      throw Error(ErrorCode::usage, "system", "needs a chat template",
                  "leave it out, or take a model with a template");
    return encode_prompt(tokenizer, question.prompt, {});
  }
  std::vector<ChatMessage> messages;
  if (!question.system.empty()) messages.push_back({"system", question.system});
  messages.push_back({"user", question.prompt});
  return encode_chat(tokenizer, choose_chat_template(vocabulary, "", engine.model().path.string()),
                     messages);
}

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
    : parts_(in_one_line([&] { return std::make_unique<Parts>(engine_options(options)); })) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Answer Model::answer(const Question& question, const OnText& on_text) {
  return in_one_line([&] { return parts_->answer(question, on_text); });
}

Answer Model::Parts::answer(const Question& question, const OnText& on_text) {
  const bool is_held = !engine.requirement().device.empty();
  Request request{
      .prompt = prompt_of(question, engine), .max_tokens = question.most_tokens, .stop = {}};
  request.continues_text = question.raw && has_text(engine.tokenizer(), request.prompt);
  Sampler sampler(sampling_of(question, engine));
  std::string text;
  tyto::Answer answer =
      generate(engine.generator(), sampler, std::move(request), [&](std::string_view piece) {
        text += piece;
        return is_held || !on_text || on_text(piece);
      });
  engine.check_required(answer.receipt.phases);
  engine.complete(answer.receipt);
  if (is_held && on_text) on_text(text);
  return {std::move(text), std::string(name(answer.reason)), receipt_of(answer.receipt)};
}

double Model::setup_seconds() const {
  return parts_->engine.setup_seconds();
}

}  // namespace tyto::library
