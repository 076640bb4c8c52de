// Pieces of a page that several reports use. Inside src/report only.
#pragma once

#include <string>

#include "report/table.h"

namespace tyto {

std::string badge(bool modelled);
std::string table_html(const Table& table);
std::string notes_html(const Table& table);
std::string folded(const std::string& summary, const std::string& content);
std::string section(const Table& table, const std::string& drawings);  // long tables are folded
std::string tile(const std::string& value, const std::string& label, bool alarm = false);

}  // namespace tyto
