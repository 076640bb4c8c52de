#include "plan/what_if.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "model/synth.h"
#include "plan/air_images.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

constexpr PlanOption kOpIf = {KernelSet::air_bf16, Fusion::op};
constexpr PlanOption kBlockIf = {KernelSet::air_bf16, Fusion::block};
constexpr PlanOption kQ4nxIf = {KernelSet::air_q4nx, Fusion::token};
constexpr PlanOption kFlmIf = {KernelSet::flm_q4, Fusion::token};

PlanRequest request(const std::string& shape, const std::string& machine, uint32_t prompt = 2048,
                    uint32_t context = 2048) {
  PlanRequest r;
  r.config = shape_by_name(shape);
  r.shape = shape;
  r.machine = machine;
  r.prompt_tokens = prompt;
  r.context_tokens = context;
  return r;
}

void expect_near(double value, double published, double tolerance) {
  EXPECT_NEAR(value, published, tolerance * published) << "error " << value / published - 1;
}

TEST(WhatIf, PublishedBlockLevelRun) {
  const PlanRow row = what_if(request("llama-3.2-1b", "strix"), kBlockIf);
  expect_near(row.ttft_ms, 1280, 0.05);
  expect_near(row.tpot_ms, 92, 0.05);
  EXPECT_EQ(row.dispatches_per_token, 33u);
  // 5.2 GiB by the arithmetic of its buffers.
  expect_near(static_cast<double>(row.pinned_bytes), 5.2 * (1 << 30), 0.03);
  EXPECT_EQ(row.bottleneck, "prefill: matmul, decode: weight bandwidth");
}

// IRON on Strix Halo: 179 dispatches, 0.37 ms each, 66 ms of a token's 227 to 242 ms.
TEST(WhatIf, PublishedOpLevelRun) {
  const PlanRow row = what_if(request("llama-3.2-1b", "strix-halo", 13, 13), kOpIf);
  EXPECT_EQ(row.dispatches_per_token, 179u);
  const double dispatch_us = cost_parameters().op.dispatch_us;
  expect_near(static_cast<double>(row.dispatches_per_token) * dispatch_us / 1e3, 66, 0.15);
  expect_near(row.tpot_ms, 242, 0.15);
  expect_near(row.tpot_ms, 1000 / 4.46, 0.15);
  expect_near(row.ttft_ms, 670, 0.15);
  expect_near(what_if(request("llama-3.2-1b", "strix-halo"), kOpIf).ttft_ms, 2220, 0.15);
}

TEST(WhatIf, PublishedTokenLevelRun) {
  const PlanRow krackan = what_if(request("llama-3.2-1b", "krackan"), kQ4nxIf);
  expect_near(krackan.decode_tok_s, 62.86, 0.08);
  expect_near(krackan.ttft_ms, 893, 0.15);
  EXPECT_EQ(krackan.dispatches_per_token, 1u);
  expect_near(what_if(request("llama-3.2-1b", "strix"), kQ4nxIf).ttft_ms, 930, 0.10);
  EXPECT_EQ(q4nx_weight_bytes(shape_by_name("llama-3.2-1b")), 773324800u);
  expect_near(what_if(request("qwen2.5-7b", "krackan", 2048, 4096), kQ4nxIf).tpot_ms, 85.66, 0.08);
}

// FastFlowLM's tables, Krackan: context or prompt, tokens per second.
TEST(WhatIf, PublishedFastFlowTables) {
  expect_near(what_if(request("llama-3.2-1b", "krackan", 1024, 1024), kFlmIf).decode_tok_s, 64.5,
              0.10);
  expect_near(what_if(request("llama-3.2-3b", "krackan", 4096, 16384), kFlmIf).decode_tok_s, 18.0,
              0.10);
  expect_near(what_if(request("llama-3.2-3b", "krackan", 4096, 16384), kFlmIf).prefill_tok_s, 991,
              0.15);
  expect_near(what_if(request("qwen3-4b", "krackan", 8192, 2048), kFlmIf).prefill_tok_s, 576, 0.15);
}

TEST(WhatIf, LongerIsNeverFaster) {
  for (const PlanOption& option : plan_options()) {
    double ttft = 0, tpot = 0;
    for (uint32_t tokens = 16; tokens <= 65536; tokens = tokens * 3 / 2 + 1) {
      const PlanRow row = what_if(request("qwen3-1.7b", "strix", tokens, tokens), option);
      EXPECT_GE(row.ttft_ms, ttft) << row.kernels << " " << tokens;
      EXPECT_GE(row.tpot_ms, tpot) << row.kernels << " " << tokens;
      ttft = row.ttft_ms;
      tpot = row.tpot_ms;
    }
  }
}

struct DecodeForm {
  const char* shape;
  uint32_t images;  // per layer
};

// MLIR-AIR's table of images per layer: the fused O and feed-forward of a token needs fewer than
// 2560 values of the residual stream and a feed-forward of whole 512s.
TEST(WhatIf, ATokenTakesAsManyDispatchesAsItsImages) {
  for (const DecodeForm& form :
       {DecodeForm{"llama-3.2-1b", 2}, DecodeForm{"smollm2-1.7b", 2}, DecodeForm{"qwen3-0.6b", 2},
        DecodeForm{"qwen3-1.7b", 2}, DecodeForm{"qwen2.5-0.5b", 5}, DecodeForm{"qwen2.5-1.5b", 5},
        DecodeForm{"qwen2.5-3b", 5}, DecodeForm{"llama-3.2-3b", 5}, DecodeForm{"qwen3-4b", 5}}) {
    const PlanRow row = what_if(request(form.shape, "strix"), kBlockIf);
    EXPECT_EQ(row.dispatches_per_token, form.images * shape_by_name(form.shape).layers + 1)
        << form.shape;
  }
}

// Two models stream the same weights: the one whose images are cut is slower, and its error is
// larger.
TEST(WhatIf, ACutDecodeCostsItsDispatches) {
  PlanRequest fused = request("qwen3-1.7b", "strix"), cut = fused;
  cut.config.emb += 64;  // wider than any model whose cascade is fused
  const PlanRow one = what_if(fused, kBlockIf), other = what_if(cut, kBlockIf);
  const double host_ms = cost_parameters().published_host.dispatch_us / 1e3;
  EXPECT_GT(other.tpot_ms - one.tpot_ms, 3 * host_ms * fused.config.layers);
  EXPECT_GT(other.tpot_error_p90, one.tpot_error_p90);
}

TEST(WhatIf, TheSmallestImagesThatHoldThePromptRunIt) {
  PlanRequest r = request("llama-3.2-1b", "strix", 13, 13);
  const PlanRow fixed = what_if(r, kBlockIf);
  EXPECT_EQ(fixed.prompt_rows, 2048u);
  EXPECT_DOUBLE_EQ(fixed.ttft_ms, fixed.published_ttft_ms);
  double last_ms = 0;
  for (const uint32_t rows : {256u, 512u, 2048u}) {
    r.prompt_rows = {2048, rows};
    const PlanRow row = what_if(r, kBlockIf);
    EXPECT_EQ(row.prompt_rows, rows);
    EXPECT_GT(row.ttft_ms, last_ms);
    EXPECT_DOUBLE_EQ(row.published_ttft_ms, fixed.ttft_ms);
    last_ms = row.ttft_ms;
  }
  r.prompt_rows = {256};
  EXPECT_LT(what_if(r, kBlockIf).ttft_ms, 0.3 * fixed.ttft_ms);
  EXPECT_GT(what_if(r, kBlockIf).ttft_error_p90,
            fixed.ttft_error_p90);  // small products, not fitted
  r.prompt_tokens = 300;
  EXPECT_EQ(what_if(r, kBlockIf).prompt_rows, 512u);  // nothing built holds it
}

// MLIR-AIR's hosts of these two models decode a short prompt instead of running 2048 rows.
TEST(WhatIf, ShortPromptsOfWideLlamasAreReplayed) {
  PlanRequest r = request("llama-3.2-3b", "krackan", 42, 2048);
  const PlanRow replayed = what_if(r, kQ4nxIf);
  EXPECT_EQ(replayed.prompt_rows, 1u);
  EXPECT_NEAR(replayed.ttft_ms, 42 * replayed.tpot_ms, 1e-6);
  r.host = PlanHost::native;
  EXPECT_EQ(what_if(r, kQ4nxIf).prompt_rows, 2048u);
  r = request("llama-3.2-3b", "krackan", 96, 2048);
  EXPECT_EQ(what_if(r, kQ4nxIf).prompt_rows, 2048u);
  EXPECT_EQ(what_if(request("llama-3.2-1b", "krackan", 42), kQ4nxIf).prompt_rows, 2048u);
}

// It reads as much for every token as the largest window does.
TEST(WhatIf, OneElfForEveryLengthIsAsSlowAsTheLargestWindow) {
  PlanRequest r = request("llama-3.2-1b", "krackan", 128, 200);
  const PlanRow windows = what_if(r, kQ4nxIf);
  r.decode_elf = true;
  const PlanRow elf = what_if(r, kQ4nxIf);
  EXPECT_GT(elf.tpot_ms, windows.tpot_ms);
  EXPECT_NE(elf.note.find("2048 positions"), std::string::npos) << elf.note;
  EXPECT_EQ(elf.pinned_bytes, windows.pinned_bytes);
  EXPECT_DOUBLE_EQ(what_if(r, kBlockIf).tpot_ms,
                   what_if(request("llama-3.2-1b", "krackan", 128, 200), kBlockIf).tpot_ms);
  const PlanRow full = what_if(request("llama-3.2-1b", "krackan", 128, 2048), kQ4nxIf);
  EXPECT_DOUBLE_EQ(elf.tpot_ms, full.tpot_ms);
}

TEST(WhatIf, AnotherProfileWidensTheError) {
  PlanRequest r = request("qwen3-4b", "krackan");
  const double performance = what_if(r, kBlockIf).tpot_error_p90;
  r.profile = PlatformProfile::balanced;
  EXPECT_GT(what_if(r, kBlockIf).tpot_error_p90, performance);
}

TEST(WhatIf, MoreLayersAreSlowerAndLarger) {
  for (const PlanOption& option : plan_options()) {
    PlanRequest r = request("llama-3.2-1b", "krackan");
    const PlanRow small = what_if(r, option);
    r.config.layers *= 2;
    const PlanRow large = what_if(r, option);
    EXPECT_GT(large.ttft_ms, small.ttft_ms);
    EXPECT_GT(large.tpot_ms, small.tpot_ms);
    EXPECT_GT(large.pinned_bytes, small.pinned_bytes);
  }
}

TEST(WhatIf, EveryShapeOnEveryMachineHasARow) {
  for (const std::string& shape : shape_names())
    for (const NpuMachine& machine : npu_machines())
      for (const PlanOption& option : plan_options()) {
        const PlanRow row = what_if(request(shape, std::string(machine.name)), option);
        EXPECT_GT(row.ttft_ms, 0);
        EXPECT_NEAR(row.decode_tok_s * row.tpot_ms, 1000, 1e-6);
        EXPECT_NEAR(row.prefill_tok_s * row.ttft_ms, 2048e3, 1e-3);
        EXPECT_GT(std::min(row.ttft_error_p90, row.tpot_error_p90), 0.01);
        EXPECT_EQ(row.rel_error_p90, std::max(row.ttft_error_p90, row.tpot_error_p90));
        EXPECT_LT(row.rel_error_p90, 0.5);
      }
}

TEST(WhatIf, NotesSayWhatIsExtrapolated) {
  EXPECT_EQ(what_if(request("llama-3.2-1b", "strix"), kBlockIf).note, "");
  EXPECT_NE(what_if(request("llama-3.2-1b", "strix", 4096), kBlockIf).note.find("above 2048"),
            std::string::npos);
  EXPECT_NE(what_if(request("llama-3.2-1b", "strix"), kFlmIf).note.find("not published"),
            std::string::npos);
}

TEST(WhatIf, AForeignMachineWidensTheError) {
  EXPECT_GT(what_if(request("llama-3.2-1b", "strix-halo"), kBlockIf).rel_error_p90,
            what_if(request("llama-3.2-1b", "strix"), kBlockIf).rel_error_p90);
}

TEST(WhatIf, ANativeHostOnlySavesTime) {
  PlanRequest r = request("llama-3.2-1b", "strix");
  const PlanRow published = what_if(r, kBlockIf);
  const PlanRow published_op = what_if(r, kOpIf);
  r.host = PlanHost::native;
  EXPECT_LT(what_if(r, kBlockIf).ttft_ms, published.ttft_ms - 100);
  EXPECT_LT(what_if(r, kBlockIf).tpot_ms, published.tpot_ms);
  EXPECT_LT(what_if(r, kBlockIf).pinned_bytes, published.pinned_bytes);
  EXPECT_LT(what_if(r, kOpIf).tpot_ms, published_op.tpot_ms);
}

TEST(WhatIf, TheBalancedProfileIsSlower) {
  PlanRequest r = request("llama-3.2-1b", "krackan");
  const double fast = what_if(r, kQ4nxIf).tpot_ms;
  r.profile = PlatformProfile::balanced;
  expect_near(what_if(r, kQ4nxIf).tpot_ms / fast, 62.86 / 42.0, 0.15);
}

void expect_usage_error(const PlanRequest& r, const PlanOption& option, const std::string& text) {
  try {
    what_if(r, option);
    ADD_FAILURE() << "no error for " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::usage);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(WhatIf, RefusesWhatItDoesNotKnow) {
  expect_usage_error(request("tiny", "phoenix"), kBlockIf, "machine phoenix");
  expect_usage_error(request("tiny", "strix", 0), kBlockIf, "prompt length");
  expect_usage_error(request("tiny", "strix", 1, 2000000), kQ4nxIf, "context");
  expect_usage_error(request("tiny", "strix"), {KernelSet::air_q4nx, Fusion::op}, "air-q4nx");
  PlanRequest r = request("tiny", "strix");
  r.prompt_rows = {256, 100};
  expect_usage_error(r, kBlockIf, "prompt rows");
  r.prompt_rows = {};
  expect_usage_error(r, kBlockIf, "prompt rows");
  EXPECT_ERROR(kernel_set_by_name("air-int8"), "air-int8: do not exist");
  EXPECT_ERROR(request("llama-9b", "strix"), "llama-9b: does not exist");
}

}  // namespace
}  // namespace tyto
