#include "trace/report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/printable.h"

namespace tyto {
namespace {

// Columns on a terminal: characters, not bytes. The reports use no wide or combining ones.
size_t width(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::string padded(const std::string& text, size_t to, bool right) {
  const std::string space(to > width(text) ? to - width(text) : 0, ' ');
  return right ? space + text : text + space;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

Table printable_table(Table table) {
  table.title = printable_line(table.title);
  for (Column& column : table.columns) column.header = printable_line(column.header);
  for (TableRow& row : table.rows)
    for (std::string& cell : row.cells) cell = printable_line(cell);
  for (std::string& note : table.notes) note = printable(note);
  return table;
}

// A row of the layers stands a little to the right.
std::string shown(const TableRow& row, size_t cell) {
  return (cell == 0 && row.style == RowStyle::inner ? "  " : "") + row.cells[cell];
}

std::vector<size_t> column_widths(const Table& table) {
  std::vector<size_t> widths;
  for (const Column& column : table.columns) widths.push_back(width(column.header));
  for (const TableRow& row : table.rows)
    for (size_t i = 0; i < row.cells.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], width(shown(row, i)));
  return widths;
}

size_t line_width(const Table& table) {
  size_t total = 0;
  for (const size_t each : column_widths(table)) total += each + (total == 0 ? 0 : 2);
  return total;
}

void leave_out_columns(Table& table, size_t most) {
  std::string left_out;
  while (most > 0 && line_width(table) > most) {
    const auto last = std::max_element(
        table.columns.rbegin(), table.columns.rend(),
        [](const Column& one, const Column& other) { return one.rank < other.rank; });
    if (last == table.columns.rend() || last->rank == 0) break;
    const auto index = std::distance(table.columns.begin(), last.base()) - 1;
    left_out = last->header + (left_out.empty() ? "" : ", ") + left_out;
    table.columns.erase(table.columns.begin() + index);
    for (TableRow& row : table.rows)
      if (std::cmp_less(index, row.cells.size())) row.cells.erase(row.cells.begin() + index);
  }
  if (!left_out.empty()) table.notes.push_back("not shown for want of room: " + left_out);
}

}  // namespace

std::string to_text(const Table& raw, const TextStyle& style) {
  Table table = printable_table(raw);
  leave_out_columns(table, style.width);
  std::string out = table.title + (table.modelled ? "  [modelled]" : "");
  out += "\n" + std::string(width(out), '-') + "\n";
  const std::vector<size_t> widths = column_widths(table);
  std::string header;
  for (size_t i = 0; i < widths.size(); ++i)
    header += (i == 0 ? "" : "  ") +
              padded(table.columns[i].header, widths[i], table.columns[i].is_number);
  header = without_trailing_space(header);
  if (!header.empty()) out += header + "\n";
  for (const TableRow& row : table.rows) {
    std::string line;
    for (size_t i = 0; i < row.cells.size() && i < widths.size(); ++i)
      line += (i == 0 ? "" : "  ") + padded(shown(row, i), widths[i], table.columns[i].is_number);
    line = without_trailing_space(line);
    const bool is_red = row.style == RowStyle::alarm && style.colour;
    out += is_red ? "\033[31m" + line + "\033[0m\n" : line + "\n";
  }
  for (const std::string& note : table.notes) out += note + "\n";
  return out;
}

std::string milliseconds(double value) {
  const double size = std::abs(value);
  if (size < 5e-7) return "0";
  if (size >= 100) return fmt::format("{:.1f}", value);
  if (size >= 10) return fmt::format("{:.2f}", value);
  if (size >= 0.1) return fmt::format("{:.3f}", value);
  return fmt::format("{:.4f}", value);
}

std::string percent(double share) {
  return fmt::format("{:.1f} %", share * 100);
}

std::string megabytes(double bytes) {
  if (bytes == 0) return "0";
  return fmt::format("{:.3g}", bytes / 1e6);
}

std::string compact(double value) {
  constexpr std::array<const char*, 4> kUnits = {"", "k", "M", "G"};
  size_t unit = 0;
  for (; std::abs(value) >= 1000 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return fmt::format("{:.3g}{}", value, kUnits[unit]);
}

}  // namespace tyto
