// Logits to a token. Greedy is temperature zero, not another class.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "llama/logits.h"
#include "text/tokenizer/vocabulary.h"

namespace tyto {

class Constraint;

struct SamplerOptions {
  float temperature = 0.8f;        // 0: greedy
  uint32_t top_k = 40;             // 0: off
  float top_p = 0.95f;             // 1: off
  float min_p = 0.05f;             // 0: off
  float repeat_penalty = 1.0f;     // 1: off; divides positive and multiplies negative logits
  float frequency_penalty = 0.0f;  // times the count of the token among the last ones
  float presence_penalty = 0.0f;
  uint32_t penalty_window = 64;  // how many last tokens the penalties look at
  uint64_t seed = 0;
  std::vector<std::pair<Token, float>> logit_bias = {};
};

// Throws a usage Error naming the option when one is out of range; vocab bounds the bias ids.
void check(const SamplerOptions& options, size_t vocab);

// How many of the best logits of a row are all that a sampler looks at; 0: it may look at any.
uint32_t candidates_needed(const SamplerOptions& options, bool is_constrained);

// One per conversation: owns its random state and the window of recent tokens.
class Sampler {
 public:
  explicit Sampler(SamplerOptions options);

  // Same seed, same options, same logits: same tokens, on every machine. A logit that is NaN or
  // +infinity is an Error; -infinity bans its token. Logits in bf16 are looked through as they are,
  // unless penalties, a bias or a constraint change some. Candidates are as many as are needed, and
  // give the token that all logits give.
  Token sample(const Logits& logits);

  // Tokens the penalties should know: the prompt's, and each one taken.
  void accept(Token token);

  // From here on the tokens accepted are an answer's, and sample() takes only what the constraint
  // allows; null lifts it. It is this sampler's alone until then.
  void constrain(std::shared_ptr<Constraint> constraint);

  const SamplerOptions& options() const { return options_; }

 private:
  bool adjusts() const;
  void adjust(std::span<const float> logits);
  void penalize();
  void ban();
  // For float or for the bits of bf16.
  template <typename Logit>
  Token choose(std::span<const Logit> logits);
  Token choose(std::span<const Candidate> best);
  template <typename Logit>
  Token find_best(std::span<const Logit> logits);
  template <typename Logit>
  void gather_candidates(std::span<const Logit> logits);
  void keep_probable(float best);
  Token draw(float best);
  Token draw_probable(float best);

  SamplerOptions options_;
  std::mt19937_64 random_;
  std::shared_ptr<Constraint> constraint_;  // shared with the request it came in
  std::vector<Token> recent_;               // ring buffer of penalty_window tokens
  size_t recent_next_ = 0;
  // Scratch, kept to avoid allocation per token.
  std::vector<float> block_bests_;
  std::vector<float> floors_;
  std::vector<Candidate> candidates_;
  std::vector<float> adjusted_;
  std::vector<Token> counted_;
};

// How probable a model finds tokens, from its logits: before temperature, penalties and
// constraints.

struct LogProbability {
  Token token = 0;
  float value = 0;
};

struct LogProbabilities {
  float chosen = 0;
  std::vector<LogProbability> top = {};  // the most probable first
};

// Those of the token that was chosen, and of the `count` most probable.
LogProbabilities log_probabilities(std::span<const float> logits, Token chosen, uint32_t count);

}  // namespace tyto
