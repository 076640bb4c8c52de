#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/redaction.h"
#include "base/utf8.h"
#include "cli/answer_text.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/prompt.h"
#include "cli/provenance.h"
#include "engine/engine.h"
#include "engine/generate.h"
#include "engine/recording.h"
#include "evidence/receipt_json.h"
#include "report/report.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"
#include "trace/profile.h"

namespace tyto {
namespace {

constexpr uint64_t kMaxProfileBytes = uint64_t{1} << 30;

struct ProfileFlags {
  EngineChoice engine;
  SamplingFlags sampling;
  SpeculationFlags speculation;
  PromptFlags prompt;
  uint32_t repetitions = 1;
  std::vector<uint32_t> sweep;
  JsonFlag json;
  std::string html, perfetto, receipt;
  bool force = false;
  std::string sign;
  std::string from;
  std::vector<std::string> diff;
};

// One request, recorded. `text` gets the answer; nothing is shown before its receipt is known, and
// nothing is drawn meanwhile.
ProfileRun record_once(Engine& engine, const ProfileFlags& flags, const SamplerOptions& sampling,
                       const OpenSpeculation& speculation, std::string& text) {
  Sampler sampler(sampling);
  // The prompt's length decides how much is recorded, so it is tokenized once before.
  const ModelPrompt before = model_prompt(flags.prompt, engine);
  const auto guesses = speculation.begin_request();
  AnswerText shown(engine.tokenizer(), before.chat, false);
  std::vector<Token> markers;
  if (!before.chat.empty()) markers = special_thought_markers(engine.tokenizer());
  start_recording(engine, before.tokens.size(), flags.sampling.max_tokens,
                  guesses ? Decoding::speculative : Decoding::plain);
  const ModelPrompt prompt = model_prompt(flags.prompt, engine);
  Request request{.prompt = prompt.tokens,
                  .max_tokens = flags.sampling.max_tokens,
                  .stop = flags.sampling.stop,
                  .ignore_eos = flags.sampling.ignore_eos,
                  .shown_special = std::move(markers),
                  .continues_text = prompt.continues_text,
                  .speculation = guesses};
  const auto keep = [&](std::string_view piece) {
    text += shown.push(piece).shown;
    return true;
  };
  const Answer answer = generate(engine.generator_from_nothing(), sampler, request, keep);
  text += shown.finish().shown;
  engine.trace().stop();
  engine.check_required(answer.receipt.phases);
  ProfileRun run = collect_run(engine.trace(), answer.receipt);
  engine.complete(run.receipt);
  run.stopped = name(answer.reason);
  return run;
}

Profile record_prompt(const ProfileFlags& flags) {
  Engine engine(flags.engine.options, progress_bar());
  const OpenSpeculation speculation(flags.speculation, engine, flags.engine.options);
  const SamplerOptions sampling = sampler_options(flags.sampling, engine.model());
  announce("measuring the cpu");
  Profile profile = profile_of(engine, sampling, PeakSource::measured);
  note_idle_chat_flags(flags.prompt, engine);
  for (uint32_t i = 0; i < flags.repetitions; ++i) {
    std::string text;
    announce(fmt::format("recording run {} of {}", i + 1, flags.repetitions));
    profile.runs.push_back(record_once(engine, flags, sampling, speculation, text));
    profile.runs.back().answer = redacted(text);
    if (i == 0 && !flags.json.is_for_stdout()) {
      AnswerPrinter printer;
      printer.show(only_text(text) + "\n");
      printer.end();
    }
  }
  profile.names = engine.trace().names();
  profile.facts.origin = receipt_context(engine);
  profile.facts.prompt = redacted(flags.prompt.prompt);
  if (sampling.temperature > 0) note(fmt::format("seed {}", sampling.seed));
  return profile;
}

Profile record_sweep(const ProfileFlags& flags) {
  Engine engine(flags.engine.options, progress_bar());
  announce("measuring the cpu");
  Profile profile = profile_of(engine, {.temperature = 0}, PeakSource::measured);
  for (const uint32_t length : flags.sweep) {
    announce(fmt::format("recording a prompt of {}", length));
    profile.sweep.push_back(
        record_sweep_row(engine, length, flags.sampling.max_tokens, flags.repetitions));
  }
  profile.names = engine.trace().names();
  profile.facts.origin = receipt_context(engine);
  return profile;
}

Profile read_profile(const std::string& path) {
  return profile_from_json(read_text_file(path, kMaxProfileBytes), path);
}

struct ReportFiles {
  explicit ReportFiles(const ProfileFlags& flags)
      : json(flags.json.path(), kProfileFile, flags.force),
        page(flags.html, kProfilePage, flags.force),
        perfetto(flags.perfetto, kPerfettoFile, flags.force),
        receipt(flags.receipt, kReceiptFile, flags.force) {}

  OutputFile json, page, perfetto, receipt;
};

void write_reports(const Profile& profile, ReportFiles& files) {
  if (files.json.is_wanted()) files.json.write(json_report(profile));
  if (files.page.is_wanted()) files.page.write(html_report(profile));
  if (!files.perfetto.is_wanted() && !files.receipt.is_wanted()) return;
  if (profile.runs.empty())  // --from a sweep
    throw Error(ErrorCode::usage, files.perfetto.is_wanted() ? "--perfetto" : "--receipt",
                "there is no single run in a sweep");
  const ProfileRun& run = typical_run(profile);
  if (files.perfetto.is_wanted()) files.perfetto.write(perfetto_report(profile, run));
  if (files.receipt.is_wanted())
    files.receipt.write(receipt_json(run.receipt, profile.facts.origin));
}

void check_flags(const CommandLine& command, const ProfileFlags& flags) {
  if (!flags.diff.empty())
    return refuse_idle_flags(command, "--diff", [](const Flag&) { return false; });
  if (!flags.from.empty())
    return refuse_idle_flags(command, "--from",
                             [](const Flag& flag) { return flag.group == "Reports"; });
  check_sign_flag(command, {"--json", "--receipt"});
  if (flags.sweep.empty()) return;
  if (flags.sampling.max_tokens == kNoLimit)
    throw Error(ErrorCode::usage, "--tokens -1", "rows of a sweep are compared with each other",
                "give a number of tokens with -n");
  // A sweep makes up its own prompts, and there is no single run to write down.
  const std::set<std::string> of_one_answer = {"text",      "--prompt",   "--file",
                                               "--raw",     "--system",   "--chat-template",
                                               "--special", "--perfetto", "--receipt"};
  refuse_idle_flags(command, "--sweep", [&](const Flag& flag) {
    return flag.name() == "--tokens" || (flag.group != "Sampling" && flag.group != "Speculation" &&
                                         !of_one_answer.contains(flag.name()));
  });
}

std::vector<Flag> report_flags(ProfileFlags& flags) {
  return {
      json_flag(flags.json, "print the profile as JSON, or write it to FILE for --diff"),
      {"--html", &flags.html, "FILE", "write an HTML page with drawings and tables"},
      {"--perfetto", &flags.perfetto, "FILE", "write a trace for ui.perfetto.dev"},
      {"--receipt", &flags.receipt, "FILE", "write the receipt as JSON to FILE"},
      force_flag(flags.force, {"--json", "--html", "--perfetto", "--receipt"}),
      {"--from", &flags.from, "FILE", "show a profile that --json wrote; runs nothing"},
      {"--diff", &flags.diff, "A B", "compare two profiles that --json wrote", Rules{.count = 2}},
  };
}

void profile_command(const CommandLine& command, ProfileFlags& flags) {
  if (!flags.diff.empty()) {
    std::string out;
    for (const Table& table : diff_tables(read_profile(flags.diff[0]), read_profile(flags.diff[1])))
      out += (out.empty() ? "" : "\n") + to_text(table, stdout_style());
    return print_coloured(out);
  }
  const auto key = signing_key(flags.sign);  // before any work
  ReportFiles files(flags);
  Profile profile;
  if (!flags.from.empty()) {
    profile = read_profile(flags.from);
  } else if (!flags.sweep.empty()) {
    settle_engine(command, flags.engine,
                  {.prompt_tokens = *std::ranges::max_element(flags.sweep),
                   .generated_tokens = flags.sampling.max_tokens});
    profile = record_sweep(flags);
  } else {
    read_prompt(command, flags.prompt);
    settle_engine(command, flags.engine,
                  {.prompt_tokens = about_tokens(flags.prompt.prompt.size()),
                   .generated_tokens = flags.sampling.max_tokens});
    profile = record_prompt(flags);
  }
  profile.facts.origin.key = key.get();
  write_reports(profile, files);
  if (flags.json.is_for_stdout())
    print(json_report(profile));
  else
    print_coloured(text_report(profile, stdout_style()));
}

}  // namespace

void define_profile(CommandLine& command) {
  ProfileFlags& flags = command.values<ProfileFlags>();
  flags.sampling.max_tokens = 30;
  add_prompt_flags(command, flags.prompt);
  command.add({
      {"-r,--repetitions", &flags.repetitions, "N", "times that the request runs",
       Rules{.range = Range{1, 1000}, .shows_default = true}},
      {"--sweep", &flags.sweep, "N,...", "compare these prompt lengths; takes no prompt",
       Rules{.range = Range{1, 1 << 24}, .separator = ','}},
      sign_flag(flags.sign),
  });
  command.add("Reports", report_flags(flags));
  for (const char* without_prompt : {"--sweep", "--from", "--diff"})
    command.flag("text").rules.filled_by.emplace_back(without_prompt);
  add_engine_flags(command, flags.engine);
  add_sampling_flags(command, flags.sampling);
  add_speculation_flags(command, flags.speculation);
  command.footer =
      "Prints the answer and where its time went. A virtual device's time is modelled.\n\n"
      "Examples:\n"
      "  tyto profile 'Tell me a story about a fox.' --html profile.html\n"
      "  tyto profile --device vnpu --sweep 13,128,512,1024 -n 40\n"
      "  tyto profile Hello -r 5 --json after.json\n"
      "  tyto profile --diff before.json after.json";
  command.first = {"--model",  "--prompt",  "--file",     "--tokens", "--temp",        "--seed",
                   "--device", "--threads", "--context",  "--fusion", "--repetitions", "--sweep",
                   "--html",   "--json",    "--perfetto", "--diff",   "--force"};
  command.run = [&command, &flags] {
    settle_words(command, flags.prompt, flags.engine.options.model);
    check_flags(command, flags);
    profile_command(command, flags);
  };
}

}  // namespace tyto
