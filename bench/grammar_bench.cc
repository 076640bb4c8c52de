// What a constraint costs: grammar_bench VOCABULARY.gguf. JSON texts are tokenised and sampled
// token by token, as if a model had chosen them, with a grammar and without. Printed is a JSON line
// per grammar: processor time of a token, so that what else the machine does matters little;
// medians of rounds, each with nothing known of the grammar before.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/sampler.h"
#include "model/model.h"
#include "text/grammar/constraint.h"
#include "text/grammar/json_schema.h"
#include "text/tokenizer/tokenizer.h"

namespace tyto {
namespace {

struct Case {
  std::string_view name;
  std::string_view schema;
  std::string_view text;
};

constexpr std::string_view kPerson =
    R"({"name": "Ada \"Owl\" Lovelace", "born": 1815, "città": "Londra, già — 東京", "likes": ["punch cards", "tea", "engines that weave\nalgebraical patterns"], "notes": "The Analytical Engine has no pretensions whatever to originate anything. It can do whatever we know how to order it to perform. It can follow analysis; but it has no power of anticipating any analytical relations or truths."})";

constexpr std::string_view kPersonSchema =
    R"({"type": "object", "properties": {"name": {"type": "string"}, "born": {"type": "integer", "minimum": 1000, "maximum": 2100},
    "città": {"type": "string"}, "likes": {"type": "array", "items": {"type": "string"}}, "notes": {"type": "string"}},
    "required": ["name", "born", "città", "likes", "notes"], "additionalProperties": false})";

// Lengths make every token's mask one that was not known yet.
constexpr std::string_view kBoundedSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 100}, "born": {"type": "integer"},
    "città": {"type": "string", "maxLength": 100}, "likes": {"type": "array", "items": {"type": "string", "maxLength": 100}, "maxItems": 9},
    "notes": {"type": "string", "minLength": 1, "maxLength": 1000}}, "required": ["name", "notes"]})";

constexpr Case kCases[] = {{"any object", "{\"type\": \"object\"}", kPerson},
                           {"schema", kPersonSchema, kPerson},
                           {"schema with lengths", kBoundedSchema, kPerson}};

double now_us() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Measured {
  double mean = 0;
  double highest = 0;
};

// Samples each token of the answer, which stands out of noise as a confident model's does.
Measured follow(const std::shared_ptr<Constraint>& constraint, size_t vocabulary,
                const std::vector<Token>& answer) {
  std::mt19937 random(1);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) logit = static_cast<float>(random() % 1024) / 256.0f;
  Sampler sampler(SamplerOptions{});
  sampler.constrain(constraint);
  Measured measured;
  for (const Token token : answer) {
    float& logit = logits[static_cast<size_t>(token)];
    const float before = std::exchange(logit, 100.0f);
    const double start = now_us();
    const Token chosen = sampler.sample(logits);
    sampler.accept(chosen);
    const double took = now_us() - start;
    if (chosen != token) fail_input("bench", "token {} is not allowed", token);
    logit = before;
    measured.mean += took / static_cast<double>(answer.size());
    measured.highest = std::max(measured.highest, took);
  }
  if (constraint && !constraint->is_complete()) fail_input("bench", "the text is no sentence");
  return measured;
}

void measure(const std::string& path) {
  constexpr int kRounds = 9;
  const Model model = open_model(path, Need::vocabulary);
  const Tokenizer tokenizer(*model.vocabulary, path);
  double start = now_us();
  const auto tokens = std::make_shared<const TokenTrie>(tokenizer);
  fmt::print("{{\"vocabulary\": {}, \"trie_nodes\": {}, \"trie_ms\": {:.1f}}}\n", tokenizer.size(),
             tokens->nodes().size(), (now_us() - start) * 1e-3);
  for (const Case& each : kCases) {
    start = now_us();
    const auto grammar = std::make_shared<const Grammar>(
        grammar_from_json_schema(Json::parse(each.schema, std::string(each.name))));
    const double compiled = now_us() - start;
    const std::vector<Token> answer = tokenizer.encode(each.text, {.add_bos = false});
    std::vector<double> means, highest, plain;
    for (int round = 0; round < kRounds; ++round) {
      const Measured measured =
          follow(std::make_shared<Constraint>(grammar, tokens), tokenizer.size(), answer);
      means.push_back(measured.mean);
      highest.push_back(measured.highest);
      plain.push_back(follow(nullptr, tokenizer.size(), answer).mean);
    }
    fmt::print(
        "{{\"grammar\": \"{}\", \"tokens\": {}, \"compile_us\": {:.0f}, \"sample_us\": {:.0f}, "
        "\"highest_us\": {:.0f}, \"sample_without_us\": {:.0f}}}\n",
        each.name, answer.size(), compiled, median(means), median(highest), median(plain));
  }
}

}  // namespace
}  // namespace tyto

int main(int count, char** arguments) {
  if (count != 2) {
    fmt::print(stderr, "usage: grammar_bench VOCABULARY.gguf\n");
    return 2;
  }
  try {
    tyto::measure(arguments[1]);
  } catch (const tyto::Error& error) {
    fmt::print(stderr, "grammar_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
