// Where a result comes from, and putting it into a file.
#pragma once

#include <string>

#include "engine/engine.h"
#include "trace/receipt.h"

namespace tyto {

std::string command_line();  // of this process, quoted where a shell would need it
std::string utc_now();       // 2026-01-31T12:00:00Z

ReceiptContext receipt_context(const Engine& engine, const std::string& fusion);

void write_file(const std::string& path, const std::string& text);  // whole or not at all

}  // namespace tyto
