#include "hub/pull.h"
#include "base/spelling.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/machine.h"
#include "base/redaction.h"
#include "cli/commands.h"
#include "model/stores/recommended_models.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

struct PullFlags {
  std::string name;
  std::string revision = "main";
  bool dry_run = false;
  uint32_t timeout = 30;
  uint32_t retries = 5;
};

// Ctrl-C ends the program after a word about what was fetched; a second one at once.
std::atomic<bool> pull_interrupted = false;

void catch_interrupt() {
  struct sigaction action = {};
  action.sa_handler = [](int) { pull_interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
}

std::string rate_text(uint64_t bytes, double seconds) {
  if (bytes == 0) return "all of it was there already";
  return fmt::format("{} fetched in {:.1f} s, {}/s", human_bytes(bytes), seconds,
                     human_bytes(static_cast<uint64_t>(static_cast<double>(bytes) / seconds)));
}

void print_plan(const PullPlan& plan) {
  Table table{.id = "files",
              .title = fmt::format("{} at {}", plan.repo, plan.commit),
              .columns = {{"file", false}, {"size"}, {"there already"}}};
  for (const auto& [file, there] : plan.files)
    table.rows.push_back({{file.path, human_bytes(file.size),
                           there == 0           ? ""
                           : there == file.size ? "all"
                                                : human_bytes(there)}});
  table.rows.push_back({{"total", human_bytes(plan.bytes), human_bytes(plan.bytes - plan.missing)},
                        RowStyle::total});
  table.notes = {fmt::format("{} to fetch into {}, where {} are free", human_bytes(plan.missing),
                             plan.cache.string(), human_bytes(plan.free))};
  print_coloured(to_text(table, stdout_style()));
}

// A model's name, where that leads to this revision, and else its path; nothing for other files.
std::string next_command(const RepoName& name, const PullPlan& plan) {
  if (plan.files.size() == 1 && plan.model.extension() != ".gguf") return "";
  const std::string model = name.asked.empty() ? name.repo : name.repo + ":" + name.asked;
  return fmt::format("Next: tyto run {} \"Hello\"\n",
                     shell_word(plan.revision == "main" ? model : plan.model.string()));
}

void list_recommended(const PullFlags& flags) {
  if (flags.dry_run || flags.revision != "main")
    throw Error(ErrorCode::usage, flags.dry_run ? "--dry-run" : "--revision",
                "has no effect without the name of a model");
  print(recommendation_text(recommendations(), machine_facts().memory_bytes));
}

void run_pull(const PullFlags& flags) {
  std::error_code error;
  if (std::filesystem::exists(flags.name, error))
    throw Error(ErrorCode::usage, flags.name, "is on this machine already",
                fmt::format("tyto run {}", shell_word(flags.name)));
  Hub hub = hub_of_environment();
  const RepoName name = parse_repo_name(flags.name, hub.endpoint);
  hub.user_agent = std::string("tyto/") + TYTO_VERSION;
  hub.timeout = std::chrono::seconds(flags.timeout);
  hub.retries = flags.retries;

  DownloadMeter meter;
  const HubHooks hooks{.progress = [&](std::string_view what, uint64_t done,
                                       uint64_t total) { meter.show(what, done, total); },
                       .note =
                           [&](const std::string& line) {
                             meter.clear();
                             note(line);
                           },
                       .is_interrupted = [] { return pull_interrupted.load(); }};
  catch_interrupt();
  try {
    meter.say(fmt::format("asking {} for {}", redacted(hub.endpoint), name.repo));
    const PullPlan plan =
        plan_pull(hub, name, name.revision.empty() ? flags.revision : name.revision, hooks);
    meter.clear();
    if (flags.dry_run) return print_plan(plan);
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t fetched = pull(hub, plan, hooks);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    meter.clear();
    print(fmt::format("{}\n{}, {}\n{}", plan.model.string(), human_bytes(plan.bytes),
                      rate_text(fetched, time.count()), next_command(name, plan)));
  } catch (const PullInterrupted&) {
    hooks.note("stopped; what was fetched is kept, and the same command goes on from there");
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);
  } catch (...) {
    meter.clear();
    throw;
  }
}

}  // namespace

void define_pull(CommandLine& command) {
  auto& flags = command.values<PullFlags>();
  command.add({
      {"name", &flags.name, "ORG/REPO[:FILE|:QUANT]",
       "a repository on the hub or its address, and one of its files or a type such as Q4_K_M; "
       "without it: models to begin with"},
      {"--revision",
       &flags.revision,
       "REV",
       "branch, tag or commit of the repository",
       {.shows_default = true}},
      {"--dry-run", &flags.dry_run, "list files and sizes without downloading"},
      {"--timeout",
       &flags.timeout,
       "SECONDS",
       "time after which a silent connection is closed",
       {.range = Range{1, 3600}, .shows_default = true}},
      {"--retries",
       &flags.retries,
       "N",
       "times a broken download is resumed without progress",
       {.range = Range{0, 100}, .shows_default = true}},
  });
  command.footer =
      "Files go into the Hugging Face cache, where other programs find them, too. Without a colon "
      "Tyto takes the safetensors checkpoint, else the only GGUF file, else that of type Q4_K_M or "
      "Q8_0.\n\n"
      "HF_ENDPOINT names the hub (default: https://huggingface.co); HF_TOKEN is sent only to it. "
      "HF_HUB_CACHE or HF_HOME names the cache. Files are checked against the hub's hashes.\n\n"
      "Examples:\n"
      "  tyto pull\n"
      "  tyto pull bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M\n"
      "  tyto pull Qwen/Qwen3-0.6B --dry-run\n";
  command.run = [&flags] { flags.name.empty() ? list_recommended(flags) : run_pull(flags); };
}

}  // namespace tyto
