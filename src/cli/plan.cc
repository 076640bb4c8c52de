#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json_value.h"
#include "base/spelling.h"
#include "cli/bench/bench_flags.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/plan_table.h"
#include "device/cpu/measured_peak.h"
#include "device/npu/formats/memory_plan.h"
#include "device/npu/npu_entry.h"
#include "device/npu/store/kernel_store.h"
#include "engine/engine.h"
#include "model/description.h"
#include "model/model.h"
#include "model/stores/stores.h"
#include "model/synth.h"
#include "plan/rates.h"
#include "plan/what_if.h"
#include "report/tables.h"
#include "shell/command_line.h"
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

struct DraftPlan {
  DraftSpeed draft;
  std::string kernels, fusion;      // for the large model
  bool has_acceptance = false;      // else rows are of several that it might be
  std::vector<DraftRow> rows = {};  // all of them
};

// What the processor of this machine does with a model is measured in a few seconds. A first,
// short run warms up and says how much can be run in about a second.
const BenchTest kFirst = {.prompt = 16, .generate = 2};
constexpr uint32_t kMostPrompt = 512, kMeasuredTokens = 32;
constexpr double kSeconds = 1;

uint32_t count_in(double seconds, const PhaseSpeed& speed, uint32_t least, uint32_t most) {
  const double count = speed.seconds > 0 ? seconds / speed.seconds * speed.tokens : most;
  return std::max(least, static_cast<uint32_t>(std::min<double>(count, most)));
}

// Short contexts have room for less.
BenchTest within(BenchTest test, uint32_t context) {
  test.generate = std::min(test.generate, context / 2);
  test.prompt = std::min(test.prompt, context - test.generate);
  return test;
}

PlanRow measured(const PlanRequest& request, const std::string& model) {
  const uint32_t context = request.config.context;
  const BenchTest first = within(kFirst, context);
  const BenchTest longest = within(
      {.prompt = std::clamp(request.prompt_tokens, 1u, kMostPrompt), .generate = kMeasuredTokens},
      context);
  EngineFlags flags;
  flags.model.model = model;
  BenchSetup setup = bench_setup(flags);
  setup.positions = std::max(first.positions(), longest.positions());
  BenchEngine bench = open_bench_engine(setup, progress_bar());
  announce("measuring the cpu");  // a bar over one repetition would stand at 0 % until the end
  const BenchOptions once{.repetitions = 1, .warm_up = false};
  const BenchRow tried = measure(bench, first, once);
  BenchTest test = longest;
  test.prompt = count_in(kSeconds, phase_speed(tried, Phase::prefill), 1, longest.prompt);
  test.generate = count_in(kSeconds, phase_speed(tried, Phase::decode), 1, longest.generate);
  const BenchRow row = measure(bench, test, once);
  return measured_on_cpu(request, {.threads = row.facts.threads,
                                   .prompt_tokens = test.prompt,
                                   .generated_tokens = test.generate,
                                   .prefill_seconds = row.receipt.prefill_seconds,
                                   .decode_seconds = row.receipt.decode_seconds});
}

std::vector<PlanRow> estimated(const PlanRequest& request) {
  ThreadPool pool;
  const cpu::InnerLoops& loops = cpu::chosen_inner_loops("");
  announce("measuring the cpu");
  const cpu::MeasuredPeak peak = cpu::measure_peak(loops, pool);
  std::vector<PlanRow> rows;
  for (const DType type : {DType::q4_0, DType::bf16})
    rows.push_back(
        estimated_on_cpu(request, type,
                         {.threads = pool.threads(),
                          .read_gb_s = peak.read_gb_per_s,
                          .gflops = cpu::arithmetic_peak(peak, loops, type).gflop_per_s}));
  return rows;
}

// One row of a model that has weights, as its file has them. Of a shape, rows of the types that
// most people download.
std::vector<PlanRow> cpu_rows(const PlanRequest& request, const std::string& model) {
  return request.file ? std::vector{measured(request, model)} : estimated(request);
}

constexpr double kAcceptances[] = {0.5, 0.6, 0.7, 0.8, 0.9};

// The draft decodes as many positions as the large model.
PlanRequest draft_request(const PlanRequest& request, const PlanDraftFlags& flags) {
  PlanRequest draft = request;
  draft.file.reset();
  if (!flags.shape.empty()) {
    draft.config = shape_by_name(flags.shape);
    draft.shape = draft.config.name;
  } else {
    const Model model = open_model(find_model(flags.model));
    draft.config = model.config;
    draft.file =
        FileWeights{main_weight_type(model), model.weight_bytes(), false, describe(model).type};
    draft.shape = model.config.name.empty() ? flags.model : model.config.name;
  }
  return draft;
}

DraftSpeed draft_speed(const PlanRequest& draft, const PlanDraftFlags& flags, bool may_measure) {
  if (flags.ms) return {draft.shape, *flags.ms, PlanKind::measured, true};
  if (!may_measure)
    throw Error(ErrorCode::usage, "--no-measure", "leaves the draft model's speed unknown",
                "give --draft-ms");
  const PlanRow row = cpu_rows(draft, flags.model).front();
  return {fmt::format("{} {}", draft.shape, row.weights), row.tpot_ms, row.kind};
}

// At best, of an estimated draft.
std::string bounded(const std::string& text, const DraftPlan& plan) {
  return (plan.draft.kind == PlanKind::estimated ? "≤ " : "") + text;
}

TableRow table_row(const DraftRow& row, const DraftPlan& plan) {
  const bool pays = row.ratio > 1;
  return {{fmt::format("{:.2f}", row.acceptance), std::string(name(row.way)),
           std::to_string(row.guesses), "modelled",
           bounded(fmt::format("{:.1f} ± {:.0f} %", row.decode_tok_s, 100 * row.error_p90), plan),
           bounded(fmt::format("{:.2f} ± {:.0f} %", row.ratio, 100 * row.ratio_error_p90), plan),
           fmt::format("{:.1f}", row.check_ms),
           row.break_even_check_ms > 0 ? fmt::format("{:.1f}", row.break_even_check_ms) : "never",
           fmt::format("{:.2f}", row.tokens_per_round), fmt::format("{:.1f}", row.draft_ms),
           row.image_rows == 0 ? "1" : std::to_string(row.image_rows)},
          pays ? RowStyle::best : RowStyle::plain};
}

std::string about_the_draft(const DraftPlan& plan, const PlanSubject& subject) {
  const DraftSpeed& draft = plan.draft;
  if (draft.is_given)
    return fmt::format("A token of {} takes {:.2f} ms, as given.", draft.name, draft.tpot_ms);
  return fmt::format(
      "A token of {} takes {}{:.2f} ms, {} on the cpu of this machine{}.", draft.name,
      draft.kind == PlanKind::estimated ? "at least " : "", draft.tpot_ms, name(draft.kind),
      subject.is_elsewhere
          ? fmt::format("; {} has another one: --draft-ms takes its speed", subject.request.machine)
          : "");
}

std::string conclusion(const DraftPlan& plan) {
  const DraftRow* best = nullptr;
  for (const DraftRow& row : plan.rows)
    if (best == nullptr || row.ratio > best->ratio) best = &row;
  if (best->ratio <= 1)
    return fmt::format("No row is faster than plain decoding, {:.1f} tok/s.", best->plain_tok_s);
  return fmt::format(
      "The fastest row has {:.2f} times the speed of plain decoding, {:.1f} tok/s.{}", best->ratio,
      best->plain_tok_s,
      best->ratio - best->ratio * best->ratio_error_p90 <= 1 ? " That is within the error." : "");
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

Table draft_table(const DraftPlan& plan, const PlanSubject& subject) {
  const PlanRequest& request = subject.request;
  Table table{
      .id = "plan-draft",
      .title = fmt::format("{} with {} on {}, drafts of {}: context {}, {} host, profile {}",
                           request.shape, plan.kernels, request.machine, plan.draft.name,
                           request.context_tokens, subject.host, subject.profile),
      .columns = {{"acceptance"},
                  {"checked by", false},
                  {"drafted"},
                  {"numbers", false},
                  {"tok/s"},
                  {"of plain"},
                  {"check ms", true, 1},
                  {"pays below ms", true, 2},
                  {"tokens a round", true, 3},
                  {"draft ms", true, 4},
                  {"rows", true, 5}}};
  for (const DraftRow& row : plan.has_acceptance ? plan.rows : best_drafts(plan.rows))
    table.rows.push_back(table_row(row, plan));
  table.notes = {
      "", conclusion(plan), about_the_draft(plan, subject),
      "All of this is modelled, not measured. The decode's image takes one row, so it checks "
      "drafted tokens one by one, which gains nothing. The prompt's images compute all their rows, "
      "with "
      "bf16 weights, while the host attends to the cache. \"pays below\": drafting pays with a "
      "kernel that checks the drafted tokens in less time than this."};
  if (!plan.has_acceptance)
    table.notes.emplace_back(
        "Each row drafts the best number of tokens from 1 to 8. How many are accepted depends on "
        "the two models and on the text: `tyto bench --draft` measures it on the cpu, and "
        "--acceptance takes it.");
  return table;
}

std::string draft_json(const DraftPlan& plan, const PlanRequest& request) {
  JsonValue json = JsonValue::array();
  for (const DraftRow& row : plan.rows)
    json.push_back({{"kind", name(PlanKind::modelled)},
                    {"machine", request.machine},
                    {"shape", request.shape},
                    {"kernels", plan.kernels},
                    {"fusion", plan.fusion},
                    {"context_tokens", request.context_tokens},
                    {"draft", plan.draft.name},
                    {"draft_kind", plan.draft.is_given ? "given" : name(plan.draft.kind)},
                    {"draft_tpot_ms", plan.draft.tpot_ms},
                    {"acceptance", row.acceptance},
                    {"acceptance_given", plan.has_acceptance},
                    {"checked_by", name(row.way)},
                    {"image_rows", row.image_rows},
                    {"guesses", row.guesses},
                    {"tokens_per_round", row.tokens_per_round},
                    {"draft_ms", row.draft_ms},
                    {"check_ms", row.check_ms},
                    {"round_ms", row.round_ms},
                    {"break_even_check_ms", row.break_even_check_ms},
                    {"decode_tok_s", row.decode_tok_s},
                    {"plain_tok_s", row.plain_tok_s},
                    {"ratio", row.ratio},
                    {"error_p90", row.error_p90},
                    {"ratio_error_p90", row.ratio_error_p90}});
  return json.dump(2) + "\n";
}

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
