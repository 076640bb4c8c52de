// Sequences that run together get, to the last bit, what each gets alone: every architecture, type
// of weights, instruction set and number of threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include "device/cpu/inner_loops.h"
#include "golden/golden_data.h"
#include "llama/pipeline.h"
#include "model/convert.h"

namespace tyto {
namespace {

using golden::Fixture;
using Rows = std::vector<std::vector<float>>;  // [tokens run so far that had any][vocab]

constexpr const char* kTypes[] = {"f32", "bf16", "q8_0", "q4_0", "q4_k_m"};
constexpr uint32_t kSteps = 4;
constexpr uint32_t kSequences = 5;

struct BatchEngine {
  BatchEngine(const Model& model, const std::string& isa, unsigned threads) : pool(threads) {
    DeviceEnv env{pool, trace};
    env.settings = {{"isa", isa}};
    device = open_device("cpu", env);
    Device* devices[] = {device.get()};
    PipelineOptions options;
    options.forward.sequences = kSequences;
    options.forward.prefill_chunk = 32;
    pipeline = std::make_unique<Pipeline>(model, devices, options, trace);
  }

  ThreadPool pool;
  Trace trace;
  std::unique_ptr<Device> device;
  std::unique_ptr<Pipeline> pipeline;
};

// Prompts of 1, 4, 7, ... tokens, and what follows them.
std::vector<Token> tokens_of(uint32_t sequence, uint32_t vocab) {
  std::vector<Token> tokens;
  for (uint32_t i = 0; i < 1 + 3 * sequence + kSteps; ++i)
    tokens.push_back(static_cast<Token>((i * 37 + sequence * 11 + 5) % vocab));
  return tokens;
}

Rows alone(BatchEngine& engine, const std::vector<Token>& tokens) {
  Rows result;
  Sequence sequence(*engine.pipeline);
  const size_t prompt = tokens.size() - kSteps;
  const auto keep = [&](std::span<const float> logits) {
    result.emplace_back(logits.begin(), logits.end());
  };
  keep(engine.pipeline->run(sequence, std::span(tokens).first(prompt)));
  for (size_t i = prompt; i < tokens.size(); ++i)
    keep(engine.pipeline->run(sequence, {&tokens[i], 1}));
  return result;
}

// Each joins one pass after the one before it, so that prompts run beside decoded tokens.
std::vector<Rows> together(BatchEngine& engine, const std::vector<std::vector<Token>>& tokens) {
  std::vector<Rows> result(tokens.size());
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (size_t i = 0; i < tokens.size(); ++i)
    sequences.push_back(std::make_unique<Sequence>(*engine.pipeline));
  for (size_t pass = 0; pass < tokens.size() + kSteps; ++pass) {
    std::vector<SequenceRows> batch;
    std::vector<size_t> members;
    for (size_t i = 0; i <= pass && i < tokens.size(); ++i) {
      const uint32_t done = sequences[i]->position();
      const size_t next = done == 0 ? tokens[i].size() - kSteps : 1;
      if (done == tokens[i].size()) continue;
      EXPECT_TRUE(engine.pipeline->reserve(*sequences[i], static_cast<uint32_t>(next)));
      batch.push_back({sequences[i].get(), std::span(tokens[i]).subspan(done, next), 1});
      members.push_back(i);
    }
    const auto failures =
        engine.pipeline->run(batch, [&](size_t item, uint32_t, std::span<const float> logits) {
          result[members[item]].emplace_back(logits.begin(), logits.end());
        });
    EXPECT_TRUE(failures.empty());
  }
  return result;
}

class BatchGolden : public testing::TestWithParam<Fixture> {};

TEST_P(BatchGolden, TogetherEqualsAloneToTheLastBit) {
  const Model original = open_model(GetParam().model);
  ThreadPool pool(2);
  const auto path = std::filesystem::temp_directory_path() /
                    fmt::format("tyto-batch-{}-{}.gguf", ::getpid(), GetParam().name);
  for (const char* type : kTypes) {
    quantize_model(original, type, path, pool);
    const Model model = open_model(path);
    std::filesystem::remove(path);  // mapped it is as long as it must be
    std::vector<std::vector<Token>> tokens;
    for (uint32_t s = 0; s < kSequences; ++s) tokens.push_back(tokens_of(s, model.config.vocab));
    for (const cpu::InnerLoops* loops : cpu::usable_inner_loops()) {
      std::vector<Rows> expected;
      for (const unsigned threads : {1u, 2u}) {
        BatchEngine engine(model, loops->name, threads);
        if (expected.empty())
          for (const std::vector<Token>& each : tokens) expected.push_back(alone(engine, each));
        EXPECT_EQ(together(engine, tokens), expected)
            << type << ", " << loops->name << ", " << threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HuggingFace, BatchGolden, testing::ValuesIn(golden::fixtures()),
                         [](const auto& tested) {
                           std::string name = tested.param.name;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tyto
