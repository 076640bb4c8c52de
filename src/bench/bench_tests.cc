#include "bench/bench_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <string_view>

#include "base/error.h"

namespace tyto {
namespace {

constexpr uint32_t kMostTestTokens = 1u << 24;
constexpr size_t kMostValues = 1000;  // in one range

[[noreturn]] void fail_counts(const std::string& flag, const std::string& text) {
  throw Error(ErrorCode::usage, flag, fmt::format("\"{}\" is not a list of numbers", text),
              "like 512, 128,512, 128-1024*2 or 16-64+16");
}

uint32_t parse_number(std::string_view& rest, const std::string& flag, const std::string& text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc()) fail_counts(flag, text);
  if (value > kMostTestTokens)
    throw Error(ErrorCode::usage, flag, fmt::format("{} is more than {}", value, kMostTestTokens));
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return value;
}

bool take(std::string_view& rest, char wanted) {
  if (!rest.starts_with(wanted)) return false;
  rest.remove_prefix(1);
  return true;
}

// first[-last[+step|*factor]]
void add_range(std::string_view& rest, const std::string& flag, const std::string& text,
               std::vector<uint32_t>& values) {
  const uint32_t first = parse_number(rest, flag, text);
  if (!take(rest, '-')) return values.push_back(first);
  const uint32_t last = parse_number(rest, flag, text);
  const bool multiplies = rest.starts_with('*');
  uint64_t step = 1;
  if (take(rest, '*') || take(rest, '+')) step = parse_number(rest, flag, text);
  const bool advances = multiplies ? step > 1 && first > 0 : step > 0;
  if (last < first || (!advances && last > first))
    throw Error(ErrorCode::usage, flag,
                fmt::format("the range \"{}\" does not reach its end", text));
  uint64_t value = first;
  for (size_t i = 0; value <= last; ++i, value = multiplies ? value * step : value + step) {
    if (i == kMostValues)
      throw Error(ErrorCode::usage, flag,
                  fmt::format("\"{}\" has more than {} values", text, kMostValues));
    values.push_back(static_cast<uint32_t>(value));
    if (!advances) break;
  }
}

struct TestSpelling {
  std::string_view theirs;
  std::string_view ours;
};
constexpr TestSpelling kSpellings[] = {
    {"-pg", "--pg"},
    {"-ub", "--ubatch-size"},
    {"-ctk", "--cache-type-k"},
    {"-ctv", "--cache-type-v"},
    {"-dev", "--device"},
    {"-oe", "--output-err"},
};

struct Refused {
  std::string_view names[3];
  std::string_view reason;
  std::string_view next_step = {};
};
constexpr Refused kRefused[] = {
    {{"-ngl", "--n-gpu-layers"}, "layers are not divided by number", "--device says where they go"},
    {{"-ncmoe", "--n-cpu-moe"}, "experts are not placed on their own"},
    {{"-sm", "--split-mode"}, "a model is not split over devices"},
    {{"-mg", "--main-gpu"}, "there is one device at a time", "--device names it"},
    {{"-ts", "--tensor-split"}, "a model is not split over devices"},
    {{"-ot", "--override-tensor"}, "tensors are not placed one by one"},
    {{"-nkvo", "--no-kv-offload"}, "the KV cache is where attention runs"},
    {{"-fa", "--flash-attn"}, "attention has one form on each device"},
    {{"-mmp", "--mmap"}, "models are always mapped"},
    {{"-dio", "--direct-io"}, "models are always mapped"},
    {{"-lm", "--load-mode"}, "models are always mapped"},
    {{"-embd", "--embeddings"}, "logits are always computed"},
    {{"-nopo", "--no-op-offload"}, "steps are not moved between devices while running"},
    {{"--no-host"}, "there are no host buffers to leave out"},
    {{"-C", "--cpu-mask"}, "threads are not pinned", "use taskset"},
    {{"--cpu-strict"}, "threads are not pinned", "use taskset"},
    {{"--poll"}, "how threads wait cannot be chosen"},
    {{"--numa"}, "there is no placement by memory node", "use numactl"},
    {{"--prio"}, "priorities are not set", "use nice"},
    {{"-fitt", "--fit-target"}, "a model is not cut to fit"},
    {{"-fitc", "--fit-ctx"}, "a model is not cut to fit"},
    {{"-rpc", "--rpc"}, "there are no devices on other machines"},
    {{"-hf", "-hfr", "--hf-repo"}, "nothing is downloaded", "-m takes a repo id that is cached"},
    {{"-hff", "--hf-file"}, "nothing is downloaded", "-m takes a file"},
    {{"-hft", "--hf-token"}, "nothing is downloaded"},
    {{"--offline"}, "nothing is downloaded, with or without it"},
    {{"--list-devices"}, "bench does not list them", "`tyto devices` does"},
    {{"-v", "--verbose"}, "there is no log to show", "`tyto profile` shows where the time goes"},
};

void refuse_foreign(std::string_view name) {
  for (const Refused& refused : kRefused)
    for (std::string_view known : refused.names)
      if (!known.empty() && known == name)
        throw Error(ErrorCode::usage, std::string(name),
                    fmt::format("a flag of llama-bench without a meaning here: {}", refused.reason),
                    std::string(refused.next_step));
}

}  // namespace

std::string BenchTest::name() const {
  std::string text;
  if (prompt > 0) text = fmt::format("pp{}", prompt);
  if (generate > 0) text += fmt::format("{}tg{}", text.empty() ? "" : "+", generate);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  if (sequences > 1) text += fmt::format(" x {}", sequences);
  if (!speculation.empty()) text += " spec " + speculation;
  return text;
}

std::vector<uint32_t> parse_counts(const std::string& text, const std::string& flag) {
  std::vector<uint32_t> values;
  std::string_view rest = text;
  do {
    add_range(rest, flag, text, values);
  } while (take(rest, ','));
  if (!rest.empty()) fail_counts(flag, text);
  return values;
}

std::vector<uint32_t> parse_counts(const std::vector<std::string>& texts, const std::string& flag) {
  std::vector<uint32_t> values;
  for (const std::string& text : texts) {
    const std::vector<uint32_t> more = parse_counts(text, flag);
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}

std::pair<uint32_t, uint32_t> parse_pair(const std::string& text, const std::string& flag) {
  std::string_view rest = text;
  const uint32_t prompt = parse_number(rest, flag, text);
  const bool has_comma = take(rest, ',');
  const uint32_t generate = has_comma ? parse_number(rest, flag, text) : 0;
  if (!has_comma || !rest.empty())
    throw Error(ErrorCode::usage, flag, fmt::format("\"{}\" is not a pair", text), "like 512,128");
  return {prompt, generate};
}

std::vector<std::string> parse_names(const std::vector<std::string>& texts,
                                     const std::string& flag) {
  std::vector<std::string> names;
  for (const std::string& text : texts) {
    size_t begin = 0;
    while (begin <= text.size()) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (end == begin)
        throw Error(ErrorCode::usage, flag, fmt::format("an empty name in \"{}\"", text));
      names.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

void refuse_doubles(const std::vector<std::string>& names, const std::string& flag) {
  std::set<std::string> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second)
      throw Error(ErrorCode::usage, flag, fmt::format("names {} twice", name));
}

std::vector<BenchTest> bench_tests(const TestLists& lists) {
  std::vector<BenchTest> tests;
  for (uint32_t sequences : lists.sequences)
    for (uint32_t depth : lists.depths) {
      for (uint32_t prompt : lists.prompts)
        if (prompt > 0) tests.push_back({prompt, 0, depth, sequences, ""});
      for (uint32_t generate : lists.generates)
        if (generate > 0) tests.push_back({0, generate, depth, sequences, ""});
      for (const auto& [prompt, generate] : lists.pairs)
        if (prompt + generate > 0) tests.push_back({prompt, generate, depth, sequences, ""});
    }
  if (tests.empty())
    throw Error(ErrorCode::usage, "bench", "there is nothing to measure",
                "give -p, -n or -pg more than 0 tokens");
  return tests;
}

SpeculationName parse_speculation(const std::string& text) {
  constexpr std::string_view kOracle = "oracle:";
  if (text == "lookup") return {.text = text};
  const std::string_view share =
      std::string_view(text).substr(text.starts_with(kOracle) ? kOracle.size() : text.size());
  double value = -1;
  const auto [end, error] = std::from_chars(share.data(), share.data() + share.size(), value);
  const bool is_whole = error == std::errc() && end == share.data() + share.size();
  if (!is_whole || !(value >= 0 && value <= 1))
    throw Error(ErrorCode::usage, "--speculate " + text, "there is no such draft",
                "lookup, or oracle:A with A between 0 and 1");
  const std::string rounded = fmt::format("{:.2f}", value);
  const bool is_exact = std::abs(std::stod(rounded) - value) < 1e-12;
  return {.text = std::string(kOracle) + (is_exact ? rounded : fmt::format("{}", value)),
          .oracle = value};
}

bool can_speculate(const BenchTest& test) {
  return test.generate > 0 && test.sequences == 1;
}

std::vector<std::string> spell_out_bench_flags(std::span<const std::string> arguments) {
  std::vector<std::string> result;
  for (const std::string& argument : arguments) {
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    refuse_foreign(std::string_view(argument).substr(0, equals));
    const auto found = std::find_if(std::begin(kSpellings), std::end(kSpellings),
                                    [&](const TestSpelling& s) { return s.theirs == argument; });
    result.emplace_back(found == std::end(kSpellings) ? std::string_view(argument) : found->ours);
  }
  return result;
}

Statistics statistics(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  Statistics result;
  result.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  for (double value : values)
    result.deviation += (value - result.mean) * (value - result.mean) / std::max(1.0, count - 1);
  result.deviation = std::sqrt(result.deviation);
  const size_t middle = values.size() / 2;
  result.median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  result.least = values.front();
  result.most = values.back();
  return result;
}

}  // namespace tyto
