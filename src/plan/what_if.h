// What a model would do on a machine with an XDNA2 NPU, before anything is downloaded or run. What
// what_if() says is modelled (cost/cost_model.h) and carries the error of the fit.
#pragma once

#include <cstdint>
#include <optional>
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

// Where a row's numbers come from.
enum class PlanKind : uint8_t {
  measured,   // the model was run here
  estimated,  // from what was measured here, without running it
  modelled,   // by laws fitted to other people's machines
};
std::string_view name(PlanKind kind);

// Whether Tyto can run a row.
enum class Runs : uint8_t { yes, with_images, no };
std::string_view name(Runs runs);

struct PlanOption {
  KernelSet kernels;
  Fusion fusion;
};

// The weights as a file has them.
struct FileWeights {
  DType type = DType::f32;     // what most bytes have
  uint64_t bytes = 0;          // all tensors together
  bool is_q4nx = false;        // a bundle in the form that the 4-bit decode takes
  std::string type_name = {};  // the file's: "q4_k_m"
};

struct PlanRequest {
  Config config;
  std::optional<FileWeights> file = {};  // none: a shape alone
  std::string shape;                     // how the row calls the model
  std::string machine;
  uint32_t prompt_tokens = 2048;
  uint32_t context_tokens = 2048;              // live positions while decoding
  std::vector<uint32_t> prompt_rows = {2048};  // of the prefill images that there are
  PlanHost host = PlanHost::published;
  PlatformProfile profile = PlatformProfile::performance;
};

struct PlanRow {
  PlanKind kind = PlanKind::modelled;
  PlanKind ttft_kind = PlanKind::modelled;  // of a measured row: estimated, if the prompt is longer
  std::string machine, shape, kernels, fusion;
  std::string weights;               // their form while it runs: "bf16", "4 bits", the file's type
  Runs runs = Runs::no;              // plan/rates.h fills in these three
  std::string needs;                 // what has to be done first, or why it cannot be; may be empty
  std::string flags;                 // what `tyto run` takes for it; empty: Tyto cannot run it
  bool has_run_on_hardware = false;  // Tyto's code for such a row has run on a real device
  bool is_recommended = false;       // at most one of a plan's rows
  uint32_t prompt_tokens = 0, context_tokens = 0;
  double ttft_ms = 0, prefill_tok_s = 0, tpot_ms = 0, decode_tok_s = 0;
  uint64_t dispatches_per_token = 0;
  uint64_t memory_bytes = 0;     // that it takes of the host, all of it
  uint64_t pinned_bytes = 0;     // of it, locked for a device
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

// Throws a usage Error for token counts outside 1..1048576 and for rows that no image has.
void check(const PlanRequest& request);

// Throws the same, and for an unknown machine or a combination that does not exist.
PlanRow what_if(const PlanRequest& request, const PlanOption& option);

// A pass of a prompt's images behind `request.context_tokens` others: they compute all their rows
// however few it uses, and the host attends to the cache, of which they know nothing.
struct PassTime {
  double ms = 0;
  double error_p90 = 0;
  uint64_t rows = 0;  // of the images
};
// Throws as what_if(). `option` has images for prompts.
PassTime later_pass(const PlanRequest& request, const PlanOption& option, uint32_t tokens);

// Of which models somebody offers NPU images.

// Somebody offers images of the model, or what builds them.
bool has_public_images(const PlanOption& option, const Config& config);

}  // namespace tyto
