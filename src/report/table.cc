#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/columns.h"
#include "base/joined.h"
#include "base/printable.h"

namespace tyto {
namespace {

constexpr size_t kGap = 2;         // between columns
constexpr size_t kLeastText = 24;  // text keeps so many columns before others are left out for it
constexpr size_t kShortText = 6;   // and so many whatever the terminal

std::string padded(const std::string& text, size_t to, bool right) {
  const size_t columns = columns_of(text);
  const std::string space(to > columns ? to - columns : 0, ' ');
  return right ? space + text : text + space;
}

std::string without_trailing_space(std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

// All but the rows.
Table printable_frame(const Table& table) {
  Table frame{.id = table.id,
              .title = printable_line(table.title),
              .modelled = table.modelled,
              .columns = table.columns};
  for (Column& column : frame.columns) column.header = printable_line(column.header);
  for (const std::string& note : table.notes) frame.notes.push_back(printable(note));
  return frame;
}

// A row of the layers stands a little to the right.
std::string shown_cell(const TableRow& row, size_t cell) {
  if (cell >= row.cells.size()) return "";
  return (cell == 0 && row.style == RowStyle::inner ? "  " : "") + printable_line(row.cells[cell]);
}

size_t longest_word(std::string_view header) {
  size_t longest = 0;
  for (size_t begin = 0; begin < header.size();) {
    const size_t end = std::min(header.find(' ', begin), header.size());
    longest = std::max(longest, columns_of(header.substr(begin, end - begin)));
    begin = end + 1;
  }
  return longest;
}

Ink ink_of(RowStyle style) {
  if (style == RowStyle::alarm) return Ink::red;
  return style == RowStyle::best ? Ink::green : Ink::plain;
}

// What a column would like to have, and what it can do with.
struct Wish {
  size_t index = 0;
  uint8_t rank = 0;
  bool is_text = false;
  size_t header = 0, cells = 0;  // on one line
  size_t word = 0;               // the header's longest
  size_t least = 0;

  size_t whole() const { return std::max(header, cells); }
};

std::vector<Wish> wishes_of(const Table& table) {
  std::vector<Wish> wishes;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    const Column& column = table.columns[i];
    const std::string header = printable_line(column.header);
    Wish wish{.index = i, .rank = column.rank, .is_text = !column.is_number};
    wish.header = columns_of(header);
    for (const TableRow& row : table.rows)
      wish.cells = std::max(wish.cells, columns_of(shown_cell(row, i)));
    wish.word = longest_word(header);
    wish.least = std::max(wish.word, wish.is_text ? std::min(wish.cells, kLeastText) : wish.cells);
    wishes.push_back(wish);
  }
  return wishes;
}

template <typename Width>
size_t line_width(const std::vector<Wish>& wishes, Width width) {
  size_t total = wishes.empty() ? 0 : (wishes.size() - 1) * kGap;
  for (const Wish& wish : wishes) total += width(wish);
  return total;
}

size_t least_of(const Wish& wish) {
  return wish.least;
}

void leave_out_columns(std::vector<Wish>& wishes, size_t most) {
  while (line_width(wishes, least_of) > most) {
    const auto last =
        std::max_element(wishes.rbegin(), wishes.rend(),
                         [](const Wish& one, const Wish& other) { return one.rank < other.rank; });
    if (last == wishes.rend() || last->rank == 0) return;
    wishes.erase(std::next(last).base());
  }
}

// The text that has most gives way where nothing else may be left out.
void squeeze_text(std::vector<Wish>& wishes, size_t most) {
  while (line_width(wishes, least_of) > most) {
    Wish* widest = nullptr;
    for (Wish& wish : wishes)
      if (wish.is_text && wish.least > std::max(kShortText, wish.word) &&
          (widest == nullptr || wish.least >= widest->least))
        widest = &wish;
    if (widest == nullptr) return;
    --widest->least;
  }
}

// Room that is left goes to cells first, from left to right, and then to headers.
void share_out(std::vector<Wish>& wishes, size_t most) {
  for (const auto wanted : {&Wish::cells, &Wish::header})
    for (Wish& wish : wishes) {
      const size_t used = line_width(wishes, least_of);
      if (used >= most || wish.*wanted <= wish.least) continue;
      wish.least += std::min(most - used, wish.*wanted - wish.least);
    }
}

}  // namespace

TableText::TableText(const Table& table, const TextStyle& style)
    : table_(printable_frame(table)), style_(style) {
  std::vector<Wish> wishes = wishes_of(table);
  const size_t whole = line_width(wishes, [](const Wish& wish) { return wish.whole(); });
  if (style.width == 0 || whole <= style.width) {
    for (const Wish& wish : wishes) shown_.push_back({wish.index, wish.whole()});
    return;
  }
  leave_out_columns(wishes, style.width);
  squeeze_text(wishes, style.width);
  share_out(wishes, style.width);
  for (const Wish& wish : wishes) shown_.push_back({wish.index, wish.least});
  std::vector<std::string> left_out;
  for (size_t i = 0, next = 0; i < table_.columns.size(); ++i) {
    if (next < shown_.size() && shown_[next].index == i)
      ++next;
    else if (!table_.columns[i].header.empty())
      left_out.push_back(table_.columns[i].header);
  }
  if (!left_out.empty())
    table_.notes.push_back("hidden columns (`| less -S` shows them): " + joined(left_out, ", "));
}

// Cells of several lines beside each other.
std::string TableText::lines_of(const std::vector<std::vector<std::string>>& cells, Ink ink) const {
  size_t height = 0;
  for (const auto& cell : cells) height = std::max(height, cell.size());
  std::string out;
  for (size_t at = 0; at < height; ++at) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i)
      line += std::string(i == 0 ? 0 : kGap, ' ') +
              padded(at < cells[i].size() ? cells[i][at] : "", shown_[i].width,
                     table_.columns[shown_[i].index].is_number);
    out += inked(without_trailing_space(line), ink, style_) + "\n";
  }
  return out;
}

std::string TableText::head() const {
  std::string out;
  if (!table_.title.empty()) {
    const std::string title = table_.title + (table_.modelled ? "  [modelled]" : "");
    const size_t columns = columns_of(title);
    const bool fits = style_.width == 0 || columns <= style_.width;
    const auto lines = fits ? std::vector{title} : wrapped_lines(title, style_.width);
    for (const std::string& line : lines) out += inked(line, Ink::bold, style_) + "\n";
    out += inked(std::string(fits ? columns : style_.width, '-'), Ink::dim, style_) + "\n";
  }
  std::vector<std::vector<std::string>> cells;
  size_t height = 0;
  for (const ShownColumn& column : shown_) {
    const std::string& header = table_.columns[column.index].header;
    cells.push_back(columns_of(header) <= column.width ? std::vector{header}
                                                       : wrapped_lines(header, column.width));
    height = std::max(height, cells.back().size());
  }
  for (auto& cell : cells) cell.insert(cell.begin(), height - cell.size(), "");
  const bool has_headers = std::any_of(table_.columns.begin(), table_.columns.end(),
                                       [](const Column& each) { return !each.header.empty(); });
  return has_headers ? out + lines_of(cells, Ink::bold) : out;
}

std::string TableText::row(const TableRow& row) const {
  std::vector<std::vector<std::string>> cells;
  for (size_t i = 0; i < shown_.size(); ++i) {
    const ShownColumn& column = shown_[i];
    const std::string text = shown_cell(row, column.index);
    const bool fits = style_.width == 0 || table_.columns[column.index].is_number ||
                      columns_of(text) <= column.width;
    const bool is_wrapped = i + 1 == shown_.size() && text.find(' ') != std::string::npos;
    if (fits)
      cells.push_back({text});
    else if (is_wrapped)
      cells.push_back(wrapped_lines(text, column.width));
    else
      cells.push_back({text.find(' ') == std::string::npos ? shortened(text, column.width)
                                                           : shortened_at_end(text, column.width)});
  }
  return lines_of(cells, ink_of(row.style));
}

std::string TableText::foot() const {
  std::string out;
  for (const std::string& note : table_.notes)
    for (const std::string& line :
         style_.width == 0 ? std::vector{note} : wrapped_lines(note, style_.width))
      out += inked(line, Ink::dim, style_) + "\n";
  return out;
}

std::string to_text(const Table& table, const TextStyle& style) {
  const TableText text(table, style);
  std::string out = text.head();
  for (const TableRow& row : table.rows) out += text.row(row);
  return out + text.foot();
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
