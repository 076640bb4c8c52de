#include "bench/bench_output.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "base/utf8.h"
#include "bench/bench_comparison.h"
#include "evidence/ledger.h"
#include "evidence/receipt_json.h"
#include "evidence/seal.h"

namespace tyto {
namespace {

const BenchOrigin kOrigin{{"1a2b3c4d", 7}, {"A \"fast\" processor", 8, 1 << 30, "Linux 6"}};

BenchRow made_row(bool modelled = false) {
  BenchRow row;
  row.test = {.prompt = 0, .generate = 10, .depth = 64};
  row.facts = {.model_path = "/models/tiny.gguf",
               .model_type = "llama 11M bf16",
               .model_bytes = 1 << 20,
               .parameters = 11000000,
               .batch = 2048,
               .ubatch = 256,
               .threads = 2,
               .context = 512,
               .layers = 4,
               .kv_type = "f16",
               .device = modelled ? "vnpu" : "cpu",
               .device_description = "a device",
               .fusion = "block",
               .weights_hash = "00ff"};
  row.time = "2026-01-31T12:00:00Z";
  row.seconds = {0.5, 0.25};
  row.modelled = modelled;
  if (modelled) row.simulation_seconds = 99;
  row.receipt.devices = {{.device = modelled ? "vnpu" : "cpu",
                          .is_virtual = modelled,
                          .is_host = !modelled,
                          .submissions = 340,
                          .completions = 340,
                          .busy_ns = 500000000,
                          .bytes = 1000000000,
                          .flops = 2000000000}};
  if (modelled)
    row.receipt.devices.push_back(
        {.device = "cpu", .is_host = true, .submissions = 1000, .completions = 1000, .busy_ns = 1});
  row.receipt.phases.decode = row.receipt.devices;
  row.receipt.generated_tokens = 20;
  row.receipt.first_from_prefill = false;
  row.receipt.decode_seconds = 0.75;
  if (modelled) row.receipt.modelled = {0, 0.75};
  row.energy_reason = "no --energy";
  row.receipt_json = receipt_fields(row.receipt, {});
  row.receipt_id = row.receipt_json.at("id").text();
  return row;
}

std::string written(BenchFormat format, const std::vector<BenchRow>& rows) {
  BenchWriter writer(format, kOrigin, {});
  std::string text;
  for (const BenchRow& row : rows) text += writer.add(row);
  return text + writer.close();
}

JsonValue parsed(const std::string& text) {
  return JsonValue(Json::parse(text, "rows"));
}

TEST(BenchOutput, JsonBeginsWithLlamaBenchsFields) {
  JsonValue rows = parsed(written(BenchFormat::json, {made_row(), made_row()}));
  ASSERT_EQ(rows.size(), 2u);
  const std::vector<std::string> theirs = {"build_commit",   "build_number",
                                           "cpu_info",       "gpu_info",
                                           "backends",       "model_filename",
                                           "model_type",     "model_size",
                                           "model_n_params", "n_batch",
                                           "n_ubatch",       "n_threads",
                                           "cpu_mask",       "cpu_strict",
                                           "poll",           "type_k",
                                           "type_v",         "n_gpu_layers",
                                           "n_cpu_moe",      "split_mode",
                                           "main_gpu",       "no_kv_offload",
                                           "flash_attn",     "devices",
                                           "tensor_split",   "tensor_buft_overrides",
                                           "load_mode",      "embeddings",
                                           "no_op_offload",  "no_host",
                                           "fit_target",     "fit_min_ctx",
                                           "n_prompt",       "n_gen",
                                           "n_depth",        "test_time",
                                           "avg_ns",         "stddev_ns",
                                           "avg_ts",         "stddev_ts",
                                           "samples_ns",     "samples_ts"};
  size_t i = 0;
  for (const auto& [name, value] : rows.elements()[0].members()) {
    if (i == theirs.size()) break;
    EXPECT_EQ(name, theirs[i++]);
    EXPECT_FALSE(value.is_null()) << name;
  }
  EXPECT_EQ(rows.elements()[0]["avg_ns"], 375000000);
  EXPECT_EQ(rows.elements()[0]["avg_ts"], 30);
  EXPECT_EQ(rows.elements()[0]["samples_ts"], JsonValue({20.0, 40.0}));
  EXPECT_EQ(rows.elements()[0]["test"], "tg10 @ d64");
  EXPECT_EQ(rows.elements()[0]["dispatches_per_token"], 17);
  EXPECT_EQ(rows.elements()[0]["gb_per_s"], 2);
  EXPECT_TRUE(rows.elements()[0]["modelled_avg_ts"].is_null());
}

TEST(BenchOutput, TheTableFitsTheTerminalAndHasNoColumnThatWasNotAskedFor) {
  BenchRow refused = made_row();
  refused.receipt.plausibility = {.verdict = Verdict::refused,
                                  .reasons = {"it needs 307 GB/s of memory and has 120 at most"}};
  const auto written_in = [](size_t width, const ShownSettings& shown,
                             const std::vector<BenchRow>& rows) {
    BenchWriter writer(BenchFormat::table, kOrigin, shown, {.width = width});
    std::string text;
    for (const BenchRow& row : rows) text += writer.add(row);
    text += writer.close();
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns_of(line), width) << text;
    EXPECT_EQ(text.find("J/token"), std::string::npos) << text;
    EXPECT_NE(text.find("hidden columns"), std::string::npos) << text;
    return text;
  };
  for (const size_t width : {80, 120}) {
    const std::string text = written_in(width, {.devices = true, .widest_test = "pp512 @ d2048"},
                                        {made_row(), made_row(true), refused});
    for (const char* fragment :
         {"tg10 @ d64", "30.00 ± 14.14 modelled", "vnpu (modelled)+cpu", "307 GB/s"})
      EXPECT_NE(text.find(fragment), std::string::npos) << fragment << "\n" << text;
  }
  EXPECT_NE(written_in(40, {}, {made_row()}).find("30.00 ± 14.14  cpu"), std::string::npos);
  BenchRow fast = made_row();  // the second row, when the widths stand
  fast.test.sequences = 2;
  fast.receipt.decode_seconds = 0.0002;
  const std::string rates =
      written_in(80, {.sequences = true, .widest_test = "tg10 @ d64 x 2"}, {made_row(), fast});
  EXPECT_NE(rates.find(" 200000"), std::string::npos) << rates;
  EXPECT_EQ(rates.find("200000.00"), std::string::npos) << rates;
  BenchWriter whole(BenchFormat::table, kOrigin, {.energy = true});
  const std::string text = whole.add(made_row()) + whole.close();
  EXPECT_NE(text.find("J/token"), std::string::npos) << text;
  EXPECT_EQ(text.find("hidden columns"), std::string::npos) << text;
}

TEST(BenchOutput, AModelledRowHasNoMeasuredSpeed) {
  JsonValue row = row_fields(made_row(true), kOrigin);
  for (const char* field : {"avg_ns", "avg_ts", "stddev_ts", "samples_ts", "gb_per_s"})
    EXPECT_TRUE(row[field].is_null()) << field;
  EXPECT_EQ(row["modelled_avg_ts"], 30);
  EXPECT_EQ(row["modelled_gb_per_s"], 2);
  EXPECT_EQ(row["executed_on"], "vnpu (modelled)+cpu");
  EXPECT_EQ(row["dispatches_per_token"], 17);  // the host's steps are none
  EXPECT_NE(written(BenchFormat::markdown, {made_row(true)}).find("30.00 ± 14.14 modelled |"),
            std::string::npos);
}

TEST(BenchOutput, ARefusedRowHasNoSpeedAtAll) {
  BenchRow row = made_row();
  row.receipt.plausibility = {.verdict = Verdict::refused, .reasons = {"faster than light"}};
  JsonValue json = row_fields(row, kOrigin);
  EXPECT_EQ(json["refused"], "faster than light");
  for (const char* field : {"avg_ts", "modelled_avg_ts", "samples_ts", "gb_per_s"})
    EXPECT_TRUE(json[field].is_null()) << field;
  const std::string table = written(BenchFormat::markdown, {row});
  EXPECT_NE(table.find("refused: faster than light"), std::string::npos);
  EXPECT_EQ(table.find("30.00"), std::string::npos);
  EXPECT_EQ(refusal_line(row), "tg10 @ d64: refused: faster than light");
}

TEST(BenchOutput, CsvHasTheSameColumnsInEveryRow) {
  std::istringstream lines(written(BenchFormat::csv, {made_row(), made_row(true)}));
  std::string header, first, second;
  std::getline(lines, header);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_TRUE(header.starts_with("build_commit,build_number,cpu_info,"));
  EXPECT_TRUE(first.starts_with("\"1a2b3c4d\",\"7\",\"A \"\"fast\"\" processor\","));
  const auto separators = [](const std::string& line) {
    size_t count = 0;
    for (size_t at = line.find("\",\""); at != std::string::npos; at = line.find("\",\"", at + 2))
      ++count;
    return count;
  };
  const auto names = static_cast<size_t>(std::count(header.begin(), header.end(), ','));
  EXPECT_EQ(separators(first), names);
  EXPECT_EQ(separators(second), names);
}

TEST(BenchOutput, JsonLinesAndNothing) {
  std::istringstream lines(written(BenchFormat::jsonl, {made_row(), made_row()}));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(parsed(line)["n_gen"], 10);
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(written(BenchFormat::json, {}), "[]\n");
}

TEST(BenchOutput, EveryTableRowHasEveryColumn) {
  std::istringstream lines(written(BenchFormat::markdown, {made_row(), made_row(true)}));
  std::set<size_t> bars;
  for (std::string line; std::getline(lines, line);)
    bars.insert(static_cast<size_t>(std::count(line.begin(), line.end(), '|')));
  EXPECT_EQ(bars.size(), 1u);
}

TEST(BenchOutput, AComparisonNamesWhatIsModelled) {
  BenchRow row = made_row();
  row.ab = AbComparison{.a = "cpu", .b = "vnpu", .ratios = {2, 1, 4}, .b_modelled = true};
  EXPECT_EQ(ab_line(row),
            "tg10 @ d64: cpu / vnpu (modelled) = 2 in the median of 3 rounds, 1 to 4; compares a "
            "modelled with a measured speed");
  JsonValue ab = row_fields(row, kOrigin)["ab"];
  EXPECT_EQ(ab["ratio_median"], 2);
  EXPECT_EQ(ab["ratios"], JsonValue({2.0, 1.0, 4.0}));
  row.ab->ratios.clear();
  EXPECT_EQ(ab_line(row), "tg10 @ d64: cpu / vnpu (modelled): refused");
}

TEST(BenchOutput, TheLedgerReadsItsLines) {
  for (const bool modelled : {false, true}) {
    const BenchRow row = made_row(modelled);
    const std::string line = chained_line(ledger_record(row, kOrigin), digest(""));
    const Ledger ledger = parse_ledger(line, LedgerHead{1, digest(line)});
    ASSERT_EQ(ledger.entries.size(), 1u);
    EXPECT_TRUE(ledger.problems.empty()) << to_text(ledger.problems.front());
    EXPECT_EQ(ledger.entries[0].id, row.receipt_id);
    EXPECT_EQ(ledger.entries[0].speed, modelled ? "30.00 t/s modelled" : "30.00 t/s");
  }
}

}  // namespace
}  // namespace tyto
