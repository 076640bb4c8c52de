// Two devices with memories of their own beside the host: whatever crosses between them arrives.
#include <gtest/gtest.h>

#include "support/apart_device.h"
#include "support/one_sequence.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::ApartDevice;
using testing_support::OneSequence;
using testing_support::random_model;
using testing_support::RandomModel;
using testing_support::Takes;

struct Split {
  const char* name;
  Takes first, second;
};

bool is_cache(const Launch& launch) {
  return launch.kernel == Kernel::attention || launch.kernel == Kernel::kv_append;
}

TEST(SeveralDevices, WhateverTheSplitTheResultIsTheHostsToTheLastBit) {
  const std::vector<Split> splits = {
      {"products here, norms there", [](const Launch& l) { return l.kernel == Kernel::matmul; },
       [](const Launch& l) { return l.kernel == Kernel::rmsnorm; }},
      {"layers in turn", [](const Launch& l) { return l.layer == 0 && !is_cache(l); },
       [](const Launch& l) { return l.layer == 1 && !is_cache(l); }},
      {"the residual stream on both", [](const Launch& l) { return l.role == Role::attn_residual; },
       [](const Launch& l) {
         return l.role == Role::ffn_residual || l.role == Role::ffn_norm ||
                l.role == Role::head_rows;
       }},
      {"the cache on one", is_cache, [](const Launch& l) { return l.kernel == Kernel::rope; }},
      {"the head on the second", [](const Launch& l) { return l.layer == 1 && !is_cache(l); },
       [](const Launch& l) { return l.block == Block::final_norm || l.role == Role::lm_head; }},
  };
  const RandomModel random = random_model(testing_support::small_config(), DType::bf16);
  const std::vector<Token> tokens = {5, 9, 33, 2, 60, 17, 8, 41, 3};
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token}) {
    ThreadPool pool(2);
    Trace trace;
    const DeviceEnv env{pool, trace};
    const auto host = open_device("cpu", env);
    const auto logits_with = [&](std::vector<Device*> devices) {
      PipelineOptions options;
      options.forward.fusion = fusion;
      options.forward.prefill_chunk = 4;  // the prompt takes two
      OneSequence pipeline(random.model, devices, options, trace);
      std::vector<float> all;
      const auto keep = [&](std::span<const float> logits) {
        all.insert(all.end(), logits.begin(), logits.end());
      };
      keep(pipeline.run(std::span(tokens).first(6)));
      for (size_t i = 6; i < tokens.size(); ++i) keep(pipeline.run({&tokens[i], 1}));
      return all;
    };
    const std::vector<float> expected = logits_with({host.get()});
    for (const Split& split : splits) {
      ApartDevice first("first", env, split.first), second("second", env, split.second);
      EXPECT_EQ(logits_with({&first, &second, host.get()}), expected)
          << split.name << ", fusion " << static_cast<int>(fusion);
    }
  }
}

constexpr uint32_t kPicked = 16;

class PickingApart : public ApartDevice {
 public:
  using ApartDevice::ApartDevice;
  DeviceInfo info() const override {
    DeviceInfo described = ApartDevice::info();
    described.candidates = kPicked;
    return described;
  }
};

void expect_best(const Logits& few, std::span<const float> logits) {
  std::vector<Token> order;
  while (order.size() < logits.size()) order.push_back(static_cast<Token>(order.size()));
  const auto logit = [&](Token token) { return logits[static_cast<size_t>(token)]; };
  std::ranges::stable_sort(order, [&](Token a, Token b) { return logit(a) > logit(b); });
  ASSERT_EQ(few.candidates().size(), kPicked);
  for (size_t i = 0; i < kPicked; ++i)
    EXPECT_EQ(few.candidates()[i], (Candidate{order[i], logit(order[i])})) << i;
}

TEST(SeveralDevices, CandidatesAreTheBestOfTheHostsLogitsWhoeverPicksThem) {
  const Takes head = [](const Launch& l) { return l.role == Role::lm_head; };
  const Takes picks = [](const Launch& l) { return l.kernel == Kernel::top_k; };
  const Takes nothing = [](const Launch&) { return false; };
  const Split splits[] = {
      {"the first has the head, the second picks", head, picks},
      {"the second has the head, the first picks", picks, head},
      {"the first has the head, the host picks", head, nothing},
      {"the first does both", [&](const Launch& l) { return head(l) || picks(l); }, nothing}};
  const RandomModel random = random_model(testing_support::small_config(), DType::bf16);
  const std::vector<Token> tokens = {5, 9, 33, 2, 60, 17, 8, 41, 3};
  ThreadPool pool(2);
  Trace trace;
  const DeviceEnv env{pool, trace};
  const auto host = open_device("cpu", env);
  Device* alone[] = {host.get()};
  for (const Fusion fusion : {Fusion::op, Fusion::block, Fusion::token})
    for (const Split& split : splits) {
      SCOPED_TRACE(testing::Message() << split.name << ", fusion " << static_cast<int>(fusion));
      PickingApart first("first", env, split.first), second("second", env, split.second);
      Device* devices[] = {&first, &second, host.get()};
      PipelineOptions options;
      options.forward.fusion = fusion;
      options.forward.prefill_chunk = 4;
      OneSequence of_all(random.model, alone, options, trace);
      OneSequence of_best(random.model, devices, options, trace);
      of_best.sequence().candidates = kPicked;
      for (const auto part : {std::span(tokens).first(6), std::span(tokens).subspan(6, 1),
                              std::span(tokens).subspan(7, 1)})
        expect_best(of_best.pipeline().run(of_best.sequence(), part), of_all.run(part));
    }
}

}  // namespace
}  // namespace tyto
