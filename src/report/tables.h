#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "power/energy_meter.h"
#include "report/summary.h"
#include "trace/profile.h"

namespace tyto {

// A table as data, so that the text and the HTML report show the same rows.

enum class RowStyle : uint8_t {
  plain,
  inner,  // one of the layers
  total,  // sums up the rows above
  alarm,  // must not be overlooked
  best,   // recommended
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

struct Table {
  std::string id;         // "dataflow-prefill"
  std::string title;      // may be empty
  bool modelled = false;  // shows a virtual device's time somewhere
  std::vector<Column> columns = {};
  std::vector<TableRow> rows = {};
  std::vector<std::string> notes = {};
};

// A table fitted to its reader, printable whatever names are in it. Where lines are too short
// headers are broken at spaces, text is shortened, or broken where its column is the last, and
// columns are left out by rank; numbers always stand whole.
class TableText {
 public:
  // The table's rows say how wide columns are.
  TableText(const Table& table, const TextStyle& style);

  std::string head() const;  // title and headers
  std::string row(const TableRow& row) const;
  std::string foot() const;  // notes

 private:
  struct ShownColumn {
    size_t index;  // in the table
    size_t width;
  };
  std::string lines_of(const std::vector<std::vector<std::string>>& cells, Ink ink) const;

  Table table_;
  TextStyle style_;
  std::vector<ShownColumn> shown_;
};

// All of it, for a table whose rows are all there.
std::string to_text(const Table& table, const TextStyle& style);

// 1234.5 -> "1234.5", 12.34 -> "12.34", 0.1234 -> "0.123": about four digits that mean something.
std::string milliseconds(double value);
std::string percent(double share);    // 0.123 -> "12.3 %"
std::string megabytes(double bytes);  // decimal
std::string compact(double value);    // 1234567 -> "1.23M"

// The sections of a report, one function each. Inside src/report only.

void add_facts(const Profile& profile, Table& table);  // model, options, devices; as notes
Table headline_table(const Profile& profile, const ProfileRun& run, const Summary& summary);
Table flow_table(const PhaseSummary& phase, const Summary& summary, bool prefill);
Table attribution_table(const Summary& summary);
Table layer_table(const Summary& summary);
Table call_table(const Profile& profile, const Summary& summary);
Table host_table(const Summary& summary);
Table buffer_table(const Summary& summary);
Table dispatch_table(const Profile& profile, const ProfileRun& run, const Summary& summary);
Table operator_table(const Summary& summary);
Table trend_table(const Summary& summary);
Table setup_table(const Profile& profile, const Summary& summary);
Table receipt_table(const Profile& profile, const ProfileRun& run);
Table sweep_table(const Profile& profile);

}  // namespace tyto
