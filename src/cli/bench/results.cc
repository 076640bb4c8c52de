#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/printable.h"
#include "base/utc_time.h"
#include "cli/bench/results_ledger.h"
#include "cli/command_line.h"
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
    const std::string row = fmt::format("{}  {}  {:<20}  {:<22}  {}  {}{}", entry.id.substr(0, 8),
                                        entry.date, entry.test, entry.speed, entry.executed_on,
                                        entry.model, mark.empty() ? "" : "  [" + mark + "]");
    out += printable_line(row) + "\n";
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

void define_list(CommandLine& command) {
  bool& all = command.values<bool>();
  command.add({{"--all", &all, "superseded ones too, marked"}});
  command.run = [&all] { list(all); };
}

void define_show(CommandLine& command) {
  std::string& id = command.values<std::string>();
  command.add({{"id", &id, "ID", "as the list or a table's receipt column shows it",
                Rules{.required = true}}});
  command.run = [&id] { show(id); };
}

void define_supersede(CommandLine& command) {
  SupersedeFlags& flags = command.values<SupersedeFlags>();
  command.add({
      {"id", &flags.id, "ID", "the result", Rules{.required = true}},
      {"--why", &flags.why, "TEXT", "the reason", Rules{.required = true}},
      {"--by", &flags.by, "ID", "the result that counts instead"},
  });
  command.run = [&flags] { supersede(flags); };
}

}  // namespace

void define_results(CommandLine& command) {
  command.needs_command = true;
  command.footer =
      "`tyto bench` keeps every row in $XDG_STATE_HOME/tyto/results.jsonl (default: "
      "~/.local/state).\nLines are only ever added. IDs may be shortened.\n\n"
      "Examples:\n  tyto results list\n  tyto results show 1a2b3c4d\n"
      "  tyto results supersede 1a2b3c4d --why 'measured on battery' --by 5e6f7a8b";
  define_list(command.add_command("list", "show the results that stand"));
  define_show(command.add_command("show", "everything that is kept of one, as JSON"));
  define_supersede(command.add_command("supersede", "say that a result no longer counts, and why"));
}

}  // namespace tyto
