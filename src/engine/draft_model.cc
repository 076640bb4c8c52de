#include "engine/draft_model.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/utf8.h"

namespace tyto {
namespace {

class DraftSequence {
 public:
  explicit DraftSequence(Engine& draft) : draft_(draft), sequence_(draft.pipeline()) {
    sequence_.candidates = 1;
  }
  ~DraftSequence() {
    try {
      const std::vector<Token> tokens = sequence_.tokens();
      draft_.prefixes().keep(tokens, sequence_.take_cache());
    } catch (const std::bad_alloc&) {
      // The next request of the conversation drafts from the beginning.
    }
  }
  DraftSequence(const DraftSequence&) = delete;
  DraftSequence& operator=(const DraftSequence&) = delete;

  // Guesses end where the draft model's context does.
  std::vector<Token> guess(std::span<const Token> text, uint32_t most) {
    std::vector<Token> guesses;
    if (text.size() > draft_.pipeline().context() || !is_known(text)) return guesses;
    keep_common(text);
    if (most == 0) text = text.first(text.size() - 1);  // the last one's logits are wanted later
    const std::span<const Token> unread = text.subspan(sequence_.position());
    if (unread.empty()) return guesses;
    sequence_.want_state(static_cast<uint32_t>(text.size()));  // where guesses may go wrong
    Logits logits = draft_.pipeline().run(sequence_, unread);
    while (guesses.size() < most) {
      guesses.push_back(greedy_.sample(logits));
      if (guesses.size() == most || sequence_.position() == draft_.pipeline().context()) break;
      logits = draft_.pipeline().run(sequence_, {&guesses.back(), 1});
    }
    return guesses;
  }

 private:
  // The rows of a model's last layer may be padded: it may choose what the other does not know.
  bool is_known(std::span<const Token> text) const {
    const uint32_t vocab = draft_.pipeline().vocab();
    return std::ranges::all_of(text, [&](Token t) { return static_cast<uint32_t>(t) < vocab; });
  }

  // All but the last token at most: that one's logits are what the guesses begin with.
  void keep_common(std::span<const Token> text) {
    const size_t most = text.size() - 1;
    if (sequence_.position() == 0) {
      KvTable known = draft_.prefixes().find(text, static_cast<uint32_t>(most));
      const uint32_t length = known.length();
      sequence_.begin_with(text.first(length), std::move(known));
      return;
    }
    const auto differ = std::ranges::mismatch(sequence_.tokens(), text.first(most));
    const auto common = static_cast<uint32_t>(differ.in2 - text.begin());
    sequence_.rewind(sequence_.last_cut(common));
  }

  Engine& draft_;
  Sequence sequence_;
  Sampler greedy_{SamplerOptions{.temperature = 0}};
};

std::string quoted(const std::string& piece) {
  return "\"" + printable_name(piece) + "\"";
}

}  // namespace

void check_same_vocabulary(const Vocabulary& model, const Vocabulary& draft,
                           const std::string& draft_name) {
  const auto refuse = [&](const std::string& difference) {
    throw Error(ErrorCode::input, draft_name, "cannot draft for this model: " + difference,
                "a draft model has the same tokenizer as the model it drafts for");
  };
  if (model.pieces.size() != draft.pieces.size())
    refuse(fmt::format("it has {} tokens, the model {}", draft.pieces.size(), model.pieces.size()));
  for (size_t i = 0; i < model.pieces.size(); ++i)
    if (model.pieces[i] != draft.pieces[i])
      refuse(fmt::format("its token {} is {}, the model's {}", i, quoted(draft.pieces[i]),
                         quoted(model.pieces[i])));
  if (model.algorithm != draft.algorithm) refuse("its tokenizer is of another kind");
  if (model.bos != draft.bos)
    refuse(fmt::format("its text begins with token {}, the model's with {}", draft.bos, model.bos));
  const auto special_of = [](const Vocabulary& vocabulary) {
    std::vector<Token> ids;
    for (const AddedToken& added : vocabulary.added)
      if (added.special) ids.push_back(added.id);
    std::ranges::sort(ids);
    return ids;
  };
  const std::vector<Token> ours = special_of(model), theirs = special_of(draft);
  if (ours == theirs) return;
  const auto differ = std::ranges::mismatch(ours, theirs);
  const bool is_ours =
      differ.in2 == theirs.end() || (differ.in1 != ours.end() && *differ.in1 < *differ.in2);
  refuse(fmt::format("token {} is special in {} alone", is_ours ? *differ.in1 : *differ.in2,
                     is_ours ? "the model" : "it"));
}

Drafter model_drafter(Engine& draft) {
  // Shared by the copies of the function, which are one drafter.
  return [sequence = std::make_shared<DraftSequence>(draft)](
             std::span<const Token> text, uint32_t most) { return sequence->guess(text, most); };
}

std::unique_ptr<Engine> open_draft(const std::string& model, const Engine& engine,
                                   const EngineOptions& options, const Progress& progress) {
  EngineOptions own;
  own.model = model;
  own.pool = engine.pool();
  own.pipeline.forward.sequences = options.pipeline.forward.sequences;  // each has its guesses
  for (const DeviceEntry& entry : device_table())
    if (entry.is_host) own.device = entry.name;
  own.settings = options.settings;
  own.pipeline.forward.sequences = options.pipeline.forward.sequences;
  auto draft = std::make_unique<Engine>(own, progress);
  check_same_vocabulary(engine.tokenizer().vocabulary(), draft->tokenizer().vocabulary(), model);
  return draft;
}

}  // namespace tyto
