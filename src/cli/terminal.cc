#include "cli/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"

namespace tyto {
namespace {

constexpr size_t kUsualWidth = 80;

// 0: no terminal.
size_t width_of(int stream) {
  if (::isatty(stream) == 0) return 0;
  winsize size = {};
  const bool is_known = ::ioctl(stream, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return is_known ? size.ws_col : kUsualWidth;
}

void write_out(std::string_view text, std::FILE* stream, const char* name) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (!written || std::fflush(stream) != 0)
    fail_input(name, "cannot write: {}", std::strerror(errno));
}

}  // namespace

Progress progress_bar() {
  if (::isatty(STDERR_FILENO) == 0) return {};
  return [shown = -1](std::string_view what, uint64_t done, uint64_t total) mutable {
    constexpr int kWidth = 30;
    const int percent = total == 0 ? 100 : static_cast<int>(done * 100 / total);
    if (percent == shown) return;
    shown = percent < 100 ? percent : -1;  // the next piece of work starts a new bar
    const auto filled = static_cast<size_t>(std::clamp(percent * kWidth / 100, 0, kWidth));
    std::string line = fmt::format("\r{:<18} [{}{}] {:3}%", what, std::string(filled, '#'),
                                   std::string(kWidth - filled, '.'), percent);
    if (percent >= 100) line = fmt::format("\r{}\r", std::string(line.size(), ' '));
    std::fputs(line.c_str(), stderr);
    std::fflush(stderr);
  };
}

void print(std::string_view text) {
  write_out(printable(text), stdout, "stdout");
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

void note(std::string_view line) {
  print_to_stderr(printable_line(line) + "\n");
}

bool is_stdout_terminal() {
  return ::isatty(STDOUT_FILENO) != 0;
}

TextStyle stdout_style() {
  return {.width = width_of(STDOUT_FILENO), .colour = is_stdout_terminal() && is_colour_wanted()};
}

TextStyle stderr_style() {
  return {.width = width_of(STDERR_FILENO)};
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace tyto
