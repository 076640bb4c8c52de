#include "shell/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <mutex>

#include "base/spelling.h"
#include "base/utf8.h"
#include "shell/terminal.h"

namespace tyto {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBetweenBars = std::chrono::milliseconds(100);
constexpr size_t kLongestBar = 30, kShortestBar = 6;
constexpr double kLongWork_s = 5;    // from then on people want to know how long
constexpr double kFirstGuess_s = 1;  // earlier ones are too wild

std::atomic<bool> is_drawn = false;

void write_to_stderr(std::string_view text) noexcept {
  (void)!::write(STDERR_FILENO, text.data(), text.size());
}

std::string time_left(const ProgressState& state) {
  const double share = static_cast<double>(state.done) / static_cast<double>(state.total);
  if (state.done == 0 || state.seconds < kFirstGuess_s || state.seconds / share < kLongWork_s)
    return "";
  const double left = state.seconds / share - state.seconds;
  if (left < 100) return fmt::format("  {:.0f} s left", left);
  return fmt::format("  {:.0f} min left", left / 60);
}

// What is drawn now, and since when.
class ProgressLine {
 public:
  void draw(std::string_view what, uint64_t done, uint64_t total) {
    const std::lock_guard lock(mutex_);
    if (total > 0 && done >= total) {
      what_.clear();  // the same work again is another piece of it
      return erase_progress();
    }
    const Clock::time_point now = Clock::now();
    const bool is_new = what != what_;
    if (is_new) {
      what_ = what;
      began_ = now;
    } else if (now - drawn_ < kBetweenBars) {
      return;
    }
    drawn_ = now;
    const double seconds = std::chrono::duration<double>(now - began_).count();
    // The last column stays free: some terminals begin a new line behind it.
    const size_t columns = std::max<size_t>(stderr_columns(), 2) - 1;
    const std::string shown = printable_line(what_);
    is_drawn = true;
    write_to_stderr("\r" + progress_text({shown, done, total, seconds}, columns) + "\033[K");
  }

 private:
  std::mutex mutex_;
  std::string what_;
  Clock::time_point began_, drawn_;
};

}  // namespace

std::string progress_text(const ProgressState& state, size_t columns) {
  if (state.total == 0) {
    const std::string tail =
        state.seconds < kFirstGuess_s ? " …" : fmt::format(" … {:.0f} s", state.seconds);
    const size_t taken = columns_of(tail);
    return shortened(shortened(state.what, columns > taken ? columns - taken : 0) + tail, columns);
  }
  const uint64_t percent =
      std::min<uint64_t>(100, static_cast<uint64_t>(static_cast<double>(state.done) * 100.0 /
                                                    static_cast<double>(state.total)));
  const std::string tail = fmt::format(" {:3}%{}", percent, time_left(state));
  const size_t taken = columns_of(state.what) + columns_of(tail) + 3;  // " [" and "]"
  if (columns < taken + kShortestBar) {
    const size_t room = columns > tail.size() ? columns - tail.size() : 0;
    return shortened(shortened(state.what, room) + tail, columns);
  }
  const size_t length = std::min(kLongestBar, columns - taken);
  const size_t filled = length * percent / 100;
  return fmt::format("{} [{}{}]{}", state.what, std::string(filled, '#'),
                     std::string(length - filled, '.'), tail);
}

void draw_progress(std::string_view what, uint64_t done, uint64_t total) {
  static ProgressLine line;
  line.draw(what, done, total);
}

void announce(std::string_view what) {
  if (const Progress progress = progress_bar()) progress(what, 0, 0);
}

void erase_progress() noexcept {
  if (is_drawn.exchange(false)) write_to_stderr("\r\033[K");
}

namespace {

using Seconds = std::chrono::duration<double>;

constexpr Seconds kBetweenDrawings(0.1);
constexpr Seconds kBetweenLines(5);
constexpr Seconds kRateWindow(10);  // how fast it was before that says little about what is left
constexpr Seconds kShortestWindow(0.5);

size_t stderr_width() {
  winsize size = {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

DownloadMeter::DownloadMeter() : is_terminal_(::isatty(STDERR_FILENO) != 0) {}

void DownloadMeter::say(const std::string& line) {
  if (is_terminal_) draw_line(printable_line(line));
}

void DownloadMeter::show(std::string_view what, uint64_t done, uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (what != what_) {
    what_ = what;
    samples_.clear();
    shown_ = is_terminal_ ? Clock::time_point() : now;
  }
  samples_.push_back({now, done});
  while (samples_.size() > 2 && now - samples_.front().time > kRateWindow) samples_.pop_front();
  if (done >= total) return clear();
  if (now - shown_ < (is_terminal_ ? kBetweenDrawings : kBetweenLines)) return;
  shown_ = now;
  draw(done, total);
}

void DownloadMeter::draw(uint64_t done, uint64_t total) {
  constexpr size_t kBar = 20;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  const std::string text =
      fmt::format("{}/{}{}", human_bytes(done), human_bytes(total), speed(total - done));
  if (!is_terminal_) return note(fmt::format("{} {:.0f}%: {}", what_, share * 100, text));
  const auto filled = static_cast<size_t>(share * kBar);
  draw_line(fmt::format("{:<8} {:3.0f}% [{}{}] {}", what_, share * 100, std::string(filled, '#'),
                        std::string(kBar - filled, '.'), text));
}

void DownloadMeter::draw_line(std::string line) {
  line.resize(std::min(line.size(), stderr_width() - 1));
  const size_t columns = line.size();
  if (columns < drawn_) line.append(drawn_ - columns, ' ');
  drawn_ = columns;
  std::fprintf(stderr, "\r%s", line.c_str());
  std::fflush(stderr);
}

std::string DownloadMeter::speed(uint64_t left) const {
  const Sample& first = samples_.front();
  const Sample& last = samples_.back();
  const Seconds time = last.time - first.time;
  if (time < kShortestWindow || last.done <= first.done) return "";
  const double rate = static_cast<double>(last.done - first.done) / time.count();
  return fmt::format(" {}/s {} left", human_bytes(static_cast<uint64_t>(rate)),
                     clock_time(static_cast<double>(left) / rate));
}

void DownloadMeter::clear() {
  if (drawn_ > 0) std::fprintf(stderr, "\r%s\r", std::string(drawn_, ' ').c_str());
  std::fflush(stderr);
  drawn_ = 0;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<uint64_t>(std::clamp(seconds, 0.0, 3.6e8));
  const uint64_t hours = whole / 3600;
  const uint64_t minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace tyto
