#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/spelling.h"
#include "bench/calibrate.h"
#include "cli/bench/bench_flags.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/npu_entry.h"
#include "device/npu/store/kernel_store.h"
#include "engine/engine.h"
#include "model/synth.h"
#include "plan/plan_table.h"
#include "plan/rates.h"
#include "plan/what_if.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/help.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

// `--draft`: a small model on the processor that guesses for the one on the NPU.
struct PlanDraftFlags {
  std::string model;  // a file or a name
  std::string shape;  // instead of one
  std::optional<double> ms;
  std::optional<double> acceptance;

  bool is_asked() const { return !model.empty() || !shape.empty(); }
};

std::vector<PlanRow> rows_of_this_cpu(const PlanRequest& request, const std::string& model) {
  EngineOptions options;
  options.model = model;
  return cpu_rows(request, bench_setup(std::move(options)), progress_bar(),
                  // A bar over one repetition would stand at 0 % until the end.
                  [] { announce("measuring the cpu"); });
}

constexpr double kAcceptances[] = {0.5, 0.6, 0.7, 0.8, 0.9};

// The draft decodes as many positions as the large model.
PlanRequest draft_request(const PlanRequest& request, const PlanDraftFlags& flags) {
  PlanRequest draft = request;
  set_model(draft, flags.shape, flags.model);
  return draft;
}

DraftSpeed draft_speed(const PlanRequest& draft, const PlanDraftFlags& flags, bool may_measure) {
  if (flags.ms) return {draft.shape, *flags.ms, PlanKind::measured, true};
  if (!may_measure)
    throw Error(ErrorCode::usage, "--no-measure", "leaves the draft model's speed unknown",
                "give --draft-ms");
  const PlanRow row = rows_of_this_cpu(draft, flags.model).front();
  return {fmt::format("{} {}", draft.shape, row.weights), row.tpot_ms, row.kind};
}

void add_plan_draft_flags(CommandLine& command, PlanDraftFlags& flags) {
  const std::vector<std::string> drafts = {"--draft", "--draft-shape"};
  command.add(
      "Draft model",
      {{"--draft", &flags.model, "MODEL",
        "estimate the speed-up if MODEL drafts tokens on the CPU for the model on the NPU"},
       {"--draft-shape", &flags.shape, "NAME", "use the shape of a public model as the draft model",
        Rules{.excludes = {"--draft"}}},
       {"--draft-ms", &flags.ms, "MS",
        "milliseconds per token of the draft model on the CPU (default: measured here)",
        Rules{.range = Range{0.001, 60'000}, .needs_one_of = drafts}},
       {"--acceptance", &flags.acceptance, "A",
        "share of drafted tokens that are accepted, as `tyto bench --draft` measures it (default: "
        "a table of 0.5 to 0.9)",
        Rules{.range = Range{0, 1}, .needs_one_of = drafts}}});
}

// Throws a usage Error where the two models have vocabularies of different sizes, or the draft's
// speed may not be measured and is not given.
DraftPlan draft_plan(const PlanRequest& request, const PlanOption& option,
                     const PlanDraftFlags& flags, bool may_measure) {
  const PlanRequest draft = draft_request(request, flags);
  if (draft.config.vocab != request.config.vocab)
    throw Error(ErrorCode::usage, flags.shape.empty() ? "--draft" : "--draft-shape",
                fmt::format("{} has a vocabulary of {}, and {} has one of {}", draft.shape,
                            draft.config.vocab, request.shape, request.config.vocab),
                "a draft model drafts tokens of the same vocabulary");
  check(draft);
  const PlanRow plain = what_if(request, option);
  DraftPlan plan{.draft = draft_speed(draft, flags, may_measure),
                 .kernels = plain.kernels,
                 .fusion = plain.fusion,
                 .has_acceptance = flags.acceptance.has_value()};
  const std::vector<double> acceptances =
      flags.acceptance ? std::vector{*flags.acceptance}
                       : std::vector<double>(std::begin(kAcceptances), std::end(kAcceptances));
  plan.rows = draft_rows(request, option, plan.draft, acceptances);
  return plan;
}

struct PlanFlags {
  std::string model;
  std::string shape;
  std::string machine;
  std::string kernels;
  std::optional<Fusion> fusion;
  std::string host = "published";
  std::string profile = "performance";
  std::string decode_images = "windows";
  uint32_t prompt = 2048;
  uint32_t context = 0;
  std::vector<uint32_t> prompt_rows;
  bool no_measure = false;
  JsonFlag json;
  PlanDraftFlags draft;
};

constexpr const char* kMachineOtherwise = "strix";

PlanRequest plan_request(const PlanFlags& flags) {
  PlanRequest request;
  set_model(request, flags.shape, flags.model);
  request.prompt_tokens = flags.prompt;
  request.context_tokens = flags.context == 0 ? flags.prompt : flags.context;
  if (!flags.prompt_rows.empty()) request.prompt_rows = flags.prompt_rows;
  request.host = flags.host == "native" ? PlanHost::native : PlanHost::published;
  request.decode_elf = flags.decode_images == "elf";
  request.profile =
      flags.profile == "balanced" ? PlatformProfile::balanced : PlatformProfile::performance;
  return request;
}

// The NPU's option, for a model whose guesses the processor makes.
PlanOption drafted_option(const PlanFlags& flags) {
  const KernelSet kernels =
      flags.kernels.empty() ? KernelSet::air_q4nx : kernel_set_by_name(flags.kernels);
  const Fusion otherwise = kernels == KernelSet::air_bf16 ? Fusion::block : Fusion::token;
  return {kernels, flags.fusion.value_or(otherwise)};
}

void check_flags(const PlanFlags& flags) {
  if (flags.kernels != "cpu") return;
  if (flags.draft.is_asked())
    throw Error(ErrorCode::usage, "--kernels cpu", "is not planned with a draft model",
                "`tyto bench --draft` measures one on the cpu");
  for (const auto& [is_given, flag] : {std::pair(flags.fusion.has_value(), "--fusion"),
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
  if (!flags.model.empty()) subject.model_flag = "-m " + shell_word(flags.model) + " ";
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
    rows = npu_rows(request, {flags.kernels, flags.fusion, !flags.prompt_rows.empty()},
                    is_usable ? images_here(default_kernel_store(), request.config) : ImagesHere{});
  const bool names_kernels = !flags.kernels.empty() || flags.fusion.has_value();
  if (flags.kernels == "cpu" || (!names_kernels && !flags.no_measure))
    std::ranges::move(rows_of_this_cpu(request, flags.model), std::back_inserter(rows));
  std::vector<std::string> machines = {kThisMachine};
  if (subject.is_elsewhere) machines = {request.machine};
  if (is_usable) machines.push_back(here);
  const uint64_t most_pinned = is_usable ? pinnable_bytes() : UINT64_MAX;
  for (PlanRow& row : rows) say_what_fits(row, most_pinned);
  recommend(rows, machines, most_pinned);
  if (flags.json.is_given() && put_json(flags.json, plan_json(rows, request))) return;
  Table table = plan_table(rows, subject);
  for (std::string& text : table.notes) text = with_documents_found(text);
  print_coloured(to_text(table, stdout_style()));
}

}  // namespace

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
      {"--fusion", fusion_target(flags.fusion), OneOf{"op", "block", "token"},
       "how much one dispatch computes (default: all three)"},
      {"--prompt-tokens", &flags.prompt, "N", "length of the prompt in tokens",
       Rules{.shows_default = true, .alias = "--prompt"}},
      {"-c,--context", &flags.context, "N",
       "tokens in the KV cache while decoding (default: the prompt's length)"},
      {"--prompt-rows", &flags.prompt_rows, "N,N,...",
       "rows of the prefill images; the smallest that holds the prompt is used (default: 2048)",
       Rules{.separator = ','}},
      {"--decode-images", &flags.decode_images, OneOf{"windows", "elf"},
       "form of air-q4nx's decode: windows of several lengths, or one ELF for all",
       Rules{.shows_default = true}},
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
