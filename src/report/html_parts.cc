#include "report/html_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/svg.h"

namespace tyto {
namespace {

constexpr size_t kOpenRows = 14;  // longer tables are folded

}  // namespace

std::string badge(bool modelled) {
  return modelled ? "<span class=\"badge\">modelled</span>" : "";
}

std::string table_html(const Table& table) {
  std::string out = "<div class=\"scroll\"><table>";
  const bool has_header = std::any_of(table.columns.begin(), table.columns.end(),
                                      [](const Column& column) { return !column.header.empty(); });
  if (has_header) {
    out += "<thead><tr>";
    for (const Column& column : table.columns)
      out += fmt::format("<th{}>{}</th>", column.is_number ? " class=\"n\"" : "",
                         escaped(column.header));
    out += "</tr></thead>";
  }
  out += "<tbody>";
  for (const TableRow& row : table.rows) {
    constexpr const char* kClasses[] = {"", " class=\"inner\"", " class=\"total\"",
                                        " class=\"alarm\"", " class=\"best\""};
    out += fmt::format("<tr{}>", kClasses[static_cast<size_t>(row.style)]);
    for (size_t i = 0; i < row.cells.size(); ++i) {
      const bool is_last_text = !table.columns[i].is_number && i + 1 == table.columns.size();
      out += fmt::format("<td{}>{}</td>",
                         table.columns[i].is_number ? " class=\"n\""
                         : is_last_text             ? " class=\"w\""
                                                    : "",
                         escaped(row.cells[i]));
    }
    out += "</tr>";
  }
  out += "</tbody></table></div>";
  return out;
}

std::string folded(const std::string& summary, const std::string& content) {
  return "<details><summary>" + escaped(summary) + "</summary>" + content + "</details>";
}

std::string notes_html(const Table& table) {
  if (table.notes.empty()) return "";
  std::string out = "<div class=\"notes\">";
  for (const std::string& note : table.notes) out += "<p>" + escaped(note) + "</p>";
  return out + "</div>";
}

std::string section(const Table& table, const std::string& drawings) {
  std::string rows = table.rows.empty() ? "" : table_html(table);
  if (table.rows.size() > kOpenRows) rows = folded(fmt::format("{} rows", table.rows.size()), rows);
  return fmt::format("<section id=\"{}\"><h2>{}{}</h2>{}{}{}</section>", table.id,
                     escaped(table.title), badge(table.modelled), drawings, rows,
                     notes_html(table));
}

std::string tile(const std::string& value, const std::string& label, bool alarm) {
  return fmt::format("<div class=\"tile{}\"><b>{}</b><span>{}</span></div>", alarm ? " alarm" : "",
                     escaped(value), escaped(label));
}

}  // namespace tyto
