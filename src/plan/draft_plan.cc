#include "plan/draft_plan.h"

#include <array>
#include <cmath>

#include "base/error.h"

namespace tyto {
namespace {

// What checking takes. The decode's image stops at the first guess that was wrong, so it is called
// once per token that comes out: with no guess wrong that is once per guess and once more.
struct Check {
  double ms = 0, error = 0;
  uint64_t image_rows = 0;
};

struct Plain {
  double tpot_ms = 0, error = 0;
};

DraftRow draft_row(CheckBy way, double acceptance, uint32_t guesses, const Plain& plain,
                   const DraftSpeed& draft, const Check& check) {
  DraftRow row{.way = way, .acceptance = acceptance, .guesses = guesses};
  row.tokens_per_round = tokens_per_round(acceptance, guesses);
  row.draft_ms = guesses * draft.tpot_ms;
  row.check_ms = way == CheckBy::tokens ? row.tokens_per_round * plain.tpot_ms : check.ms;
  row.round_ms = row.draft_ms + row.check_ms;
  row.decode_tok_s = row.tokens_per_round * 1e3 / row.round_ms;
  row.plain_tok_s = 1e3 / plain.tpot_ms;
  row.ratio = row.decode_tok_s / row.plain_tok_s;
  const double checked_share = row.check_ms / row.round_ms;
  const double check_error = way == CheckBy::tokens ? plain.error : check.error;
  row.error_p90 = checked_share * check_error;
  // A decode that is slower than thought is so with and without guesses.
  row.ratio_error_p90 = way == CheckBy::tokens ? (1 - checked_share) * plain.error
                                               : std::hypot(plain.error, row.error_p90);
  row.break_even_check_ms = row.tokens_per_round * plain.tpot_ms - row.draft_ms;
  row.image_rows = check.image_rows;
  return row;
}

void check_acceptance(double acceptance) {
  if (!(acceptance >= 0 && acceptance <= 1))
    throw Error(ErrorCode::usage, "acceptance",
                fmt::format("is {}, it must be between 0 and 1", acceptance));
}

}  // namespace

std::string_view name(CheckBy way) {
  constexpr std::array<std::string_view, 2> kNames = {"token by token", "prompt images"};
  return kNames[static_cast<size_t>(way)];
}

double tokens_per_round(double acceptance, uint32_t guesses) {
  double tokens = 1, all_true = 1;
  for (uint32_t i = 0; i < guesses; ++i) tokens += all_true *= acceptance;
  return tokens;
}

std::vector<DraftRow> draft_rows(const PlanRequest& request, const PlanOption& option,
                                 const DraftSpeed& draft, std::span<const double> acceptances) {
  const bool has_images = option.kernels == KernelSet::air_q4nx ||
                          (option.kernels == KernelSet::air_bf16 && option.fusion == Fusion::block);
  if (!has_images)
    throw Error(ErrorCode::usage, "kernels " + std::string(kernel_set_name(option.kernels)),
                "are not planned with a draft model",
                "air-q4nx and, per block, air-bf16 are what Tyto can run");
  TYTO_ASSERT(draft.tpot_ms > 0);
  const PlanRow row = what_if(request, option);
  const Plain plain{row.tpot_ms, row.tpot_error_p90};
  std::vector<DraftRow> rows;
  for (const double acceptance : acceptances) {
    check_acceptance(acceptance);
    for (const CheckBy way : {CheckBy::tokens, CheckBy::prompt_images})
      for (uint32_t guesses = 1; guesses <= kMostPlannedGuesses; ++guesses) {
        Check check;
        if (way == CheckBy::prompt_images) {
          const PassTime pass = later_pass(request, option, guesses + 1);
          check = {pass.ms, pass.error_p90, pass.rows};
        }
        rows.push_back(draft_row(way, acceptance, guesses, plain, draft, check));
      }
  }
  return rows;
}

std::vector<DraftRow> best_drafts(std::span<const DraftRow> rows) {
  std::vector<DraftRow> best;
  for (const DraftRow& row : rows) {
    const bool is_of_last =
        !best.empty() && best.back().way == row.way && best.back().acceptance == row.acceptance;
    if (!is_of_last)
      best.push_back(row);
    else if (row.decode_tok_s > best.back().decode_tok_s)
      best.back() = row;
  }
  return best;
}

}  // namespace tyto
