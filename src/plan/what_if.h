// What a model would do on a machine with an XDNA2 NPU, before anything is downloaded or run. What
// what_if() says is modelled (cost/cost_model.h) and carries the error of the fit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
  std::vector<uint32_t> prompt_rows = {2048};  // the prefill images that there are
  // The single-dispatch decode as one ELF for every length: it reads its whole cache for a token.
  bool decode_elf = false;
  PlanHost host = PlanHost::published;
  PlatformProfile profile = PlatformProfile::performance;
};

struct PlanRow {
  PlanKind kind = PlanKind::modelled;
  PlanKind ttft_kind = PlanKind::modelled;  // a measured row's: estimated, if the prompt is longer
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
  uint64_t pinned_bytes = 0;     // the part that is locked for a device
  uint32_t images = 0;           // distinct ones; 0: unknown
  uint64_t heap_bytes = 0;       // the device's heap, for a run of each image; assumed, not read
  std::string bottleneck;        // the largest part of prefill and of decode
  uint64_t prompt_rows = 0;      // the images' that run the prompt; 1: token by token, 0: any
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
  uint64_t rows = 0;  // the images'
};
// Throws as what_if(). `option` has images for prompts.
PassTime later_pass(const PlanRequest& request, const PlanOption& option, uint32_t tokens);

// For which models NPU images are public.

// Whether images of the model, or what builds them, can be had.
bool has_public_images(const PlanOption& option, const Config& config);

// The processor's rows of a plan: from a short run of the model here, or, where there are no
// weights to run, from what this machine's memory and arithmetic allow.

inline const std::string kThisMachine = "this machine";  // in their rows

// What was run of the model to know its speed.
struct CpuRun {
  unsigned threads = 0;
  uint32_t prompt_tokens = 0, generated_tokens = 0;
  double prefill_seconds = 0, decode_seconds = 0;  // more than 0
};
// The request has a file. A prompt longer than what was run is reckoned from its speed.
PlanRow measured_on_cpu(const PlanRequest& request, const CpuRun& run);

// What was measured of the machine.
struct CpuPeak {
  unsigned threads = 0;
  double read_gb_s = 0, gflops = 0;  // arithmetic as matrices of the type are multiplied in
};
// With weights of a type: no run can be faster than this.
PlanRow estimated_on_cpu(const PlanRequest& request, DType weights, const CpuPeak& peak);

// What a small model on the processor that guesses for a large one on the NPU would gain: modelled,
// before there is a kernel that checks several guesses at once.

// How guesses are checked.
enum class CheckBy : uint8_t {
  tokens,         // the decode's image, which takes one row: a call per token that comes out
  prompt_images,  // a pass of the prompt's images, whose rows cost the same however few are used
};
std::string_view name(CheckBy way);

// The draft model's own speed, on the processor.
struct DraftSpeed {
  std::string name;  // names the draft model
  double tpot_ms = 0;
  PlanKind kind = PlanKind::measured;  // estimated: no run can be faster
  bool is_given = false;               // by the user, who measured it
};

struct DraftRow {
  CheckBy way = CheckBy::tokens;
  double acceptance = 0;        // each draft token's, where those before it were accepted
  uint32_t guesses = 0;         // per round
  double tokens_per_round = 0;  // that come out, one of which needs no guess
  double draft_ms = 0, check_ms = 0, round_ms = 0;
  double decode_tok_s = 0, plain_tok_s = 0;
  double ratio = 0;                // decode_tok_s / plain_tok_s
  double error_p90 = 0;            // relative error of decode_tok_s
  double ratio_error_p90 = 0;      // the same laws are in both of its sides where tokens check
  double break_even_check_ms = 0;  // less than this, and checking pays; negative: never
  uint64_t image_rows = 0;         // the prompt's images'; 0: none take part
};

constexpr uint32_t kMostPlannedGuesses = 8;

// Tokens that come out of a round: 1 + a + a² + ..., a term for each guess and one.
double tokens_per_round(double acceptance, uint32_t guesses);

// A row for each acceptance, each way and 1 to kMostPlannedGuesses guesses, in this order. Throws a
// usage Error for an option whose prompts have no images, and for an acceptance outside 0..1.
std::vector<DraftRow> draft_rows(const PlanRequest& request, const PlanOption& option,
                                 const DraftSpeed& draft, std::span<const double> acceptances);

// The fastest of each acceptance and way.
std::vector<DraftRow> best_drafts(std::span<const DraftRow> rows);

}  // namespace tyto
