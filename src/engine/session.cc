#include "engine/session.h"

#include <algorithm>

namespace tyto {

Answer Session::ask(const Request& request, const OnText& on_text, const Progress& progress) {
  const auto end =
      std::mismatch(cached_.begin(), cached_.end(), request.prompt.begin(), request.prompt.end());
  auto kept = static_cast<size_t>(end.first - cached_.begin());
  if (kept == request.prompt.size() && kept > 0)
    --kept;  // the last token's logits are needed again
  pipeline_.rewind(static_cast<uint32_t>(kept));
  cached_.resize(kept);

  Request rest = request;
  rest.prompt.erase(rest.prompt.begin(), rest.prompt.begin() + static_cast<std::ptrdiff_t>(kept));
  const Answer answer = generate(tokenizer_, pipeline_, sampler_, rest, trace_, on_text, progress);
  cached_ = request.prompt;
  cached_.insert(cached_.end(), answer.tokens.begin(), answer.tokens.end());
  cached_.resize(pipeline_.position());  // the last token sampled was never run
  return answer;
}

void Session::clear() {
  pipeline_.rewind(0);
  cached_.clear();
}

}  // namespace tyto
