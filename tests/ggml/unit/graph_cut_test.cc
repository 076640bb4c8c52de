#include "ggml/lowering.h"

#include <gtest/gtest.h>

#include "ggml/unit/graphs.h"

namespace tyto::plugin {
namespace {

using Names = std::vector<std::string>;

// As "device" and "host", in order.
Names where(const std::vector<Piece>& pieces) {
  Names places;
  for (const Piece& piece : pieces) places.emplace_back(piece.on_device ? "device" : "host");
  return places;
}

TEST(Cut, EverythingBetweenTwoAttentionsIsOnePiece) {
  const Model model(2);
  const Graph graph;
  forward_pass(graph, model, 3);
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"host", "device", "host", "device", "host", "device"}));
  EXPECT_EQ(operations(pieces[0]), Names({"GET_ROWS", "RMS_NORM", "MUL"}));
  EXPECT_EQ(operations(pieces[1]), Names({"MUL_MAT", "ROPE", "MUL_MAT", "ROPE", "MUL_MAT"}));
  EXPECT_EQ(operations(pieces[3]),
            Names({"MUL_MAT", "ADD", "RMS_NORM", "MUL", "MUL_MAT", "MUL_MAT", "GLU", "MUL_MAT",
                   "ADD", "RMS_NORM", "MUL", "MUL_MAT", "ROPE", "MUL_MAT", "ROPE", "MUL_MAT"}));
  EXPECT_EQ(operations(pieces[5]), Names({"MUL_MAT", "ADD", "RMS_NORM", "MUL", "MUL_MAT", "MUL_MAT",
                                          "GLU", "MUL_MAT", "ADD", "RMS_NORM", "MUL", "MUL_MAT"}));
  for (const size_t attention : {2, 4})
    EXPECT_EQ(operations(pieces[attention]),
              Names({"CONT", "MUL_MAT", "SOFT_MAX", "MUL_MAT", "CONT"}));
}

TEST(Cut, OneTokenIsCutLikeMany) {
  const Model model(2);
  const Graph one, many;
  forward_pass(one, model, 1);
  forward_pass(many, model, 7);
  const auto of_one = cut(offer_of_blocks(), one.get()),
             of_many = cut(offer_of_blocks(), many.get());
  ASSERT_EQ(where(of_one), where(of_many));
  for (size_t i = 0; i < of_one.size(); ++i)
    EXPECT_EQ(operations(of_one[i]), operations(of_many[i])) << i;
}

TEST(Cut, WithoutFusionEachProductIsAPieceAndAllElseTheHosts) {
  const Model model(1);
  const Graph graph;
  forward_pass(graph, model, 3);
  Offer offer = offer_of_blocks();
  offer.fuses = false;
  const auto pieces = cut(offer, graph.get());
  size_t products = 0;
  for (const Piece& piece : pieces) {
    if (!piece.on_device) continue;
    EXPECT_EQ(operations(piece), Names({"MUL_MAT"}));
    ++products;
  }
  EXPECT_EQ(products, 8u);  // q, k, v, o, gate, up, down and the head
}

TEST(Cut, AGraphOfNoOfferedOperationIsOnePieceOfTheHost) {
  const Graph graph;
  ggml_tensor* x = graph.leaf(kEmb, 3);
  graph.expand(ggml_soft_max(graph.context(), graph.sum(graph.elsewhere(x), x)));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"host"}));
  EXPECT_EQ(operations(pieces[0]), Names({"SCALE", "ADD", "SOFT_MAX"}));
}

TEST(Cut, AGraphOfViewsAloneHasNoPieces) {
  const Graph graph;
  EXPECT_TRUE(cut(offer_of_blocks(), graph.get()).empty());
  graph.expand(ggml_permute(graph.context(), graph.heads(graph.leaf(kEmb, 3)), 0, 2, 1, 3));
  EXPECT_EQ(ggml_graph_n_nodes(graph.get()), 2);
  EXPECT_TRUE(cut(offer_of_blocks(), graph.get()).empty());
}

TEST(Cut, WhatIsNotToBeComputedIsInNoPiece) {
  const Graph graph;
  ggml_tensor* x = graph.leaf(kEmb, 3);
  ggml_tensor* choices[] = {graph.product(graph.matrix("a", kEmb, 32), x),
                            graph.product(graph.matrix("b", kEmb, 48), x)};
  ggml_build_forward_select(graph.get(), choices, 2, 1);
  ASSERT_EQ(ggml_graph_n_nodes(graph.get()), 2);
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].nodes, std::vector<ggml_tensor*>({choices[1]}));
}

TEST(Cut, APartOfAResultDoesNotJoinTheRunThatComputesIt) {
  const Graph graph;
  ggml_tensor* both = graph.product(graph.matrix("both", kEmb, 2 * kEmb), graph.leaf(kEmb, 3));
  ggml_tensor* half = ggml_view_2d(graph.context(), both, kEmb, 3, both->nb[1], 0);
  graph.expand(graph.product(graph.matrix("w", kEmb, 32), half));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"device", "device"}));
  EXPECT_EQ(pieces[0].nodes, std::vector<ggml_tensor*>({both}));
}

TEST(Cut, APartOfSomethingElseMayJoin) {
  const Graph graph;
  ggml_tensor* both = graph.elsewhere(graph.leaf(2 * kEmb, 3));
  ggml_tensor* half = ggml_view_2d(graph.context(), both, kEmb, 3, both->nb[1], 0);
  graph.expand(graph.product(graph.matrix("a", kEmb, 32), half),
               graph.product(graph.matrix("b", kEmb, 32), half));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"host", "device"}));
  EXPECT_EQ(pieces[1].nodes.size(), 2u);
}

TEST(Cut, AReshapeOfAWholeResultJoins) {
  const Graph graph;
  ggml_tensor* q = graph.product(graph.matrix("q", kEmb, kEmb), graph.leaf(kEmb, 3));
  ggml_tensor* flat = ggml_reshape_2d(graph.context(), graph.heads(q), kEmb, 3);
  graph.expand(graph.product(graph.matrix("w", kEmb, 32), flat));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"device"}));
  EXPECT_EQ(pieces[0].nodes.size(), 2u);
}

TEST(Cut, AResultInRowsOfAnotherLengthDoesNotJoin) {
  const Graph graph;
  ggml_tensor* wide = graph.product(graph.matrix("a", kEmb, kEmb), graph.leaf(kEmb, 3));
  ggml_tensor* narrow = ggml_reshape_2d(graph.context(), wide, kEmb / 2, 6);
  graph.expand(graph.product(graph.matrix("w", kEmb / 2, 32), narrow));
  EXPECT_EQ(where(cut(offer_of_blocks(), graph.get())), Names({"device", "device"}));
}

TEST(Cut, OtherNumbersOfTokensDoNotJoin) {
  const Graph graph;
  graph.expand(graph.product(graph.matrix("a", kEmb, 32), graph.leaf(kEmb, 3)),
               graph.product(graph.matrix("b", kEmb, 32), graph.leaf(kEmb, 3)),
               graph.product(graph.matrix("c", kEmb, 32), graph.leaf(kEmb, 2)));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"device", "device"}));
  EXPECT_EQ(pieces[0].nodes.size(), 2u);
  EXPECT_EQ(pieces[1].nodes.size(), 1u);
}

// A vector has the shape of one token's row. For more there is no kernel: the sum would repeat it.
TEST(Cut, ABiasIsPartOfTheRunForOneToken) {
  for (const int64_t tokens : {1, 2}) {
    const Graph graph;
    ggml_tensor* q = graph.product(graph.matrix("q", kEmb, kEmb), graph.leaf(kEmb, tokens));
    graph.expand(graph.sum(q, graph.vector("bias", kEmb)));
    const auto pieces = cut(offer_of_blocks(), graph.get());
    EXPECT_EQ(where(pieces), tokens == 1 ? Names({"device"}) : Names({"device", "host"}));
  }
}

TEST(Cut, ANormsWeightApartFromItsNormIsTheHosts) {
  const Graph graph;
  ggml_tensor* x = graph.leaf(kEmb, 3);
  ggml_tensor* normed = graph.norm(graph.sum(graph.product(graph.matrix("w", kEmb, kEmb), x), x));
  graph.expand(normed, graph.elsewhere(x),
               ggml_mul(graph.context(), normed, graph.vector("norm", kEmb)));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"device", "host"}));
  EXPECT_EQ(operations(pieces[0]), Names({"MUL_MAT", "ADD", "RMS_NORM"}));
  EXPECT_EQ(operations(pieces[1]), Names({"SCALE", "MUL"}));
}

TEST(Cut, TheHostsOperationsInARowAreOnePiece) {
  const Graph graph;
  ggml_tensor* x = graph.elsewhere(graph.elsewhere(graph.leaf(kEmb, 3)));
  ggml_tensor* y = graph.product(graph.matrix("w", kEmb, kEmb), x);
  graph.expand(graph.elsewhere(graph.elsewhere(y)));
  const auto pieces = cut(offer_of_blocks(), graph.get());
  ASSERT_EQ(where(pieces), Names({"host", "device", "host"}));
  EXPECT_EQ(operations(pieces[0]), Names({"SCALE", "SCALE"}));
  EXPECT_EQ(operations(pieces[2]), Names({"SCALE", "SCALE"}));
}

TEST(Cut, ProductsOutsideTheSettingsAreTheHosts) {
  const Model model(1);
  Offer offer = offer_of_blocks();
  offer.settings.min_n = 2;
  const Graph one, two;
  forward_pass(one, model, 1);
  forward_pass(two, model, 2);
  EXPECT_EQ(where(cut(offer, one.get())), Names({"host"}));
  EXPECT_EQ(where(cut(offer, two.get())), Names({"host", "device", "host", "device"}));
}

class UsesOfAProduct : public ::testing::Test {
 protected:
  bool is_needed(const std::vector<ggml_tensor*>& run) const {
    return Uses(graph.get()).is_needed_beyond(run, product);
  }

  const Graph graph;
  ggml_tensor* x = graph.leaf(kEmb, 3);
  ggml_tensor* product = graph.product(graph.matrix("w", kEmb, kEmb), x);
};

TEST_F(UsesOfAProduct, IsNeededByNobodyIfOnlyTheRunUsesIt) {
  ggml_tensor* sum = graph.sum(product, x);
  graph.expand(sum);
  EXPECT_FALSE(is_needed({product, sum}));
  EXPECT_TRUE(is_needed({product}));
}

TEST_F(UsesOfAProduct, IsNeededWhereTheRunIsOneUserOfTwo) {
  ggml_tensor* sum = graph.sum(product, x);
  graph.expand(sum, graph.elsewhere(product));
  EXPECT_TRUE(is_needed({product, sum}));
}

TEST_F(UsesOfAProduct, CountsAUserThatTakesItTwice) {
  ggml_tensor* twice = graph.sum(product, product);
  graph.expand(twice);
  EXPECT_FALSE(is_needed({product, twice}));
  EXPECT_TRUE(is_needed({product}));
}

TEST_F(UsesOfAProduct, IsFoundThroughViewsOfViews) {
  ggml_tensor* rotated = graph.rope(graph.heads(ggml_reshape_2d(graph.context(), product, kEmb, 3)),
                                    graph.positions(3));
  graph.expand(rotated);
  EXPECT_FALSE(is_needed({product, rotated}));
  EXPECT_TRUE(is_needed({product}));
}

TEST_F(UsesOfAProduct, IsNeededIfAPartOfItIsUsedElsewhere) {
  ggml_tensor* sum = graph.sum(product, x);
  ggml_tensor* part = ggml_view_2d(graph.context(), product, 8, 3, product->nb[1], 0);
  graph.expand(sum, graph.elsewhere(part));
  EXPECT_TRUE(is_needed({product, sum}));
}

TEST_F(UsesOfAProduct, IsNeededIfNothingUsesIt) {
  graph.expand(product);
  EXPECT_TRUE(is_needed({product}));
}

TEST_F(UsesOfAProduct, IsNeededIfItIsMarkedAsAnOutput) {
  ggml_tensor* sum = graph.sum(product, x);
  ggml_set_output(product);
  graph.expand(sum);
  EXPECT_TRUE(is_needed({product, sum}));
}

// ggml gives each backend a part of the graph; who uses a result may lie in another.
TEST_F(UsesOfAProduct, IsNeededIfAnotherPartOfTheGraphUsesIt) {
  ggml_tensor* sum = graph.sum(product, x);
  graph.expand(sum, graph.elsewhere(product));
  ggml_cgraph ours = ggml_graph_view(graph.get(), 0, 2);
  ASSERT_EQ(ggml_graph_node(&ours, 1), sum);
  EXPECT_TRUE(Uses(&ours).is_needed_beyond({product, sum}, product));
}

TEST_F(UsesOfAProduct, IsNeededIfTheGraphDoesNotKnowIt) {
  ggml_tensor* sum = graph.sum(product, x);
  graph.expand(sum);
  ggml_graph_clear(graph.get());  // the counts stay, and count nothing any more
  EXPECT_TRUE(is_needed({product, sum}));
}

}  // namespace
}  // namespace tyto::plugin
