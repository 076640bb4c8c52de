#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/utc_time.h"
#include "cli/bench/results_ledger.h"
#include "cli/commands.h"
#include "cli/provenance.h"
#include "cli/terminal.h"

namespace tyto {
namespace {

using nlohmann::ordered_json;

struct SupersedeFlags {
  std::string id;
  std::string why;
  std::string by;
};

Ledger open_ledger() {
  const Ledger ledger = read_ledger(ledger_path());
  if (ledger.unreadable > 0)
    note(fmt::format("{}: {} line{} cannot be read and {} left alone (the first: {})",
                     ledger_path().string(), ledger.unreadable, ledger.unreadable == 1 ? "" : "s",
                     ledger.unreadable == 1 ? "is" : "are", ledger.first_problem));
  return ledger;
}

void list(bool all) {
  const Ledger ledger = open_ledger();
  if (ledger.entries.empty())
    return note(fmt::format("no results in {}; `tyto bench` adds some", ledger_path().string()));
  std::string out;
  size_t left_out = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    const std::string mark = superseded_mark(entry);
    if (!mark.empty() && !all) {
      ++left_out;
      continue;
    }
    out += fmt::format("{}  {}  {:<20}  {:<22}  {}  {}{}\n", entry.id.substr(0, 8), entry.date,
                       entry.test, entry.speed, entry.executed_on, entry.model,
                       mark.empty() ? "" : "  [" + mark + "]");
  }
  print(out);
  if (left_out > 0)
    note(fmt::format("{} superseded, not shown; --all shows {}", left_out,
                     left_out == 1 ? "it" : "them"));
}

void show(const std::string& id) {
  const Ledger ledger = open_ledger();
  const LedgerEntry& entry = find_result(ledger, id);
  ordered_json record = ordered_json::parse(entry.line);
  record["superseded"] = ordered_json::array();
  for (const Superseding& by : entry.superseded)
    record["superseded"].push_back(
        {{"date", by.date},
         {"by", by.by.empty() ? ordered_json(nullptr) : ordered_json(by.by)},
         {"why", by.why}});
  print(record.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  if (!entry.superseded.empty()) note(entry.id + ": " + superseded_mark(entry));
}

void supersede(const SupersedeFlags& flags) {
  const Ledger ledger = open_ledger();
  const LedgerEntry& entry = find_result(ledger, flags.id);
  if (flags.why.find_first_not_of(" \t\n") == std::string::npos)
    throw Error(ErrorCode::usage, "--why", "is empty", "say what was wrong with the number");
  std::string by;
  if (!flags.by.empty()) {
    const LedgerEntry& other = find_result(ledger, flags.by);
    if (other.id == entry.id)
      throw Error(ErrorCode::usage, "--by " + flags.by, "is the result itself");
    if (!other.superseded.empty())
      throw Error(ErrorCode::usage, "--by " + flags.by, "is superseded itself",
                  "name the result that counts now");
    by = other.id;
  }
  append_line(ledger_path(), supersede_line(entry.id, {utc_now(), flags.why, by}));
  note(fmt::format("{} ({}, {}) is superseded; the record of it stays", entry.id, entry.test,
                   entry.speed));
}

}  // namespace

void define_results(CLI::App& command) {
  command.require_subcommand(1);
  command.footer(
      "`tyto bench` keeps every row in $XDG_STATE_HOME/tyto/results.jsonl (default: "
      "~/.local/state).\nLines are only ever added. IDs may be shortened.\n\n"
      "Examples:\n  tyto results list\n  tyto results show 1a2b3c4d\n"
      "  tyto results supersede 1a2b3c4d --why 'measured on battery' --by 5e6f7a8b");
  CLI::App* lister = command.add_subcommand("list", "show the results that stand");
  auto all = std::make_shared<bool>(false);
  lister->add_flag("--all", *all, "superseded ones too, marked");
  lister->callback([all] { list(*all); });

  CLI::App* shower = command.add_subcommand("show", "everything that is kept of one, as JSON");
  auto id = std::make_shared<std::string>();
  shower->add_option("id", *id, "as the list or a table's receipt column shows it")
      ->type_name("ID")
      ->required();
  shower->callback([id] { show(*id); });

  CLI::App* superseder =
      command.add_subcommand("supersede", "say that a result no longer counts, and why");
  auto flags = std::make_shared<SupersedeFlags>();
  superseder->add_option("id", flags->id, "the result")->type_name("ID")->required();
  superseder->add_option("--why", flags->why, "the reason")->type_name("TEXT")->required();
  superseder->add_option("--by", flags->by, "the result that counts instead")->type_name("ID");
  superseder->callback([flags] { supersede(*flags); });
}

}  // namespace tyto
