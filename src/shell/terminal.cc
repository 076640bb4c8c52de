#include "shell/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>

#include "base/environment.h"
#include "base/error.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "shell/progress_line.h"
#include "shell/signals.h"

namespace tyto {
namespace {

constexpr size_t kUsualWidth = 80;

// 0 where the descriptor is not a terminal.
size_t columns_of_stream(int descriptor) {
  if (::isatty(descriptor) == 0) return 0;
  winsize size = {};
  const bool is_known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsualWidth;
}

TextStyle style_of_stream(int descriptor) {
  const size_t columns = columns_of_stream(descriptor);
  return {.width = columns, .colour = columns > 0 && is_colour_wanted() && !is_terminal_dumb()};
}

bool is_written(std::string_view text, std::FILE* stream) {
  erase_progress();
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  return written && std::fflush(stream) == 0;
}

void write_out(std::string_view text, std::FILE* stream, const char* name) {
  if (is_written(text, stream)) return;
  if (errno == EPIPE) end_by_closed_pipe();
  fail_input(name, "cannot write: {}", std::strerror(errno));
}

// Prose, broken at spaces where a terminal would break it anywhere.
template <typename Shown = std::identity>
std::string fitted(const std::string& text, size_t columns, Shown shown = {}) {
  const bool is_ended = text.ends_with('\n');
  const std::string lines = text.substr(0, text.size() - (is_ended ? 1 : 0));
  return joined(columns == 0 ? std::vector{lines} : wrapped_lines(lines, columns), "\n", shown) +
         (is_ended ? "\n" : "");
}

}  // namespace

Progress progress_bar() {
  if (stderr_columns() == 0 || is_terminal_dumb()) return {};
  return draw_progress;
}

void print(std::string_view text) {
  write_out(printable(text), stdout, "stdout");
}

void print_prose(std::string_view text, Ink ink) {
  const TextStyle style = stdout_style();
  write_out(fitted(printable(text), style.width,
                   [&](const std::string& line) { return inked(line, ink, style); }),
            stdout, "stdout");
}

void print_coloured(std::string_view text) {
  write_out(text, stdout, "stdout");
}

void print_data(std::string_view bytes) {
  if (is_stdout_terminal()) return print(bytes);
  write_out(bytes, stdout, "stdout");
}

void print_to_stderr(std::string_view text) {
  write_out(printable(text), stderr, "stderr");
}

void note(std::string_view line, Ink ink) noexcept {
  static std::atomic<uint64_t> lost = 0;  // lines since the last that was written
  const uint64_t before = lost.exchange(0);
  try {
    const TextStyle style = stderr_style();
    // The line break ends a line of which only a part was written.
    std::string text =
        before == 0 ? "" : fmt::format("\n(lines that could not be written: {})\n", before);
    text += fitted(printable_line(redacted(line)) + "\n", style.width,
                   [&](const std::string& part) { return inked(part, ink, style); });
    if (is_written(text, stderr)) return;
  } catch (...) {
    // There is no memory for the line, which is as good as lost.
  }
  lost += before + 1;
}

void hold_closed_streams() {
  // Opened the wrong way round, they go on to refuse what a closed one refuses.
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (::fcntl(descriptor, F_GETFD) < 0)
      (void)!::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

void end_answer_on_terminal() {
  if (stderr_columns() > 0) note("");
}

bool is_stdout_terminal() {
  return ::isatty(STDOUT_FILENO) != 0;
}

size_t stderr_columns() {
  return columns_of_stream(STDERR_FILENO);
}

TextStyle stdout_style() {
  return style_of_stream(STDOUT_FILENO);
}

TextStyle stderr_style() {
  return style_of_stream(STDERR_FILENO);
}

}  // namespace tyto
