#include "cli/plan.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/spelling.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/plan_cpu.h"
#include "cli/plan_draft.h"
#include "cli/plan_table.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/npu_entry.h"
#include "device/npu/store/kernel_store.h"
#include "model/description.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "model/synth.h"
#include "plan/rates.h"
#include "plan/what_if.h"
#include "shell/command_line.h"
#include "shell/json_flag.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

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
  bool no_measure = false;
  JsonFlag json;
  PlanDraftFlags draft;
};

constexpr const char* kMachineOtherwise = "strix";

FileWeights file_weights(const Model& model) {
  return {main_weight_type(model), model.weight_bytes(), model.format == "q4nx",
          describe(model).type};
}

PlanRequest plan_request(const PlanFlags& flags) {
  PlanRequest request;
  if (!flags.shape.empty()) {
    request.config = shape_by_name(flags.shape);
    request.shape = request.config.name;
  } else {
    const std::string path = model_or_shipped(flags.model);
    const Model model = open_model(find_model(path));
    request.config = model.config;
    request.file = file_weights(model);
    request.shape = model.config.name.empty() ? path : model.config.name;
  }
  request.prompt_tokens = flags.prompt;
  request.context_tokens = flags.context == 0 ? flags.prompt : flags.context;
  if (!flags.prompt_rows.empty()) request.prompt_rows = flags.prompt_rows;
  request.host = flags.host == "native" ? PlanHost::native : PlanHost::published;
  request.profile =
      flags.profile == "balanced" ? PlatformProfile::balanced : PlatformProfile::performance;
  return request;
}

// Rows for the machine that the request names.
std::vector<PlanRow> npu_rows(const PlanRequest& request, const PlanFlags& flags,
                              const ImagesHere& images) {
  npu_machine(request.machine);
  std::vector<PlanRow> rows;
  for (const PlanOption& option : plan_options()) {
    if (!flags.kernels.empty() && kernel_set_by_name(flags.kernels) != option.kernels) continue;
    if (!flags.fusion.empty() && *fusion_from_name(flags.fusion) != option.fusion) continue;
    rows.push_back(what_if(request, option));
    say_what_runs(rows.back(), option, request.config, images);
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

void recommend(std::vector<PlanRow>& rows, std::span<const std::string> machines,
               uint64_t most_pinned) {
  const auto best = best_row(rows, machines, most_pinned);
  if (!best) return;
  rows[*best].is_recommended = true;
  std::rotate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(*best),
              rows.begin() + static_cast<std::ptrdiff_t>(*best) + 1);
}

// The NPU's option, for a model whose guesses the processor makes.
PlanOption drafted_option(const PlanFlags& flags) {
  const KernelSet kernels =
      flags.kernels.empty() ? KernelSet::air_q4nx : kernel_set_by_name(flags.kernels);
  const Fusion otherwise = kernels == KernelSet::air_bf16 ? Fusion::block : Fusion::token;
  return {kernels, flags.fusion.empty() ? otherwise : *fusion_from_name(flags.fusion)};
}

void check_flags(const PlanFlags& flags) {
  if (flags.kernels != "cpu") return;
  if (flags.draft.is_asked())
    throw Error(ErrorCode::usage, "--kernels cpu", "is not planned with a draft model",
                "`tyto bench --draft` measures one on the cpu");
  for (const auto& [is_given, flag] : {std::pair(!flags.fusion.empty(), "--fusion"),
                                       std::pair(!flags.prompt_rows.empty(), "--prompt-rows"),
                                       std::pair(flags.no_measure, "--no-measure")})
    if (is_given)
      throw Error(ErrorCode::usage, flag, "is of no use with --kernels cpu",
                  "leave one of the two out");
}

void plan(const PlanFlags& flags) {
  check_flags(flags);
  PlanSubject subject{.request = plan_request(flags),
                      .host = flags.host,
                      .profile = flags.profile,
                      .is_of_a_shape = !flags.shape.empty()};
  check(subject.request);  // before anything is measured
  subject.here = npu_here("/");
  const std::string& here = subject.here.machine;
  subject.is_elsewhere = !flags.machine.empty() && flags.machine != here;
  if (!flags.model.model.empty()) subject.model_flag = "-m " + shell_word(flags.model.model) + " ";
  PlanRequest& request = subject.request;
  request.machine = !flags.machine.empty() ? flags.machine
                    : here.empty()         ? kMachineOtherwise
                                           : here;
  if (flags.draft.is_asked()) {
    const DraftPlan drafted =
        draft_plan(request, drafted_option(flags), flags.draft, !flags.no_measure);
    if (!flags.json.is_given() || !put_json(flags.json, draft_json(drafted, request)))
      print_coloured(to_text(draft_table(drafted, subject), stdout_style()));
    return;
  }
  const bool is_usable = !here.empty() && !subject.is_elsewhere && built_with_xrt();
  std::vector<PlanRow> rows;
  if (flags.kernels != "cpu")
    rows = npu_rows(request, flags,
                    is_usable ? images_here(default_kernel_store(), request.config) : ImagesHere{});
  const bool names_kernels = !flags.kernels.empty() || !flags.fusion.empty();
  if (flags.kernels == "cpu" || (!names_kernels && !flags.no_measure))
    std::ranges::move(cpu_rows(request, flags.model.model), std::back_inserter(rows));
  std::vector<std::string> machines = {kThisMachine};
  if (subject.is_elsewhere) machines = {request.machine};
  if (is_usable) machines.push_back(here);
  const uint64_t most_pinned = is_usable ? pinnable_bytes() : UINT64_MAX;
  for (PlanRow& row : rows) say_what_fits(row, most_pinned);
  recommend(rows, machines, most_pinned);
  if (!flags.json.is_given() || !put_json(flags.json, plan_json(rows, request)))
    print_coloured(to_text(plan_table(rows, subject), stdout_style()));
}

}  // namespace

std::string plan_json(const std::string& model) {
  PlanFlags flags;
  flags.model.model = model;
  PlanRequest request = plan_request(flags);
  std::vector<PlanRow> all;
  for (const NpuMachine& machine : npu_machines()) {
    request.machine = machine.name;
    std::vector<PlanRow> rows = npu_rows(request, flags, {});
    recommend(rows, std::vector{request.machine}, UINT64_MAX);
    std::ranges::move(rows, std::back_inserter(all));
  }
  return plan_json(all, request);
}

void define_plan(CommandLine& command) {
  PlanFlags& flags = command.values<PlanFlags>();
  const Rules shown{.shows_default = true};
  add_model_flag(command, flags.model);
  command.add({
      {"--shape", &flags.shape, "NAME",
       "plan for a public model's shape, such as llama-3.2-1b, instead of a file",
       Rules{.excludes = {"--model"}}},
      {"--machine", &flags.machine, "NAME",
       "plan for strix, strix-halo or krackan (default: this machine, or strix if it has no NPU)"},
      {"--kernels", &flags.kernels, "NAME",
       "plan for air-bf16, air-q4nx, flm-q4 or cpu (default: all)"},
      {"--fusion", &flags.fusion, OneOf{"op", "block", "token"},
       "how much one dispatch computes (default: all three)"},
      {"--prompt-tokens", &flags.prompt, "N", "length of the prompt in tokens",
       Rules{.shows_default = true, .alias = "--prompt"}},
      {"-c,--context", &flags.context, "N",
       "tokens in the KV cache while decoding (default: the prompt's length)"},
      {"--prompt-rows", &flags.prompt_rows, "N,N,...",
       "rows of the prefill images; the smallest that holds the prompt is used (default: 2048)",
       Rules{.separator = ','}},
      {"--overhead", &flags.host, OneOf{"published", "native"},
       "whose host overhead to assume: that of published runs, or Tyto's own",
       Rules{.shows_default = true, .alias = "--host"}},
      {"--profile", &flags.profile, OneOf{"performance", "balanced"},
       "power profile of the machine", shown},
      {"--no-measure", &flags.no_measure, "do not measure the CPU of this machine"},
  });
  add_json_flag(command, flags.json);
  add_plan_draft_flags(command, flags.draft);
  command.footer =
      "* marks the recommended row. CPU rows are measured here in a few seconds; NPU rows are "
      "estimates.\n\n"
      "docs/cost-model.md says how NPU rows are estimated, and how well that works.\n\n"
      "Shapes: " +
      joined(shape_names(), ", ") +
      ".\n\n"
      "Examples:\n"
      "  tyto plan -m model.gguf\n"
      "  tyto plan --shape llama-3.2-1b --machine krackan --prompt-tokens 512\n"
      "  tyto plan --shape llama-3.1-8b --draft-shape llama-3.2-1b --draft-ms 20";
  command.first = {"--model",      "--shape",         "--machine", "--kernels",
                   "--fusion",     "--prompt-tokens", "--context", "--profile",
                   "--no-measure", "--json",          "--draft"};
  command.run = [&flags] { plan(flags); };
}

}  // namespace tyto
