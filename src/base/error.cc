#include "base/error.h"

#include <simdjson.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tyto {
namespace {

// Room for the longest path and a sentence.
constexpr size_t kMaxLine = 5000;

std::string one_line(std::string_view text) {
  const bool valid = simdjson::validate_utf8(text.data(), text.size());
  size_t end = text.size();
  if (end > kMaxLine) {
    end = kMaxLine;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  }
  std::string line;
  for (const char character : text.substr(0, end)) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !valid))
      line += fmt::format("\\x{:02x}", byte);
    else
      line += character;
  }
  if (end < text.size()) line += "...";
  return line;
}

}  // namespace

Error::Error(ErrorCode error_code, const std::string& where, const std::string& what,
             const std::string& next_step)
    : std::runtime_error(one_line(where.empty() ? what : where + ": " + what)),
      code(error_code),
      hint(next_step) {}

void assert_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tyto: internal error: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace tyto
