// What a sampler does with a constraint.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/sampler.h"
#include "support/expect_error.h"
#include "text/grammar/constraint.h"
#include "unit/text/small_vocabularies.h"

namespace tyto {
namespace {

TEST(Sampler, TakesOnlyWhatAConstraintAllows) {
  Vocabulary vocabulary = byte_level_vocabulary({});
  for (const char* piece : {"no", "yes"}) vocabulary.pieces.push_back(to_byte_level(piece));
  const Tokenizer tokenizer(vocabulary, "test");
  const auto tokens = std::make_shared<const TokenTrie>(tokenizer);
  const auto grammar = std::make_shared<const Grammar>("root ::= \"yes\" | \"no\"");
  const Token no = tokenizer.find("no"), yes = tokenizer.find("yes");
  std::vector<float> logits(tokenizer.size() + 100, 5.0f);  // padded, as some models' are
  for (const char letter : {'n', 'y'}) logits[static_cast<size_t>(letter)] = -10;
  logits[static_cast<size_t>(no)] = -3;
  logits[static_cast<size_t>(yes)] = -4;
  for (const float temperature : {0.0f, 1.0f}) {
    SamplerOptions options;
    options.temperature = temperature;
    options.top_k = 1;  // the best that is allowed
    options.logit_bias = {{'q', 1000.0f}};
    Sampler sampler(options);
    sampler.accept('y');  // from the prompt
    sampler.constrain(std::make_shared<Constraint>(grammar, tokens));
    const Token first = sampler.sample(logits);
    EXPECT_EQ(first, no);
    sampler.accept(first);
    EXPECT_TRUE(tokenizer.is_eos(sampler.sample(logits)));
    sampler.constrain(nullptr);
    EXPECT_EQ(sampler.sample(logits), 'q');
  }
}

TEST(Sampler, WithoutATokenThatAConstraintAllowsThereIsAnError) {
  const Tokenizer tokenizer(sentencepiece_vocabulary({"a"}), "test");
  Vocabulary without_bytes = tokenizer.vocabulary();
  without_bytes.byte_tokens.clear();
  for (size_t i = 3; i < 259; ++i) without_bytes.pieces[i] = "pad" + std::to_string(i);
  const Tokenizer few(without_bytes, "test");
  Sampler sampler({});
  sampler.constrain(std::make_shared<Constraint>(std::make_shared<const Grammar>("root ::= \"z\""),
                                                 std::make_shared<const TokenTrie>(few)));
  EXPECT_ERROR(sampler.sample(std::vector<float>(few.size(), 0.0f)),
               "no token of the vocabulary goes on from here");
}

}  // namespace
}  // namespace tyto
