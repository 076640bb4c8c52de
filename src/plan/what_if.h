// What a model would do on a machine with an XDNA2 NPU, before anything is downloaded or run. Every
// number is modelled (cost/cost_model.h) and carries the error of the fit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plan/air_images.h"
#include "program/stitch.h"

namespace tyto {

enum class KernelSet : uint8_t {
  air_bf16,  // MLIR-AIR's bf16 images at block level; IRON's operators at op level
  air_q4nx,  // bf16 prefill images and the single-dispatch 4-bit decode
  flm_q4,    // FastFlowLM as its vendor publishes it; for planning only, Tyto cannot run it
};

struct PlanOption {
  KernelSet kernels;
  Fusion fusion;
};

struct PlanRequest {
  Config config;
  std::string shape;  // how the row calls the model
  std::string machine;
  uint32_t prompt_tokens = 2048;
  uint32_t context_tokens = 2048;              // live positions while decoding
  std::vector<uint32_t> prompt_rows = {2048};  // of the prefill images that there are
  PlanHost host = PlanHost::published;
  PlatformProfile profile = PlatformProfile::performance;
};

struct PlanRow {
  std::string machine, shape, kernels, fusion;
  uint32_t prompt_tokens = 0, context_tokens = 0;
  double ttft_ms = 0, prefill_tok_s = 0, tpot_ms = 0, decode_tok_s = 0;
  uint64_t dispatches_per_token = 0;
  uint64_t pinned_bytes = 0;     // host memory locked for the device
  uint32_t images = 0;           // distinct ones; 0: nobody says
  uint64_t heap_bytes = 0;       // of the device's heap, for a run of each image; assumed, not read
  std::string bottleneck;        // the largest part of prefill and of decode
  uint64_t prompt_rows = 0;      // of the images that run the prompt; 1: token by token, 0: any
  double published_ttft_ms = 0;  // by MLIR-AIR's host and images of 2048 rows; 0: not its kernels
  double ttft_error_p90 = 0, tpot_error_p90 = 0;
  double rel_error_p90 = 0;  // the larger of the two
  std::string note;          // what the number does not rest on; may be empty
};

// The combinations that exist: air-bf16 op and block, air-q4nx token, flm-q4 token.
const std::vector<PlanOption>& plan_options();
std::string_view kernel_set_name(KernelSet kernels);
// Throws a usage Error that lists the names when there is no such set.
KernelSet kernel_set_by_name(std::string_view name);

// Throws a usage Error for an unknown machine, a combination that does not exist, or token counts
// outside 1..1048576.
PlanRow what_if(const PlanRequest& request, const PlanOption& option);

}  // namespace tyto
