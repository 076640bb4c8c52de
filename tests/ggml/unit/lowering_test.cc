#include "ggml/lowering.h"

#include <gtest/gtest.h>

#include <map>
#include <span>

#include "ggml/unit/graphs.h"

namespace tyto::plugin {
namespace {

using Names = std::vector<std::string>;

// The device's piece of a graph that has one, and what it becomes.
struct LoweredRun {
  explicit LoweredRun(const Graph& of) : graph(of) {
    for (const Piece& piece : cut(offer_of_blocks(), of.get()))
      if (piece.on_device) {
        EXPECT_TRUE(nodes.empty()) << "more than one piece is the device's";
        nodes = piece.nodes;
      }
    is_needed = needed_by(of, nodes);
    lowered = lower(nodes, DType::bf16, is_needed);
    EXPECT_NO_THROW(check(lowered.program));
  }

  const Program& program() const { return lowered.program; }
  const Slot& slot(uint16_t index) const { return program().slots[index]; }
  const Slot& slot(const Launch& launch, size_t arg) const { return slot(launch.args[arg].slot); }
  std::vector<uint64_t> form() const { return form_of(nodes, is_needed); }

  Names launches() const {
    Names names;
    for (const Launch& launch : program().launches) names.emplace_back(spec(launch.kernel).name);
    return names;
  }

  const Graph& graph;
  std::vector<ggml_tensor*> nodes;
  IsNeeded is_needed;
  Lowered lowered;
};

TEST(Lowering, AProductTakesRowsAndAWeightAndGivesRows) {
  const Graph graph;
  ggml_tensor *w = graph.matrix("blk.3.attn_q.weight", kEmb, 32), *x = graph.leaf(kEmb, 5);
  ggml_tensor* y = graph.product(w, x);
  graph.expand(y);
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul"}));
  const Launch& launch = run.program().launches[0];
  const Slot &in = run.slot(launch, 0), &weight = run.slot(launch, 1), &out = run.slot(launch, 2);
  EXPECT_EQ(in.kind, SlotKind::input);
  EXPECT_EQ(in.dtype, DType::bf16);
  EXPECT_EQ(in.rows, kMostRows);
  EXPECT_EQ(in.cols, uint64_t{kEmb});
  EXPECT_EQ(weight.kind, SlotKind::weight);
  EXPECT_EQ(weight.dtype, DType::f16);
  EXPECT_EQ(weight.rows, 32u);
  EXPECT_EQ(weight.cols, uint64_t{kEmb});
  EXPECT_EQ(out.kind, SlotKind::output);
  EXPECT_EQ(out.dtype, DType::bf16);
  EXPECT_EQ(out.cols, 32u);
  ASSERT_EQ(run.lowered.inputs.size(), 1u);
  ASSERT_EQ(run.lowered.weights.size(), 1u);
  ASSERT_EQ(run.lowered.outputs.size(), 1u);
  EXPECT_EQ(run.lowered.inputs[0].place.tensor(run.nodes), x);
  EXPECT_EQ(run.lowered.weights[0].place.tensor(run.nodes), w);
  EXPECT_EQ(run.lowered.outputs[0].place.tensor(run.nodes), y);
  EXPECT_EQ(run.lowered.macs_per_token, uint64_t{kEmb} * 32);
}

TEST(Lowering, UsersOfOneInputShareItsSlot) {
  const Graph graph;
  ggml_tensor *x = graph.leaf(kEmb, 5), *other = graph.leaf(kEmb, 5);
  graph.expand(graph.product(graph.matrix("a", kEmb, 32), x),
               graph.product(graph.matrix("b", kEmb, 32), x),
               graph.product(graph.matrix("c", kEmb, 32), other));
  const LoweredRun run(graph);
  const auto& launches = run.program().launches;
  ASSERT_EQ(launches.size(), 3u);
  EXPECT_EQ(run.lowered.inputs.size(), 2u);
  EXPECT_EQ(launches[0].args[0].slot, launches[1].args[0].slot);
  EXPECT_NE(launches[0].args[0].slot, launches[2].args[0].slot);
}

TEST(Lowering, ABiasOfOneTokenIsAnInputThatIsAdded) {
  const Graph graph;
  ggml_tensor* bias = graph.vector("blk.0.attn_q.bias", 32);
  ggml_tensor* q =
      graph.product(graph.matrix("blk.0.attn_q.weight", kEmb, 32), graph.leaf(kEmb, 1));
  graph.expand(graph.sum(q, bias));
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul", "add"}));
  const Launch &product = run.program().launches[0], &sum = run.program().launches[1];
  EXPECT_EQ(sum.args[0].slot, product.args[2].slot);
  EXPECT_EQ(run.slot(product, 2).kind, SlotKind::scratch);
  EXPECT_EQ(run.slot(sum, 1).kind, SlotKind::input);
  ASSERT_EQ(run.lowered.inputs.size(), 2u);
  EXPECT_EQ(run.lowered.inputs[1].place.tensor(run.nodes), bias);
  EXPECT_EQ(run.lowered.weights.size(), 1u);
  ASSERT_EQ(run.lowered.outputs.size(), 1u);
  EXPECT_EQ(run.lowered.outputs[0].slot, sum.args[2].slot);
}

class Norms : public ::testing::Test {
 protected:
  const Graph graph;
  ggml_tensor* x = graph.elsewhere(graph.leaf(kEmb, 5));
  ggml_tensor* sum = graph.sum(graph.product(graph.matrix("w", kEmb, kEmb), x), x);
  ggml_tensor* norm = graph.norm(sum, 0.25f);
  ggml_tensor* weighted =
      ggml_mul(graph.context(), norm, graph.vector("blk.2.ffn_norm.weight", kEmb));
};

TEST_F(Norms, WithItsWeightANormIsOneLaunch) {
  graph.expand(weighted);
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul", "add", "rmsnorm"}));
  const Launch& launch = run.program().launches[2];
  EXPECT_EQ(launch.args[0].slot, run.program().launches[1].args[2].slot);
  EXPECT_EQ(launch.shape.eps, 0.25f);
  EXPECT_EQ(launch.role, Role::ffn_norm);
  EXPECT_EQ(launch.layer, 2);
  EXPECT_TRUE(run.lowered.ones.empty());
  ASSERT_EQ(run.lowered.weights.size(), 2u);
  EXPECT_EQ(run.lowered.weights[1].slot, launch.args[1].slot);
  EXPECT_EQ(run.slot(launch, 1).rows, 1u);
  EXPECT_EQ(run.slot(launch, 1).cols, uint64_t{kEmb});
}

TEST_F(Norms, WithoutAWeightANormIsWeightedByOnes) {
  graph.expand(norm);
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul", "add", "rmsnorm"}));
  const Launch& launch = run.program().launches[2];
  EXPECT_EQ(launch.shape.eps, 0.25f);
  ASSERT_EQ(run.lowered.ones.size(), 1u);
  EXPECT_EQ(run.lowered.ones[0].slot, launch.args[1].slot);
  EXPECT_EQ(run.slot(launch, 1).kind, SlotKind::weight);
  EXPECT_EQ(run.slot(launch, 1).dtype, DType::f32);
  EXPECT_EQ(run.slot(launch, 1).cols, uint64_t{kEmb});
  EXPECT_EQ(run.lowered.weights.size(), 1u);
  ASSERT_EQ(run.lowered.outputs.size(), 1u);
  EXPECT_EQ(run.lowered.outputs[0].place.tensor(run.nodes), norm);
}

TEST_F(Norms, UsedWithAndWithoutItsWeightANormIsTwoLaunches) {
  graph.expand(weighted, graph.elsewhere(norm));
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul", "add", "rmsnorm", "rmsnorm"}));
  const Launch &bare = run.program().launches[2], &whole = run.program().launches[3];
  EXPECT_EQ(bare.args[0].slot, whole.args[0].slot);
  EXPECT_EQ(run.lowered.ones.size(), 1u);
  ASSERT_EQ(run.lowered.outputs.size(), 2u);
  EXPECT_EQ(run.lowered.outputs[0].slot, bare.args[2].slot);
  EXPECT_EQ(run.lowered.outputs[1].slot, whole.args[2].slot);
}

TEST_F(Norms, WhatTheRunTakesWithoutItsWeightIsWeightedByOnes) {
  graph.expand(weighted, graph.product(graph.matrix("v", kEmb, 32), norm));
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul", "add", "rmsnorm", "rmsnorm", "matmul"}));
  const auto& launches = run.program().launches;
  EXPECT_EQ(launches[4].args[0].slot, launches[2].args[2].slot);
  EXPECT_EQ(run.slot(launches[2], 2).kind, SlotKind::scratch);
  EXPECT_EQ(run.lowered.ones.size(), 1u);
}

class Rotations : public ::testing::Test {
 protected:
  ggml_tensor* q() const { return heads(kHeads); }
  ggml_tensor* k() const { return heads(kKvHeads); }
  ggml_tensor* heads(int64_t count) const {
    return graph.heads(graph.product(graph.matrix("w", kEmb, count * kHeadDim), x));
  }
  static uint16_t table_of(const LoweredRun& run, size_t launch) {
    return run.program().launches[launch].args[1].slot;
  }

  const Graph graph;
  ggml_tensor *x = graph.leaf(kEmb, 5), *positions = graph.positions(5);
};

TEST_F(Rotations, ByTheSamePositionsShareATable) {
  graph.expand(graph.rope(q(), positions), graph.rope(k(), positions));
  const LoweredRun run(graph);
  ASSERT_EQ(run.launches(), Names({"matmul", "rope", "matmul", "rope"}));
  ASSERT_EQ(run.lowered.rotations.size(), 1u);
  const BoundRotation& table = run.lowered.rotations[0];
  EXPECT_EQ(table_of(run, 1), table.slot);
  EXPECT_EQ(table_of(run, 3), table.slot);
  EXPECT_EQ(run.nodes[table.rope]->src[1], positions);
  EXPECT_EQ(run.slot(table.slot).kind, SlotKind::input);
  EXPECT_EQ(run.slot(table.slot).cols, uint64_t{kHeadDim});
  EXPECT_EQ(run.lowered.inputs.size(), 1u);  // x: the table is written by itself
}

TEST_F(Rotations, ByOthersHaveTablesOfTheirOwn) {
  graph.expand(graph.rope(q(), positions), graph.rope(q(), graph.positions(5)),
               graph.rope(q(), positions, 500000),
               graph.rope(q(), positions, 10000, GGML_ROPE_TYPE_NORMAL,
                          graph.vector("rope_freqs.weight", kHeadDim / 2)));
  const LoweredRun run(graph);
  ASSERT_EQ(run.lowered.rotations.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(table_of(run, 2 * i + 1), run.lowered.rotations[i].slot);
    EXPECT_EQ(run.lowered.rotations[i].rope, 2 * i + 1);
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(run.lowered.rotations[i].slot, run.lowered.rotations[j].slot);
  }
}

TEST_F(Rotations, KnowTheirHeadsAndWhichValuesArePairs) {
  graph.expand(graph.rope(q(), positions), graph.rope(k(), positions, 10000, GGML_ROPE_TYPE_NEOX));
  const LoweredRun run(graph);
  const LaunchShape &pairs = run.program().launches[1].shape,
                    &halves = run.program().launches[3].shape;
  EXPECT_EQ(pairs.heads, uint32_t{kHeads});
  EXPECT_EQ(pairs.head_dim, uint32_t{kHeadDim});
  EXPECT_TRUE(pairs.rope_pairs);
  EXPECT_EQ(halves.heads, uint32_t{kKvHeads});
  EXPECT_EQ(halves.head_dim, uint32_t{kHeadDim});
  EXPECT_FALSE(halves.rope_pairs);
}

TEST_F(Rotations, OfAProductOfAnotherRunTakeWholeRows) {
  ggml_tensor* projected = k();
  graph.expand(projected);
  ggml_tensor* rotated = graph.rope(projected, positions);
  graph.expand(graph.elsewhere(x), rotated);
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(pieces.size(), 3u);
  ASSERT_EQ(pieces[2].nodes, std::vector<ggml_tensor*>({rotated}));
  ASSERT_TRUE(pieces[2].on_device);
  const Lowered lowered = lower(pieces[2].nodes, DType::bf16, needed_by(graph, pieces[2].nodes));
  EXPECT_NO_THROW(check(lowered.program));
  ASSERT_EQ(lowered.inputs.size(), 1u);
  EXPECT_EQ(lowered.program.slots[lowered.inputs[0].slot].cols, uint64_t{kKvWidth});
  const OperandRows rows = operand_rows(rotated, projected);
  EXPECT_EQ(rows.width, uint64_t{kKvWidth});
  EXPECT_EQ(rows.distance, kKvWidth * sizeof(float));
}

class Stretch : public ::testing::Test {
 protected:
  Stretch() : heads(stretch(graph, model.layers[0], model.layers[1], 5)), run(graph) {}

  const Model model{2};
  const Graph graph;
  const Heads heads;
  const LoweredRun run;
};

TEST_F(Stretch, BecomesOneLaunchPerKernel) {
  EXPECT_EQ(run.launches(),
            Names({"matmul", "add", "rmsnorm", "matmul", "matmul", "swiglu", "matmul", "add",
                   "rmsnorm", "matmul", "rope", "matmul", "rope", "matmul"}));
}

TEST_F(Stretch, GivesWhatAttentionTakesAndNothingElse) {
  std::vector<const ggml_tensor*> results;
  for (const BoundValue& output : run.lowered.outputs) {
    results.push_back(output.place.tensor(run.nodes));
    EXPECT_EQ(run.slot(output.slot).kind, SlotKind::output);
  }
  EXPECT_EQ(results, std::vector<const ggml_tensor*>({heads.q, heads.k, heads.v}));
  size_t outputs = 0;
  for (const Slot& slot : run.program().slots) outputs += slot.kind == SlotKind::output;
  EXPECT_EQ(outputs, 3u);
}

TEST_F(Stretch, GivesTheResidualTooWhereTheNextLayerIsElsewhere) {
  const Graph other;
  const Heads same = stretch(other, model.layers[0], model.layers[1], 5);
  ggml_tensor* normed = same.v->src[1];
  ggml_tensor* residual = normed->src[0]->src[0];
  other.expand(other.elsewhere(residual));
  const LoweredRun more(other);
  ASSERT_EQ(more.lowered.outputs.size(), 4u);
  EXPECT_EQ(more.lowered.outputs[0].place.tensor(more.nodes), residual);
  EXPECT_EQ(more.launches(), run.launches());
}

TEST_F(Stretch, EachResultIsWrittenOnceAndReadWhereItIsUsed) {
  const auto& launches = run.program().launches;
  std::map<uint16_t, size_t> written;
  for (const Launch& launch : launches)
    for (const Arg& arg : launch.args) {
      const Slot& slot = run.slot(arg.slot);
      if (arg.writes) {
        EXPECT_EQ(++written[arg.slot], 1u) << launch.name;
      } else if (slot.kind == SlotKind::scratch || slot.kind == SlotKind::output) {
        EXPECT_EQ(written[arg.slot], 1u)
            << launch.name << " reads " << slot.name << " before it is";
      }
    }
  EXPECT_EQ(launches[7].args[1].slot, launches[1].args[2].slot);  // the residual goes on
  EXPECT_EQ(launches[3].args[0].slot, launches[4].args[0].slot);  // gate and up of one norm
}

TEST_F(Stretch, LaunchesHaveTheRolesAndLayersOfTheirWeights) {
  std::vector<std::pair<Role, uint16_t>> products;
  for (const Launch& launch : run.program().launches)
    if (launch.kernel == Kernel::matmul || launch.kernel == Kernel::rmsnorm)
      products.emplace_back(launch.role, launch.layer);
  const std::vector<std::pair<Role, uint16_t>> expected = {
      {Role::o, 0},         {Role::ffn_norm, 0}, {Role::gate, 0}, {Role::up, 0}, {Role::down, 0},
      {Role::attn_norm, 1}, {Role::q, 1},        {Role::k, 1},    {Role::v, 1}};
  EXPECT_EQ(products, expected);
  for (const Launch& launch : run.program().launches)
    if (launch.kernel == Kernel::add || launch.kernel == Kernel::rope ||
        launch.kernel == Kernel::swiglu) {
      EXPECT_EQ(launch.role, Role::none) << launch.name;
      EXPECT_EQ(launch.layer, kNoLayer) << launch.name;
    }
}

TEST_F(Stretch, WeightsHaveTheNamesRolesAndLayersOfTheirTensors) {
  Names names;
  for (const BoundWeight& bound : run.lowered.weights) {
    const Slot& slot = run.slot(bound.slot);
    const WeightRole what = weight_role(bound.place.tensor(run.nodes)->name);
    names.push_back(slot.name);
    EXPECT_EQ(slot.role, what.role);
    EXPECT_EQ(slot.layer, what.layer);
  }
  EXPECT_EQ(names, Names({"L00.o", "L00.ffn_norm", "L00.gate", "L00.up", "L00.down",
                          "L01.attn_norm", "L01.q", "L01.k", "L01.v"}));
  EXPECT_EQ(run.program().name, "L00.o");
}

TEST_F(Stretch, CountsTheMultiplicationsOfItsMatricesAlone) {
  EXPECT_EQ(run.lowered.macs_per_token,
            static_cast<uint64_t>(2 * kEmb * kHeads * kHeadDim + 3 * kEmb * kHidden +
                                  2 * kEmb * kKvWidth));
}

TEST_F(Stretch, HasTheFormOfTheNextGraphOfAnyNumberOfTokens) {
  for (const int64_t tokens : {1, 5, 300}) {
    const Graph next;
    stretch(next, model.layers[0], model.layers[1], tokens);
    EXPECT_EQ(LoweredRun(next).form(), run.form()) << tokens;
  }
}

TEST_F(Stretch, HasAnotherFormThanThatOfOtherLayers) {
  const Graph other;
  stretch(other, model.layers[1], model.layers[0], 5);
  EXPECT_NE(LoweredRun(other).form(), run.form());
}

TEST_F(Stretch, ValuesAreFoundAgainInTheNextGraph) {
  const Graph next;
  const Heads later = stretch(next, model.layers[0], model.layers[1], 2);
  const LoweredRun again(next);
  ASSERT_EQ(again.form(), run.form());
  // What this graph's program says, asked of the next graph's nodes.
  const ggml_tensor* mixed = run.lowered.inputs[0].place.tensor(again.nodes);
  const ggml_tensor* residual = run.lowered.inputs[1].place.tensor(again.nodes);
  ASSERT_EQ(run.lowered.inputs.size(), 2u);
  EXPECT_EQ(mixed, again.nodes[0]->src[1]);
  EXPECT_EQ(residual, again.nodes[1]->src[1]);
  EXPECT_EQ(mixed->ne[1], 2);
  ASSERT_EQ(run.lowered.outputs.size(), 3u);
  EXPECT_EQ(run.lowered.outputs[0].place.tensor(again.nodes), later.q);
  EXPECT_EQ(run.lowered.outputs[1].place.tensor(again.nodes), later.k);
  EXPECT_EQ(run.lowered.outputs[2].place.tensor(again.nodes), later.v);
  ASSERT_EQ(run.lowered.weights.size(), again.lowered.weights.size());
  for (size_t i = 0; i < run.lowered.weights.size(); ++i)
    EXPECT_EQ(run.lowered.weights[i].place.tensor(again.nodes),
              run.lowered.weights[i].place.tensor(run.nodes));
  EXPECT_EQ(again.nodes[run.lowered.rotations[0].rope], later.q);
}

// Each test changes one thing of this graph.
struct Choices {
  ggml_tensor* weight = nullptr;
  int64_t width = 32;
  float eps = kEps;
  float base = 10000;
  int mode = GGML_ROPE_TYPE_NORMAL;
  bool residual_is_input = false;
  bool sum_is_needed = false;
};

class Form : public ::testing::Test {
 protected:
  std::vector<uint64_t> form(const Choices& choices) const {
    const Graph graph;
    ggml_tensor* x = graph.elsewhere(graph.leaf(kEmb, 3));
    ggml_tensor* residual = choices.residual_is_input ? x : graph.elsewhere(graph.leaf(kEmb, 3));
    ggml_tensor* sum = graph.sum(graph.product(choices.weight ? choices.weight : o, x), residual);
    ggml_tensor* normed = ggml_mul(graph.context(), graph.norm(sum, choices.eps), norm);
    ggml_tensor* q = graph.product(choices.width == 32 ? w32 : w48, normed);
    graph.expand(x, residual,
                 graph.rope(graph.heads(q), graph.positions(3), choices.base, choices.mode));
    if (choices.sum_is_needed) graph.expand(graph.elsewhere(sum));
    return LoweredRun(graph).form();
  }

  const Graph memory;
  ggml_tensor *o = memory.matrix("o", kEmb, kEmb), *o2 = memory.matrix("o", kEmb, kEmb);
  ggml_tensor *w32 = memory.matrix("w", kEmb, 32), *w48 = memory.matrix("w", kEmb, 48);
  ggml_tensor* norm = memory.vector("norm", kEmb);
};

TEST_F(Form, IsTheSameForAGraphBuiltAnew) {
  EXPECT_EQ(form({}), form({}));
}

TEST_F(Form, DiffersByAWeight) {
  EXPECT_NE(form({.weight = o2}), form({}));
}

TEST_F(Form, DiffersByAWidthAlsoWhereTheWeightLiesAtTheSameAddress) {
  w48->data = w32->data;
  EXPECT_NE(form({.width = 48}), form({}));
}

TEST_F(Form, DiffersByAParameter) {
  EXPECT_NE(form({.eps = 1e-6f}), form({}));
  EXPECT_NE(form({.base = 500000}), form({}));
  EXPECT_NE(form({.mode = GGML_ROPE_TYPE_NEOX}), form({}));
}

TEST_F(Form, DiffersByWhichInputsAreOne) {
  EXPECT_NE(form({.residual_is_input = true}), form({}));
}

TEST_F(Form, DiffersByWhatIsNeeded) {
  EXPECT_NE(form({.sum_is_needed = true}), form({}));
}

// Inputs are written again for each call, wherever they lie. A vector of one token is no weight.
TEST_F(Form, IsTheSameWhereverInputsLie) {
  std::vector<uint64_t> forms[2];
  const Graph graphs[2];
  for (size_t i = 0; i < 2; ++i) {
    ggml_tensor *x = graphs[i].leaf(kEmb, 1), *residual = graphs[i].leaf(kEmb, 1);
    graphs[i].expand(graphs[i].sum(graphs[i].product(o, x), residual));
    forms[i] = LoweredRun(graphs[i]).form();
  }
  EXPECT_EQ(forms[0], forms[1]);
}

struct NamedRole {
  const char* tensor;
  Role role;
  uint16_t layer;
  const char* name;
};

void expect_roles(std::span<const NamedRole> expected) {
  for (const NamedRole& entry : expected) {
    const WeightRole read = weight_role(entry.tensor);
    EXPECT_EQ(read.role, entry.role) << entry.tensor;
    EXPECT_EQ(read.layer, entry.layer) << entry.tensor;
    EXPECT_EQ(read.name, entry.name);
  }
}

TEST(WeightRoles, OfTheTensorsOfALayer) {
  constexpr NamedRole kExpected[] = {
      {"blk.3.attn_q.weight", Role::q, 3, "L03.q"},
      {"blk.3.attn_k.weight", Role::k, 3, "L03.k"},
      {"blk.3.attn_v.weight", Role::v, 3, "L03.v"},
      {"blk.3.attn_output.weight", Role::o, 3, "L03.o"},
      {"blk.0.ffn_gate.weight", Role::gate, 0, "L00.gate"},
      {"blk.0.ffn_up.weight", Role::up, 0, "L00.up"},
      {"blk.0.ffn_down.weight", Role::down, 0, "L00.down"},
      {"blk.31.attn_norm.weight", Role::attn_norm, 31, "L31.attn_norm"},
      {"blk.126.ffn_norm.weight", Role::ffn_norm, 126, "L126.ffn_norm"},
      {"blk.65534.attn_q.weight", Role::q, 65534, "L65534.q"},
  };
  expect_roles(kExpected);
}

TEST(WeightRoles, OfTensorsOutsideTheLayers) {
  constexpr NamedRole kExpected[] = {
      {"output.weight", Role::lm_head, kNoLayer, "lm_head"},
      {"token_embd.weight", Role::lm_head, kNoLayer, "lm_head"},
      {"output_norm.weight", Role::final_norm, kNoLayer, "final_norm"},
      {"rope_freqs.weight", Role::none, kNoLayer, "rope_freqs.weight"},
  };
  expect_roles(kExpected);
}

// Other parts of a layer are none of ours, also where their names begin like one.
TEST(WeightRoles, OfOtherPartsOfALayerAreNone) {
  constexpr NamedRole kExpected[] = {
      {"blk.3.attn_qkv.weight", Role::none, 3, "L03.attn_qkv.weight"},
      {"blk.3.attn_q.bias", Role::none, 3, "L03.attn_q.bias"},
      {"blk.3.attn_q.weight.lora_a", Role::none, 3, "L03.attn_q.weight.lora_a"},
      {"blk.3.ffn_gate_exps.weight", Role::none, 3, "L03.ffn_gate_exps.weight"},
  };
  expect_roles(kExpected);
}

// Numbers that no layer has, 2^32 + 3 among them, and names that llama.cpp gives to nothing.
TEST(WeightRoles, OfNamesThatAreNoLayersAreNone) {
  constexpr NamedRole kExpected[] = {
      {"blk.99999.attn_q.weight", Role::none, kNoLayer, "blk.99999.attn_q.weight"},
      {"blk.65535.attn_q.weight", Role::none, kNoLayer, "blk.65535.attn_q.weight"},
      {"blk.4294967299.attn_q.weight", Role::none, kNoLayer, "blk.4294967299.attn_q.weight"},
      {"blk.-3.attn_q.weight", Role::none, kNoLayer, "blk.-3.attn_q.weight"},
      {"blk. 3.attn_q.weight", Role::none, kNoLayer, "blk. 3.attn_q.weight"},
      {"blk..attn_q.weight", Role::none, kNoLayer, "blk..attn_q.weight"},
      {"blk.3attn_q.weight", Role::none, kNoLayer, "blk.3attn_q.weight"},
      {"blk.3.", Role::none, kNoLayer, "blk.3."},
      {"blk.3", Role::none, kNoLayer, "blk.3"},
      {"blk.", Role::none, kNoLayer, "blk."},
      {"x.blk.3.attn_q.weight", Role::none, kNoLayer, "x.blk.3.attn_q.weight"},
      {"output.weight2", Role::none, kNoLayer, "output.weight2"},
      {"", Role::none, kNoLayer, ""},
  };
  expect_roles(kExpected);
}

}  // namespace
}  // namespace tyto::plugin
