#include "cli/bench/results_ledger.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace tyto {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::string line_of(const std::string& id, ordered_json row = {}) {
  ordered_json fields = {{"test", "pp16"},
                         {"model_filename", "/models/tiny.gguf"},
                         {"executed_on", "cpu"},
                         {"avg_ts", 12.345},
                         {"refused", nullptr}};
  if (!row.is_null()) fields.update(row);
  return result_line(id, "2026-01-31T12:00:00Z", {{"row", fields}});
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

TEST(ResultsLedger, ReadsWhatItWrites) {
  const Ledger ledger =
      parse_ledger(line_of("aaaa1111") + "\n" +
                   line_of("bbbb2222", {{"avg_ts", nullptr}, {"modelled_avg_ts", 6.0}}) + "\n\n" +
                   line_of("cccc3333", {{"avg_ts", nullptr}, {"refused", "too fast"}}) + "\n");
  EXPECT_EQ(ledger.unreadable, 0u) << ledger.first_problem;
  ASSERT_EQ(ledger.entries.size(), 3u);
  EXPECT_EQ(ledger.entries[0].model, "tiny.gguf");
  EXPECT_EQ(ledger.entries[0].speed, "12.35 t/s");
  EXPECT_EQ(ledger.entries[1].speed, "6.00 t/s modelled");
  EXPECT_EQ(ledger.entries[2].speed, "refused");
  EXPECT_EQ(ledger.entries[0].line, line_of("aaaa1111"));
}

TEST(ResultsLedger, SupersedingMarksAndTheLastCounts) {
  const std::string text = line_of("aaaa1111") + "\n" + line_of("bbbb2222") + "\n" +
                           supersede_line("aaaa1111", {"2026-02-01T00:00:00Z", "on battery", ""}) +
                           "\n";
  EXPECT_EQ(superseded_mark(parse_ledger(text).entries[0]), "superseded: on battery");
  EXPECT_EQ(superseded_mark(parse_ledger(text).entries[1]), "");
  const Ledger twice = parse_ledger(
      text + supersede_line("aaaa1111", {"2026-02-02T00:00:00Z", "better", "bbbb2222"}));
  EXPECT_EQ(twice.entries[0].superseded.size(), 2u);
  EXPECT_EQ(superseded_mark(twice.entries[0]), "superseded by bbbb2222: better");
}

TEST(ResultsLedger, GarbageIsCountedAndNothingElseIsLost) {
  const std::string other_version =
      R"({"schema":"tyto-result-9","kind":"result","id":"x","date":"y"})";
  const Ledger ledger = parse_ledger(
      "not json\n" + line_of("aaaa1111") + "\n" + line_of("dddd").substr(0, 60) + "\n" +
      other_version + "\n[1,2]\n\xff\xfe\n" + line_of("bbbb2222", {{"avg_ts", "fast"}}) + "\n" +
      supersede_line("unknown", {"2026-02-01T00:00:00Z", "why", ""}) + "\n" + line_of("bbbb2222"));
  ASSERT_EQ(ledger.entries.size(), 2u);
  EXPECT_EQ(ledger.entries[1].id, "bbbb2222");
  EXPECT_EQ(ledger.unreadable, 7u);
  EXPECT_TRUE(ledger.first_problem.starts_with("line 1")) << ledger.first_problem;
}

TEST(ResultsLedger, IdsMayBeShortenedButNotGuessed) {
  const Ledger ledger = parse_ledger(line_of("aaaa1111") + "\n" + line_of("aaaa2222") + "\n" +
                                     line_of("aaaa22223333") + "\n" + line_of("aaaa1111"));
  EXPECT_EQ(find_result(ledger, "aaaa1").id, "aaaa1111");  // there twice, but one result
  EXPECT_EQ(find_result(ledger, "aaaa2222").id, "aaaa2222");
  EXPECT_NE(error_of(ledger, "aaaa").find("begin with this"), std::string::npos);
  EXPECT_NE(error_of(ledger, "b").find("no result"), std::string::npos);
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
  const fs::path folder_;
  const fs::path file_ = folder_ / "below" / "results.jsonl";
};

TEST_F(LedgerFile, AppendsAndEndsALineThatWasLeftUnfinished) {
  EXPECT_TRUE(read_ledger(file_).entries.empty());
  append_line(file_, "{}");
  append_line(file_, line_of("aaaa1111"));
  EXPECT_EQ(text(), "{}\n" + line_of("aaaa1111") + "\n");
  std::ofstream(file_, std::ios::app) << "{\"half";
  append_line(file_, line_of("bbbb2222"));
  const Ledger ledger = read_ledger(file_);
  EXPECT_EQ(ledger.entries.size(), 2u);
  EXPECT_EQ(ledger.unreadable, 2u);
}

TEST_F(LedgerFile, AFolderThatCannotBeMadeIsAnError) {
  fs::create_directories(folder_);
  std::ofstream(folder_ / "below") << "a file";
  EXPECT_THROW(append_line(file_, "{}"), Error);
}

}  // namespace
}  // namespace tyto
