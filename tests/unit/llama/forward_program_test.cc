// What the forward program says of its own launches.
#include "llama/forward_program.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>

#include "program/kernels.h"
#include "support/random_model.h"

namespace tyto {
namespace {

using testing_support::random_model;
using testing_support::RandomModel;

const std::map<Role, Operator> kOperators = {{Role::embedding, Operator::other},
                                             {Role::rope_table, Operator::norm_rope},
                                             {Role::attn_norm, Operator::norm_rope},
                                             {Role::q, Operator::projection},
                                             {Role::k, Operator::projection},
                                             {Role::v, Operator::projection},
                                             {Role::q | Facet::norm, Operator::norm_rope},
                                             {Role::k | Facet::norm, Operator::norm_rope},
                                             {Role::q_rope, Operator::norm_rope},
                                             {Role::k_rope, Operator::norm_rope},
                                             {Role::kv_append, Operator::attention},
                                             {Role::attention, Operator::attention},
                                             {Role::o, Operator::projection},
                                             {Role::attn_residual, Operator::other},
                                             {Role::ffn_norm, Operator::norm_rope},
                                             {Role::gate, Operator::feed_forward},
                                             {Role::up, Operator::feed_forward},
                                             {Role::swiglu, Operator::feed_forward},
                                             {Role::down, Operator::feed_forward},
                                             {Role::ffn_residual, Operator::other},
                                             {Role::head_rows, Operator::other},
                                             {Role::final_norm, Operator::norm_rope},
                                             {Role::lm_head, Operator::head},
                                             {Role::candidates, Operator::head},
                                             {Role::embed_scale, Operator::other},
                                             {Role::q_scale, Operator::other},
                                             {Role::attn_scale, Operator::other},
                                             {Role::ffn_scale, Operator::other},
                                             {Role::logit_scale, Operator::other},
                                             {Role::attn_post_norm, Operator::norm_rope},
                                             {Role::ffn_post_norm, Operator::norm_rope},
                                             {Role::window_rope_table, Operator::norm_rope},
                                             {Role::logit_cap, Operator::head},
                                             {Role::q | Facet::lora_a, Operator::projection},
                                             {Role::q | Facet::lora_b, Operator::projection},
                                             {Role::q | Facet::lora_sum, Operator::other},
                                             {Role::down | Facet::lora_a, Operator::feed_forward},
                                             {Role::down | Facet::lora_b, Operator::feed_forward},
                                             {Role::down | Facet::lora_sum, Operator::other},
                                             {Role::lm_head | Facet::lora_a, Operator::head},
                                             {Role::lm_head | Facet::lora_b, Operator::head},
                                             {Role::lm_head | Facet::lora_sum, Operator::other},
                                             {Role::router, Operator::feed_forward},
                                             {Role::expert_gate, Operator::feed_forward},
                                             {Role::expert_up, Operator::feed_forward},
                                             {Role::expert_swiglu, Operator::feed_forward},
                                             {Role::expert_down, Operator::feed_forward},
                                             {Role::expert_mix, Operator::feed_forward},
                                             {Role::attn_gate, Operator::attention},
                                             {Role::attn_gated, Operator::attention}};

// On one projection of each operator.
void adapt(RandomModel& random) {
  const Config& config = random.model.config;
  const auto pair = [&](const TensorView& weight) {
    return LowRank{random.tensor(DType::f32, 3, weight.cols, 0.1f),
                   random.tensor(DType::f32, weight.rows, 3, 0.1f)};
  };
  Weights& weights = random.model.weights;
  for (uint32_t i = 0; i < config.layers; ++i) {
    weights.layers[i].q_lora = pair(weights.layers[i].q);
    weights.layers[i].down_lora = pair(weights.layers[i].down);
  }
  weights.head_lora = pair(weights.head);
}

std::vector<Program> forward_programs() {
  std::vector<Program> result;
  const auto multiply = [](Config& c) {
    c.embedding_scale = c.residual_scale = c.attention_scale = c.logit_divisor = 3;
    c.norms = Norms::after;
  };
  const auto add_extras = [](Config& c) { c.qkv_bias = c.qk_norm = c.tied_head = true; };
  const auto bound = [](Config& c) {
    c.window = 16;
    c.windowed = {true, false};
    c.window_theta = 100;
    c.norms = Norms::both;
    c.score_cap = c.logit_cap = 30;
    c.sinks = true;
  };
  const auto centre = [](Config& c) { c.layer_norm = c.parallel_residual = true; };
  const auto gate = [](Config& c) { c.attention_gate = true; };
  const auto add_experts = [](Config& c) {
    c.experts = 4;
    c.experts_used = 2;
    c.expert_hidden = 32;
    c.expert_bias = c.o_bias = true;
  };
  const std::function<void(Config&)> changes[] = {[](Config&) {}, add_extras, multiply,   bound,
                                                  centre,         gate,       add_experts};
  for (const auto& change : changes) {
    Config config = testing_support::small_config();
    change(config);
    RandomModel random = random_model(config, DType::bf16);
    if (config.layer_norm) adapt(random);
    const std::vector<float> frequencies = rope_frequencies(config);
    for (const Part part : {Part::body, Part::head, Part::whole})
      for (const bool from_start : {false, true})
        for (const uint32_t candidates : {0u, 8u})
          result.push_back(
              forward_program(
                  random.model, frequencies, part,
                  {.rows = 4, .context = 96, .candidates = candidates, .from_start = from_start})
                  .program);
  }
  return result;
}

TEST(ForwardProgram, EveryLaunchCountsAsItsOwnOperator) {
  std::set<Role> seen;
  std::set<Kernel> kernels;
  for (const Program& program : forward_programs())
    for (const Launch& launch : program.launches) {
      const auto expected = kOperators.find(launch.role);
      ASSERT_NE(expected, kOperators.end()) << launch.name << " has no role of the forward pass";
      EXPECT_EQ(operator_of(launch), expected->second) << launch.name;
      seen.insert(launch.role);
      kernels.insert(launch.kernel);
    }
  EXPECT_EQ(seen.size(), kOperators.size());
  EXPECT_TRUE(kernels.contains(Kernel::prompt_attention) && kernels.contains(Kernel::attention));
}

// Devices and reports find a launch by its role and layer, buffers a slot by its own.
TEST(ForwardProgram, ARoleAndALayerNameOneLaunchAndOneSlot) {
  for (const Program& program : forward_programs()) {
    EXPECT_NO_THROW(check(program));
    std::set<std::pair<Role, uint16_t>> launches;
    for (const Launch& launch : program.launches) {
      EXPECT_TRUE(launches.insert({launch.role, launch.layer}).second) << launch.name;
      EXPECT_NE(launch.block, Block::none) << launch.name;
    }
    std::set<std::tuple<Role, uint16_t, bool>> slots;
    for (const Slot& slot : program.slots) {
      EXPECT_NE(slot.role, Role::none) << slot.name;
      EXPECT_TRUE(slots.insert({slot.role, slot.layer, slot.kind == SlotKind::weight}).second)
          << slot.name;
    }
  }
}

// Where candidates are asked for, logits stay on the device.
TEST(ForwardProgram, EndsWithLogitsOrWithTheBestOfThem) {
  const RandomModel random = random_model(testing_support::small_config(), DType::bf16);
  const std::vector<float> frequencies = rope_frequencies(random.model.config);
  for (const Part part : {Part::head, Part::whole})
    for (const uint32_t candidates : {0u, 8u}) {
      const Program program = forward_program(random.model, frequencies, part,
                                              {.rows = 4, .context = 96, .candidates = candidates})
                                  .program;
      std::vector<Role> outputs;
      for (const Slot& slot : program.slots)
        if (slot.kind == SlotKind::output) outputs.push_back(slot.role);
      EXPECT_EQ(outputs, std::vector<Role>{candidates > 0 ? Role::candidates : Role::logits});
      EXPECT_EQ(program.launches.back().kernel, candidates > 0 ? Kernel::top_k : Kernel::matmul);
    }
}

// The gate reads what q, k and v read, and the output's projection what it lets through. Programs
// without it have nothing of it, and so stay what images were made for.
TEST(ForwardProgram, AGateStandsBetweenAttentionAndItsOutput) {
  const auto forward = [](bool has_gate) {
    Config config = testing_support::small_config();
    config.attention_gate = has_gate;
    const RandomModel random = random_model(config, DType::bf16);
    return forward_program(random.model, rope_frequencies(config), Part::whole,
                           {.rows = 4, .context = 96})
        .program;
  };
  const Program with = forward(true), without = forward(false);
  const auto launch = [&](Role role) {
    const auto found = std::ranges::find(with.launches, role, &Launch::role);
    EXPECT_NE(found, with.launches.end()) << name(role);
    return *found;
  };
  EXPECT_EQ(launch(Role::attn_gate).args[0].slot, launch(Role::q).args[2].slot);
  EXPECT_EQ(launch(Role::attn_gated).args[0].slot, launch(Role::attn_gate).args[2].slot);
  EXPECT_EQ(launch(Role::attn_gated).args[1].slot, launch(Role::attention).args[3].slot);
  EXPECT_EQ(launch(Role::o).args[0].slot, launch(Role::attn_gated).args[2].slot);
  EXPECT_NE(to_hex(program_hash(with)), to_hex(program_hash(without)));
  EXPECT_EQ(with.slots.size(), without.slots.size() + 3);
  EXPECT_EQ(with.launches.size(), without.launches.size() + 2 * 2);
  for (const Slot& slot : without.slots)
    EXPECT_FALSE(slot.role == Role::attn_gate || slot.role == Role::attn_gated) << slot.name;
}

// A window is in the launches of its layers, and only where a cache can hold more than it.
TEST(ForwardProgram, AWindowIsItsLayers) {
  Config config = testing_support::small_config();
  config.window = 16;
  config.windowed = {true, false};
  const RandomModel random = random_model(config, DType::bf16);
  const std::vector<float> frequencies = rope_frequencies(config);
  for (const uint32_t context : {16u, 17u}) {
    const ForwardProgram forward =
        forward_program(random.model, frequencies, Part::whole, {.rows = 1, .context = context});
    for (const Launch& launch : forward.program.launches) {
      const bool has_cache = launch.role == Role::attention || launch.role == Role::kv_append;
      EXPECT_EQ(launch.shape.window, has_cache && launch.layer == 0 && context > 16 ? 16u : 0u)
          << launch.name;
      EXPECT_EQ(beyond_causal_attention(forward.program, launch),
                has_cache && context > 16 ? "window" : "");
    }
  }
}

// A tied head is the embedding's tensor: one slot, so that it is laid out and counted once.
TEST(ForwardProgram, ATiedHeadReadsTheEmbedding) {
  for (const bool is_tied : {false, true}) {
    Config config = testing_support::small_config();
    config.tied_head = is_tied;
    const RandomModel random = random_model(config, DType::bf16);
    const std::vector<float> frequencies = rope_frequencies(config);
    const ForwardProgram forward =
        forward_program(random.model, frequencies, Part::whole, {.rows = 1, .context = 96});
    const Launch &embed = forward.program.launches.front(), &head = forward.program.launches.back();
    ASSERT_EQ(embed.role, Role::embedding);
    ASSERT_EQ(head.role, Role::lm_head);
    EXPECT_EQ(embed.args[1].slot == head.args[1].slot, is_tied);
    EXPECT_EQ(forward.weights[head.args[1].slot].bytes.data(),
              random.model.weights.head.bytes.data());
  }
}

}  // namespace
}  // namespace tyto
