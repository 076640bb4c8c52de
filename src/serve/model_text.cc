#include "serve/model_text.h"

#include <algorithm>

#include "engine/engine.h"
#include "evidence/seal.h"
#include "model/description.h"
#include "text/grammar/constraint.h"

namespace tyto {

std::shared_ptr<const TokenTrie> ModelText::token_trie() const {
  std::call_once(trie_made_, [&] { trie_ = std::make_shared<const TokenTrie>(*tokenizer); });
  return trie_;
}

std::shared_ptr<const ModelText> text_of(const std::string& name, Engine& engine,
                                         const std::string& chat_template,
                                         const SamplerOptions& sampling) {
  const Model& model = engine.model();
  const ModelDescription described = describe(model);
  const auto text = std::make_shared<ModelText>();
  text->name = name;
  text->path = model.path.string();
  text->format = model.format;
  text->weight_type = described.type;
  text->size = described.size;
  text->architecture = model.config.architecture;
  text->weight_bytes = model.weight_bytes();
  text->parameters = model.parameters();
  text->digest = digest(engine.identity().hash);
  for (const MappedFile& file : model.files)
    text->modified_at = std::max(text->modified_at, file.stamp().modified_ns / 1'000'000'000);
  text->context = engine.pipeline().context();
  text->embedding_size = model.config.emb;
  text->sampling = sampling_for(model, sampling);
  text->holds_streams = !engine.requirement().empty();
  engine.tokenizer();  // throws where there is none
  text->tokenizer = engine.shared_tokenizer();
  const Vocabulary& vocabulary = text->tokenizer->vocabulary();
  const auto choose = [&](bool with_tools) {
    return std::make_shared<const ChatTemplate>(
        choose_chat_template(vocabulary, chat_template, text->path, with_tools));
  };
  if (!chat_template.empty() || !vocabulary.chat_template.empty())
    text->chat_template = choose(false);
  if (chat_template.empty()) text->why_no_chat = without_default_template(vocabulary);
  const bool has_one_for_tools = !chat_template_for(vocabulary, true).empty();
  if (chat_template.empty() && !vocabulary.more_templates.empty() && has_one_for_tools) {
    try {
      text->tool_template = choose(true);
    } catch (const Error& error) {  // conversations without tools do not need it
      text->why_no_tools = error.what();
    }
  }
  const auto& for_tools = text->tool_template ? text->tool_template : text->chat_template;
  if (for_tools && text->why_no_tools.empty()) text->tool_format = tool_format(*for_tools);
  text->chat_template_source = chat_template.empty() ? vocabulary.chat_template : chat_template;
  return text;
}

}  // namespace tyto
