// A table as data, so that the text and the HTML report show the same rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tyto {

enum class RowStyle : uint8_t {
  plain,
  inner,  // of the layers
  total,  // sums up the rows above
  alarm,  // must not be overlooked
};

struct TableRow {
  std::vector<std::string> cells;
  RowStyle style = RowStyle::plain;
};

struct Column {
  std::string header;
  bool is_number = true;
  // Where a line has no room for all columns those of the highest rank are left out first, and
  // named below the table. Those of rank 0 stay.
  uint8_t rank = 0;
};

// What the reader looks at.
struct TextStyle {
  size_t width = 0;  // columns that a line may take; 0: any number, as in a file or a pipe
  bool colour = false;
};

struct Table {
  std::string id;  // "dataflow-prefill"
  std::string title;
  bool modelled = false;  // shows a virtual device's time somewhere
  std::vector<Column> columns = {};
  std::vector<TableRow> rows = {};
  std::vector<std::string> notes = {};
};

// Title, headers and rows in columns, printable whatever names are in them.
std::string to_text(const Table& table, const TextStyle& style);

// 1234.5 -> "1234.5", 12.34 -> "12.34", 0.1234 -> "0.123": about four digits that mean something.
std::string milliseconds(double value);
std::string percent(double share);    // 0.123 -> "12.3 %"
std::string megabytes(double bytes);  // decimal
std::string compact(double value);    // 1234567 -> "1.23M"

}  // namespace tyto
