#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/plan.h"
#include "cli/terminal.h"
#include "model/model.h"
#include "model/shapes.h"
#include "plan/what_if.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct PlanFlags {
  ModelFlags model;
  std::string shape;
  std::string machine;
  std::string kernels;
  std::string fusion;
  std::string host = "published";
  std::string profile = "performance";
  uint32_t prompt = 2048;
  uint32_t context = 0;
  std::vector<uint32_t> prompt_rows;
  bool json = false;
};

PlanRequest plan_request(const PlanFlags& flags) {
  PlanRequest request;
  if (!flags.shape.empty()) {
    if (!flags.model.model.empty())
      throw Error(ErrorCode::usage, "--shape", "cannot be given together with -m");
    request.config = shape_by_name(flags.shape);
    request.shape = flags.shape;
  } else {
    const std::string path = model_or_shipped(flags.model);
    request.config = open_model(path).config;
    request.shape = request.config.name.empty() ? path : request.config.name;
  }
  request.machine = flags.machine;
  request.prompt_tokens = flags.prompt;
  request.context_tokens = flags.context == 0 ? flags.prompt : flags.context;
  if (!flags.prompt_rows.empty()) request.prompt_rows = flags.prompt_rows;
  request.host = flags.host == "native" ? PlanHost::native : PlanHost::published;
  request.profile =
      flags.profile == "balanced" ? PlatformProfile::balanced : PlatformProfile::performance;
  return request;
}

std::vector<PlanRow> plan_rows(const PlanFlags& flags) {
  const PlanRequest request = plan_request(flags);
  npu_machine(flags.machine);
  std::vector<PlanRow> rows;
  for (const PlanOption& option : plan_options()) {
    if (!flags.kernels.empty() && kernel_set_by_name(flags.kernels) != option.kernels) continue;
    if (!flags.fusion.empty() && *fusion_from_name(flags.fusion) != option.fusion) continue;
    rows.push_back(what_if(request, option));
  }
  if (rows.empty())
    throw Error(ErrorCode::usage, "--fusion " + flags.fusion, "does not exist for " + flags.kernels,
                "air-bf16 runs per op or block, air-q4nx and flm-q4 per token");
  const bool has_images =
      std::ranges::any_of(rows, [](const PlanRow& r) { return r.prompt_rows > 0; });
  if (!flags.prompt_rows.empty() && !has_images)
    throw Error(ErrorCode::usage, "--prompt-rows",
                "is of no use to kernels without a fixed number of rows",
                "air-bf16 per block and air-q4nx have one");
  return rows;
}

std::string json_text(const std::vector<PlanRow>& rows) {
  ordered_json json = ordered_json::array();
  for (const PlanRow& row : rows)
    json.push_back({{"machine", row.machine},
                    {"shape", row.shape},
                    {"kernels", row.kernels},
                    {"fusion", row.fusion},
                    {"prompt_tokens", row.prompt_tokens},
                    {"context_tokens", row.context_tokens},
                    {"prompt_rows", row.prompt_rows},
                    {"ttft_ms", row.ttft_ms},
                    {"published_ttft_ms", row.published_ttft_ms},
                    {"prefill_tok_s", row.prefill_tok_s},
                    {"tpot_ms", row.tpot_ms},
                    {"decode_tok_s", row.decode_tok_s},
                    {"dispatches_per_token", row.dispatches_per_token},
                    {"pinned_bytes", row.pinned_bytes},
                    {"images", row.images},
                    {"heap_bytes", row.heap_bytes},
                    {"bottleneck", row.bottleneck},
                    {"ttft_error_p90", row.ttft_error_p90},
                    {"tpot_error_p90", row.tpot_error_p90},
                    {"rel_error_p90", row.rel_error_p90},
                    {"note", row.note},
                    {"modelled", true}});
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

void print_table(const std::vector<PlanRow>& rows, const PlanFlags& flags) {
  const PlanRow& first = rows.front();
  print(
      fmt::format("{} on {}: prompt {}, context {}, {} host, profile {}\n"
                  "Modelled, not measured: fitted to published runs on other machines.\n\n",
                  first.shape, first.machine, first.prompt_tokens, first.context_tokens, flags.host,
                  flags.profile));
  print(
      fmt::format("{:<9} {:<6} {:>5} {:>9} {:>5} {:>9} {:>9} {:>5} {:>8} {:>10} {:>10} {:>8}  {}\n",
                  "kernels", "fusion", "rows", "TTFT ms", "±", "tok/s", "TPOT ms", "±", "tok/s",
                  "dispatches", "pinned", "heap", "bottleneck"));
  for (const PlanRow& row : rows) {
    print(fmt::format(
        "{:<9} {:<6} {:>5} {:>9.1f} {:>4.0f}% {:>9.1f} {:>9.2f} {:>4.0f}% {:>8.2f} {:>10} {:>10} "
        "{:>8}  {}\n",
        row.kernels, row.fusion, row.prompt_rows == 0 ? "any" : std::to_string(row.prompt_rows),
        row.ttft_ms, row.ttft_error_p90 * 100, row.prefill_tok_s, row.tpot_ms,
        row.tpot_error_p90 * 100, row.decode_tok_s, row.dispatches_per_token,
        human_bytes(row.pinned_bytes), row.images == 0 ? "-" : "~" + human_bytes(row.heap_bytes),
        row.bottleneck));
    if (row.published_ttft_ms > 0 && row.published_ttft_ms != row.ttft_ms)
      print(fmt::format("{:<16} {:>15.1f} ms by MLIR-AIR's host and images of 2048 rows\n", "",
                        row.published_ttft_ms));
    if (!row.note.empty()) print(fmt::format("{:<16} {}\n", "", row.note));
  }
  print(
      "\nrows: of the images that run the prompt. ±: nine of ten errors on rows that were not "
      "fitted "
      "are\nsmaller; those of parts are added, and widened for machines that were not measured.\n"
      "heap: of the device's 64 MiB (512 where the driver lets it grow), a run of each image. By\n"
      "an assumed size: no compiled image was at hand when this was written.\n");
}

}  // namespace

std::string plan_json(const std::string& model) {
  std::vector<PlanRow> rows;
  for (const char* machine : {"strix", "strix-halo", "krackan"}) {
    PlanFlags flags;
    flags.model.model = model;
    flags.machine = machine;
    for (PlanRow& row : plan_rows(flags)) rows.push_back(std::move(row));
  }
  return json_text(rows);
}

void define_plan(CommandLine& command) {
  PlanFlags& flags = command.values<PlanFlags>();
  const Rules shown{.shows_default = true};
  add_model_flag(command, flags.model);
  command.add({
      {"--shape", &flags.shape, "TEXT", "a public model's shape instead of a file"},
      {"--machine", &flags.machine, "TEXT", "strix, strix-halo or krackan",
       Rules{.required = true}},
      {"--kernels", &flags.kernels, "TEXT", "air-bf16, air-q4nx or flm-q4; all without it"},
      {"--fusion", &flags.fusion, OneOf{"op", "block", "token"},
       "op, block or token; all without it"},
      {"--prompt", &flags.prompt, "UINT", "tokens of the prompt", shown},
      {"--context", &flags.context, "UINT",
       "live positions while decoding; the prompt's length without it"},
      {"--prompt-rows", &flags.prompt_rows, "N,N,...",
       "rows of the prefill images, of which the smallest that holds the prompt runs it; 2048 "
       "without it",
       Rules{.separator = ','}},
      {"--host", &flags.host, OneOf{"published", "native"},
       "published: as others measured; native: Tyto's", shown},
      {"--profile", &flags.profile, OneOf{"performance", "balanced"},
       "platform profile: performance or balanced", shown},
      {"--json", &flags.json, "print an array of rows"},
  });
  command.footer =
      "Everything printed is modelled; docs/cost-model.md says from what, and how well.";
  command.run = [&flags] {
    const std::vector<PlanRow> rows = plan_rows(flags);
    flags.json ? print(json_text(rows)) : print_table(rows, flags);
  };
}

}  // namespace tyto
