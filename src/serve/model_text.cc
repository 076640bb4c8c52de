#include "serve/model_text.h"

#include "base/utc_time.h"
#include "engine/engine.h"
#include "tensor/dtype.h"
#include "text/grammar/token_trie.h"

namespace tyto {

std::shared_ptr<const TokenTrie> ModelText::token_trie() const {
  std::call_once(trie_made_, [&] { trie_ = std::make_shared<const TokenTrie>(*tokenizer); });
  return trie_;
}

std::shared_ptr<const ModelText> text_of(const std::string& name, Engine& engine,
                                         const std::string& chat_template,
                                         const SamplerOptions& sampling) {
  const Model& model = engine.model();
  const auto text = std::make_shared<ModelText>();
  text->name = name;
  text->path = model.path.string();
  text->format = model.format;
  text->weight_type = info(main_weight_type(model)).name;
  text->architecture = model.config.architecture;
  text->weight_bytes = model.weight_bytes();
  text->parameters = model.parameters();
  text->loaded_at = static_cast<uint64_t>(seconds_since_1970());
  text->context = engine.pipeline().context();
  text->embedding_size = model.config.emb;
  text->sampling = sampling_for(model, sampling);
  engine.tokenizer();  // throws where there is none
  text->tokenizer = engine.shared_tokenizer();
  const Vocabulary& vocabulary = text->tokenizer->vocabulary();
  if (chat_template.empty() && vocabulary.chat_template.empty()) return text;
  text->chat_template = std::make_shared<const ChatTemplate>(
      choose_chat_template(vocabulary, chat_template, text->path));
  text->tool_format = tool_format(*text->chat_template);
  text->chat_template_source = chat_template.empty() ? vocabulary.chat_template : chat_template;
  return text;
}

}  // namespace tyto
