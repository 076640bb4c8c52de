#include "shell/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

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

}  // namespace tyto
