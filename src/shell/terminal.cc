#include "shell/terminal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <mutex>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/redaction.h"
#include "base/spelling.h"
#include "base/utf8.h"
#include "shell/progress.h"
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

// How long a note may wait until stderr takes it; negative: as long as it takes.
std::atomic<int> longest_note_wait_ms = -1;

// In parts that a pipe takes as a whole when it takes anything, by one thread at a time. Another
// process that fills the same pipe between the two calls can still make it wait.
bool is_noted(std::string_view text, int wait_ms) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  erase_progress();
  while (!text.empty()) {
    pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    const int count = ::poll(&ready, 1, wait_ms);
    if (count < 0 && errno == EINTR) continue;
    if (count != 1 || (ready.revents & POLLOUT) == 0) return false;
    const ssize_t written =
        ::write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
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
    const int wait_ms = longest_note_wait_ms;
    if (is_noted(text, before == 0 ? wait_ms : std::min(0, wait_ms))) return;
  } catch (...) {
    // There is no memory for the line, which is as good as lost.
  }
  lost += before + 1;
}

void bound_waits_of_notes(std::chrono::milliseconds most) {
  longest_note_wait_ms = static_cast<int>(most.count());
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

namespace {

constexpr size_t kTab = 8;
constexpr size_t kFence = 3;
constexpr size_t kIndent = 2;

bool may_be_fence(char32_t code_point) {
  return code_point == U'`' || code_point == U'~';
}

}  // namespace

WordWrap::WordWrap(size_t columns) : columns_(columns) {}

std::string WordWrap::push(std::string_view text) {
  if (columns_ == 0) return std::string(text);
  std::string out;
  const std::string whole = std::exchange(incomplete_, "") + std::string(text);
  std::string_view rest = whole;
  while (!rest.empty()) {
    const Utf8Head head = utf8_head(rest);
    if (head.kind == Utf8Head::Kind::truncated) {
      incomplete_ = rest;
      break;
    }
    take(rest.substr(0, head.bytes), head.code_point, out);
    rest.remove_prefix(head.bytes);
  }
  return out;
}

std::string WordWrap::finish() {
  std::string out;
  end_word(out);
  release(out);
  return out + std::exchange(incomplete_, "");
}

void WordWrap::begin_line() {
  column_ = 0;
}

void WordWrap::take(std::string_view character, char32_t code_point, std::string& out) {
  if (code_point == U'\n') return end_line(out);
  const bool is_space = code_point == U' ' || code_point == U'\t';
  if (is_space) end_word(out);
  is_in_long_word_ = is_in_long_word_ && !is_space;
  look_at_beginning(code_point);
  const size_t width = columns_of(character);
  if (is_left_alone_ || is_in_long_word_) {
    release(out);
    out += character;
    column_ = (column_ + width) % columns_;
    return;
  }
  if (is_space) {
    const size_t at = column_ + spaces_width_;
    spaces_width_ += code_point == U'\t' ? kTab - at % kTab : 1;
    spaces_ += character;
    return;
  }
  if (width == 2) end_word(out);
  word_ += character;
  word_width_ += width;
  if (width == 2 || word_width_ > columns_) end_word(out);
}

// Spaces for which there is no room would begin a line of their own.
void WordWrap::end_line(std::string& out) {
  end_word(out);
  if (column_ + spaces_width_ > columns_) {
    spaces_.clear();
    spaces_width_ = 0;
  }
  release(out);
  out += '\n';
  column_ = seen_ = fence_length_ = 0;
  is_left_alone_ = fence_ != 0;
  is_in_long_word_ = false;
}

// What a line begins with says whether it is prose.
void WordWrap::look_at_beginning(char32_t code_point) {
  if (code_point == U'\t' && seen_ == 0) is_left_alone_ = true;
  if (code_point == U' ') {
    if (seen_ == 0 && spaces_.size() + 1 >= kIndent) is_left_alone_ = true;
    return;
  }
  if (code_point == U'\t') return;
  if (seen_++ == 0) {
    first_ = code_point;
    if (code_point == U'|') is_left_alone_ = true;
  }
  if (!may_be_fence(first_) || code_point != first_ || fence_length_ + 1 != seen_) return;
  if (++fence_length_ != kFence) return;
  is_left_alone_ = true;
  if (fence_ == 0)
    fence_ = first_;
  else if (fence_ == first_)
    fence_ = 0;
}

// Onto this line where there is room, else onto the next one, without the spaces before it.
void WordWrap::end_word(std::string& out) {
  if (word_.empty()) return;
  const bool is_longer = word_width_ > columns_;
  if (column_ > 0 && !is_longer && column_ + spaces_width_ + word_width_ > columns_) {
    out += '\n';
    column_ = 0;
    spaces_.clear();
    spaces_width_ = 0;
  }
  release(out);
  is_in_long_word_ = is_longer;
  if (is_longer) column_ %= columns_;
}

void WordWrap::release(std::string& out) {
  out += std::exchange(spaces_, "") + std::exchange(word_, "");
  column_ += std::exchange(spaces_width_, 0) + std::exchange(word_width_, 0);
}

namespace {

constexpr int kTerminal = STDERR_FILENO;

int nested = 0;
std::atomic<bool> is_quiet = false;

bool is_ours() {
  return ::isatty(STDOUT_FILENO) != 0 && ::isatty(kTerminal) != 0 &&
         ::tcgetpgrp(kTerminal) == ::getpgrp();
}

// The other attributes may have changed meanwhile, and stay as they are. A program in the
// background would be stopped here.
void set_echo(bool is_on) noexcept {
  termios attributes = {};
  if (!is_ours() || ::tcgetattr(kTerminal, &attributes) != 0) return;
  attributes.c_lflag = is_on ? attributes.c_lflag | ECHO : attributes.c_lflag & ~tcflag_t{ECHO};
  ::tcsetattr(kTerminal, TCSANOW, &attributes);
}

bool is_echoing() {
  termios attributes = {};
  return ::tcgetattr(kTerminal, &attributes) == 0 && (attributes.c_lflag & ECHO) != 0;
}

// Ctrl-Z: the shell gets the terminal as it was, and the program makes it quiet again when it goes
// on.
void stop(int) {
  const int error = errno;
  const bool was_quiet = is_quiet;
  restore_echo();
  struct sigaction usual = {}, ours = {};
  usual.sa_handler = SIG_DFL;
  ::sigaction(SIGTSTP, &usual, &ours);
  sigset_t signals, before;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGTSTP);
  ::raise(SIGTSTP);
  ::sigprocmask(SIG_UNBLOCK, &signals, &before);  // here it stops
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::sigaction(SIGTSTP, &ours, nullptr);
  if (was_quiet) {
    is_quiet = true;
    set_echo(false);
  }
  errno = error;
}

void catch_stops() {
  struct sigaction action = {};
  if (::sigaction(SIGTSTP, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action = {};
  action.sa_handler = stop;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTSTP, &action, nullptr);
}

}  // namespace

QuietTerminal::QuietTerminal() {
  if (nested++ > 0 || !is_ours() || !is_echoing()) return;
  catch_stops();
  is_quiet = true;
  set_echo(false);
}

QuietTerminal::~QuietTerminal() {
  if (--nested == 0) restore_echo();
}

void restore_echo() noexcept {
  if (is_quiet.exchange(false)) set_echo(true);
}

}  // namespace tyto
