#include "evidence/ledger.h"
#include "base/json_value.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "evidence/receipt_json.h"
#include "evidence/seal.h"
#include "support/expect_error.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

// 10 tokens in half a second: the row, and the receipt that it is of.
JsonValue record_of(const std::string& id, const JsonValue& row = JsonValue::object()) {
  Receipt receipt;
  receipt.first_from_prefill = false;
  receipt.generated_tokens = 10;
  receipt.decode_seconds = 0.5;
  receipt.devices = {{.device = "cpu", .submissions = 5, .completions = 5}};
  receipt.phases.decode = receipt.devices;
  JsonValue sealed = receipt_fields(receipt, {.command = "tyto bench"});
  sealed.erase("hash");
  sealed["id"] = id;
  seal(sealed, nullptr);
  JsonValue fields = {{"test", "tg10"},
                      {"model_filename", "/models/tiny.gguf"},
                      {"executed_on", "cpu"},
                      {"avg_ts", 20.0},
                      {"samples_ns", {500000000}},
                      {"samples_ts", {20.0}},
                      {"refused", nullptr},
                      {"receipt_id", id}};
  fields.update(row);
  return result_record(id, "2026-01-31T12:00:00Z", {{"row", fields}, {"receipt", sealed}});
}

std::string older_line(const std::string& id) {
  JsonValue record = record_of(id);
  record["schema"] = "tyto-result-1";
  return record.dump();
}

// As append_record would have written them.
Lines chain(const std::vector<JsonValue>& records, const SigningKey* key = nullptr) {
  Lines lines;
  for (const JsonValue& record : records)
    lines.push_back(chained_line(record, digest(lines.empty() ? "" : lines.back()), key));
  return lines;
}

Lines three() {
  return chain({record_of("aaaa1111"), record_of("bbbb2222"), record_of("cccc3333")});
}

std::string text_of(const Lines& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

Ledger parsed(const Lines& lines, const Lines& written) {
  return parse_ledger(text_of(lines), LedgerHead{written.size(), digest(written.back())});
}

// Every problem, a line each.
std::string problems(const Ledger& ledger) {
  std::string text;
  for (const LedgerProblem& problem : ledger.problems) text += to_text(problem) + "\n";
  return text;
}

// What is said of lines that stand where three() were written.
std::string said_of(const Lines& lines) {
  return problems(parsed(lines, three()));
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string error_of(const Ledger& ledger, const std::string& id) {
  try {
    find_result(ledger, id);
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << id << " was found";
  return "";
}

TEST(Ledger, ReadsWhatItWrites) {
  const Lines lines = three();
  const Ledger ledger = parsed(lines, lines);
  EXPECT_EQ(problems(ledger), "");
  EXPECT_EQ(ledger.chained, 3u);
  ASSERT_EQ(ledger.entries.size(), 3u);
  EXPECT_EQ(ledger.entries[0].model, "tiny.gguf");
  EXPECT_EQ(ledger.entries[0].speed, "20.00 t/s");
  EXPECT_EQ(ledger.entries[2].line, lines[2]);
  EXPECT_EQ(ledger.entries[2].number, 3u);
  EXPECT_EQ(broken_mark(ledger, ledger.entries[2]), "");
}

TEST(Ledger, SupersedingMarksAndTheLastCounts) {
  std::vector<JsonValue> records = {record_of("aaaa1111"), record_of("bbbb2222")};
  records.push_back(supersede_record("aaaa1111", {"2026-02-01T00:00:00Z", "on battery", ""}));
  const Lines once = chain(records);
  EXPECT_EQ(superseded_mark(parsed(once, once).entries[0]), "superseded: on battery");
  EXPECT_EQ(superseded_mark(parsed(once, once).entries[1]), "");
  records.push_back(supersede_record("aaaa1111", {"2026-02-02T00:00:00Z", "better", "bbbb2222"}));
  const Lines twice = chain(records);
  EXPECT_EQ(problems(parsed(twice, twice)), "");
  EXPECT_EQ(superseded_mark(parsed(twice, twice).entries[0]), "superseded by bbbb2222: better");
}

TEST(Ledger, AChangedLineIsNamedAndOnlyThat) {
  for (size_t i = 0; i < 3; ++i) {
    Lines lines = three();
    lines[i].replace(lines[i].find("20.0"), 4, "99.0");
    const std::string said = said_of(lines);
    EXPECT_TRUE(said.starts_with(fmt::format("line {} was changed: ", i + 1))) << said;
    const Ledger ledger = parsed(lines, three());
    for (size_t k = 0; k < 3; ++k)
      EXPECT_EQ(broken_mark(ledger, ledger.entries[k]).empty(), k != i) << said;
  }
}

TEST(Ledger, AChangedLineWithItsHashComputedAnewBreaksTheChain) {
  Lines lines = three();
  lines[1] = chained_line(record_of("bbbb2222", {{"executed_on", "h100"}}), digest(lines[0]));
  EXPECT_EQ(said_of(lines),
            "line 3 does not follow line 2: records between them are missing, or that line was "
            "replaced\n");
  lines = three();
  lines[2] = chained_line(record_of("cccc3333", {{"executed_on", "h100"}}), digest(lines[1]));
  EXPECT_TRUE(has(said_of(lines), "results.head counts 3, and the last of them is not here"));
}

TEST(Ledger, AMissingLineIsNoticedWhereverItWas) {
  Lines lines = three();
  EXPECT_TRUE(has(said_of({lines[1], lines[2]}), "line 1 is not the first record"));
  EXPECT_TRUE(has(said_of({lines[0], lines[2]}), "line 2 does not follow line 1"));
  EXPECT_EQ(said_of({lines[0], lines[1]}),
            "records are missing at the end: results.head counts 3, and the last of them is not "
            "here\n");
  EXPECT_TRUE(has(said_of({}), "records are missing at the end"));
  EXPECT_TRUE(has(problems(parse_ledger(text_of(lines), {})), "results.head is missing"));
}

TEST(Ledger, InsertedAndMovedLinesAreNamed) {
  const Lines lines = three();
  const auto inserted = [](const std::string& previous) {
    return chained_line(record_of("dddd4444"), digest(previous));
  };
  EXPECT_TRUE(has(said_of({lines[0], inserted(lines[0]), lines[1], lines[2]}),
                  "line 2 was inserted or moved here: line 3 follows line 1"));
  EXPECT_TRUE(has(said_of({inserted(""), lines[0], lines[1], lines[2]}),
                  "line 1 was inserted or moved here: line 2 is the first record"));
  EXPECT_TRUE(has(said_of({lines[0], lines[2], lines[1]}), "line 2 was moved: it follows line 3"));
  EXPECT_TRUE(
      has(said_of({lines[0], lines[1], lines[1], lines[2]}), "line 3 has the id of line 2"));
  EXPECT_TRUE(has(said_of({lines[0], older_line("dddd4444"), lines[1], lines[2]}),
                  "line 2 has no hash, though records before it have"));
}

TEST(Ledger, WhatIsOlderThanTheChainIsNotTakenForGood) {
  const std::string old = older_line("aaaa1111") + "\n" + older_line("bbbb2222") + "\n";
  const Ledger only_old = parse_ledger(old, {});
  EXPECT_EQ(problems(only_old), "");
  EXPECT_EQ(only_old.not_chained, 2u);
  EXPECT_EQ(broken_mark(only_old, only_old.entries[0]), "not chained");
  // From the first record of the chain on, the older lines cannot be changed either.
  const std::string line = chained_line(record_of("cccc3333"), digest(old));
  const LedgerHead head{1, digest(line)};
  EXPECT_EQ(problems(parse_ledger(old + line + "\n", head)), "");
  std::string forged = old;
  forged.replace(forged.find("20.0"), 4, "99.0");
  EXPECT_TRUE(has(problems(parse_ledger(forged + line, head)), "line 3 is not the first record"));
}

TEST(Ledger, ARowMustSayWhatItsReceiptCounted) {
  const auto said = [](const JsonValue& record) {
    const Lines lines = chain({record});
    return problems(parsed(lines, lines));
  };
  EXPECT_TRUE(has(said(record_of("aaaa1111", {{"avg_ts", 43.84}})),
                  "line 1 says 43.84 t/s, and its samples 20.00 t/s"));
  EXPECT_TRUE(has(said(record_of("aaaa1111", {{"avg_ts", 40.0}, {"samples_ts", {40.0}}})),
                  "says 40.00 t/s for 10 tokens in 500000000 ns"));
  EXPECT_TRUE(
      has(said(record_of("aaaa1111",
                         {{"avg_ts", 40.0}, {"samples_ts", {40.0}}, {"samples_ns", {250000000}}})),
          "says 0.250000 s, and its receipt 0.500000 s"));
  JsonValue record = record_of("aaaa1111");
  record["receipt"]["submissions"] = 4;
  EXPECT_TRUE(has(said(record), "has a receipt that fails: hash"));
  record = record_of("aaaa1111");
  record["id"] = "eeee5555";
  EXPECT_TRUE(has(said(record), "another receipt than its id says"));
  EXPECT_EQ(said(record_of("aaaa1111", {{"avg_ts", nullptr}, {"refused", "too fast"}})), "");
}

TEST(Ledger, GarbageIsSaidAndNothingElseIsLost) {
  Lines lines = three();
  lines.insert(lines.begin() + 1,
               {"not json", "{\"half", R"({"schema":"tyto-result-9","kind":"result"})", "[1,2]",
                "\xff\xfe", R"({"schema":"tyto-result-1","x":1e999})"});
  lines.push_back("");
  const Ledger ledger = parsed(lines, three());
  EXPECT_EQ(ledger.entries.size(), 3u);
  EXPECT_EQ(ledger.problems.size(), 6u) << problems(ledger);  // the chain goes on behind them
  EXPECT_TRUE(has(problems(ledger), "line 3 cannot be read (line 3: not valid JSON"));
  JsonValue bad = record_of("dddd4444");
  bad["id"] = "\x1b[2J";
  EXPECT_TRUE(has(problems(parsed(chain({bad}), chain({bad}))), "is not an id"));
}

TEST(Ledger, IdsMayBeShortenedButNotGuessed) {
  const Lines lines =
      chain({record_of("aaaa1111"), record_of("aaaa2222"), record_of("aaaa22223333"),
             record_of("bbbb1111"), record_of("bbbb1111")});
  const Ledger ledger = parsed(lines, lines);
  EXPECT_EQ(find_result(ledger, "aaaa1").id, "aaaa1111");
  EXPECT_EQ(find_result(ledger, "aaaa2222").id, "aaaa2222");
  EXPECT_TRUE(has(error_of(ledger, "aaaa"), "begin with this"));
  EXPECT_TRUE(has(error_of(ledger, "c"), "no result"));
  EXPECT_TRUE(has(error_of(ledger, "bbbb1111"), "2 lines have this id"));
  error_of(ledger, "");
}

class LedgerFile : public testing::Test {
 protected:
  LedgerFile() : folder_(fs::temp_directory_path() / fmt::format("tyto-ledger-{}", getpid())) {
    fs::remove_all(folder_);
  }
  ~LedgerFile() override { fs::remove_all(folder_); }
  std::string text() const {
    std::stringstream all;
    all << std::ifstream(file_).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const { std::ofstream(file_) << text; }
  std::string said() const { return problems(read_ledger(file_)); }
  const fs::path folder_;
  const fs::path file_ = folder_ / "below" / "results.jsonl";
  const fs::path head_ = folder_ / "below" / "results.head";
};

TEST_F(LedgerFile, RecordsFollowEachOther) {
  EXPECT_EQ(said(), "");
  EXPECT_TRUE(read_ledger(file_).entries.empty());
  for (const char* id : {"aaaa1111", "bbbb2222", "cccc3333"}) append_record(file_, record_of(id));
  EXPECT_EQ(text(), text_of(three()));
  EXPECT_EQ(said(), "");
  EXPECT_EQ(read_ledger(file_).chained, 3u);
}

TEST_F(LedgerFile, HalfALineIsDamageAndTheChainGoesOnBehindIt) {
  append_record(file_, record_of("aaaa1111"));
  std::ofstream(file_, std::ios::app) << "{\"half";
  append_record(file_, record_of("bbbb2222"));
  EXPECT_EQ(said().substr(0, 21), "line 2 cannot be read");
  EXPECT_EQ(read_ledger(file_).problems.size(), 1u) << said();
  EXPECT_EQ(read_ledger(file_).entries.size(), 2u);
}

TEST_F(LedgerFile, ARecordWhoseHeadWasNeverWrittenCounts) {
  append_record(file_, record_of("aaaa1111"));
  const std::string head = read_text_file(head_, 4096);
  append_record(file_, record_of("bbbb2222"));
  std::ofstream(head_) << head;  // as if it had been killed in between
  EXPECT_EQ(said(), "");
  append_record(file_, record_of("cccc3333"));
  EXPECT_EQ(said(), "");
}

TEST_F(LedgerFile, AppendingMendsNothing) {
  for (const char* id : {"aaaa1111", "bbbb2222", "cccc3333"}) append_record(file_, record_of(id));
  write(text_of({three()[0]}));
  EXPECT_TRUE(has(said(), "records are missing at the end"));
  append_record(file_, record_of("dddd4444"));
  EXPECT_TRUE(has(said(), "line 2 does not follow line 1")) << said();
  append_record(file_, record_of("eeee5555"));
  EXPECT_TRUE(has(said(), "line 2 does not follow line 1")) << said();
}

TEST_F(LedgerFile, AnOlderLedgerIsContinued) {
  fs::create_directories(file_.parent_path());
  write(older_line("aaaa1111"));  // without the line's end
  append_record(file_, record_of("bbbb2222"));
  EXPECT_EQ(said(), "");
  EXPECT_EQ(read_ledger(file_).not_chained, 1u);
}

TEST_F(LedgerFile, SeveralProcessesKeepOneChain) {
  constexpr int kProcesses = 4, kRecords = 8;
  const auto append_all = [&](int process) {
    for (int i = 0; i < kRecords; ++i)
      append_record(file_, record_of(fmt::format("{}abc{}", process, i)));
  };
  for (int process = 0; process < kProcesses; ++process) {
    if (::fork() != 0) continue;
    try {
      append_all(process);
    } catch (const Error&) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  for (int process = 0; process < kProcesses; ++process) {
    int status = 1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(said(), "");
  EXPECT_EQ(read_ledger(file_).chained, size_t{kProcesses * kRecords});
}

TEST_F(LedgerFile, WithATrustedKeyEveryRecordIsItsOwn) {
  fs::create_directories(file_.parent_path());
  const PublicKey mine = make_key(folder_ / "key"), other = make_key(folder_ / "other");
  const SigningKey key(folder_ / "key");
  append_record(file_, record_of("aaaa1111"), &key);
  EXPECT_EQ(problems(read_ledger(file_, &mine)), "");
  EXPECT_TRUE(has(problems(read_ledger(file_, &other)), "line 1 is signed by"));
  append_record(file_, record_of("bbbb2222"));
  EXPECT_EQ(said(), "");
  EXPECT_EQ(problems(read_ledger(file_, &mine)), "line 2 is not signed\n");
}

TEST_F(LedgerFile, AFolderThatCannotBeMadeIsAnError) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "below") << "a file";
  EXPECT_ERROR(append_record(file_, record_of("aaaa1111")), "cannot be made: Not a directory");
}

}  // namespace
}  // namespace tyto
