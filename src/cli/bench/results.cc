#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "base/json_value.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "evidence/ledger.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/output.h"
#include "shell/progress.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;

struct ListFlags {
  JsonFlag json;
  bool all = false;
  std::string trust;
};

struct ShowFlags {
  std::string id;
  std::string trust;
};

struct CheckFlags {
  std::string file;
  std::string trust;
  JsonFlag json;
};

struct SupersedeFlags {
  std::string id;
  std::string why;
  std::string by;
  std::string sign;
};

struct OpenLedger {
  fs::path path;
  std::optional<PublicKey> trusted;
  Ledger ledger;
};

OpenLedger open_ledger(const fs::path& path, const std::string& trust = "") {
  OpenLedger opened{path, trusted_key(trust), {}};
  announce("checking the ledger");
  opened.ledger = read_ledger(path, opened.trusted ? &*opened.trusted : nullptr);
  return opened;
}

// A broken ledger is shown all the same, and fails at the end.
void fail_if_broken(const OpenLedger& opened) {
  const std::vector<LedgerProblem>& problems = opened.ledger.problems;
  if (problems.empty()) return;
  throw Error(ErrorCode::input, opened.path.string(),
              fmt::format("{}, the first: {}", counted(problems.size(), "problem"),
                          to_text(problems.front())),
              "`tyto results check` lists them all");
}

// Into a file or a pipe without headers: every line is a result.
std::vector<Column> list_columns(const TextStyle& style) {
  std::vector<Column> columns = {{"id", false},   {"date", false, 1},     {"test", false},
                                 {"speed", true}, {"executed on", false}, {"model", false, 2},
                                 {"", false}};
  if (style.width == 0)
    for (Column& column : columns) column.header.clear();
  return columns;
}

void list(const ListFlags& flags) {
  const OpenLedger opened = open_ledger(ledger_path(), flags.trust);
  const Ledger& ledger = opened.ledger;
  if (flags.json.is_given() && put_json(flags.json, list_json(ledger, flags.all)))
    return fail_if_broken(opened);
  const TextStyle style = stdout_style();
  Table table{.id = "results", .title = "", .columns = list_columns(style)};
  size_t left_out = 0;
  for (const LedgerEntry& entry : ledger.entries) {
    if (!superseded_mark(entry).empty() && !flags.all) {
      ++left_out;
      continue;
    }
    table.rows.push_back({{entry.id.substr(0, 8), entry.date, entry.test, entry.speed,
                           entry.executed_on, entry.model, marks_of(ledger, entry)},
                          broken_mark(ledger, entry).empty() ? RowStyle::plain : RowStyle::alarm});
  }
  if (!table.rows.empty()) print_coloured(to_text(table, style));
  if (ledger.entries.empty())
    note(fmt::format("no results in {}; `tyto bench` adds some", opened.path.string()));
  if (left_out > 0)
    note(fmt::format("{} superseded, not shown; --all shows {}", left_out,
                     left_out == 1 ? "it" : "them"));
  fail_if_broken(opened);
}

void show(const ShowFlags& flags) {
  const OpenLedger opened = open_ledger(ledger_path(), flags.trust);
  const LedgerEntry& entry = find_result(opened.ledger, flags.id);
  JsonValue record(Json::parse(entry.line, entry.id));
  record["superseded"] = JsonValue::array();
  for (const Superseding& by : entry.superseded)
    record["superseded"].push_back({{"date", by.date},
                                    {"by", by.by.empty() ? JsonValue(nullptr) : JsonValue(by.by)},
                                    {"why", by.why}});
  print(record.dump(2) + "\n");
  for (const std::string& mark : {superseded_mark(entry), broken_mark(opened.ledger, entry)})
    if (!mark.empty()) note(fmt::format("{}: {}", entry.id, mark));
  fail_if_broken(opened);
}

void print_check(const OpenLedger& opened) {
  const Ledger& ledger = opened.ledger;
  std::string out;
  for (const LedgerProblem& problem : ledger.problems) out += to_text(problem) + "\n";
  if (ledger.problems.empty()) out += whole_chain(ledger) + "\n";
  if (ledger.not_chained > 0)
    out += fmt::format("{} without a hash, written before there was a chain: they prove nothing\n",
                       counted(ledger.not_chained, "record"));
  if (ledger.problems.empty() && ledger.chained > 0)
    out += opened.trusted ? "All of them are signed by the trusted key.\n"
                          : "Someone with write access could rebuild the whole chain; only signed "
                            "results (--sign, --trust) rule that out.\n";
  print_prose(out);
}

void check(const CheckFlags& flags) {
  std::error_code ignored;
  if (!flags.file.empty() && !fs::exists(flags.file, ignored))
    fail_input(flags.file, "there is no such file");
  const OpenLedger opened =
      open_ledger(flags.file.empty() ? ledger_path() : fs::path(flags.file), flags.trust);
  const Ledger& ledger = opened.ledger;
  if (!flags.json.is_given() ||
      !put_json(flags.json, check_json(ledger, opened.path, opened.trusted.has_value())))
    print_check(opened);
  if (!ledger.problems.empty())
    throw Error(ErrorCode::input, opened.path.string(),
                counted(ledger.problems.size(), "problem") + " in " +
                    counted(ledger.chained + ledger.not_chained, "record"));
}

void supersede(const SupersedeFlags& flags) {
  const auto key = signing_key(flags.sign);
  const OpenLedger opened = open_ledger(ledger_path());
  const Ledger& ledger = opened.ledger;
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
  append_record(opened.path, supersede_record(entry.id, {utc_now(), redacted(flags.why), by}),
                key.get());
  note(fmt::format("{} ({}, {}) is superseded; the record of it stays", entry.id, entry.test,
                   entry.speed));
}

void define_list(CommandLine& command) {
  ListFlags& flags = command.values<ListFlags>();
  command.add({{"--all", &flags.all, "list superseded results, too"}, trust_flag(flags.trust)});
  add_json_flag(command, flags.json);
  command.run = [&flags] { list(flags); };
}

void define_show(CommandLine& command) {
  ShowFlags& flags = command.values<ShowFlags>();
  command.add(
      {{"id", &flags.id, "ID", "id of a result, which may be shortened", Rules{.required = true}},
       trust_flag(flags.trust)});
  command.run = [&flags] { show(flags); };
}

void define_check(CommandLine& command) {
  CheckFlags& flags = command.values<CheckFlags>();
  command.add(
      {{"file", &flags.file, "FILE", "a results file with its .head file (default: your own)"},
       trust_flag(flags.trust)});
  add_json_flag(command, flags.json);
  command.run = [&flags] { check(flags); };
}

void define_supersede(CommandLine& command) {
  SupersedeFlags& flags = command.values<SupersedeFlags>();
  command.add({
      {"id", &flags.id, "ID", "id of a result, which may be shortened", Rules{.required = true}},
      {"--why", &flags.why, "TEXT", "why the result no longer counts", Rules{.required = true}},
      {"--by", &flags.by, "ID", "id of the result that counts instead"},
      sign_flag(flags.sign),
  });
  command.run = [&flags] { supersede(flags); };
}

}  // namespace

void define_results(CommandLine& command) {
  command.needs_command = true;
  command.footer =
      "`tyto bench` stores every row in ~/.local/state/tyto/results.jsonl (XDG_STATE_HOME). Lines "
      "are only added, and each holds the hash of the line before.\n\n"
      "Examples:\n  tyto results list\n  tyto results show 1a2b3c4d\n  tyto results check\n"
      "  tyto results supersede 1a2b3c4d --why 'measured on battery' --by 5e6f7a8b";
  define_list(command.add_command("list", "list the results that count"));
  define_show(command.add_command("show", "show everything stored of one result, as JSON"));
  define_check(command.add_command("check", "find lines that were changed, inserted or removed"));
  define_supersede(command.add_command("supersede", "mark a result as no longer valid"));
}

}  // namespace tyto
