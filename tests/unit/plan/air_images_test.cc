#include "plan/air_images.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/synth.h"

namespace tyto {
namespace {

std::string names(const std::vector<PlannedImage>& images) {
  std::string text;
  for (const PlannedImage& image : images) text += std::string(image.name) + " ";
  return text;
}

PlannedImage named(const std::vector<PlannedImage>& images, std::string_view name) {
  return *std::ranges::find(images, name, &PlannedImage::name);
}

void expect_within(double value, double published, double tolerance) {
  EXPECT_NEAR(value, published, tolerance * published) << "error " << value / published - 1;
}

double call_ms(const ImageTime& time) {
  return time.run_ms() + time.host_ms;
}

// MLIR-AIR's profile of Llama-3.2-1B, Strix Point, 2048 tokens: average per call.
TEST(AirImages, PublishedTimesOfThe1B) {
  const Config c = shape_by_name("llama-3.2-1b");
  const CostParameters& p = cost_parameters();
  const auto prompt = prefill_images(c, 2048);
  const auto token = decode_images(c);
  const auto prompt_ms = [&](std::string_view name) {
    return call_ms(prefill_image_time(named(prompt, name), c, 2048));
  };
  expect_within(prompt_ms("rms_gemms_rope"), 7.3, 0.10);
  expect_within(prompt_ms("flash_attn"), 21.6, 0.10);
  expect_within(prompt_ms("o_ffn"), 41.0, 0.10);
  const ImageTime input = decode_image_time(named(token, "rms_gemv_rope"), p.gemv.gb_s);
  expect_within(input.run_ms(), 0.83, 0.10);
  expect_within(call_ms(input), 0.9, 0.10);
  expect_within(call_ms(decode_image_time(named(token, "o_gemv_ffn"), p.gemv.gb_s)), 3.7, 0.10);
  expect_within(call_ms(decode_image_time(head_image(c), p.elf.head_gb_s)), 13.6, 0.10);
}

TEST(AirImages, AreNamedAndCutAsInTheExamples) {
  EXPECT_EQ(names(prefill_images(shape_by_name("llama-3.2-3b"), 2048)),
            "rms_gemms_rope flash_attn o_ffn ");
  EXPECT_EQ(names(prefill_images(shape_by_name("qwen2.5-0.5b"), 2048)),
            "rms_qkv_bias_rope flash_attn o_ffn_head down_add ");
  EXPECT_EQ(names(prefill_images(shape_by_name("qwen2.5-1.5b"), 2048)),
            "rms_qkv_bias_rope flash_attn o_res_norm gate_up swiglu down_add ");
  EXPECT_EQ(names(prefill_images(shape_by_name("qwen3-4b"), 2048)),
            "rms_qkv_qknorm_rope flash_attn o_res_norm gate up swiglu down_add ");
  EXPECT_EQ(names(decode_images(shape_by_name("qwen2.5-3b"))),
            "rms_qkv_bias_rope_gemv o_gemv gate_gemv up_gemv down_gemv ");
  EXPECT_EQ(names(decode_images(shape_by_name("qwen3-1.7b"))),
            "rms_qkv_qknorm_rope_gemv o_gemv_ffn ");
}

// However it is cut, a layer multiplies by each of its matrices once.
TEST(AirImages, HoldEveryMatrixOfALayerOnce) {
  for (const std::string& shape : shape_names()) {
    const Config c = shape_by_name(shape);
    const uint64_t values =
        uint64_t{c.emb} * (2 * (c.q_width() + c.kv_width()) + 3 * uint64_t{c.hidden});
    const auto held = [](const std::vector<PlannedImage>& images) {
      uint64_t sum = 0;
      for (const PlannedImage& image : images)
        for (const Product& product : image.products) sum += product.k * product.n;
      return sum;
    };
    // No GEMV has rows as long as this down projection's.
    const uint64_t hosts = shape == "qwen2.5-7b" ? uint64_t{c.hidden} * c.emb : 0;
    EXPECT_EQ(held(prefill_images(c, 2048)), values) << shape;
    EXPECT_EQ(held(decode_images(c)), values - hosts) << shape;
    EXPECT_GE(head_image(c).products[0].n, c.vocab) << shape;
  }
}

TEST(AirImages, LaunchesCountTheCastsOfLargeProducts) {
  const auto of = [](const char* shape, uint64_t rows) {
    return prefill_images(shape_by_name(shape), rows).front().launches;
  };
  EXPECT_EQ(of("llama-3.2-1b", 2048), 7u);  // Q's result is cast, K's and V's are not
  EXPECT_EQ(of("smollm2-1.7b", 2048), 9u);  // as many key heads as queries
  EXPECT_EQ(of("llama-3.2-3b", 2048), 9u);  // large enough, both
}

// What is measured alone is as fast in an image of its own; stitched to others it is slower.
TEST(AirImages, OnlyStitchedKernelsAreSlowed) {
  const Config apart = shape_by_name("qwen2.5-3b"), together = shape_by_name("qwen2.5-1.5b");
  EXPECT_DOUBLE_EQ(
      prefill_image_time(named(prefill_images(apart, 2048), "gate"), apart, 2048).kernels_ms,
      direct_gemm_ms(2048, apart.emb, apart.hidden));
  EXPECT_DOUBLE_EQ(
      prefill_image_time(named(prefill_images(together, 2048), "gate_up"), together, 2048)
          .kernels_ms,
      cost_parameters().elf.slowdown * 2 * direct_gemm_ms(2048, together.emb, together.hidden));
}

TEST(AirImages, APieceThatTheHostHandsOnCostsItsCopies) {
  const Config c = shape_by_name("qwen2.5-3b");
  const auto images = prefill_images(c, 2048);
  const PlannedImage swiglu = named(images, "swiglu");
  EXPECT_EQ(swiglu.copied, 2u * c.hidden);
  EXPECT_EQ(swiglu.returned, c.hidden);
  EXPECT_TRUE(named(images, "gate").products[0].is_direct);
  EXPECT_GT(prefill_image_time(swiglu, c, 2048).host_ms,
            prefill_image_time(swiglu, c, 2048, {}, PlanHost::native).host_ms);
}

}  // namespace
}  // namespace tyto
