// What a small model on the processor that guesses for a large one on the NPU would gain: modelled,
// before there is a kernel that checks several guesses at once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plan/what_if.h"

namespace tyto {

// How guesses are checked.
enum class CheckBy : uint8_t {
  tokens,         // the decode's image, which takes one row: a call per token that comes out
  prompt_images,  // a pass of the prompt's images, whose rows cost the same however few are used
};
std::string_view name(CheckBy way);

// The draft model's own speed, on the processor.
struct DraftSpeed {
  std::string name;  // of the model
  double tpot_ms = 0;
  PlanKind kind = PlanKind::measured;  // estimated: no run can be faster
  bool is_given = false;               // by whoever asks, who measured it
};

struct DraftRow {
  CheckBy way = CheckBy::tokens;
  double acceptance = 0;        // of each guess, where those before it came true
  uint32_t guesses = 0;         // per round
  double tokens_per_round = 0;  // that come out, one of which needs no guess
  double draft_ms = 0, check_ms = 0, round_ms = 0;
  double decode_tok_s = 0, plain_tok_s = 0;
  double ratio = 0;                // of the two
  double error_p90 = 0;            // of decode_tok_s
  double ratio_error_p90 = 0;      // the same laws are in both of its sides where tokens check
  double break_even_check_ms = 0;  // less than this, and checking pays; negative: never
  uint64_t image_rows = 0;         // of the prompt's images; 0: none take part
};

constexpr uint32_t kMostPlannedGuesses = 8;

// Tokens that come out of a round: 1 + a + a² + ... of so many guesses.
double tokens_per_round(double acceptance, uint32_t guesses);

// A row for each acceptance, each way and 1 to kMostPlannedGuesses guesses, in this order. Throws a
// usage Error for an option whose prompts have no images, and for an acceptance outside 0..1.
std::vector<DraftRow> draft_rows(const PlanRequest& request, const PlanOption& option,
                                 const DraftSpeed& draft, std::span<const double> acceptances);

// The fastest of each acceptance and way.
std::vector<DraftRow> best_drafts(std::span<const DraftRow> rows);

}  // namespace tyto
