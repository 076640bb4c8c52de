// Which tests a benchmark runs: lists, ranges and names as llama-bench has them, and its spellings
// of flags.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tyto {

// `prompt` tokens of prefill, then `generate` single-token steps, after `depth` tokens that are not
// timed.
struct BenchTest {
  uint32_t prompt = 0;
  uint32_t generate = 0;
  uint32_t depth = 0;
  uint32_t sequences = 1;        // each with tokens of its own, all at once
  std::string speculation = {};  // what drafts tokens, as SpeculationName has it; empty: nothing

  // pp512, tg128, pp512+tg128, tg32 @ d2048, tg32 x 8, tg64 spec lookup
  std::string name() const;
  uint32_t tokens() const { return sequences * (prompt + generate); }
  uint64_t positions() const { return uint64_t{depth} + prompt + generate; }
  bool operator==(const BenchTest&) const = default;
};

// "512", "128,512", "128-1024*2", "1-4", "16-64+16" and lists of these; anything else is a usage
// Error naming the flag.
std::vector<uint32_t> parse_counts(const std::string& text, const std::string& flag);
std::vector<uint32_t> parse_counts(const std::vector<std::string>& texts, const std::string& flag);

// "512,128": a prompt and what is generated after it.
std::pair<uint32_t, uint32_t> parse_pair(const std::string& text, const std::string& flag);

// "a,b" -> {"a", "b"}; an empty part is a usage Error.
std::vector<std::string> parse_names(const std::vector<std::string>& texts,
                                     const std::string& flag);

// A name that is there twice is a usage Error.
void refuse_doubles(const std::vector<std::string>& names, const std::string& flag);

struct TestLists {
  std::vector<uint32_t> prompts;
  std::vector<uint32_t> generates;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;
  std::vector<uint32_t> depths;
  std::vector<uint32_t> sequences = {1};
};
// Per number of sequences and depth the prompts, the generations and the pairs; 0 tokens are no
// test. Without any test a usage Error.
std::vector<BenchTest> bench_tests(const TestLists& lists);

// Who guesses in a test: "lookup", "draft small.gguf", or "oracle:0.70", which knows what the model
// will say and drafts all but that share of it wrongly.
struct SpeculationName {
  std::string text;
  std::optional<double> oracle = {};  // the share
  std::string draft = {};             // the model
};
// "oracle:A" or "lookup"; anything else is a usage Error.
SpeculationName parse_speculation(const std::string& text);

// The tests that guesses can be measured with: one sequence that decodes.
bool can_speculate(const BenchTest& test);

// The arguments after "bench" with llama-bench's flags of several letters behind one dash (-pg,
// -ub) spelled in full, which is the only form our parser knows. A flag of llama-bench whose
// meaning cannot be had here is a usage Error with the reason.
std::vector<std::string> spell_out_bench_flags(std::span<const std::string> arguments);

struct Statistics {
  double mean = 0;
  double deviation = 0;  // a sample's: n - 1; 0 for one value
  double median = 0;
  double least = 0;
  double most = 0;
};
Statistics statistics(std::vector<double> values);  // without values all 0

}  // namespace tyto
