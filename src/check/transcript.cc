#include "check/transcript.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/json_value.h"
#include "check/diagnose.h"
#include "llama/reference.h"

namespace tyto {
namespace {

constexpr const char* kSchema = "tyto-transcript-1";
constexpr uint32_t kMostTies = 64;  // at one position: a device that gives all zeros fills no disk
constexpr uint64_t kMostPrompts = 4096;
constexpr uint64_t kMostTokens = 1 << 20;
constexpr uint64_t kMostCandidates = 1 << 16;

void check_size(const Json& array, uint64_t least, uint64_t most) {
  const size_t size = array.size();
  if (size < least || size > most)
    array.fail(fmt::format("has {} entries, expected {} to {}", size, least, most));
}

std::vector<Token> tokens_from(const Json& array, uint32_t vocab) {
  if (!array.is(Json::Type::array)) array.fail("expected a list of token ids");
  check_size(array, 1, kMostTokens);
  std::vector<Token> tokens;
  array.for_each_element([&](size_t, const Json& token) {
    tokens.push_back(static_cast<Token>(token.as_uint(vocab - 1)));
  });
  return tokens;
}

std::vector<Candidate> candidates_from(const Json& array, uint32_t vocab, uint32_t k) {
  if (!array.is(Json::Type::array)) array.fail("expected a list of [token, logit]");
  check_size(array, std::min(k, vocab), kMostCandidates);
  std::vector<Candidate> result;
  array.for_each_element([&](size_t, const Json& pair) {
    if (!pair.is(Json::Type::array) || pair.size() != 2) pair.fail("expected [token, logit]");
    Candidate candidate;
    pair.for_each_element([&](size_t index, const Json& value) {
      if (index == 0)
        candidate.token = static_cast<Token>(value.as_uint(vocab - 1));
      else
        candidate.logit = static_cast<float>(value.as_double());
    });
    if (!std::isfinite(candidate.logit)) pair.fail("the logit is not a finite number");
    if (!result.empty() && result.back().logit < candidate.logit)
      pair.fail("candidates must be sorted, the best first");
    if (rank_of(candidate.token, result) > 0) pair.fail("the token is listed twice");
    result.push_back(candidate);
  });
  return result;
}

Continuation continuation_from(const Json& prompt, const Transcript& whole, uint32_t vocab) {
  Continuation result;
  result.text = prompt.string_or("text", "");
  result.prompt = tokens_from(prompt.at("prompt"), vocab);
  const Json generated = prompt.at("generated");
  result.generated = tokens_from(generated, vocab);
  if (result.generated.size() > whole.max_tokens)
    generated.fail(
        fmt::format("has {} tokens, max_tokens is {}", result.generated.size(), whole.max_tokens));
  const Json top = prompt.at("top");
  check_size(top, result.generated.size(), result.generated.size());
  top.for_each_element([&](size_t index, const Json& position) {
    result.top.push_back(candidates_from(position, vocab, whole.k));
    if (rank_of(result.generated[index], result.top.back()) != 1)
      position.fail(
          fmt::format("the generated token {} is not the best of them", result.generated[index]));
  });
  return result;
}

}  // namespace

std::vector<Candidate> top_candidates(std::span<const float> logits, uint32_t k) {
  for (const float logit : logits)
    if (!std::isfinite(logit)) throw Error(ErrorCode::device, "logits", "are not finite");
  std::vector<Token> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto is_better = [&](Token a, Token b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
  const size_t sorted = std::min<size_t>(order.size(), k + kMostTies);
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(sorted), order.end(),
                    is_better);
  std::vector<Candidate> result;
  for (size_t i = 0; i < sorted; ++i) {
    const Candidate next{order[i], logits[static_cast<size_t>(order[i])]};
    if (i >= k && next.logit != result.back().logit) break;
    result.push_back(next);
  }
  return result;
}

std::string transcript_json(const Transcript& transcript) {
  JsonValue prompts = JsonValue::array();
  for (const Continuation& from : transcript.continuations) {
    JsonValue top = JsonValue::array();
    for (const std::vector<Candidate>& position : from.top) {
      JsonValue pairs = JsonValue::array();
      for (const Candidate& candidate : position)
        pairs.push_back(JsonValue::array({candidate.token, candidate.logit}));
      top.push_back(std::move(pairs));
    }
    prompts.push_back({{"text", from.text},
                       {"prompt", from.prompt},
                       {"generated", from.generated},
                       {"top", std::move(top)}});
  }
  const JsonValue whole = {{"schema", kSchema},         {"engine", transcript.engine},
                           {"model", transcript.model}, {"max_tokens", transcript.max_tokens},
                           {"k", transcript.k},         {"prompts", std::move(prompts)}};
  return whole.dump() + "\n";
}

Transcript transcript_from_json(const std::string& text, const std::string& name, uint32_t vocab) {
  const Json json = Json::parse(text, name);
  if (!json.is(Json::Type::object)) json.fail("is not a transcript");
  const std::string schema = json.string_or("schema", "");
  if (schema != kSchema)
    throw Error(ErrorCode::input, name,
                fmt::format("its schema is \"{}\", not \"{}\"", schema, kSchema),
                "write it with tools/hf_reference.py or `tyto verify --write`");
  Transcript result;
  result.engine = json.at("engine").as_string();
  result.model = json.at("model").as_string();
  result.max_tokens = static_cast<uint32_t>(json.at("max_tokens").as_uint(kMostTokens));
  result.k = static_cast<uint32_t>(json.at("k").as_uint(kMostCandidates));
  if (result.k == 0) json.at("k").fail("must be at least 1");
  const Json prompts = json.at("prompts");
  check_size(prompts, 1, kMostPrompts);
  prompts.for_each_element([&](size_t, const Json& prompt) {
    result.continuations.push_back(continuation_from(prompt, result, vocab));
  });
  return result;
}

namespace {

// Candidates and, where they are wanted, all logits of a position; returns the best token.
Token add_position(Continuation& to, AllLogits* all, std::span<const float> logits,
                   uint32_t candidates) {
  if (all != nullptr) all->emplace_back(logits.begin(), logits.end());
  to.top.push_back(top_candidates(logits, candidates));
  to.generated.push_back(to.top.back().front().token);
  return to.generated.back();
}

}  // namespace

Continuation greedy(const Generator& with, const GreedyRequest& request, Receipt& receipt,
                    AllLogits* logits, const Progress& progress) {
  TYTO_ASSERT(request.tokens > 0);
  Continuation result;
  result.prompt.assign(request.prompt.begin(), request.prompt.end());
  const auto show = [&](uint64_t done) {
    if (progress) progress("the device computes", done, request.tokens);
  };
  show(0);
  Sampler best({.temperature = 0});
  const auto keep = [&](const ChosenToken& chosen) {
    const Token token = add_position(result, logits, chosen.logits, request.candidates);
    TYTO_ASSERT(token == chosen.token);
    show(result.generated.size());
    return !with.tokenizer.is_eos(token);
  };
  Request asked{.prompt = result.prompt, .max_tokens = request.tokens, .stop = {}};
  asked.ignore_eos = asked.wants_all_logits = true;  // an end-of-text token has candidates, too
  const Answer answer = generate_tokens(with, best, std::move(asked), keep);
  if (answer.reason == StopReason::context_full)
    with.pipeline.check_room(0, request.prompt.size() + request.tokens - 1);  // says so
  add(receipt, answer.receipt);
  show(request.tokens);  // also where the text ended early
  return result;
}

Continuation greedy_reference(const Model& model, const Tokenizer& tokenizer,
                              const GreedyRequest& request, AllLogits* logits,
                              const Progress& progress) {
  TYTO_ASSERT(!request.prompt.empty() && request.tokens > 0);
  Reference reference(model);
  Continuation result;
  result.prompt.assign(request.prompt.begin(), request.prompt.end());
  const uint64_t total = request.prompt.size() + request.tokens - 1;
  uint64_t done = 0;
  const auto show = [&] {
    if (progress) progress("the reference computes", done, total);
  };
  const auto next = [&](Token token) {
    show();
    ++done;
    return reference.forward(token);
  };
  std::vector<float> last;
  for (const Token token : request.prompt) last = next(token);
  while (true) {
    const Token token = add_position(result, logits, last, request.candidates);
    if (tokenizer.is_eos(token) || result.generated.size() == request.tokens) break;
    last = next(token);
  }
  done = total;  // also where the text ended early
  show();
  return result;
}

std::optional<std::string> why_not_executed(const std::string& prefill, const std::string& decode,
                                            const Receipt& receipt) {
  // Also where every dispatch completed: what one of them computed was refused.
  const std::string again =
      receipt.recoveries > 0 ? fmt::format(" and was run again after {} failure{}",
                                           receipt.recoveries, receipt.recoveries == 1 ? "" : "s")
                             : "";
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const bool is_prefill = phase == Phase::prefill;
    const std::string& device = is_prefill ? prefill : decode;
    const auto& executed = is_prefill ? receipt.phases.prefill : receipt.phases.decode;
    if (executed.empty() && !is_prefill) continue;  // one token was asked for
    const auto found = std::find_if(executed.begin(), executed.end(),
                                    [&](const DeviceCounters& d) { return d.device == device; });
    if (found == executed.end() || found->completions == 0)
      return fmt::format("{} completed no work in {}", device, name(phase));
    if (found->failed() > 0)
      return fmt::format("{} completed {} of {} submissions in {}{}", device, found->completions,
                         found->submissions, name(phase), again);
  }
  const std::string devices = prefill == decode ? decode : prefill + "/" + decode;
  if (!again.empty()) return fmt::format("{} completed every submission{}", devices, again);
  return std::nullopt;
}

}  // namespace tyto
