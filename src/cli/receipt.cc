#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/json_value.h"
#include "base/redaction.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "evidence/receipt_check.h"
#include "report/tables.h"
#include "shell/command_line.h"
#include "shell/help.h"
#include "shell/output.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

constexpr uint64_t kMostReceiptBytes = 16 << 20;

struct ReceiptCheckFlags {
  std::string file;
  std::string trust;
  JsonFlag json;
};

struct KeyFlags {
  std::string output;
};

std::string_view name(Finding::State state) {
  constexpr std::string_view kNames[] = {"ok", "unknown", "FAILS"};
  return kNames[static_cast<size_t>(state)];
}

// In words that need no knowledge of hashes.
std::string what_it_proves(const ReceiptCheck& check, bool is_trusted) {
  if (!check.holds()) return "It proves nothing: see what fails.\n";
  const char* proof =
      is_trusted ? "It proves that the holder of the trusted key signed exactly this, and that its "
                   "numbers agree with each other and with what the devices can do.\n"
                 : "It proves that the file was not changed by accident (only a signature reveals "
                   "deliberate changes), and that its numbers agree with each other and with what "
                   "the devices can do.\n";
  return proof + with_documents_found(
                     "It cannot prove that the run took place: a program that is not Tyto can "
                     "write any numbers that agree. docs/evidence.md says more.\n");
}

std::string to_json(const ReceiptCheck& check, bool is_trusted) {
  JsonValue findings = JsonValue::array();
  for (const Finding& each : check.findings)
    findings.push_back({{"state", name(each.state)}, {"about", each.about}, {"text", each.text}});
  const JsonValue json = {{"id", check.id},
                          {"time", check.time},
                          {"command", check.command},
                          {"holds", check.holds()},
                          {"signed_by_trusted_key", is_trusted && check.holds()},
                          {"findings", std::move(findings)}};
  return json.dump(2) + "\n";
}

void print_check(const ReceiptCheck& result, bool is_trusted) {
  print_prose(fmt::format("receipt {} of {}: {}\n", printable_line(result.id),
                          printable_line(result.time),
                          printable_line(redacted_command_text(result.command))));
  Table table{.id = "findings", .title = "", .columns = {{"", false}, {"", false}, {"", false}}};
  for (const Finding& each : result.findings)
    table.rows.push_back({{std::string(name(each.state)), std::string(each.about), each.text},
                          each.state == Finding::State::fails ? RowStyle::alarm : RowStyle::plain});
  print_coloured(to_text(table, stdout_style()));
  print_prose(what_it_proves(result, is_trusted));
}

void check(const ReceiptCheckFlags& flags) {
  const auto trusted = trusted_key(flags.trust);
  const ReceiptCheck result = check_receipt(read_text_file(flags.file, kMostReceiptBytes),
                                            flags.file, trusted ? &*trusted : nullptr);
  const bool is_trusted = trusted.has_value();
  if (!flags.json.is_given() || !put_json(flags.json, to_json(result, is_trusted)))
    print_check(result, is_trusted);
  const auto failed =
      std::count_if(result.findings.begin(), result.findings.end(),
                    [](const Finding& each) { return each.state == Finding::State::fails; });
  if (failed > 0)
    throw Error(ErrorCode::input, flags.file,
                fmt::format("{} of {} findings {}", failed, result.findings.size(),
                            failed == 1 ? "fails" : "fail"));
}

void keygen(const KeyFlags& flags) {
  const PublicKey key = make_key(flags.output);
  print(key_line(key) + "\n");
  note(fmt::format("{} signs: keep it to yourself. {}.pub is for those who check.", flags.output,
                   flags.output));
}

void define_receipt_check(CommandLine& command) {
  ReceiptCheckFlags& flags = command.values<ReceiptCheckFlags>();
  command.add(
      {{"file", &flags.file, "FILE", "a receipt that --receipt wrote", Rules{.required = true}},
       trust_flag(flags.trust)});
  add_json_flag(command, flags.json);
  command.run = [&flags] { check(flags); };
}

void define_keygen(CommandLine& command) {
  KeyFlags& flags = command.values<KeyFlags>();
  command.add({{"-o,--output", &flags.output, "KEYFILE",
                "write the new key to KEYFILE and its public half to KEYFILE.pub",
                Rules{.required = true}}});
  command.run = [&flags] { keygen(flags); };
}

}  // namespace

void define_receipt(CommandLine& command) {
  command.needs_command = true;
  command.footer =
      "The hash of a receipt reveals accidental changes; only a signature reveals deliberate "
      "ones.\n\n"
      "Examples:\n  tyto run Hello --receipt r.json && tyto receipt check r.json\n"
      "  tyto receipt keygen -o my.key\n"
      "  tyto run Hello --receipt r.json --sign my.key\n"
      "  tyto receipt check r.json --trust my.key.pub";
  define_receipt_check(command.add_command("check", "check every claim of a receipt"));
  define_keygen(command.add_command("keygen", "make a key for signing receipts and results"));
}

}  // namespace tyto
