#include "device/npu/formats/air_binding.h"

#include <gtest/gtest.h>

namespace tyto {
namespace {

constexpr AirDims kDims = {1, 64, 4, 2, 16, 96, 500, 64};

// The launches in front of the attention of a prompt's layer; slots are what the binding looks at.
struct Layer {
  explicit Layer(const AirDims& dims) {
    const uint64_t q_dim = dims.q_dim(), kv_dim = dims.kv_dim();
    add(Role::attn_norm, Kernel::rmsnorm,
        {activation(Role::x, dims.emb), weight(Role::attn_norm, 1, dims.emb),
         activation(Role::normed, dims.emb)});
    for (Role role : {Role::q, Role::k, Role::v}) {
      const uint64_t n = role == Role::q ? q_dim : kv_dim;
      add(role, Kernel::matmul,
          {activation(Role::normed, dims.emb), weight(role, n, dims.emb), activation(role, n)});
      const Role bias = role | Facet::bias;
      if (dims.qkv_bias != 0)
        program.launches.back().args.push_back({weight(bias, 1, n), true, false});
    }
    for (Role role : {Role::q, Role::k}) {
      if (dims.qk_norm != 0)
        add(role | Facet::norm, Kernel::rmsnorm,
            {activation(role, q_dim), weight(role | Facet::norm, 1, dims.head_dim),
             activation(role, q_dim)});
      add(role == Role::q ? Role::q_rope : Role::k_rope, Kernel::rope,
          {activation(role, q_dim), activation(Role::rope_table, dims.head_dim)});
    }
  }

  uint16_t slot(Role role, SlotKind kind, uint64_t rows, uint64_t cols) {
    for (uint16_t i = 0; i < program.slots.size(); ++i)
      if (program.slots[i].role == role && program.slots[i].kind == kind) return i;
    program.slots.push_back({std::string(name(role)), kind, DType::bf16, rows, cols, role, 0});
    return static_cast<uint16_t>(program.slots.size() - 1);
  }
  uint16_t weight(Role role, uint64_t rows, uint64_t cols) {
    return slot(role, SlotKind::weight, rows, cols);
  }
  uint16_t activation(Role role, uint64_t cols) { return slot(role, SlotKind::scratch, 64, cols); }
  void add(Role role, Kernel kernel, const std::vector<uint16_t>& slots) {
    Launch launch{kernel, std::string(name(role)), {}, {}, role, 0};
    for (uint16_t index : slots) launch.args.push_back({index, true, false});
    launch.shape.head_dim = 16;
    program.launches.push_back(launch);
  }

  Program program;
};

AirDims with(uint32_t qkv_bias, uint32_t qk_norm, std::string_view like = "") {
  AirDims dims = kDims;
  dims.qkv_bias = qkv_bias;
  dims.qk_norm = qk_norm;
  if (!like.empty()) dims.like = *images_like(like);
  return dims;
}

std::optional<std::string> problem(const AirDims& images, const AirDims& model) {
  const Layer layer(model);
  const AirModel known = air_model(images);
  const Launch& first = layer.program.launches[1];
  return air_problem(*air_program_for(known, layer.program, first), layer.program, first);
}

TEST(AirBinding, ImagesTakeTheModelsThatTheyWereMadeFor) {
  for (const AirDims& dims : {with(0, 0), with(1, 0), with(0, 1)})
    EXPECT_EQ(problem(dims, dims), std::nullopt);
  EXPECT_EQ(problem(with(0, 0), with(1, 0)), "its image rms_gemms_rope takes no q_bias");
  EXPECT_EQ(problem(with(0, 0), with(0, 1)),
            "its image rms_gemms_rope computes other steps together");
  // No published image adds biases and norms heads.
  EXPECT_EQ(problem(with(1, 1), with(1, 1)),
            "its image rms_qkv_bias_rope computes other steps together");
}

// The image that projects the attention's output has an argument for that, and for nothing that
// stands between the two.
TEST(AirBinding, AnImageOfTheOutputTakesWhatAttentionGives) {
  Layer layer(kDims);
  layer.program.launches.clear();
  const uint16_t x = layer.activation(Role::x, kDims.emb),
                 delta = layer.activation(Role::delta, 64),
                 hidden = layer.activation(Role::gate, kDims.hidden);
  const auto add_layer = [&](Role projected) {
    layer.program.launches.clear();
    layer.add(Role::o, Kernel::matmul,
              {layer.activation(projected, 64), layer.weight(Role::o, 64, 64), delta});
    layer.add(Role::attn_residual, Kernel::add, {x, delta});
    layer.add(Role::ffn_norm, Kernel::rmsnorm, {x, layer.weight(Role::ffn_norm, 1, 64), delta});
    layer.add(Role::gate, Kernel::matmul, {delta, layer.weight(Role::gate, 96, 64), hidden});
    layer.add(Role::up, Kernel::matmul, {delta, layer.weight(Role::up, 96, 64), hidden});
    layer.add(Role::swiglu, Kernel::swiglu, {hidden, hidden, hidden});
    layer.add(Role::down, Kernel::matmul, {hidden, layer.weight(Role::down, 64, 96), delta});
    layer.add(Role::ffn_residual, Kernel::add, {x, delta});
  };
  const AirModel model = air_model(kDims);
  const auto problem_of = [&] {
    const Launch& first = layer.program.launches.front();
    return air_problem(*air_program_for(model, layer.program, first), layer.program, first);
  };
  add_layer(Role::attention);
  EXPECT_EQ(problem_of(), std::nullopt);
  add_layer(Role::head_normed);  // any other
  EXPECT_EQ(problem_of(), "its image o_ffn projects what attention gives, and nothing else");
}

TEST(AirBinding, BiasesInTheOrderOfPairsAreNotPutInHalves) {
  Layer layer(with(1, 0));
  for (Launch& launch : layer.program.launches) launch.shape.rope_pairs = true;
  const AirModel model = air_model(with(1, 0));
  const Launch& first = layer.program.launches[0];
  EXPECT_EQ(air_problem(*air_program_for(model, layer.program, first), layer.program, first),
            "its image rms_qkv_bias_rope takes q_bias of heads that are rotated by halves");
}

// q has 64 columns of the 1024 that its argument has; the others stay as they are.
TEST(AirBinding, PaddedProjectionsLeaveTheirPaddingAlone) {
  const AirDims dims = with(1, 0, "qwen2.5-0.5b");
  const Layer layer(dims);
  const AirBinding binding = bind_to_air(layer.program, air_model(dims));
  ASSERT_EQ(binding.program.arguments[3].cols, 1024u);
  EXPECT_EQ(binding.parts[3].front().place, (Pattern{0, {{64, 1}, {64, 1024}}}));
  EXPECT_EQ(layer.program.slots[binding.parts[11].front().slot].role, Role::v | Facet::bias);
  EXPECT_EQ(layer.program.slots[binding.parts[14].front().slot].role, Role::v);
  EXPECT_TRUE(binding.parts[8].empty());
  const std::vector<AirProduct> products = air_products(binding);
  ASSERT_EQ(products.size(), 3u);
  EXPECT_EQ(products[2].role, Role::v);
  EXPECT_EQ(products[2].result, 8u);  // before its bias
  EXPECT_EQ(products[2].rows, 32u);
}

}  // namespace
}  // namespace tyto
