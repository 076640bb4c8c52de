// Tables on terminals of every width, and in pipes.
#include "report/tables.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/utf8.h"
#include "report/energy.h"

namespace tyto::test {
namespace {

bool holds(const std::string& text, const std::string& fragment) {
  return text.find(fragment) != std::string::npos;
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) widest = std::max(widest, columns_of(line));
  return widest;
}

Table owls() {
  return {.id = "owls",
          .title = "Owls and what they weigh",
          .columns = {{"name", false},
                      {"weight in grams", true},
                      {"wing span", true, 1},
                      {"eggs", true, 2},
                      {"about", false}},
          .rows = {{{"Tyto alba", "430", "91", "5", "pale, quiet, lives in barns and towers"}},
                   {{"Bubo bubo", "2600", "170", "3", "the largest of them"}, RowStyle::best}},
          .notes = {"Of adults, as they are found in the field guides that everybody has."}};
}

TEST(Table, IsWholeInAPipe) {
  const std::string text = to_text(owls(), {});
  EXPECT_TRUE(holds(text, "name       weight in grams  wing span  eggs  about\n")) << text;
  EXPECT_TRUE(holds(text, "pale, quiet, lives in barns and towers\n")) << text;
  EXPECT_TRUE(holds(text, "guides that everybody has.\n"));
  EXPECT_FALSE(holds(text, "\033"));
}

TEST(Table, NoLineIsWiderThanTheTerminal) {
  for (size_t width = 30; width < 140; ++width) {
    const std::string text = to_text(owls(), {.width = width});
    EXPECT_LE(widest_line(text), width) << text;
    EXPECT_TRUE(holds(text, "2600")) << text;  // numbers stand whole
  }
}

TEST(Table, HeadersAreBrokenBeforeColumnsAreLeftOut) {
  const std::string text = to_text(owls(), {.width = 64});
  EXPECT_TRUE(holds(text, "grams  span  eggs")) << text;
  EXPECT_FALSE(holds(text, "weight in grams")) << text;
  EXPECT_FALSE(holds(text, "hidden columns")) << text;
}

TEST(Table, LeavesOutColumnsOfTheHighestRankUntilItFits) {
  const std::string narrow = to_text(owls(), {.width = 54});
  EXPECT_TRUE(holds(narrow, "170")) << narrow;
  EXPECT_FALSE(holds(narrow, "span  eggs")) << narrow;
  EXPECT_TRUE(holds(narrow, "(`| less -S` shows them): eggs\n")) << narrow;
  const std::string narrowest = to_text(owls(), {.width = 44});
  EXPECT_FALSE(holds(narrowest, "170")) << narrowest;
  EXPECT_TRUE(holds(narrowest, "wing span, eggs")) << narrowest;
}

TEST(Table, TheLastTextIsBrokenAndOthersAreShortened) {
  Table table{.id = "t",
              .title = "",
              .columns = {{"file", false}, {"what", false}},
              .rows = {{{"/home/owl/models/a-long-name.gguf", "one two three four five six"}}}};
  const std::string text = to_text(table, {.width = 40});
  EXPECT_TRUE(holds(text, "/home/o")) << text;
  EXPECT_TRUE(holds(text, "…")) << text;
  EXPECT_TRUE(holds(text, ".gguf  one two")) << text;
  EXPECT_LE(widest_line(text), 40u);
  EXPECT_FALSE(holds(to_text(table, {}), "…"));
}

TEST(Table, WideCharactersKeepColumnsInLine) {
  const Table table{.id = "t",
                    .title = "t",
                    .columns = {{"name", false}, {"n", true}},
                    .rows = {{{"猫頭鷹", "1"}}, {{"owl", "2"}}}};
  EXPECT_TRUE(holds(to_text(table, {}), "猫頭鷹  1\nowl     2\n")) << to_text(table, {});
}

TEST(Table, ColoursAreSoberAndOnlyWhereTheyAreWanted) {
  Table table = owls();
  table.rows[0].style = RowStyle::alarm;
  const std::string text = to_text(table, {.colour = true});
  EXPECT_TRUE(holds(text, "\033[1mOwls and what they weigh\033[0m\n")) << text;
  EXPECT_TRUE(holds(text, "\033[31mTyto alba")) << text;
  EXPECT_TRUE(holds(text, "\033[32mBubo bubo")) << text;
  EXPECT_TRUE(holds(text, "\033[2mOf adults")) << text;
  EXPECT_FALSE(holds(to_text(table, {.width = 80}), "\033"));
}

TEST(Table, RowsMayComeOneByOne) {
  const Table table = owls();
  const TableText text(table, {.width = 60});
  EXPECT_EQ(text.head() + text.row(table.rows[0]) + text.row(table.rows[1]) + text.foot(),
            to_text(table, {.width = 60}));
  // An unexpected number is shown all the same, and text keeps to its column.
  const std::string row = text.row({{"Strix nebulosa", "12345678901234567890", "1", "2", "x"}});
  EXPECT_TRUE(holds(row, "12345678901234567890")) << row;
  EXPECT_TRUE(holds(row, "…")) << row;
}

RailPower rail_with(const std::string& name, double joules, double uncertainty) {
  RailPower power;
  power.rail.name = name;
  power.rail.source = "rapl";
  power.idle_watts = {.mean = 5, .deviation = 0.25};
  power.load_watts = {.mean = 9};
  power.net = {.mean = joules};
  power.uncertainty = uncertainty;
  return power;
}

TEST(PowerTable, ARailWithoutAFigureSaysWhy) {
  MeasuredLoad load;
  load.load = {.name = "tg16", .run = {}, .executed_on = "cpu"};
  load.tokens = 16;
  load.windows = {{.seconds = 2, .rails = {}}};
  load.rails = {rail_with("package-0", 8, 1), rail_with("uncore", 1, 2), rail_with("dram", 0, 0)};
  load.rails[2].reason = "no permission";
  const PowerWindows windows{.idle_seconds = 3, .repetitions = 1};
  const std::string text = to_text(power_table(load, windows), {});
  EXPECT_TRUE(holds(text, "tg16: 1 x 2.0 s between idle windows of 3.0 s, executed on cpu"))
      << text;
  EXPECT_TRUE(holds(text, "5.00 ± 0.25")) << text;
  EXPECT_TRUE(holds(text, "8.00 ± 1.00")) << text;
  EXPECT_TRUE(holds(text, "0.5\n")) << text;
  EXPECT_TRUE(holds(text, "cannot be told from idle")) << text;
  EXPECT_TRUE(holds(text, "n/a (no permission)")) << text;
  const std::string json = power_json({load}, windows);
  EXPECT_TRUE(holds(json, "\"net_j_per_token\": 0.5")) << json;
  EXPECT_TRUE(holds(json, "\"reason\": \"no permission\"")) << json;
  EXPECT_TRUE(holds(json, "\"above_idle\": false")) << json;
}

}  // namespace
}  // namespace tyto::test
