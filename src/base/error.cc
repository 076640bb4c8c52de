#include "base/error.h"

#include <cstdio>
#include <cstdlib>

#include "base/redaction.h"
#include "base/utf8.h"

namespace tyto {
namespace {

// Room for the longest path and a sentence.
constexpr size_t kMaxLine = 5000;

}  // namespace

Error::Error(ErrorCode error_code, const std::string& where, const std::string& what,
             const std::string& next_step)
    : std::runtime_error(
          printable_line(redacted(where.empty() ? what : where + ": " + what), kMaxLine)),
      code(error_code),
      hint(printable_line(redacted(next_step), kMaxLine)) {}

void assert_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tyto: internal error: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace tyto
