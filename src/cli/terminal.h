// What people see while they wait: progress on stderr, text on stdout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/progress.h"

namespace tyto {

// Draws a bar on stderr when that is a terminal, and nothing otherwise.
Progress progress_bar();

void print(std::string_view text);  // to stdout, flushed; an unwritable stdout is an Error
void note(std::string_view line);   // to stderr, with a newline

// 1536 -> "1.5 KiB"
std::string human_bytes(uint64_t bytes);

}  // namespace tyto
