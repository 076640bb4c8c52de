// The laws of the pipeline: it equals the reference, stitching changes nothing, and however a
// sequence is cut into calls the result is the same to the last bit.
#include "llama/pipeline.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "llama/reference.h"
#include "support/expect_error.h"
#include "support/one_sequence.h"
#include "support/random_model.h"
#include "tensor/compare.h"

namespace tyto {
namespace {

using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::small_config;

struct PipelineBench {
  explicit PipelineBench(const Model& model, PipelineOptions options = {}, unsigned threads = 2,
                         const std::string& isa = "")
      : pool(threads),
        device(open_device(
            "cpu", {.pool = pool,
                    .trace = trace,
                    .fusion = options.forward.fusion.value_or(Fusion::block),
                    .settings = isa.empty() ? DeviceSettings{} : DeviceSettings{{"isa", isa}}})) {
    Device* devices[] = {device.get()};
    pipeline = std::make_unique<OneSequence>(model, devices, options, trace);
  }

  std::vector<std::vector<float>> all_logits(std::span<const Token> tokens) {
    std::vector<std::vector<float>> result;
    pipeline->run_all_logits(tokens, [&](uint32_t position, std::span<const float> logits) {
      EXPECT_EQ(position, result.size());
      result.emplace_back(logits.begin(), logits.end());
    });
    return result;
  }

  std::vector<float> run(std::span<const Token> tokens) {
    const auto logits = pipeline->run(tokens);
    return {logits.begin(), logits.end()};
  }

  ThreadPool pool;
  Trace trace;
  std::unique_ptr<Device> device;
  std::unique_ptr<OneSequence> pipeline;
};

std::vector<Token> pipeline_tokens(size_t count) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>((i * 37 + 11) % 61));
  return tokens;
}

std::vector<std::pair<std::string, Config>> variants() {
  std::vector<std::pair<std::string, Config>> result;
  const auto add = [&](const std::string& name, auto change) {
    Config config = small_config();
    change(config);
    result.emplace_back(name, config);
  };
  add("plain", [](Config&) {});
  add("tied", [](Config& c) { c.tied_head = true; });
  add("bias", [](Config& c) { c.qkv_bias = true; });
  add("qk_norm", [](Config& c) { c.qk_norm = true, c.head_dim = 32; });
  add("pairs", [](Config& c) { c.rope.layout = RopeLayout::pairs; });
  add("linear", [](Config& c) { c.rope.scaling = RopeScaling::linear, c.rope.factor = 2; });
  add("llama3", [](Config& c) {
    c.rope.scaling = RopeScaling::llama3, c.rope.factor = 8, c.rope.original_context = 16;
  });
  add("mha", [](Config& c) { c.kv_heads = c.heads; });
  return result;
}

TEST(Pipeline, EqualsTheReferenceForEveryVariant) {
  const auto tokens = pipeline_tokens(40);
  for (const auto& [name, config] : variants()) {
    const RandomModel random = random_model(config, DType::f32);
    PipelineOptions options;
    options.forward.kv_type = DType::f32;
    const auto actual = PipelineBench(random.model, options).all_logits(tokens);
    Reference reference(random.model);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Comparison difference = compare(actual[i], reference.forward(tokens[i]));
      EXPECT_LE(difference.max_abs_error, 2e-5 * difference.max_abs_reference)
          << name << " at " << i;
    }
  }
}

constexpr DType kBlockTypes[] = {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0,
                                 DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k};

Config whole_blocks() {
  Config config = small_config();
  config.emb = config.hidden = 256;  // one k-quant block
  config.head_dim = 64;
  return config;
}

// The plain kernels compute in f32. The others round activations to eight bits for the block types,
// and these random models' sharp attention makes much of it.
TEST(Pipeline, EveryWeightTypeStaysCloseToTheReferenceOnTheSameWeights) {
  const auto tokens = pipeline_tokens(12);
  std::vector<DType> types = {DType::f16, DType::bf16};
  types.insert(types.end(), std::begin(kBlockTypes), std::end(kBlockTypes));
  for (DType type : types) {
    const RandomModel random = random_model(whole_blocks(), type);
    const auto plain = PipelineBench(random.model, {}, 2, "generic").all_logits(tokens);
    const auto fast = PipelineBench(random.model).all_logits(tokens);
    Reference reference(random.model);
    for (size_t i = 0; i < tokens.size(); ++i) {
      const auto expected = reference.forward(tokens[i]);
      EXPECT_GE(compare(plain[i], expected).cosine, 0.9999) << info(type).name;
      EXPECT_GE(compare(fast[i], expected).cosine, 0.995) << info(type).name;
    }
  }
}

TEST(Pipeline, StitchedEqualsLaunchByLaunch) {
  const RandomModel random = random_model(small_config(), DType::bf16);
  const auto tokens = pipeline_tokens(30);
  std::vector<std::vector<float>> by_fusion;
  for (Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    PipelineOptions options;
    options.forward.fusion = fusion;
    PipelineBench bench(random.model, options);
    bench.run(std::span(tokens).first(20));
    std::vector<float> last;
    for (Token token : std::span(tokens).subspan(20)) last = bench.run({&token, 1});
    by_fusion.push_back(last);
  }
  EXPECT_EQ(by_fusion[0], by_fusion[1]);
  EXPECT_EQ(by_fusion[0], by_fusion[2]);
}

TEST(Pipeline, FusionSetsTheNumberOfDispatches) {
  const RandomModel random = random_model(small_config(), DType::f32);
  const auto dispatches = [&](Fusion fusion) {
    PipelineOptions options;
    options.forward.fusion = fusion;
    PipelineBench bench(random.model, options);
    const Token token = 1;
    bench.run({&token, 1});
    EXPECT_EQ(bench.trace.device("cpu").completions,
              bench.pipeline->forward().dispatches_per_token());
    return bench.pipeline->forward().dispatches_per_token();
  };
  EXPECT_EQ(dispatches(Fusion::token), 1u);
  EXPECT_EQ(dispatches(Fusion::block), 1 + 2 * 3 + 2u);  // embed, three blocks a layer, head
  EXPECT_EQ(dispatches(Fusion::op), 2 + 2 * 13 + 3u);
}

// prefill(n + m) == prefill(n), prefill(m) == one by one, to the last bit.
void expect_continuation_law(const Model& model, PipelineOptions options) {
  const auto tokens = pipeline_tokens(50);
  const auto whole = PipelineBench(model, options).run(tokens);
  PipelineBench halves(model, options);
  halves.run(std::span(tokens).first(23));
  EXPECT_EQ(halves.run(std::span(tokens).subspan(23)), whole);
  PipelineBench singly(model, options);
  std::vector<float> last;
  for (const Token& token : tokens) last = singly.run({&token, 1});
  EXPECT_EQ(last, whole);
  options.forward.prefill_chunk = 7;
  EXPECT_EQ(PipelineBench(model, options).run(tokens), whole);
}

TEST(Pipeline, ContinuationLaw) {
  const RandomModel random = random_model(small_config(), DType::bf16);
  for (DType kv_type : {DType::f16, DType::f32}) {
    PipelineOptions options;
    options.forward.kv_type = kv_type;
    expect_continuation_law(random.model, options);
  }
}

TEST(Pipeline, CacheInEightBits) {
  const RandomModel random = random_model(whole_blocks(), DType::bf16);
  PipelineOptions options;
  options.forward.kv_type = DType::q8_0;
  expect_continuation_law(random.model, options);
  const auto tokens = pipeline_tokens(40);
  const auto eight_bits = PipelineBench(random.model, options).all_logits(tokens);
  const auto sixteen_bits = PipelineBench(random.model).all_logits(tokens);
  for (size_t i = 0; i < tokens.size(); ++i)
    EXPECT_GE(compare(eight_bits[i], sixteen_bits[i]).cosine, 0.99);
  const auto kv_bytes = [&](const PipelineOptions& of) {
    const KvShape kv = PipelineBench(random.model, of).pipeline->forward().kv();
    return kv.pages * kv.page_bytes;
  };
  EXPECT_LT(kv_bytes(options), kv_bytes({}));
}

TEST(Pipeline, RefusesBlocksThatDoNotFitTheHeads) {
  const RandomModel random = random_model(small_config(), DType::bf16);  // head_dim 16
  PipelineOptions options;
  options.forward.kv_type = DType::q8_0;
  EXPECT_ERROR(PipelineBench(random.model, options),
               "its blocks of 32 do not fit into heads of 16");
}

// Activations are rounded block by block, so the law holds as it does in f32.
TEST(Pipeline, ContinuationLawForBlockTypes) {
  for (DType type : kBlockTypes) {
    SCOPED_TRACE(info(type).name);
    expect_continuation_law(random_model(whole_blocks(), type).model, {});
  }
}

TEST(Pipeline, ThreadsDoNotChangeTheResult) {
  for (DType type : {DType::q8_0, DType::bf16}) {
    const RandomModel random = random_model(small_config(), type);
    const auto tokens = pipeline_tokens(33);
    EXPECT_EQ(PipelineBench(random.model, {}, 1).run(tokens),
              PipelineBench(random.model, {}, 4).run(tokens));
  }
}

TEST(Pipeline, RewindForgets) {
  const RandomModel random = random_model(small_config(), DType::f32);
  const auto tokens = pipeline_tokens(20);
  PipelineBench bench(random.model);
  const auto first = bench.run(tokens);
  bench.pipeline->rewind(5);
  bench.run(pipeline_tokens(9));  // another continuation
  bench.pipeline->rewind(5);
  EXPECT_EQ(bench.run(std::span(tokens).subspan(5)), first);
  EXPECT_EQ(bench.pipeline->position(), 20u);
}

// Sequences that run together: prompts of different lengths in one call, then tokens, then a prompt
// beside tokens. Each gets what it gets alone, to the last bit, and the shares are the whole.
TEST(Pipeline, SequencesTogetherEqualEachAlone) {
  Config config = small_config();
  config.context = 700;  // three pages
  for (const DType type : {DType::f32, DType::bf16}) {
    const RandomModel random = random_model(config, type);
    constexpr size_t kSequences = 3;
    const std::vector<std::vector<Token>> prompts = {pipeline_tokens(40), pipeline_tokens(1),
                                                     pipeline_tokens(300)};
    const auto next = [](size_t sequence, uint32_t position) {
      return static_cast<Token>((sequence * 17 + position * 5) % 61);
    };
    constexpr uint32_t kSteps = 20;  // over the end of a page

    std::vector<std::vector<std::vector<float>>> alone(kSequences);
    for (size_t s = 0; s < kSequences; ++s) {
      PipelineBench bench(random.model);
      alone[s].push_back(bench.run(prompts[s]));
      for (uint32_t i = 0; i < kSteps; ++i) {
        const Token token = next(s, bench.pipeline->position());
        alone[s].push_back(bench.run({&token, 1}));
      }
    }

    PipelineBench bench(random.model, {.forward = {.prefill_chunk = 400, .kv_memory = 64 << 20}});
    Pipeline& pipeline = bench.pipeline->pipeline();
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (size_t s = 0; s < kSequences; ++s)
      sequences.push_back(std::make_unique<Sequence>(pipeline));
    std::vector<std::vector<std::vector<float>>> together(kSequences);
    const auto run = [&](const std::vector<size_t>& which,
                         const std::vector<std::vector<Token>>& tokens) {
      std::vector<SequenceRows> batch;
      for (size_t i = 0; i < which.size(); ++i) {
        ASSERT_TRUE(
            pipeline.reserve(*sequences[which[i]], static_cast<uint32_t>(tokens[i].size())));
        batch.push_back({sequences[which[i]].get(), tokens[i]});
      }
      const auto failures =
          pipeline.run(batch, [&](size_t item, uint32_t behind, std::span<const float> logits) {
            EXPECT_EQ(behind, 0u);
            together[which[item]].emplace_back(logits.begin(), logits.end());
          });
      EXPECT_TRUE(failures.empty());
    };
    const auto token_of = [&](size_t s) {
      return std::vector<Token>{next(s, sequences[s]->position())};
    };
    run({2, 0}, {prompts[2], prompts[0]});
    run({2}, {token_of(2)});
    run({0, 1, 2}, {token_of(0), prompts[1], token_of(2)});
    while (together[1].size() <= kSteps) {
      std::vector<size_t> which;
      std::vector<std::vector<Token>> tokens;
      for (size_t s = 0; s < kSequences; ++s)
        if (together[s].size() <= kSteps) {
          which.push_back(s);
          tokens.push_back(token_of(s));
        }
      run(which, tokens);
    }
    for (size_t s = 0; s < kSequences; ++s) EXPECT_EQ(together[s] == alone[s], true) << s;

    DeviceCounters sum;
    for (const auto& sequence : sequences)
      for (const DeviceCounters& share : sequence->executed.prefill) sum += share;
    const DeviceCounters& total = bench.trace.device("cpu");
    EXPECT_EQ(sum.bytes, total.bytes);
    EXPECT_EQ(sum.flops, total.flops);
    EXPECT_EQ(sum.busy_ns, total.busy_ns);
    EXPECT_GT(sum.submissions, total.submissions);  // each took part
  }
}

TEST(Pipeline, RefusesMoreThanTheContextWithTheNumbers) {
  const RandomModel random = random_model(small_config(), DType::f32);
  PipelineOptions options;
  options.forward.context = 10;
  PipelineBench bench(random.model, options);
  bench.run(pipeline_tokens(10));
  try {
    bench.run(pipeline_tokens(1));
    FAIL() << "did not refuse";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "context: 1 tokens after position 10 do not fit in 10 positions");
    EXPECT_EQ(error.hint, "the model allows -c up to 96");
  }
  options.forward.context = 97;
  EXPECT_ERROR(PipelineBench(random.model, options), "the model was made for 96 positions");
}

TEST(Pipeline, CountersDeclareTheWeightsOncePerToken) {
  const RandomModel random = random_model(small_config(), DType::bf16);
  PipelineBench bench(random.model);
  const Token token = 3;
  bench.run({&token, 1});
  uint64_t matrices = random.model.weights.head.bytes.size();
  for (const LayerWeights& layer : random.model.weights.layers)
    for (const TensorView* view :
         {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
      matrices += view->bytes.size();
  const uint64_t declared = bench.trace.device("cpu").bytes;
  EXPECT_GT(declared, matrices);
  EXPECT_LT(declared, matrices + 60000);  // activations, norms and one cache row
}

}  // namespace
}  // namespace tyto
